/* shard_backward.c - placements of backward ops and of parameter gradients.
 *
 * All contributions to a parameter's gradient accumulate in one buffer, so they have one
 * placement: sharded where the parameter is sharded; over other axes partial (P) as soon
 * as one of them is, because these sums over ranks are made once per step. A contribution
 * that is replicated over such an axis must count once: a cast with attr.cut keeps it on
 * one rank. */
#include "shard.h"

/* ---- operands and results ---- */

static Place strip(Place p) {
  for (int a = 0; a < AX_N; a++)
    if (p.on[a] < PL_R && p.on[a] != PL_OWN) p.on[a] = PL_R;
  return p;
}

/* Whether a tensor is placed on the mesh (dense or expert) that axis `a` is not of: then
 * the placement of the op's results over `a` says nothing about the operand. */
static bool of_other_mesh(Place p, ShardAxis a) {
  for (int x = 0; x < AX_N; x++)
    if (p.on[x] != PL_R && ax_expert((ShardAxis)x) != ax_expert(a)) return true;
  return false;
}

/* The dual placement: of the gradient of operand k of forward op `f`. It is sharded where
 * the operand is; where the operand is whole and the op's work is divided over the axis,
 * it is partial. */
static Place dual(const Shard *s, Oid f, int k) {
  const Op *op = &s->g->op.at[f];
  Place need = s->need[f][k], p = need;
  for (int a = 0; a < AX_N; a++) {
    bool divided = false;
    if (of_other_mesh(need, (ShardAxis)a)) continue;
    for (int i = 0; i < op->nin; i++) divided |= s->need[f][i].on[a] >= 0;
    for (int i = 0; i < op->nout; i++) divided |= s->yield[f][i].on[a] != PL_R;
    if (p.on[a] == PL_OWN) continue;
    if (p.on[a] < PL_R)
      p.on[a] = PL_R; /* P passed through the op: the gradient is whole */
    else if (p.on[a] == PL_R && divided)
      p.on[a] = PL_P;
  }
  bool param = s->g->t.at[op->in[k]].kind == T_PARAM;
  return param ? shard_dense_sum(s, p) : p;
}

/* ---- replicated heads ---- Where tp_kv shards a tensor and tp_rep replicates it, each
 * replica has other readers, so its gradient is partial over tp_rep. Backward ops are
 * linear in gradients: the partial gradients pass through them up to the parameters and
 * the hidden states, whose reductions sum them. */

static bool copied(const Shard *s, Oid f) {
  const Op *op = &s->g->op.at[f];
  /* fp8 rounds the whole gradient, which is no sum of rounded parts */
  bool all = op->nout > 0 && s->n[AX_TP_REP] > 1 && op->code != OP_linear_fp8;
  for (int i = 0; i < op->nout; i++)
    all &= s->yield[f][i].on[AX_TP] >= 0 && s->yield[f][i].on[AX_TP_REP] == PL_R;
  return all;
}

static bool is_gradient(const Op *op, int i) {
  int kind = op->role[i] & ROLE_KIND;
  return kind == ROLE_DOUT || kind == ROLE_DIN;
}

/* Whether the gradients that a backward op reads are partial over tp_rep. */
static bool in_parts(const Shard *s, Oid id) {
  const Op *op = &s->g->op.at[id];
  bool all = copied(s, op->fwd);
  for (int i = 0; i < op->nin; i++)
    if (is_gradient(op, i)) all &= shard_in(s, id, i).on[AX_TP_REP] == PL_P;
  return all;
}

static Place parted(Place p, bool in_parts) {
  if (in_parts && p.on[AX_TP_REP] == PL_R) p.on[AX_TP_REP] = PL_P;
  return p;
}

/* The gradient of dispatched rows returns the way they came: it stays partial over etp.
 */
static Place with_parts_of_experts(const Shard *s, Oid id, Place p) {
  const Op *op = &s->g->op.at[id];
  if (op->code == OP_permute_dx && shard_in(s, id, 0).on[AX_ETP] == PL_P)
    p.on[AX_ETP] = PL_P;
  return p;
}

/* The placement of result i of a backward op: the dual of the operand it is the gradient
 * of. */
static Place result_place(const Shard *s, const Op *op, int i) {
  return dual(s, op->fwd, op->role[op->nin + i] & ROLE_INDEX);
}

bool shard_all_parts(const Shard *s, Oid id, int a) {
  for (int i = 0; i < s->g->op.at[id].nin; i++)
    if (shard_in(s, id, i).on[a] != PL_P) return false;
  return true;
}

static void place_acc(Shard *s, Oid id) {
  const Op *op = &s->g->op.at[id];
  Tid of = s->g->t.at[op->out[0]].grad_of;
  bool rows =
      s->g->t.at[of].dim[0].tag == TAG_RAGGED; /* are summed in the placement they have */
  Place p = rows ? shard_in(s, id, 0) : shard_settle(s, of);
  for (int a = 0; a < AX_N; a++)
    if (shard_all_parts(s, id, a)) p.on[a] = PL_P;
  for (int i = 0; i < op->nin; i++) s->need[id][i] = p;
  s->yield[id][0] = p;
}

void shard_place_backward(Shard *s, Oid id) {
  const Op *op = &s->g->op.at[id];
  if (op->code == OP_acc) {
    place_acc(s, id);
    return;
  }
  if (op->code == OP_amax) {
    shard_place_fp8(s, id);
    return;
  }
  bool parts = in_parts(s, id);
  for (int i = 0; i < op->nin; i++) {
    int k = op->role[i] & ROLE_INDEX, kind = op->role[i] & ROLE_KIND;
    if (kind == ROLE_NONE) continue; /* an amax, see below */
    const Tensor *t = &s->g->t.at[op->in[i]];
    Place p = kind == ROLE_IN    ? s->need[op->fwd][k]
              : kind == ROLE_DIN ? dual(s, op->fwd, k)
                                 : strip(s->yield[op->fwd][k]);
    if (kind == ROLE_OUT && op->code == OP_permute_dx)
      p = s->yield[op->fwd][k]; /* what the rank computed itself */
    if (is_gradient(op, i)) p = with_parts_of_experts(s, id, p);
    if (kind == ROLE_DOUT && t->ndim == 1 && t->dim[0].size == 1)
      p = s->place[op->in[i]]; /* the seed and what is computed from it */
    s->need[id][i] = parted(p, parts && is_gradient(op, i));
  }
  for (int i = 0; i < op->nout; i++)
    s->yield[id][i] = parted(with_parts_of_experts(s, id, result_place(s, op, i)), parts);
  if (op->code == OP_linear_fp8_dx || op->code == OP_linear_fp8_dw)
    shard_place_fp8(s, id);
}

/* ---- gradients of parameters ---- */

static int param_of(const Graph *g, Tid grad) {
  Tid of = g->t.at[grad].grad_of;
  return of >= 0 && g->t.at[of].kind == T_PARAM ? g->t.at[of].index : -1;
}

/* A parameter that is read on both meshes has a gradient on the dense one: what is
 * partial over some axes of the other is summed up over these before it is added. */
static void stay_on_mesh(Place *p) {
  if (shard_on_one_mesh(*p)) return;
  for (int a = 0; a < AX_N; a++)
    if (ax_expert((ShardAxis)a) && p->on[a] == PL_P) p->on[a] = PL_R;
}

/* requires placements of forward ops; establishes the placement in which each gradient
 * accumulates */
void shard_grad_targets(Shard *s) {
  const Graph *g = s->g;
  s->grad_to = NEW_N(s->out->arena, Place, g->param.n);
  s->contributions = NEW_N(s->out->arena, int, g->param.n);
  for (int i = 0; i < g->param.n; i++) s->grad_to[i] = s->place[g->param.at[i].tensor];
  for (Oid id = g->forward_ops; id < g->op.n; id++) {
    const Op *op = &g->op.at[id];
    for (int i = 0; i < op->nout && op_adds(op->code); i++) {
      int param = param_of(g, op->out[i]);
      if (param < 0) continue;
      s->contributions[param]++;
      Place p = parted(result_place(s, op, i), copied(s, op->fwd));
      for (int a = 0; a < AX_N; a++)
        if (s->grad_to[param].on[a] == PL_R && p.on[a] == PL_P)
          s->grad_to[param].on[a] = PL_P;
    }
  }
  for (int i = 0; i < g->param.n; i++) stay_on_mesh(&s->grad_to[i]);
}

/* Whether op `id` may accumulate into the gradient buffers of its results itself. A
 * kernel with several results accumulates all of them or none, so no other op may write
 * to them. */
static bool direct(const Shard *s, Oid id) {
  const Op *op = &s->g->op.at[id];
  if (op->phase != PH_W) return false;
  for (int i = 0; i < op->nout; i++) {
    int param = param_of(s->g, op->out[i]);
    if (param < 0 || (op->nout > 1 && s->contributions[param] > 1)) return false;
  }
  return true;
}

/* Converts a contribution as far towards `to` as collectives can; over the remaining axes
 * it is replicated, and *one_rank gets these. */
static Tid bring(Shard *s, Tid t, Tid x, Place to, const Op *op, AxisSet *one_rank) {
  Place near = to = shard_told(s, to), was = s->out->t.at[x].place;
  uint32_t axes = 0;
  for (int a = 0; a < AX_N; a++) {
    if (to.on[a] != PL_P || was.on[a] == PL_P) continue;
    near.on[a] = PL_R;
    axes |= 1u << a;
  }
  *one_rank = ax_set_mesh(axes);
  return shard_convert(s, t, x, near, op, op->phase);
}

bool shard_settle_gradient(Shard *s, Oid id, int i) {
  const Op *op = &s->g->op.at[id];
  Tid t = op->out[i];
  int param = param_of(s->g, t);
  if (param < 0 || !op_adds(op->code)) return false;
  Place to = s->grad_to[param];
  if (!shard_same(s, s->place[t], to) || !direct(s, id)) {
    AxisSet one_rank = 0;
    Tid x = bring(s, t, s->local[t], to, op, &one_rank);
    Op like = *op;
    like.phase = PH_W;
    s->local[t] = shard_emit_cast(s, t, x, to, one_rank, &like);
    s->place[t] = to;
  }
  s->out->t.at[s->local[t]].grad_of = s->g->t.at[t].grad_of;
  return true;
}
