/* op_basic.c - shapes, gradients and costs of embedding, linear, bias and elementwise
 * ops. */
#include "rules.h"

#include <stdio.h>

Dim dim_of_groups(const Dim *x, int64_t n) {
  bool heads = x->tag == TAG_HEAD || x->tag == TAG_KV_HEAD || x->tag == TAG_GROUP;
  return heads ? (Dim){.size = n, .tag = x->tag, .parts = x->parts, .unit = 1}
               : (Dim){.size = n};
}

Dim dim_of_heads(const Dim *x, int d, int size) {
  Dim y = *x;
  y.size = y.local = x->size / d * size;
  y.unit = x->unit % d == 0 ? x->unit / d * size : 1;
  return y;
}

weft_status op_result(Graph *g, Op *op, int i, DType dt, const Dim *dim, int ndim) {
  Dim own[MAX_DIM]; /* tensors move when one is added */
  memcpy(own, dim, sizeof *dim * (size_t)ndim);
  op->out[i] = graph_tensor(g, T_VALUE, dt, own, ndim);
  return WEFT_OK;
}

weft_status shape_error(const Graph *g, const Op *op, weft_error *e, const char *fmt,
                        ...) {
  char text[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  return err_set(e, WEFT_EPLAN, "%s%s%s: %s", op_info[op->code].name, op->name ? " " : "",
                 op->name ? op->name : "", text);
}

weft_status need_numbers(Graph *g, const Op *op, int i, weft_error *e) {
  DType t = (DType)op_in(g, op, i)->dtype;
  if (t == DT_ACT) return WEFT_OK;
  return shape_error(g, op, e, "operand %d is made of %s", i + 1,
                     t == DT_I32 ? "integers (tokens, labels, positions)"
                                 : "f32 statistics or a loss, not of activations");
}

bool same_rows(const Tensor *a, const Tensor *b, int n) {
  bool same = a->ndim >= n && b->ndim >= n;
  for (int d = 0; same && d < n; d++) same = a->dim[d].size == b->dim[d].size;
  return same;
}

const Op *maker_of(const Graph *g, const Tensor *t) {
  const Op *op = NULL;
  do {
    if (t->producer < 0) return NULL;
    op = &g->op.at[t->producer];
    t = &g->t.at[op->in[0]];
  } while (op->code == OP_flatten || op->code == OP_unflatten);
  return op;
}

static Tid resolve(const Op *op, uint8_t role, const Tid *dout) {
  int i = role & ROLE_INDEX;
  switch (role & ROLE_KIND) {
  case ROLE_IN: return op->in[i];
  case ROLE_OUT: return op->out[i];
  default: return dout[i];
  }
}

bool op_adds(int code) {
  static const bool adds[OP_N] = {
      [OP_embedding_dw] = true,       [OP_linear_dw] = true,
      [OP_linear_fp8_dw] = true,      [OP_router_logits_dw] = true,
      [OP_grouped_linear_dw] = true,  [OP_grouped_bias_dw] = true,
      [OP_attention_sinks_dw] = true, [OP_causal_conv_dw] = true,
      [OP_ssm_steps_dw] = true,       [OP_ssm_scan_dw] = true,
      [OP_expert_load] = true,        [OP_bias_dw] = true,
      [OP_feature_scale_dw] = true,   [OP_rmsnorm_dw] = true,
      [OP_rmsnorm_back] = true,       [OP_linear_ce_back] = true,
      [OP_linear_ce_dw] = true,       [OP_layernorm_dw] = true,
      [OP_xielu_dw] = true,           [OP_cast] = true};
  return adds[code];
}

DType graph_grad_dtype(const Graph *g, Tid of) {
  const Tensor *t = &g->t.at[of];
  bool counts = t->kind == T_PARAM && g->param.at[t->index].share > 0;
  return t->kind == T_PARAM && !counts ? DT_GRAD : DT_F32;
}

void backward(Graph *g, Oid fwd, const Tid *dout, Tid *din, Backward b) {
  for (int i = 0; i < b.nin; i++)
    if (resolve(&g->op.at[fwd], b.role[i], dout) < 0) return;
  Oid id = graph_add(g, b.code, b.nin, b.nout, g->op.at[fwd].unit, PH_I);
  assert(b.nin + b.nout <= LEN(g->op.at[id].role));
  const Op *f = &g->op.at[fwd];
  Op *op = &g->op.at[id];
  op->fwd = fwd;
  op->name = f->name;
  op->line = f->line;
  op->attr = f->attr;
  for (int i = 0; i < b.nin; i++) {
    op->in[i] = resolve(f, b.role[i], dout);
    op->role[i] = b.role[i];
  }
  for (int i = 0; i < b.nout; i++) {
    Tid of = f->in[b.result[i]];
    const Tensor *x = &g->t.at[of];
    Dim dim[MAX_DIM];
    int ndim = x->ndim;
    memcpy(dim, x->dim, sizeof dim);
    DType type = op_adds(b.code) ? graph_grad_dtype(g, of) : (DType)x->dtype;
    Tid t = graph_tensor(g, T_VALUE, type, dim, ndim);
    g->t.at[t].producer = id;
    g->t.at[t].unit = f->unit;
    g->t.at[t].grad_of = of;
    op->out[i] = t;
    op->role[b.nin + i] = (uint8_t)(ROLE_DIN + b.result[i]);
    din[b.result[i]] = t;
  }
}

/* ---- embedding ---- */

weft_status infer_embedding(Graph *g, Op *op, weft_error *e) {
  const Tensor *ids = op_in(g, op, 0), *table = op_in(g, op, 1);
  if (ids->dtype != DT_I32) return shape_error(g, op, e, "the ids must be integers");
  if (ids->ndim != 2) return shape_error(g, op, e, "the ids must be (batch, seq)");
  TRY(need_numbers(g, op, 1, e));
  if (table->ndim != 2) return shape_error(g, op, e, "the table must have 2 dimensions");
  bool place = ids->index == IN_POSITIONS || ids->index == IN_DOC_STARTS;
  int64_t places =
      MAX(ids->dim[1].size, g->context); /* a token that is sampled has one */
  if (place && table->dim[0].size < places)
    return shape_error(g, op, e, "a table of %lld rows for %lld positions (%s)",
                       (long long)table->dim[0].size, (long long)places,
                       g->context ? "the prompt and --max-tokens" : "batch.seq");
  Dim dim[3] = {ids->dim[0], ids->dim[1], table->dim[1]};
  return op_result(g, op, 0, DT_ACT, dim, 3);
}

GRAD(grad_embedding, OP_embedding_dw, (X0, DY0), (1))

/* ---- linear ---- */

weft_status infer_linear(Graph *g, Op *op, weft_error *e) {
  const Tensor *x = op_in(g, op, 0), *w = op_in(g, op, 1);
  for (int i = 0; i < 2; i++) TRY(need_numbers(g, op, i, e));
  if (w->ndim != 2) return shape_error(g, op, e, "the weight must have 2 dimensions");
  int out = op->attr.layout ? 1 : 0, in = 1 - out;
  const Dim *last = &x->dim[x->ndim - 1];
  if (last->size != w->dim[in].size)
    return shape_error(g, op, e, "the input has %lld features, the weight takes %lld",
                       (long long)last->size, (long long)w->dim[in].size);
  Dim dim[MAX_DIM];
  memcpy(dim, x->dim, sizeof dim);
  int ndim = x->ndim;
  dim[ndim - 1] = w->dim[out];
  return op_result(g, op, 0, DT_ACT, dim, ndim);
}

void grad_linear(Graph *g, Oid op, const Tid *dout, Tid *din) {
  BACKWARD(g, op, dout, din, OP_linear_dx, (DY0, X1), (0));
  BACKWARD(g, op, dout, din, OP_linear_dw, (X0, DY0), (1));
}

weft_status infer_add_bias(Graph *g, Op *op, weft_error *e) {
  const Tensor *x = op_in(g, op, 0), *b = op_in(g, op, 1);
  for (int i = x->dtype == DT_F32; i < 2; i++) TRY(need_numbers(g, op, i, e));
  if (b->ndim != 1 || b->dim[0].size != x->dim[x->ndim - 1].size)
    return shape_error(g, op, e, "the bias has %lld elements, the input %lld features",
                       (long long)b->dim[0].size, (long long)x->dim[x->ndim - 1].size);
  return op_result(g, op, 0, (DType)x->dtype, x->dim, x->ndim);
}

void grad_add_bias(Graph *g, Oid op, const Tid *dout, Tid *din) {
  din[0] = dout[0];
  BACKWARD(g, op, dout, din, OP_bias_dw, (DY0), (1));
}

/* ---- elementwise ---- */

weft_status infer_same(Graph *g, Op *op, weft_error *e) {
  const Tensor *x = op_in(g, op, 0);
  if (x->dtype == DT_I32) return need_numbers(g, op, 0, e);
  for (int i = 1; i < op->nin; i++) {
    const Tensor *y = op_in(g, op, i);
    if (x->ndim != y->ndim || x->dtype != y->dtype || !same_rows(x, y, x->ndim))
      return shape_error(g, op, e, "operand %d has another shape", i + 1);
  }
  return op_result(g, op, 0, x->dtype, x->dim, x->ndim);
}

void grad_add(Graph *g, Oid op, const Tid *dout, Tid *din) { din[0] = din[1] = dout[0]; }

/* d(a*b) = dy*b, dy*a: two products, each an ordinary mul. */
void grad_mul(Graph *g, Oid op, const Tid *dout, Tid *din) {
  BACKWARD(g, op, dout, din, OP_mul, (DY0, X1), (0));
  BACKWARD(g, op, dout, din, OP_mul, (DY0, X0), (1));
}

GRAD(grad_scale, OP_scale, (DY0), (0))

weft_status check_rate(const Graph *g, const Op *op, weft_error *e) {
  double rate = op->attr.rate;
  if (rate >= 0 && rate < 1) return WEFT_OK;
  return shape_error(g, op, e, "rate must be at least 0 and below 1, got %g", rate);
}

/* One row for each token, whose numbers are the second operand. */
static weft_status infer_by_place(Graph *g, Op *op, weft_error *e) {
  const Tensor *x = op_in(g, op, 0), *numbers = op_in(g, op, 1);
  TRY(need_numbers(g, op, 0, e));
  bool tokens = x->ndim == 3 && numbers->kind == T_INPUT &&
                numbers->index == IN_TOKEN_NUMBERS && x->dim[0].size == g->batch &&
                x->dim[1].size == g->seq;
  if (!tokens)
    return shape_error(g, op, e, "takes (batch, seq, features), a row for each token");
  return op_result(g, op, 0, DT_ACT, x->dim, 3);
}

weft_status infer_dropout(Graph *g, Op *op, weft_error *e) {
  TRY(check_rate(g, op, e));
  return infer_by_place(g, op, e);
}

weft_status infer_noise(Graph *g, Op *op, weft_error *e) {
  if (op->attr.rate >= 0) return infer_by_place(g, op, e);
  return shape_error(g, op, e, "rate must be at least 0, got %g", op->attr.rate);
}

/* The gradient of the result is that of the operand. Of losses it is a number, or one for
 * each row; ce_sum and divergence_sums, which know the logits, turn it into theirs. A
 * maximum only shifts the exponent, so nothing flows through it. */
void grad_pass(Graph *g, Oid op, const Tid *dout, Tid *din) { din[0] = dout[0]; }

/* The mask is drawn again: nothing is kept for it. */
GRAD(grad_dropout, OP_dropout, (DY0, X1), (0))

GRAD(grad_gelu, OP_gelu_dx, (X0, DY0), (0))
GRAD(grad_silu, OP_silu_dx, (X0, DY0), (0))
GRAD(grad_relu, OP_relu_dx, (X0, DY0), (0))

/* A number for each row, as wide as one feature. */
weft_status infer_gate(Graph *g, Op *op, weft_error *e) {
  const Tensor *x = op_in(g, op, 0), *s = op_in(g, op, 1);
  for (int i = 0; i < 2; i++) TRY(need_numbers(g, op, i, e));
  int last = x->ndim - 1;
  if (x->ndim != s->ndim || !same_rows(x, s, last) ||
      x->dim[last].size % s->dim[last].size)
    return shape_error(g, op, e, "needs one number for each row, or for each head of it");
  return op_result(g, op, 0, DT_ACT, x->dim, x->ndim);
}

void grad_gate(Graph *g, Oid op, const Tid *dout, Tid *din) {
  BACKWARD(g, op, dout, din, OP_gate, (DY0, X1), (0));
  BACKWARD(g, op, dout, din, OP_gate_ds, (X0, X1, DY0), (1));
}

weft_status infer_clamp(Graph *g, Op *op, weft_error *e) {
  if (!(op->attr.limit > 0))
    return shape_error(g, op, e, "limit must be above 0, got %g", (double)op->attr.limit);
  return infer_same(g, op, e);
}

GRAD(grad_clamp, OP_clamp_dx, (X0, DY0), (0))

weft_status infer_soft_cap(Graph *g, Op *op, weft_error *e) {
  if (!(op->attr.soft_cap > 0))
    return shape_error(g, op, e, "soft_cap must be above 0, got %g",
                       (double)op->attr.soft_cap);
  return infer_same(g, op, e);
}

/* Of the result, which is kept in any case where it becomes a loss. */
GRAD(grad_soft_cap, OP_soft_cap_dx, (Y0, DY0), (0))

GRAD(grad_silu_mul, OP_silu_mul_dx, (X0, X1, DY0), (0, 1))

/* A dimension of pairs becomes one of as many elements. */
weft_status infer_clamped_swiglu(Graph *g, Op *op, weft_error *e) {
  const Tensor *x = op_in(g, op, 0);
  TRY(need_numbers(g, op, 0, e));
  Dim dim[MAX_DIM];
  int ndim = x->ndim;
  memcpy(dim, x->dim, sizeof dim);
  Dim *last = &dim[ndim - 1];
  if (last->size % 2)
    return shape_error(g, op, e, "%lld features are no pairs", (long long)last->size);
  if (!(op->attr.limit > 0))
    return shape_error(g, op, e, "limit must be above 0, got %g", (double)op->attr.limit);
  last->size = last->local = last->size / 2;
  last->unit = last->unit % 2 == 0 ? last->unit / 2 : 1;
  return op_result(g, op, 0, DT_ACT, dim, ndim);
}

GRAD(grad_clamped_swiglu, OP_clamped_swiglu_dx, (X0, DY0), (0))

weft_status infer_split(Graph *g, Op *op, weft_error *e) {
  const Tensor *x = op_in(g, op, 0);
  TRY(need_numbers(g, op, 0, e));
  Dim dim[MAX_DIM];
  int ndim = x->ndim, n = op->attr.n;
  memcpy(dim, x->dim, sizeof dim);
  Dim *last = &dim[ndim - 1];
  if (last->size % n)
    return shape_error(g, op, e, "%d parts do not divide %lld features", n,
                       (long long)last->size);
  last->size /= n;
  last->parts = last->parts % n == 0 ? (uint8_t)(last->parts / n) : 1;
  DType t = (DType)x->dtype; /* x moves when results are made */
  for (int i = 0; i < n; i++) op_result(g, op, i, t, dim, ndim);
  return WEFT_OK;
}

void grad_split(Graph *g, Oid op, const Tid *dout, Tid *din) {
  uint8_t role[8];
  int n = g->op.at[op].nout;
  for (int i = 0; i < n; i++) role[i] = (uint8_t)(ROLE_DOUT + i);
  backward(g, op, dout, din, (Backward){OP_concat, role, n, (const int[]){0}, 1});
}

/* ---- costs ---- flops from local sizes */

double cost_move(const Graph *g, const Op *op) {
  return (double)tensor_count(&g->t.at[op->out[0]]);
}

static double gemm(const Tensor *rows_of, const Tensor *w) {
  double k = (double)tensor_count(w);
  double rows =
      (double)tensor_count(rows_of) / (double)rows_of->dim[rows_of->ndim - 1].local;
  return 2 * rows * k;
}

double cost_linear(const Graph *g, const Op *op) {
  return gemm(&g->t.at[op->in[0]], &g->t.at[op->in[1]]);
}

double cost_linear_dw(const Graph *g, const Op *op) {
  return gemm(&g->t.at[op->in[0]], &g->t.at[op->out[0]]);
}

/* The logits again, and one gradient or both. */
double cost_linear_ce_part(const Graph *g, const Op *op) {
  return 2 * cost_linear(g, op);
}

double cost_linear_ce_back(const Graph *g, const Op *op) {
  return 3 * cost_linear(g, op);
}
