/* op_experts.c - shapes, gradients and costs of mixture of experts: tokens as one
 * dimension, the router, its auxiliary losses, permutation to the experts and back.
 *
 * Operands that say where rows go (ids, offsets, row counts) have no gradient. */
#include "rules.h"

static bool is_rows(const Tensor *x, DType t, const Tensor *of) {
  return x->dtype == t && x->ndim == 2 && x->dim[0].size == of->dim[0].size;
}

/* ---- tokens ---- */

weft_status infer_flatten(Graph *g, Op *op, weft_error *e) {
  const Tensor *x = op_in(g, op, 0);
  if (x->ndim < 2 || x->dim[0].tag != TAG_BATCH || x->dim[1].tag != TAG_SEQ)
    return shape_error(g, op, e, "the operand must be (batch, seq, ...)");
  Dim dim[MAX_DIM];
  DType t = (DType)x->dtype;
  int ndim = x->ndim - 1;
  for (int d = 1; d < ndim; d++) dim[d] = x->dim[d + 1];
  int64_t n = x->dim[0].size * x->dim[1].size;
  dim[0] = (Dim){.size = n, .tag = TAG_TOKEN, .parts = 1, .unit = 1};
  return op_result(g, op, 0, t, dim, ndim);
}

GRAD(grad_flatten, OP_unflatten, (DY0), (0))

weft_status infer_unflatten(Graph *g, Op *op, weft_error *e) {
  const Tensor *x = op_in(g, op, 0);
  if (x->ndim != 2 || x->dim[0].tag != TAG_TOKEN || x->dim[0].size != g->batch * g->seq)
    return shape_error(g, op, e, "the operand must be (tokens, features)");
  Dim dim[3] = {{.size = g->batch, .tag = TAG_BATCH, .parts = 1, .unit = 1},
                {.size = g->seq, .tag = TAG_SEQ, .parts = 1, .unit = 1},
                x->dim[1]};
  return op_result(g, op, 0, (DType)x->dtype, dim, 3);
}

GRAD(grad_unflatten, OP_flatten, (DY0), (0))

/* ---- the router ---- */

static weft_status need_experts(Graph *g, const Op *op, int64_t n, weft_error *e) {
  if (n >= 1 && n <= EXPERTS_MAX) return WEFT_OK;
  return shape_error(g, op, e, "%lld experts: from 1 to %d can be chosen from",
                     (long long)n, EXPERTS_MAX);
}

weft_status infer_router_logits(Graph *g, Op *op, weft_error *e) {
  const Tensor *x = op_in(g, op, 0), *w = op_in(g, op, 1);
  for (int i = 0; i < 2; i++) TRY(need_numbers(g, op, i, e));
  if (x->ndim != 2 || w->ndim != 2 || x->dim[1].size != w->dim[1].size)
    return shape_error(g, op, e, "needs tokens (N,C) and a weight (E,C)");
  TRY(need_experts(g, op, w->dim[0].size, e));
  Dim dim[2] = {x->dim[0], w->dim[0]};
  return op_result(g, op, 0, DT_F32, dim, 2);
}

void grad_router_logits(Graph *g, Oid op, const Tid *dout, Tid *din) {
  BACKWARD(g, op, dout, din, OP_router_logits_dx, (DY0, X1), (0));
  BACKWARD(g, op, dout, din, OP_router_logits_dw, (X0, DY0), (1));
}

static weft_status need_logits(Graph *g, const Op *op, weft_error *e) {
  const Tensor *l = op_in(g, op, 0);
  if (l->dtype == DT_F32 && l->ndim == 2) return WEFT_OK;
  return shape_error(g, op, e, "the first operand must be what router_logits made");
}

static weft_status check_groups(Graph *g, const Op *op, int64_t experts, weft_error *e) {
  const OpAttr *a = &op->attr;
  if (a->groups == 0) return WEFT_OK;
  int best = a->n ? a->n : 2;
  if (experts % a->groups || experts / a->groups < best)
    return shape_error(g, op, e,
                       "%d groups of the same size, of %s or more, "
                       "cannot be made of %lld experts",
                       a->groups, best == 2 ? "two experts" : "as many as are added up",
                       (long long)experts);
  int64_t most = experts / a->groups * a->topk_group;
  if (a->topk_group < 1 || a->topk_group > a->groups || a->topk > most)
    return shape_error(g, op, e, "%d of %d groups: %d choices cannot be made in them",
                       a->topk_group, a->groups, a->topk);
  return WEFT_OK;
}

/* Whether operand 1 is a parameter that a route has as its bias, this one or another. */
static bool is_router_bias(const Graph *g, const Op *op) {
  const Tensor *b = &g->t.at[op->in[1]];
  return b->kind == T_PARAM && g->param.at[b->index].share > 0;
}

/* What chooses beside scores: a bias of each expert, or keys in the place of scores. */
static weft_status need_choice(Graph *g, const Op *op, weft_error *e) {
  const Tensor *l = op_in(g, op, 0), *b = op_in(g, op, 1);
  int64_t experts = l->dim[1].size;
  if (b->ndim == 2 && is_rows(b, DT_F32, l) && b->dim[1].size == experts) return WEFT_OK;
  if (!is_router_bias(g, op)) TRY(need_numbers(g, op, 1, e));
  if (b->ndim == 1 && b->dim[0].size == experts) return WEFT_OK;
  return shape_error(g, op, e, "the bias has %lld elements for %lld experts",
                     (long long)b->dim[0].size, (long long)experts);
}

bool route_has_bias(const Graph *g, const Op *op) {
  return op->nin == 2 && g->t.at[op->in[1]].ndim == 1;
}

weft_status infer_route(Graph *g, Op *op, weft_error *e) {
  TRY(need_logits(g, op, e));
  const Tensor *l = op_in(g, op, 0);
  int64_t experts = l->dim[1].size, k = op->attr.topk;
  if (op->nin > 2) return shape_error(g, op, e, "takes logits and at most a bias");
  if (op->nin == 2) TRY(need_choice(g, op, e));
  if (k < 1 || k > experts)
    return shape_error(g, op, e, "%lld choices of %lld experts", (long long)k,
                       (long long)experts);
  if (op->attr.score < SCORE_SOFTMAX || op->attr.score > SCORE_SIGMOID)
    return shape_error(g, op, e, "score is 0 (softmax) or 1 (sigmoid)");
  TRY(check_groups(g, op, experts, e));
  if (op->attr.scale == 0) op->attr.scale = 1;
  op->attr.experts = (int32_t)experts;
  if (route_has_bias(g, op) && op_in(g, op, 1)->kind == T_PARAM) {
    /* It may be large beside what its elements differ by, of which 16 bits would hold
     * little. */
    g->t.at[op->in[1]].dtype = DT_F32;
    g->param.at[op_in(g, op, 1)->index].share = (float)k / (float)experts;
  }
  Dim dim[2] = {l->dim[0], {.size = k}};
  op_result(g, op, 0, DT_F32, dim, 2);
  return op_result(g, op, 1, DT_I32, dim, 2);
}

/* The bias only chooses; what adds up in the place of its gradient is the load. */
void grad_route(Graph *g, Oid op, const Tid *dout, Tid *din) {
  BACKWARD(g, op, dout, din, OP_route_dx, (X0, Y1, DY0), (0));
  if (route_has_bias(g, &g->op.at[op]))
    BACKWARD(g, op, dout, din, OP_expert_load, (Y1), (1));
}

/* ---- Sinkhorn's choice ---- */

static bool are_sequences(const Tensor *l) {
  return l->dtype == DT_F32 && l->ndim == 3 && l->dim[0].tag == TAG_BATCH &&
         l->dim[1].tag == TAG_SEQ;
}

weft_status infer_sinkhorn(Graph *g, Op *op, weft_error *e) {
  const Tensor *l = op_in(g, op, 0);
  int64_t together = MAX(op->attr.n, 1);
  if (!are_sequences(l))
    return shape_error(g, op, e, "needs logits (batch, seq, experts) in f32");
  TRY(need_experts(g, op, l->dim[2].size, e));
  if (l->dim[0].size % together)
    return shape_error(g, op, e, "n = %lld of %lld sequences", (long long)together,
                       (long long)l->dim[0].size);
  Dim dim[2] = {l->dim[0], {.size = l->dim[2].size}};
  dim[0].size /= together;
  return op_result(g, op, 0, DT_F32, dim, 2);
}

weft_status infer_sequence_bias(Graph *g, Op *op, weft_error *e) {
  const Tensor *l = op_in(g, op, 0), *b = op_in(g, op, 1);
  if (!are_sequences(l) || b->dtype != DT_F32 || b->ndim != 2 ||
      b->dim[1].size != l->dim[2].size || l->dim[0].size % b->dim[0].size)
    return shape_error(g, op, e,
                       "needs logits (batch, seq, experts), and what sinkhorn made");
  Dim dim[3] = {l->dim[0], l->dim[1], l->dim[2]};
  return op_result(g, op, 0, DT_F32, dim, 3);
}

/* ---- counts and losses ---- */

/* Kernels count what ids say, and write where they say. */
static bool are_ids(const Graph *g, const Tensor *x) {
  const Op *by = maker_of(g, x);
  return by && by->code == OP_route && x->dtype == DT_I32;
}

/* attr.experts are those that the ids choose from. */
static weft_status need_all_experts(Graph *g, const Op *op, const Tensor *ids,
                                    weft_error *e) {
  int all = maker_of(g, ids)->attr.experts;
  if (op->attr.experts == all) return WEFT_OK;
  return shape_error(g, op, e, "%d experts, and the ids are of %d", op->attr.experts,
                     all);
}

/* Of all tokens, or, where these are (batch, seq), of each attr.n sequences. */
weft_status infer_expert_counts(Graph *g, Op *op, weft_error *e) {
  const Tensor *ids = op_in(g, op, 0), *labels = op_in(g, op, 1);
  int rows = ids->ndim - 1;
  if (!are_ids(g, ids) || labels->dtype != DT_I32 || labels->ndim != rows ||
      !same_rows(labels, ids, rows))
    return shape_error(g, op, e, "needs ids of route and the labels of its tokens");
  TRY(need_all_experts(g, op, ids, e));
  Dim dim[2] = {ids->dim[0], {.size = op->attr.experts + 1}};
  if (rows == 1) {
    return op_result(g, op, 0, DT_F32, &dim[1], 1);
  }
  int64_t together = op->attr.n, batch = dim[0].size;
  if (together < 1 || batch % together)
    return shape_error(g, op, e, "n = %lld of %lld sequences", (long long)together,
                       (long long)batch);
  dim[0].size /= together;
  return op_result(g, op, 0, DT_F32, dim, 2);
}

/* Of all tokens: those of some sequences are balanced by themselves. */
weft_status infer_running_counts(Graph *g, Op *op, weft_error *e) {
  const Tensor *n = op_in(g, op, 0);
  if (op->nin != 1 || n->producer < 0 || n->ndim != 1 ||
      g->op.at[n->producer].code != OP_expert_counts)
    return shape_error(g, op, e, "needs what expert_counts made of all tokens");
  Dim dim = n->dim[0];
  for (int i = 0; i < 2; i++) op_result(g, op, i, DT_F32, &dim, 1);
  return WEFT_OK;
}

weft_status infer_router_loss(Graph *g, Op *op, weft_error *e) {
  const Tensor *l = op_in(g, op, 0), *n = op_in(g, op, 1);
  bool each = l->dtype == DT_F32 && l->ndim == 3; /* of some sequences by themselves */
  if (!each) TRY(need_logits(g, op, e));
  if (n->dtype != DT_F32 || n->ndim != l->ndim - 1 ||
      n->dim[n->ndim - 1].size != l->dim[l->ndim - 1].size + 1 ||
      (each && l->dim[0].size % n->dim[0].size))
    return shape_error(g, op, e, "needs logits, and what expert_counts made");
  int64_t tokens = l->dim[0].size;
  op->attr.n = (int32_t)(each ? tokens / n->dim[0].size * l->dim[1].size : tokens);
  Dim one = {.size = 1};
  return op_result(g, op, 0, DT_F32, &one, 1);
}

GRAD(grad_router_loss, OP_router_loss_dx, (X0, X1, DY0), (0))

/* ---- to the experts and back ---- */

/* Who gets how much of what, and what becomes of the rest. */
static weft_status check_limits(Graph *g, const Op *op, weft_error *e) {
  const OpAttr *a = &op->attr;
  int64_t tokens = op_in(g, op, 0)->dim[0].size;
  int64_t senders = MAX(a->n, 1), owners = MAX(a->parts, 1);
  if (a->capacity > 0 && a->bound > 0)
    return shape_error(g, op, e, "either capacity or bound");
  if (a->drop < DROP_NONE || a->drop > DROP_PROBS)
    return shape_error(g, op, e, "drop is from %d to %d", DROP_NONE, DROP_PROBS);
  if (a->bound == 0 && (a->capacity > 0) != (a->drop != DROP_NONE))
    return shape_error(g, op, e, "capacity and drop go together");
  if (tokens % senders || a->experts % owners || senders * owners > EXPERTS_MAX)
    return shape_error(g, op, e, "%lld parts of the tokens, %lld of the experts",
                       (long long)senders, (long long)owners);
  return WEFT_OK;
}

weft_status infer_permute(Graph *g, Op *op, weft_error *e) {
  const Tensor *x = op_in(g, op, 0), *ids = op_in(g, op, 1);
  TRY(need_numbers(g, op, 0, e));
  const Tensor *w = op_in(g, op, 2);
  if (x->ndim != 2 || !are_ids(g, ids) || !is_rows(ids, DT_I32, x) ||
      !is_rows(w, DT_F32, x) || w->dim[1].size != ids->dim[1].size)
    return shape_error(g, op, e, "needs tokens (N,C), and ids and weights of route");
  TRY(need_all_experts(g, op, ids, e));
  TRY(check_limits(g, op, e));
  Dim choices[2] = {ids->dim[0], ids->dim[1]};
  Dim dim[2] = {{.tag = TAG_RAGGED, .parts = 1, .unit = 1}, x->dim[1]};
  dim[0].size = choices[0].size * choices[1].size;
  Dim ends = {.tag = TAG_EXPERT, .size = op->attr.experts + 1};
  op->attr.topk = (int32_t)choices[1].size;
  op_result(g, op, 0, DT_ACT, dim, 2);
  op_result(g, op, 1, DT_I32, &ends, 1);
  return op_result(g, op, 2, DT_I32, choices, 2);
}

GRAD(grad_permute, OP_permute_dx, (DY0, Y2), (0))

/* Rows and offsets are those of one permute, for as many experts. */
static weft_status need_offsets(Graph *g, const Op *op, int64_t experts, weft_error *e) {
  const Tensor *x = op_in(g, op, 0), *ends = op_in(g, op, 2);
  const Op *by = maker_of(g, ends);
  if (!by || by->code != OP_permute || ends->ndim != 1 ||
      ends->dim[0].size != experts + 1)
    return shape_error(g, op, e, "needs the offsets of %lld experts", (long long)experts);
  if (!same_rows(x, &g->t.at[by->out[0]], 1))
    return shape_error(g, op, e, "needs rows of the permute that made the offsets");
  return WEFT_OK;
}

weft_status infer_grouped_linear(Graph *g, Op *op, weft_error *e) {
  const Tensor *x = op_in(g, op, 0), *w = op_in(g, op, 1);
  for (int i = 0; i < 2; i++) TRY(need_numbers(g, op, i, e));
  int out = op->attr.layout ? 2 : 1, in = 3 - out;
  if (x->ndim != 2 || w->ndim != 3 || x->dim[1].size != w->dim[in].size)
    return shape_error(g, op, e, "needs rows (R,I) and a weight (E,%s)",
                       op->attr.layout ? "I,O" : "O,I");
  TRY(need_offsets(g, op, w->dim[0].size, e));
  Dim dim[2] = {x->dim[0], w->dim[out]};
  return op_result(g, op, 0, DT_ACT, dim, 2);
}

void grad_grouped_linear(Graph *g, Oid op, const Tid *dout, Tid *din) {
  BACKWARD(g, op, dout, din, OP_grouped_linear_dx, (DY0, X1, X2), (0));
  BACKWARD(g, op, dout, din, OP_grouped_linear_dw, (X0, DY0, X2), (1));
}

weft_status infer_grouped_bias(Graph *g, Op *op, weft_error *e) {
  const Tensor *x = op_in(g, op, 0), *b = op_in(g, op, 1);
  for (int i = 0; i < 2; i++) TRY(need_numbers(g, op, i, e));
  if (x->ndim != 2 || b->ndim != 2 || x->dim[1].size != b->dim[1].size)
    return shape_error(g, op, e, "needs rows (R,O) and a bias (E,O)");
  TRY(need_offsets(g, op, b->dim[0].size, e));
  /* a row of each expert is a vector, as other biases are */
  if (b->kind == T_PARAM) g->param.at[b->index].decay = false;
  Dim dim[2] = {x->dim[0], x->dim[1]};
  return op_result(g, op, 0, DT_ACT, dim, 2);
}

void grad_grouped_bias(Graph *g, Oid op, const Tid *dout, Tid *din) {
  din[0] = dout[0];
  BACKWARD(g, op, dout, din, OP_grouped_bias_dw, (DY0, X2), (1));
}

weft_status infer_combine(Graph *g, Op *op, weft_error *e) {
  const Tensor *x = op_in(g, op, 0), *w = op_in(g, op, 1), *at = op_in(g, op, 2);
  const Op *by = maker_of(g, at);
  TRY(need_numbers(g, op, 0, e));
  if (x->ndim != 2 || w->dtype != DT_F32 || w->ndim != 2 || !by ||
      by->code != OP_permute || at->ndim != 2 || !same_rows(at, w, 2) ||
      x->dim[0].size != w->dim[0].size * w->dim[1].size)
    return shape_error(g, op, e, "needs rows (R,C), weights of route, rows of permute");
  Dim dim[2] = {w->dim[0], x->dim[1]};
  return op_result(g, op, 0, DT_ACT, dim, 2);
}

GRAD(grad_combine, OP_combine_dx, (X0, X1, X2, DY0), (0, 1))

/* ---- costs ---- each row meets the weight of one expert */

static double grouped(const Tensor *rows, const Tensor *w) {
  return 2.0 * (double)rows->dim[0].local * (double)w->dim[1].local *
         (double)w->dim[2].local;
}

double cost_grouped(const Graph *g, const Op *op) {
  return grouped(&g->t.at[op->in[0]], &g->t.at[op->in[1]]);
}

double cost_grouped_dw(const Graph *g, const Op *op) {
  return grouped(&g->t.at[op->in[0]], &g->t.at[op->out[0]]);
}
