/* op_heads.c - shapes, gradients of RoPE, and of heads that are made of two parts. */
#include "rules.h"

weft_status infer_rope(Graph *g, Op *op, weft_error *e) {
  const Tensor *x = op_in(g, op, 0), *pos = op_in(g, op, 1);
  const OpAttr *a = &op->attr;
  int d = a->head_dim, turning = attr_rotary_dim(a);
  TRY(need_numbers(g, op, 0, e));
  if (x->ndim != 3 || pos->ndim != 2 || pos->dtype != DT_I32 || !same_rows(x, pos, 2))
    return shape_error(g, op, e, "needs x (batch, seq, heads*head_dim) and positions");
  if (d < 1 || x->dim[2].size % d || (turning == d && d % 2))
    return shape_error(g, op, e, "head_dim = %d must be even and divide %lld features", d,
                       (long long)x->dim[2].size);
  if (turning % 2 || a->rotary_from > d - turning)
    return shape_error(g, op, e,
                       "rotary_dim = %d must be even, and from rotary_from = %d on that "
                       "many must be in head_dim = %d",
                       turning, a->rotary_from, d);
  if (!(a->theta > 0)) return shape_error(g, op, e, "theta must be above 0");
  if (a->yarn && !(a->rope_factor > 0 && a->rope_low < a->rope_high))
    return shape_error(g, op, e, "yarn needs a rope_factor and rope_low below rope_high");
  if (a->rope_factors[0] != 0 && turning > 2 * ROPE_FACTORS)
    return shape_error(g, op, e, "factors of %d pairs: at most %d have one", turning / 2,
                       ROPE_FACTORS);
  for (int i = 0; a->rope_factors[0] != 0 && i < turning / 2; i++)
    if (!(a->rope_factors[i] > 0))
      return shape_error(g, op, e, "needs a factor above 0 for each of %d pairs",
                         turning / 2);
  if (a->length_scale != 0 && a->length < 1)
    return shape_error(g, op, e, "length_scale needs a length above 0");
  return op_result(g, op, 0, DT_ACT, x->dim, 3);
}

/* The transpose of a rotation is the rotation back. */
void grad_rope(Graph *g, Oid op, const Tid *dout, Tid *din) {
  int before = g->op.n;
  BACKWARD(g, op, dout, din, OP_rope, (DY0, X1), (0));
  if (g->op.n > before) g->op.at[before].attr.inverse ^= 1;
}

/* ---- two parts of a head ---- */

/* Each is at least one element. */
static weft_status need_parts(const Graph *g, const Op *op, weft_error *e) {
  int d = op->attr.head_dim, part = op->attr.head_part;
  if (part >= 1 && part < d) return WEFT_OK;
  return shape_error(g, op, e, "head_part = %d must be from 1 to head_dim - 1 = %d", part,
                     d - 1);
}

weft_status infer_split_heads(Graph *g, Op *op, weft_error *e) {
  const Tensor *x = op_in(g, op, 0);
  int d = op->attr.head_dim, part = op->attr.head_part, last = x->ndim - 1;
  TRY(need_numbers(g, op, 0, e));
  TRY(need_parts(g, op, e));
  if (x->dim[last].size % d)
    return shape_error(g, op, e, "head_dim = %d does not divide %lld features", d,
                       (long long)x->dim[last].size);
  for (int i = 0; i < 2; i++) {
    Dim dim[MAX_DIM];
    memcpy(dim, op_in(g, op, 0)->dim, sizeof dim);
    dim[last] = dim_of_heads(&dim[last], d, i ? d - part : part);
    op_result(g, op, i, DT_ACT, dim, last + 1);
  }
  return WEFT_OK;
}

GRAD(grad_split_heads, OP_join_heads, (DY0, DY1), (0))

weft_status infer_join_heads(Graph *g, Op *op, weft_error *e) {
  const Tensor *x = op_in(g, op, 0), *y = op_in(g, op, 1);
  int d = op->attr.head_dim, part = op->attr.head_part, last = x->ndim - 1;
  for (int i = 0; i < 2; i++) TRY(need_numbers(g, op, i, e));
  TRY(need_parts(g, op, e));
  if (x->ndim != y->ndim || !same_rows(x, y, last))
    return shape_error(g, op, e, "operand 2 has other rows");
  int64_t a = x->dim[last].size, b = y->dim[last].size, heads = a / part;
  if (a % part || (b != heads * (d - part) && b != d - part))
    return shape_error(
        g, op, e, "head_dim = %d and head_part = %d do not fit %lld and %lld features", d,
        part, (long long)a, (long long)b);
  Dim dim[MAX_DIM];
  memcpy(dim, x->dim, sizeof dim);
  dim[last] = dim_of_heads(&dim[last], part, d);
  return op_result(g, op, 0, DT_ACT, dim, last + 1);
}

/* Of a part that all heads share: the sum over them. */
GRAD(grad_join_heads, OP_split_heads, (DY0), (0, 1))
