/* op_xielu.c - shapes and gradients of xIELU (arXiv:2411.13010), an activation with two
 * numbers that are learnt:
 *
 *   y = p x^2 + beta x for x > 0, n (exp(min(x, eps)) - 1 - x) + beta x otherwise,
 *   p = softplus(a_p), n = beta + softplus(a_n)
 *
 * eps is a little below 0, as in Hugging Face's class: from there to 0 the exponential
 * stays as it is, and has no slope. */
#include "rules.h"

weft_status infer_xielu(Graph *g, Op *op, weft_error *e) {
  const Tensor *x = op_in(g, op, 0);
  for (int i = 0; i < 3; i++) TRY(need_numbers(g, op, i, e));
  for (int i = 1; i < 3; i++) {
    const Tensor *a = op_in(g, op, i);
    if (a->kind != T_PARAM || a->ndim != 1 || a->dim[0].size != 1)
      return shape_error(g, op, e, "operand %d must be a parameter of one element",
                         i + 1);
  }
  if (!(op->attr.eps <= 0))
    return shape_error(g, op, e, "eps must be at most 0, got %g", (double)op->attr.eps);
  return op_result(g, op, 0, DT_ACT, x->dim, x->ndim);
}

void grad_xielu(Graph *g, Oid op, const Tid *dout, Tid *din) {
  BACKWARD(g, op, dout, din, OP_xielu_dx, (X0, X1, X2, DY0), (0));
  BACKWARD(g, op, dout, din, OP_xielu_dw, (X0, X1, X2, DY0), (1, 2));
}
