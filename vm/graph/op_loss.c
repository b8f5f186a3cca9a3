/* op_loss.c - cross entropy in three steps, so that vocabulary parallelism needs two
 * small reductions: the maximum, then the sum of exponentials together with the label's
 * logit. */
#include "rules.h"

weft_status infer_ce_max(Graph *g, Op *op, weft_error *e) {
  const Tensor *x = op_in(g, op, 0);
  TRY(need_numbers(g, op, 0, e));
  if (x->ndim < 2) return shape_error(g, op, e, "logits need at least 2 dimensions");
  Dim dim[MAX_DIM];
  memcpy(dim, x->dim, sizeof dim);
  if (!op->attr.vocab) op->attr.vocab = (int32_t)dim[x->ndim - 1].size;
  return op_result(g, op, 0, DT_F32, dim, x->ndim - 1);
}

weft_status infer_ce_sum(Graph *g, Op *op, weft_error *e) {
  const Tensor *x = op_in(g, op, 0), *labels = op_in(g, op, 1);
  TRY(need_numbers(g, op, 0, e));
  if (labels->dtype != DT_I32 || labels->ndim != x->ndim - 1 ||
      !same_rows(labels, x, labels->ndim))
    return shape_error(g, op, e, "labels must be integers, one for each row of logits");
  const Tensor *m = op_in(g, op, 2);
  if (m->dtype != DT_F32 || m->ndim != labels->ndim || !same_rows(m, x, m->ndim))
    return shape_error(g, op, e, "the maximum must be what ce_max made");
  Dim dim[MAX_DIM];
  int ndim = x->ndim;
  memcpy(dim, x->dim, sizeof dim);
  if (!op->attr.vocab) op->attr.vocab = (int32_t)dim[ndim - 1].size;
  dim[ndim - 1] = (Dim){.size = 2};
  return op_result(g, op, 0, DT_F32, dim, ndim);
}

int ce_loss_sources(const Op *op) {
  int at = op->attr.z != 0 ? 3 : 2;
  return op->nin > at ? at : -1;
}

/* Whether operand i has a value of the type for each label. */
static bool is_each(Graph *g, const Op *op, int i, DType t) {
  const Tensor *x = op_in(g, op, i), *labels = op_in(g, op, 1);
  return x->dtype == t && x->ndim == labels->ndim && same_rows(x, labels, x->ndim);
}

weft_status infer_ce_loss(Graph *g, Op *op, weft_error *e) {
  bool z = op->attr.z != 0;
  if (op->nin != 2 + z && op->nin != 3 + z)
    return shape_error(g, op, e, "takes what ce_sum made, labels%s and maybe sources",
                       z ? ", the maximum" : "");
  const Tensor *s = op_in(g, op, 0), *labels = op_in(g, op, 1);
  int sources = ce_loss_sources(op);
  if (sources >= 0 && !is_each(g, op, sources, DT_I32))
    return shape_error(g, op, e, "sources must be integers, one for each label");
  if (z && !is_each(g, op, 2, DT_F32))
    return shape_error(g, op, e, "the maximum must be what ce_max made");
  if (labels->dtype != DT_I32 || s->dtype != DT_F32 || s->ndim != labels->ndim + 1 ||
      !same_rows(s, labels, labels->ndim) || s->dim[s->ndim - 1].size != 2)
    return shape_error(g, op, e, "needs what ce_sum made, and labels");
  Dim one = {.size = 1};
  return op_result(g, op, 0, DT_F32, &one, 1);
}

GRAD(grad_ce_sum, OP_ce_dx, (X0, X1, X2, Y0, DY0), (0))
