/* op_ssm.c - shapes, gradients and costs of a state-space layer of Mamba-2: the
 * convolution before it, the steps of its heads and the scan over the sequence. */
#include "rules.h"

static weft_status need_rows(Graph *g, const Op *op, weft_error *e) {
  const Tensor *x = op_in(g, op, 0);
  TRY(need_numbers(g, op, 0, e));
  if (x->ndim == 3) return WEFT_OK;
  return shape_error(g, op, e, "takes (batch, seq, features)");
}

/* Operand i, if there is one, says where documents begin. */
static weft_status check_starts(Graph *g, const Op *op, int i, weft_error *e) {
  if (op->nin == i) return WEFT_OK;
  const Tensor *s = op->nin == i + 1 ? op_in(g, op, i) : NULL;
  bool ok = s && s->kind == T_INPUT && s->index == IN_DOC_STARTS &&
            same_rows(s, op_in(g, op, 0), 2);
  return ok ? WEFT_OK
            : shape_error(g, op, e, "takes %d tensors, and maybe doc_starts behind them",
                          i);
}

/* A backward op with doc_starts, operand `at` of the forward op, behind its operands. */
static void with_starts(Graph *g, Oid op, const Tid *dout, Tid *din, int code,
                        const uint8_t *role, int n, int at, const int *of, int nout) {
  uint8_t all[8];
  memcpy(all, role, (size_t)n);
  if (g->op.at[op].nin > at) all[n++] = (uint8_t)(ROLE_IN + at);
  backward(g, op, dout, din, (Backward){code, all, n, of, nout});
}

/* ---- convolution ---- */

weft_status infer_causal_conv(Graph *g, Op *op, weft_error *e) {
  if (op->nin < 2) return shape_error(g, op, e, "takes x, w and maybe doc_starts");
  TRY(need_rows(g, op, e));
  TRY(need_numbers(g, op, 1, e));
  TRY(check_starts(g, op, 2, e));
  const Tensor *x = op_in(g, op, 0), *w = op_in(g, op, 1);
  if (w->ndim != 3 || w->dim[0].size != x->dim[2].size || w->dim[1].size != 1)
    return shape_error(g, op, e, "the weight of %lld features must be (%lld, 1, kernel)",
                       (long long)x->dim[2].size, (long long)x->dim[2].size);
  return op_result(g, op, 0, DT_ACT, x->dim, 3);
}

void grad_causal_conv(Graph *g, Oid op, const Tid *dout, Tid *din) {
  with_starts(g, op, dout, din, OP_causal_conv_dx, (uint8_t[]){X1, DY0}, 2, 2, (int[]){0},
              1);
  with_starts(g, op, dout, din, OP_causal_conv_dw, (uint8_t[]){X0, DY0}, 2, 2, (int[]){1},
              1);
}

static double conv_products(const Graph *g, Tid rows, Tid w) {
  const Tensor *t = &g->t.at[w];
  return 2.0 * (double)tensor_count(&g->t.at[rows]) * (double)t->dim[2].local;
}
double cost_causal_conv(const Graph *g, const Op *op) {
  return conv_products(g, op->in[0], op->code == OP_causal_conv ? op->in[1] : op->out[0]);
}
double cost_causal_conv_dx(const Graph *g, const Op *op) {
  return conv_products(g, op->in[1], op->in[0]);
}

/* ---- steps ---- */

weft_status infer_ssm_steps(Graph *g, Op *op, weft_error *e) {
  TRY(need_rows(g, op, e));
  const Tensor *s = op_in(g, op, 0);
  for (int i = 1; i < 3; i++) {
    const Tensor *w = op_in(g, op, i);
    TRY(need_numbers(g, op, i, e));
    if (w->ndim != 1 || w->dim[0].size != s->dim[2].size)
      return shape_error(g, op, e,
                         "operand %d must have %lld elements, one for each head", i + 1,
                         (long long)s->dim[2].size);
  }
  if (op->attr.limit != 0 && op->attr.limit < op->attr.eps)
    return shape_error(g, op, e, "no step is at least eps = %g and at most limit = %g",
                       (double)op->attr.eps, (double)op->attr.limit);
  Dim dim[MAX_DIM];
  memcpy(dim, s->dim, sizeof dim);
  for (int i = 0; i < 2; i++) op_result(g, op, i, DT_F32, dim, 3);
  return WEFT_OK;
}

void grad_ssm_steps(Graph *g, Oid op, const Tid *dout, Tid *din) {
  BACKWARD(g, op, dout, din, OP_ssm_steps_dx, (X0, X1, X2, DY0, DY1), (0));
  BACKWARD(g, op, dout, din, OP_ssm_steps_dw, (X0, X1, X2, DY0, DY1), (1, 2));
}

/* ---- scan ---- */

static weft_status check_scan(Graph *g, const Op *op, weft_error *e) {
  const Tensor *x = op_in(g, op, 0), *b = op_in(g, op, 3);
  int64_t heads = op_in(g, op, 5)->dim[0].size, n = op->attr.head_dim;
  static const int of_heads[] = {1, 2};
  if (op_in(g, op, 5)->ndim != 1 || x->dim[2].size % heads)
    return shape_error(g, op, e, "the %lld heads of D do not divide %lld features",
                       (long long)heads, (long long)x->dim[2].size);
  for (int i = 0; i < LEN(of_heads); i++) {
    const Tensor *t = op_in(g, op, of_heads[i]);
    if (t->dtype != DT_F32 || t->ndim != 3 || t->dim[2].size != heads)
      return shape_error(g, op, e,
                         "operand %d must be f32, a number for each of %lld heads",
                         of_heads[i] + 1, (long long)heads);
  }
  for (int i = 3; i < 5; i++) {
    const Tensor *t = op_in(g, op, i);
    if (t->ndim != 3 || n < 1 || t->dim[2].size % n || t->dim[2].size != b->dim[2].size)
      return shape_error(
          g, op, e, "head_dim = %lld does not fit B and C of %lld and %lld", (long long)n,
          (long long)b->dim[2].size, (long long)op_in(g, op, 4)->dim[2].size);
  }
  for (int i = 1; i < 5; i++)
    if (!same_rows(op_in(g, op, i), x, 2))
      return shape_error(g, op, e, "operand %d has other rows", i + 1);
  if (heads % (b->dim[2].size / n))
    return shape_error(g, op, e, "%lld groups do not divide %lld heads",
                       (long long)(b->dim[2].size / n), (long long)heads);
  return WEFT_OK;
}

weft_status infer_ssm_scan(Graph *g, Op *op, weft_error *e) {
  if (op->nin < 6)
    return shape_error(g, op, e, "takes x, d, a, B, C, D and maybe doc_starts");
  TRY(need_rows(g, op, e));
  for (int i = 3; i < 6; i++) TRY(need_numbers(g, op, i, e));
  TRY(check_starts(g, op, 6, e));
  TRY(check_scan(g, op, e));
  return op_result(g, op, 0, DT_ACT, op_in(g, op, 0)->dim, 3);
}

void grad_ssm_scan(Graph *g, Oid op, const Tid *dout, Tid *din) {
  with_starts(g, op, dout, din, OP_ssm_scan_dx, (uint8_t[]){X0, X1, X2, X3, X4, X5, DY0},
              7, 6, (int[]){0, 1, 2, 3, 4}, 5);
  BACKWARD(g, op, dout, din, OP_ssm_scan_dw, (X0, DY0), (5));
}

/* Of a chunk of L tokens, for each token: scores with half of the others, of N elements
 * each, for each group; for each head the same of P elements, and two products of its
 * state (P,N). The gradient has these scores and states again; two more such sums of P
 * elements and two of N; and five products of states and their gradients. */
double ssm_scan_flops(double tokens, double heads, double p, double groups, double n,
                      bool back) {
  double within = groups * n + heads * (back ? 2 * p + 2 * n : p);
  return tokens * (SSM_CHUNK * within + 2.0 * (back ? 7 : 2) * heads * p * n);
}

static double scan(const Graph *g, const Op *op, bool back) {
  const Tensor *x = &g->t.at[op->in[0]], *b = &g->t.at[op->in[3]];
  double heads = (double)g->t.at[op->in[1]].dim[2].local, n = op->attr.head_dim;
  return ssm_scan_flops((double)(x->dim[0].local * x->dim[1].local), heads,
                        (double)x->dim[2].local / heads, (double)b->dim[2].local / n, n,
                        back);
}
double cost_ssm_scan(const Graph *g, const Op *op) { return scan(g, op, false); }
double cost_ssm_scan_dx(const Graph *g, const Op *op) { return scan(g, op, true); }
