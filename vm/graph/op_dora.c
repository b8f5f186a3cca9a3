/* op_dora.c - shapes, gradients and costs of the ops of adapters with magnitudes (DoRA,
 * arXiv:2402.09353): the norms of what a linear with its adapter multiplies by, one for
 * each output feature, and features divided by them and times their magnitude.
 *
 * As the method has it, norms are constants to the backward: what changes them gets no
 * gradient through them. */
#include "rules.h"

weft_status infer_feature_sqnorms(Graph *g, Op *op, weft_error *e) {
  const Tensor *w = op_in(g, op, 0), *a = op_in(g, op, 1), *b = op_in(g, op, 2);
  for (int i = 0; i < 3; i++) {
    TRY(need_numbers(g, op, i, e));
    if (op_in(g, op, i)->ndim != 2)
      return shape_error(g, op, e, "operand %d must have 2 dimensions", i + 1);
  }
  int out = op->attr.layout ? 1 : 0;
  if (a->dim[1].size != w->dim[1 - out].size || b->dim[0].size != w->dim[out].size ||
      a->dim[0].size != b->dim[1].size)
    return shape_error(g, op, e, "a and b are of another weight");
  Dim features = w->dim[out];
  return op_result(g, op, 0, DT_F32, &features, 1);
}

weft_status infer_feature_scale(Graph *g, Op *op, weft_error *e) {
  const Tensor *x = op_in(g, op, 0), *n = op_in(g, op, 2);
  for (int i = 0; i < 2; i++) TRY(need_numbers(g, op, i, e));
  if (n->dtype != DT_F32)
    return shape_error(g, op, e, "operand 3 is no f32: those of feature_sqnorms");
  for (int i = 1; i < 3; i++) {
    const Tensor *v = op_in(g, op, i);
    if (v->ndim != 1 || v->dim[0].size != x->dim[x->ndim - 1].size)
      return shape_error(g, op, e,
                         "operand %d has %lld elements, the input %lld features", i + 1,
                         (long long)v->dim[0].size, (long long)x->dim[x->ndim - 1].size);
  }
  return op_result(g, op, 0, DT_ACT, x->dim, x->ndim);
}

/* The gradient of x is scaled as x was. */
void grad_feature_scale(Graph *g, Oid op, const Tid *dout, Tid *din) {
  BACKWARD(g, op, dout, din, OP_feature_scale, (DY0, X1, X2), (0));
  BACKWARD(g, op, dout, din, OP_feature_scale_dw, (X0, X2, DY0), (1));
}

/* The product of a and b. */
double cost_sqnorms(const Graph *g, const Op *op) {
  const Tensor *w = &g->t.at[op->in[0]], *a = &g->t.at[op->in[1]];
  return 2 * (double)tensor_count(w) * (double)a->dim[0].local;
}
