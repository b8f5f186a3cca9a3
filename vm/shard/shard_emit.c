/* shard_emit.c - writes tensors and ops of the sharded graph: with local sizes, and with
 * what a kernel must know of the part that its rank has. */
#include "shard.h"
#include "vm/graph/rules.h"

static void set_local(const Shard *s, Tensor *t, Place p) {
  t->place = p = shard_told(s, p);
  for (int d = 0; d < t->ndim; d++)
    t->dim[d].local = t->dim[d].tag == TAG_RAGGED
                          ? shard_ragged(s, t->logical, p)
                          : place_local(p, d, t->dim[d].size, s->n);
  if (t->ndim && t->dim[0].tag == TAG_RAGGED) t->even = shard_even(s, t->logical, p);
}

Tid shard_emit_tensor(Shard *s, Tid t, Place p) {
  const Tensor *x = &s->g->t.at[t];
  DType dt = x->dtype == DT_ACT    ? s->plan->dtype
             : x->dtype == DT_GRAD ? s->plan->grad
                                   : (DType)x->dtype;
  Tid id = graph_tensor(s->out, x->kind, dt, x->dim, x->ndim);
  Tensor *y = &s->out->t.at[id];
  y->name = x->name;
  y->index = x->index;
  bool adds_up = x->grad_of >= 0 && s->g->t.at[x->grad_of].kind == T_PARAM;
  y->grad_of = adds_up ? -1 : x->grad_of; /* set by shard_settle_gradient */
  y->logical = t;
  set_local(s, y, p);
  return id;
}

Oid shard_emit_op(Shard *s, int code, int nin, int nout, const Op *like, Phase ph) {
  Oid id = graph_add(s->out, code, nin, nout, like->unit, ph);
  Op *op = &s->out->op.at[id];
  op->attr = like->attr;
  op->name = like->name;
  op->line = like->line;
  op->recomputed = like->recomputed;
  return id;
}

void shard_bind(Shard *s, Oid id, int k, Tid t) {
  Graph *g = s->out;
  g->op.at[id].out[k] = t;
  g->t.at[t].kind = T_VALUE;
  g->t.at[t].producer = id;
  g->t.at[t].unit = g->op.at[id].unit;
}

Tid shard_emit(Shard *s, int code, const Tid *in, int nin, OpAttr attr, Tid logical,
               Place p, const Dim *dim, int ndim, const Op *user, Phase ph) {
  Tid t = shard_emit_tensor(s, logical, p);
  if (dim) {
    Tensor *x = &s->out->t.at[t];
    x->ndim = (uint8_t)ndim;
    for (int d = 0; d < ndim; d++)
      x->dim[d] = (Dim){.tag = dim[d].tag,
                        .size = dim[d].size,
                        .local = dim[d].size,
                        .parts = 1,
                        .unit = 1};
  }
  Oid id = shard_emit_op(s, code, nin, 1, user, ph);
  Op *op = &s->out->op.at[id];
  op->attr = attr;
  memcpy(op->in, in, sizeof *in * (size_t)nin);
  shard_bind(s, id, 0, t);
  return t;
}

Tid shard_emit_cast(Shard *s, Tid logical, Tid from, Place to, AxisSet one_rank,
                    const Op *user) {
  Tid t = shard_emit_tensor(s, logical, to);
  Oid id = shard_emit_op(s, OP_cast, 1, 1, user, user->phase);
  s->out->op.at[id].attr = (OpAttr){.cut = one_rank};
  s->out->op.at[id].in[0] = from;
  shard_bind(s, id, 0, t);
  return t;
}

void shard_size_params(Shard *s) {
  for (int i = 0; i < s->g->param.n; i++) {
    Tid t = s->g->param.at[i].tensor;
    set_local(s, &s->out->t.at[s->local[t]], s->place[t]);
  }
}

/* ---- what kernels must know of a part ---- */

/* Whether the op's kernel must know which shard of the vocabulary this rank has. */
static bool vocab_cut(const Shard *s, Oid id) {
  const Op *op = &s->g->op.at[id];
  Oid f = id < s->g->forward_ops ? id : op->fwd;
  switch (op->code) {
  case OP_embedding:
  case OP_embedding_dw: return s->need[f][1].on[AX_TP] == 0;
  case OP_ce_max:
  case OP_ce_sum:
  case OP_ce_dx:
  case OP_divergence_sums:
  case OP_divergence_dx: return s->need[f][0].on[AX_TP] == s->g->t.at[op->in[0]].ndim - 1;
  default: return false;
  }
}

bool shard_cut_documents(const Shard *s) {
  return plan_cuts_documents(s->plan, s->n[AX_CP] * s->n[AX_CP_HEADS]);
}

void shard_cut_queries(const Shard *s, Op *op) {
  if (shard_cut_documents(s)) op->attr.parts = 2 * s->n[AX_CP] * s->n[AX_CP_HEADS];
  if (s->n[AX_CP] == 1) return; /* one rank has all queries */
  op->attr.cut = ax_set_mesh(shard_ring_axes(s));
  op->attr.n = s->n[AX_CP];
  op->attr.mirror = !s->plan->cp.in_order;
}

/* Whether the op sends the tokens of all ep ranks to the experts of this one. */
static bool experts_cut(const Shard *s, Oid id) {
  return s->g->op.at[id].code == OP_permute && s->yield[id][0].on[AX_EP] == 0;
}

static bool has_sinks(const Graph *g, Oid f) {
  const Op *op = &g->op.at[f];
  if (op->code == OP_attention_step) return op->nin > 4;
  return op->code == OP_attention && attention_sinks_operand(g, op) >= 0;
}

/* The ranks whose rows are parts of sums that a bias is added to. */
static AxisSet biased_once(const Shard *s, Oid id) {
  const Op *op = &s->g->op.at[id];
  bool back = op->code == OP_grouped_bias_dw;
  if (!back && op->code != OP_grouped_bias) return 0;
  return place_partial(shard_told(s, s->yield[back ? op->fwd : id][0]));
}

/* Dropout draws for the columns, or heads, of all ranks, with the plan's seed; sinks are
 * of all heads, too. */
void shard_dropout_place(const Shard *s, Oid id, Op *o) {
  Oid f = id < s->g->forward_ops ? id : s->g->op.at[id].fwd;
  if (f < 0) return;
  int code = s->g->op.at[f].code;
  bool rows = code == OP_dropout || code == OP_noise, sinks = !rows && has_sinks(s->g, f);
  if (s->g->op.at[f].attr.rate == 0 && !sinks) return;
  Place x = shard_told(s, s->need[f][0]);
  AxisSet cut = place_dim_cuts(x, s->g->t.at[s->g->op.at[f].in[0]].ndim - 1);
  if (s->g->op.at[f].attr.rate != 0) o->attr.seed = s->plan->seed;
  if (rows)
    o->attr.cut = cut;
  else
    o->attr.heads_cut = cut;
}

/* Which part of a weight in 4 bits this rank has. */
static void cut_nf4(const Shard *s, Oid id, Op *o) {
  Place p = shard_told(s, s->need[id][0]);
  o->attr.n = 1;
  for (int d = 0; d < 2; d++) {
    if (!place_cuts_dim(p, d)) continue;
    const Tensor *codes = &s->out->t.at[s->local[s->g->op.at[id].in[0]]];
    o->attr.dim = d;
    o->attr.parts = codes->dim[d].parts;
    o->attr.cut = place_dim_cuts(p, d);
    o->attr.n = (int32_t)(codes->dim[d].size / codes->dim[d].local);
  }
}

void shard_emit_like(Shard *s, Oid id, const Tid *in) {
  const Op *op = &s->g->op.at[id];
  Oid to = shard_emit_op(s, op->code, op->nin, op->nout, op, op->phase);
  Op *o = &s->out->op.at[to];
  memcpy(o->in, in, sizeof(Tid) * (size_t)op->nin);
  if (vocab_cut(s, id)) o->attr.cut = AXIS_BIT(AXIS_TP);
  if (experts_cut(s, id)) o->attr.cut = AXIS_BIT(AXIS_EP);
  AxisSet once = biased_once(s, id);
  if (once) o->attr.cut = once;
  shard_dropout_place(s, id, o);
  if (op->code == OP_nf4) cut_nf4(s, id, o);
  if (op->code == OP_permute) shard_limit_rows(s, o);
  if (op->code == OP_attention || op->code == OP_attention_dx) shard_cut_queries(s, o);
  for (int i = 0; i < op->nout; i++) {
    Tid t = op->out[i];
    s->local[t] = shard_emit_tensor(s, t, s->place[t]);
    shard_bind(s, to, i, s->local[t]);
  }
}
