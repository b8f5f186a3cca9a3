/* shard_experts.c - placement rules of mixture of experts. Tokens keep the sharding of
 * batch and sequence. Row counts depend on each rank's own data: offsets and counts are
 * partial over the axes that shard tokens.
 *
 * Where mesh.ep or mesh.etp gives experts a mesh of their own (Shard.own_experts),
 * `flatten` changes a tensor's placement to that mesh without moving data: each rank has
 * the same rows, now as its piece over ep_shard, ep and etp. Experts are sharded over ep,
 * their features over etp, and replicated over ep_shard. Everything else is conversions:
 * permute needs the tokens of all ranks of ep and etp and takes those for its own
 * experts; the result of combine is partial over both. */
#include "shard_rules.h"

/* ---- tokens ---- Batch and sequence become one dimension, sharded by every axis that
 * shards either. Only `unflatten` needs to know which token is where, and it undoes
 * `flatten`. Rows that are gathered over tp are in the order of ranks, so a rank with
 * pieces of several sequences gathers them before `flatten`, as sequences. */

/* Batch and sequence sharded over all ranks; and the rows of the expert mesh. */
static Place cut_tokens(const Shard *s) {
  Place p = place_whole();
  if (s->n[AX_DP] > 1) p.on[AX_DP] = 0;
  if (s->n[AX_CP] > 1) p.on[AX_CP] = 1;
  if (s->n[AX_CP_HEADS] > 1) p.on[AX_CP_HEADS] = 1;
  if (s->tp > 1) p.on[AX_TP] = 1;
  return p;
}

static Place cut_rows(const Shard *s) {
  Place p = place_whole();
  for (int a = 0; a < AX_N; a++)
    if (ax_expert((ShardAxis)a) && s->n[a] > 1) p.on[a] = 0;
  return p;
}

static bool tokens_divide(Shard *s) {
  int64_t seq = s->g->seq / (s->n[AX_CP] * s->n[AX_CP_HEADS]);
  const char *wrong = mesh_tp_divides(s->d->arena, s->tp, "batch.seq / cp", seq);
  if (wrong && shard_tell_once(s, wrong))
    diag_error(s->d, "divisibility", "batch.seq", "%s", wrong)->suggestion =
        "experts with a mesh of their own (mesh.ep, mesh.etp) get tokens that are "
        "sharded over tp";
  return !wrong;
}

static bool tp_cuts_rows(const Shard *s) { return s->g->batch == s->n[AX_DP]; }

bool shard_flatten(Shard *s, Oid op) {
  if (s->own_experts) {
    shard_need(s, op, 0, cut_tokens(s));
    shard_yield(s, op, 0, cut_rows(s));
    return tokens_divide(s);
  }
  Place x = shard_settled(s, op, 0), y;
  if (!tp_cuts_rows(s)) x.on[AX_TP] = PL_R;
  for (int a = 0; a < AX_N; a++) {
    if (x.on[a] > 1) x.on[a] = PL_R;
    y.on[a] = x.on[a] >= 0 ? 0 : PL_R;
  }
  return shard_placed(s, op, 1, (Place[]){x}, y);
}

bool shard_unflatten(Shard *s, Oid op) {
  if (s->own_experts) {
    shard_need(s, op, 0, cut_rows(s));
    shard_yield(s, op, 0, cut_tokens(s));
    s->gathered[op] = s->tp > 1 && !shard_is_residual(s, s->g->op.at[op].out[0]);
    return tokens_divide(s);
  }
  Place x = shard_in(s, op, 0), y;
  if (!tp_cuts_rows(s) && shard_cuts_rows(x.on[AX_TP])) x.on[AX_TP] = PL_R;
  for (int a = 0; a < AX_N; a++) {
    if (x.on[a] > 0) x.on[a] = PL_R;
    y.on[a] = x.on[a];
    if (shard_cuts_rows(x.on[a]) && a != AX_DP) y.on[a] = 1;
  }
  return shard_placed(s, op, 1, (Place[]){x}, y);
}

/* ---- dispatch and combine ---- */

const Op *shard_permutation(const Graph *g, Tid t) {
  for (;;) {
    while (g->t.at[t].grad_of >= 0) t = g->t.at[t].grad_of;
    const Op *op = g->t.at[t].producer < 0 ? NULL : &g->op.at[g->t.at[t].producer];
    if (!op || op->code == OP_permute) return op;
    Tid from = -1;
    for (int i = 0; i < op->nin; i++)
      if (g->t.at[op->in[i]].dim[0].tag == TAG_RAGGED) from = op->in[i];
    if (from < 0) return NULL;
    t = from;
  }
}

static bool by_exchange(const Shard *s) {
  return s->plan->moe.dispatcher == MOE_ALLTOALL && s->n[AX_EP] > 1;
}

/* The most of `rows` choices, made by the tokens of the etp ranks, that can be for the
 * experts of one rank: at most one per token and local expert; a capacity limits those
 * from each rank. */
static int64_t rows_of_each(const Shard *s, const OpAttr *a, int64_t rows) {
  int ep = s->n[AX_EP], etp = s->n[AX_ETP];
  int64_t here = a->experts / ep, most = rows / a->topk * MIN(a->topk, here);
  if (a->bound > 0) most = MIN(most, rows_taken(a->bound, rows, ep));
  if (a->capacity > 0)
    most = MIN(most, here * etp * rows_taken(a->capacity, rows / etp, a->experts));
  return most;
}

int64_t shard_ragged(const Shard *s, Tid t, Place p) {
  int64_t rows = place_local(p, 0, s->g->t.at[t].dim[0].size, s->n);
  int ep = s->n[AX_EP];
  if (p.on[AX_EP] == PL_OWN) return rows / ep;
  if (p.on[AX_EP] != 0) return rows;
  const OpAttr *a = &shard_permutation(s->g, t)->attr;
  return rows_of_each(s, a, rows) * ep;
}

/* The ranks of ep have experts of their own: choices that their tokens make in the mean
 * are there. A limit below the mean drops the others. */
double shard_even(const Shard *s, Tid t, Place p) {
  int64_t most = shard_ragged(s, t, p);
  int64_t rows = place_local(p, 0, s->g->t.at[t].dim[0].size, s->n);
  return p.on[AX_EP] == 0 && rows < most ? (double)rows / (double)most : 1;
}

/* Sets what the limit of an op counts: a capacity the tokens of each rank, a bound those
 * of the ranks of etp together. */
void shard_limit_rows(const Shard *s, Op *op) {
  if (!s->own_experts) return;
  op->attr.n = by_exchange(s) ? 1 : s->n[AX_EP];
  if (op->attr.capacity > 0)
    op->attr.n *= s->n[AX_ETP];
  else
    op->attr.parts = s->n[AX_EP];
}

/* Dispatch by all-gather: from the tokens of all ranks of ep and etp, the rows for this
 * rank's experts. */
static void gather_rows(Shard *s, Oid op) {
  Place x = cut_rows(s), y;
  x.on[AX_EP] = x.on[AX_ETP] = PL_R;
  for (int i = 0; i < 3; i++) shard_need(s, op, i, x);
  y = x;
  if (s->n[AX_EP] > 1) y.on[AX_EP] = 0;
  shard_yield(s, op, 0, y);
  y = shard_parts_of_rows(x);
  if (s->n[AX_EP] > 1) y.on[AX_EP] = 0;
  shard_yield(s, op, 1, y);
  y = x;
  if (s->n[AX_EP] > 1) y.on[AX_EP] = PL_P;
  shard_yield(s, op, 2, y);
}

/* Dispatch by all-to-all: sorts the rows of a rank's own tokens by expert; the ranks of
 * etp have the same tokens. */
static void sort_rows(Shard *s, Oid op) {
  Place x = cut_rows(s), y;
  x.on[AX_ETP] = PL_R;
  for (int i = 0; i < 3; i++) shard_need(s, op, i, x);
  y = x;
  y.on[AX_EP] = PL_OWN;
  shard_yield(s, op, 0, y);
  y = shard_parts_of_rows(x);
  y.on[AX_EP] = PL_OWN;
  shard_yield(s, op, 1, y);
  shard_yield(s, op, 2, x);
}

/* Without an expert mesh each rank has all rows: tp may shard the features of experts. */
bool shard_permute(Shard *s, Oid op) {
  if (s->own_experts) {
    if (by_exchange(s))
      sort_rows(s, op);
    else
      gather_rows(s, op);
    return true;
  }
  Place x = shard_whole_rows(shard_settled(s, op, 0));
  x.on[AX_TP] = PL_R;
  for (int i = 0; i < 3; i++) shard_need(s, op, i, x);
  shard_yield(s, op, 0, x);
  shard_yield(s, op, 1, shard_parts_of_rows(x));
  shard_yield(s, op, 2, x);
  return true;
}

/* A grouped linear on the expert mesh: the result is partial over etp where etp shards
 * the features that are summed over. */
static bool own_linear(Shard *s, Oid op, int out_dim) {
  Place w, x = shard_in(s, op, 0), ends = shard_in(s, op, 2), y;
  if (!shard_experts_param(s, op, 1, &w)) return false;
  if (s->n[AX_EP] > 1) x.on[AX_EP] = ends.on[AX_EP] = 0;
  if (shard_takes_partial(s, op, AX_ETP))
    x.on[AX_ETP] = PL_P;
  else
    x.on[AX_ETP] = (int8_t)(w.on[AX_ETP] == 3 - out_dim ? 1 : PL_R);
  y = x;
  if (w.on[AX_ETP] >= 0) y.on[AX_ETP] = (int8_t)(w.on[AX_ETP] == out_dim ? 1 : PL_P);
  return shard_placed(s, op, 3, (Place[]){x, w, ends}, y);
}

bool shard_grouped_linear(Shard *s, Oid op) {
  int out_dim = s->g->op.at[op].attr.layout ? 2 : 1;
  if (s->own_experts) return own_linear(s, op, out_dim);
  Place w, x = shard_linear_rows(s, op), ends = shard_in(s, op, 2);
  if (!shard_param(s, op, 1, ROLE_EXPERTS, out_dim, &w)) return false;
  Place y = x;
  if (w.on[AX_TP] == out_dim) {
    x.on[AX_TP] = PL_R;
    y.on[AX_TP] = 1;
  } else if (w.on[AX_TP] >= 0) {
    x.on[AX_TP] = 1;
    shard_divide(&y, w, PL_P);
  } else if (x.on[AX_TP] == 1) {
    x.on[AX_TP] = y.on[AX_TP] = PL_R;
  }
  shard_need(s, op, 0, x);
  shard_need(s, op, 1, w);
  shard_need(s, op, 2, ends);
  shard_yield(s, op, 0, y);
  return w.on[AX_TP] != 3 - out_dim || shard_same_parts(s, op, 0, 1, 1, 3 - out_dim);
}

/* Rows that are partial sums stay so: the bias is added on the first of the ranks. */
bool shard_grouped_bias(Shard *s, Oid op) {
  Place b, x = shard_in(s, op, 0), ends = shard_in(s, op, 2);
  bool own = s->own_experts;
  ShardAxis a = own ? AX_ETP : AX_TP;
  if (own ? !shard_experts_param(s, op, 1, &b)
          : !shard_param(s, op, 1, ROLE_EXPERTS_BIAS, 0, &b))
    return false;
  if (own && s->n[AX_EP] > 1) x.on[AX_EP] = ends.on[AX_EP] = 0;
  if (x.on[a] != PL_P) x.on[a] = b.on[a];
  return shard_placed(s, op, 3, (Place[]){x, b, ends}, x);
}

/* Combine on the expert mesh: each rank has some of the rows of a token, or partial sums
 * of them. */
static void combine_parts(Shard *s, Oid op) {
  Place x = shard_in(s, op, 0), w = cut_rows(s), y;
  w.on[AX_ETP] = PL_R;
  if (x.on[AX_ETP] != PL_P) x.on[AX_ETP] = PL_R;
  y = w;
  if (by_exchange(s))
    x.on[AX_EP] = PL_OWN;
  else if (s->n[AX_EP] > 1)
    w.on[AX_EP] = PL_R, y.on[AX_EP] = PL_P;
  y.on[AX_ETP] = x.on[AX_ETP];
  shard_need(s, op, 0, x);
  shard_need(s, op, 1, w);
  shard_need(s, op, 2, shard_in(s, op, 2));
  shard_yield(s, op, 0, y);
}

/* Linear in the rows that come back: partial sums pass through. */
bool shard_combine(Shard *s, Oid op) {
  if (s->own_experts) {
    combine_parts(s, op);
    return true;
  }
  Place x = shard_in(s, op, 0), w = shard_in(s, op, 2), y = w;
  for (int a = 0; a < AX_N; a++) {
    if (x.on[a] != PL_P)
      x.on[a] = w.on[a];
    else
      y.on[a] = PL_P;
  }
  return shard_placed(s, op, 3, (Place[]){x, w, w}, y);
}
