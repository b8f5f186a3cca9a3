/* op_row_loss.c - shapes and gradients of the ops that losses of a plan's own are written
 * of: numbers of f32 for tokens, sequences and pairs, and divergences of two logits. */
#include "rules.h"

static weft_status need_f32(Graph *g, const Op *op, int i, int ndim, weft_error *e) {
  const Tensor *x = op_in(g, op, i);
  if (x->dtype == DT_F32 && x->ndim == ndim) return WEFT_OK;
  return shape_error(g, op, e,
                     ndim == 1 ? "operand %d must be f32, one number for each sequence"
                               : "operand %d must be f32 (batch, seq), a number a token",
                     i + 1);
}

/* ---- tokens ---- */

weft_status infer_ce_losses(Graph *g, Op *op, weft_error *e) {
  const Tensor *s = op_in(g, op, 0), *labels = op_in(g, op, 1);
  if (labels->dtype != DT_I32 || s->dtype != DT_F32 || s->ndim != labels->ndim + 1 ||
      !same_rows(s, labels, labels->ndim) || s->dim[s->ndim - 1].size != 2)
    return shape_error(g, op, e, "needs what ce_sum made, and labels");
  return op_result(g, op, 0, DT_F32, s->dim, s->ndim - 1);
}

weft_status infer_label_mask(Graph *g, Op *op, weft_error *e) {
  const Tensor *labels = op_in(g, op, 0);
  if (labels->dtype != DT_I32) return shape_error(g, op, e, "labels must be integers");
  return op_result(g, op, 0, DT_F32, labels->dim, labels->ndim);
}

/* ---- sums ---- */

weft_status infer_row_sums(Graph *g, Op *op, weft_error *e) {
  TRY(need_f32(g, op, 0, 2, e));
  return op_result(g, op, 0, DT_F32, op_in(g, op, 0)->dim, 1);
}

GRAD(grad_row_sums, OP_spread, (DY0), (0))

weft_status infer_sum_all(Graph *g, Op *op, weft_error *e) {
  if (op_in(g, op, 0)->dtype != DT_F32)
    return shape_error(g, op, e, "operand 1 must be f32");
  Dim one = {.size = 1};
  return op_result(g, op, 0, DT_F32, &one, 1);
}

GRAD(grad_sum_all, OP_spread, (DY0), (0))

/* ---- pairs ---- */

weft_status infer_split_pairs(Graph *g, Op *op, weft_error *e) {
  TRY(need_f32(g, op, 0, 1, e));
  Dim half = op_in(g, op, 0)->dim[0];
  if (half.size % 2)
    return shape_error(g, op, e, "%lld sequences are no pairs: batch.micro is to be even",
                       (long long)half.size);
  half.size /= 2;
  for (int i = 0; i < 2; i++) op_result(g, op, i, DT_F32, &half, 1);
  return WEFT_OK;
}

GRAD(grad_split_pairs, OP_join_pairs, (DY0, DY1), (0))

/* ---- elements ---- */

void grad_divide(Graph *g, Oid op, const Tid *dout, Tid *din) {
  BACKWARD(g, op, dout, din, OP_divide, (DY0, X1), (0));
  BACKWARD(g, op, dout, din, OP_divide_db, (X1, Y0, DY0), (1));
}

GRAD(grad_exponential, OP_mul, (DY0, Y0), (0))

GRAD(grad_log_sigmoid, OP_log_sigmoid_dx, (X0, DY0), (0))

/* ---- divergences ---- in two steps, as cross entropy: sums over a slice of the
 * vocabulary, then what the rows come to */

/* Whether m and s, operands i and i + 1, are those of the rows of x. */
static bool has_stats(Graph *g, const Op *op, const Tensor *x, int i) {
  const Tensor *m = op_in(g, op, i), *s = op_in(g, op, i + 1);
  int n = x->ndim - 1;
  return m->dtype == DT_F32 && m->ndim == n && same_rows(m, x, n) && s->dtype == DT_F32 &&
         s->ndim == n + 1 && same_rows(s, x, n) && s->dim[n].size == 2;
}

weft_status infer_divergence_sums(Graph *g, Op *op, weft_error *e) {
  const Tensor *x = op_in(g, op, 0), *y = op_in(g, op, 1), *labels = op_in(g, op, 2);
  double beta = op->attr.beta;
  int last = x->ndim - 1;
  for (int i = 0; i < 2; i++) TRY(need_numbers(g, op, i, e));
  if (!(beta >= 0 && beta <= 1))
    return shape_error(g, op, e, "beta must be from 0 to 1, got %g", beta);
  if (x->ndim != y->ndim || last < 1 || !same_rows(x, y, last))
    return shape_error(g, op, e, "both logits must have the same rows");
  if (x->dim[last].size != y->dim[last].size)
    return shape_error(g, op, e,
                       "logits of %lld and of %lld tokens: the vocabularies differ",
                       (long long)x->dim[last].size, (long long)y->dim[last].size);
  if (labels->dtype != DT_I32 || labels->ndim != last || !same_rows(labels, x, last))
    return shape_error(g, op, e, "labels must be integers, one for each row of logits");
  if (!has_stats(g, op, x, 3) || !has_stats(g, op, y, 5))
    return shape_error(g, op, e, "needs what ce_max and ce_sum made of both logits");
  if (!op->attr.vocab) op->attr.vocab = (int32_t)x->dim[last].size;
  Dim dim[MAX_DIM];
  memcpy(dim, x->dim, sizeof dim);
  dim[last] = (Dim){.size = 2};
  return op_result(g, op, 0, DT_F32, dim, last + 1);
}

GRAD(grad_divergence_sums, OP_divergence_dx, (X0, X1, X2, X3, X4, X5, X6, Y0, DY0), (0))

weft_status infer_divergence_rows(Graph *g, Op *op, weft_error *e) {
  const Tensor *d = op_in(g, op, 0);
  if (d->dtype != DT_F32 || d->ndim < 2 || d->dim[d->ndim - 1].size != 2)
    return shape_error(g, op, e, "needs what divergence_sums made");
  return op_result(g, op, 0, DT_F32, d->dim, d->ndim - 1);
}
