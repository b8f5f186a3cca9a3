/* op_norm.c - shapes and gradients of RMSNorm (whole rows or per head) and LayerNorm, and
 * of center, of which and RMSNorm a LayerNorm without a bias is made. */
#include "rules.h"

weft_status infer_rmsnorm(Graph *g, Op *op, weft_error *e) {
  const Tensor *x = op_in(g, op, 0), *w = op_in(g, op, 1);
  int64_t c = x->dim[x->ndim - 1].size;
  for (int i = 0; i < 2; i++) TRY(need_numbers(g, op, i, e));
  int64_t size = op->attr.head_dim ? op->attr.head_dim : w->dim[0].size;
  if (op->attr.head_dim && (w->ndim != 1 || w->dim[0].size != c || c % size))
    return shape_error(
        g, op, e, "groups of head_dim = %lld of %lld features need a weight for each",
        (long long)size, (long long)c);
  if (w->ndim != 1 || c % size)
    return shape_error(g, op, e,
                       "a weight of %lld elements does not divide %lld features",
                       (long long)w->dim[0].size, (long long)c);
  Dim dim[MAX_DIM];
  int ndim = x->ndim;
  int64_t groups = c / size;
  memcpy(dim, x->dim, sizeof dim);
  op_result(g, op, 0, DT_ACT, dim, ndim);
  dim[ndim - 1] = dim_of_groups(&dim[ndim - 1], groups);
  return op_result(g, op, 1, DT_F32, dim, ndim);
}

void grad_rmsnorm(Graph *g, Oid op, const Tid *dout, Tid *din) {
  BACKWARD(g, op, dout, din, OP_rmsnorm_dx, (X0, X1, Y1, DY0), (0));
  BACKWARD(g, op, dout, din, OP_rmsnorm_dw, (X0, Y1, DY0), (1));
}

weft_status infer_layernorm(Graph *g, Op *op, weft_error *e) {
  const Tensor *x = op_in(g, op, 0), *w = op_in(g, op, 1), *b = op_in(g, op, 2);
  int64_t c = x->dim[x->ndim - 1].size;
  for (int i = 0; i < 3; i++) TRY(need_numbers(g, op, i, e));
  if (w->ndim != 1 || b->ndim != 1 || w->dim[0].size != c || b->dim[0].size != c)
    return shape_error(g, op, e, "weight and bias must have %lld elements", (long long)c);
  Dim dim[MAX_DIM];
  int ndim = x->ndim;
  memcpy(dim, x->dim, sizeof dim);
  op_result(g, op, 0, DT_ACT, dim, ndim);
  dim[ndim - 1] = (Dim){.size = 2};
  return op_result(g, op, 1, DT_F32, dim, ndim);
}

void grad_layernorm(Graph *g, Oid op, const Tid *dout, Tid *din) {
  BACKWARD(g, op, dout, din, OP_layernorm_dx, (X0, X1, Y1, DY0), (0));
  BACKWARD(g, op, dout, din, OP_layernorm_dw, (X0, Y1, DY0), (1, 2));
}

weft_status infer_center(Graph *g, Op *op, weft_error *e) {
  TRY(need_numbers(g, op, 0, e));
  return infer_same(g, op, e);
}

/* It is its own transpose. */
GRAD(grad_center, OP_center, (DY0), (0))
