/* shard_ask.c - what rules ask of the pass. */
#include "shard.h"

Place shard_in(const Shard *s, Oid op, int i) { return s->place[s->g->op.at[op].in[i]]; }

/* Whether t is a (batch, seq, hidden) activation under sequence parallelism. */
bool shard_is_residual(const Shard *s, Tid t) {
  const Tensor *x = &s->g->t.at[t];
  return s->plan->strategy.sequence_parallel && s->tp > 1 && x->ndim == 3 &&
         x->dim[1].tag == TAG_SEQ && x->dim[2].tag == TAG_HIDDEN;
}

/* Whether cp shards dimension TAG_SEQ of the tensor; heads are sharded over cp within
 * attention only. */
static bool has_tokens(const Shard *s, Tid t) {
  const Tensor *x = &s->g->t.at[t];
  return x->ndim > 1 && x->dim[1].tag == TAG_SEQ;
}

Place shard_settle(const Shard *s, Tid t) {
  Place p = s->place[t];
  for (int a = AX_CP; a <= AX_CP_HEADS && has_tokens(s, t); a++)
    if (p.on[a] >= 0) p.on[a] = 1;
  bool cut = (p.on[AX_TP] < PL_R || p.on[AX_TP_REP] < PL_R) && shard_is_residual(s, t);
  for (int a = 0; a < AX_N; a++)
    if (p.on[a] < PL_R) p.on[a] = PL_R;
  if (cut) p.on[AX_TP] = p.on[AX_TP_REP] = 1;
  return p;
}

Place shard_one_run(const Shard *s, Tid t, Place p) {
  const Tensor *x = &s->g->t.at[t];
  int last = x->ndim - 1;
  if (p.on[AX_TP] == last && x->dim[last].parts > 1) p.on[AX_TP] = p.on[AX_TP_REP] = PL_R;
  return p;
}

Place shard_settled(const Shard *s, Oid op, int i) {
  return shard_settle(s, s->g->op.at[op].in[i]);
}

Place shard_with_copies(const Shard *s, Tid t, Place p) {
  int d = p.on[AX_TP];
  if (d >= PL_R) p.on[AX_TP_REP] = (int8_t)(d >= 0 && shard_copied(s, t, d) ? PL_R : d);
  return p;
}

bool shard_on_one_mesh(Place p) {
  bool dense = false, expert = false;
  for (int a = 0; a < AX_N; a++) {
    if (p.on[a] == PL_R) continue;
    dense |= !ax_expert((ShardAxis)a);
    expert |= ax_expert((ShardAxis)a);
  }
  return !dense || !expert;
}

Place shard_dense_sum(const Shard *s, Place p) {
  for (int a = 0; a < AX_N; a++)
    if (s->n[a] > 1 && ax_expert((ShardAxis)a) != (p.on[a] == PL_P)) return p;
  for (int a = 0; a < AX_N; a++)
    p.on[a] = !ax_expert((ShardAxis)a) && s->n[a] > 1 ? PL_P : PL_R;
  return shard_told(s, p);
}

void shard_divide(Place *y, Place by, int how) {
  y->on[AX_TP] = (int8_t)how;
  y->on[AX_TP_REP] = (int8_t)(by.on[AX_TP_REP] >= 0 ? how : PL_R);
}

void shard_need(Shard *s, Oid op, int i, Place p) {
  s->need[op][i] = shard_with_copies(s, s->g->op.at[op].in[i], p);
}

void shard_yield(Shard *s, Oid op, int i, Place p) {
  s->yield[op][i] = shard_with_copies(s, s->g->op.at[op].out[i], p);
}

bool shard_placed(Shard *s, Oid op, int n, const Place *in, Place y) {
  for (int i = 0; i < n; i++) shard_need(s, op, i, in[i]);
  shard_yield(s, op, 0, y);
  return true;
}

/* cp and tp are split into two parts each: a part with one rank gets the placement of the
 * other part, so that equal placements compare equal. */
static void tell_part(const Shard *s, Place *p, ShardAxis outer, ShardAxis inner) {
  if (s->n[inner] == 1)
    p->on[inner] = p->on[outer];
  else if (s->n[outer] == 1)
    p->on[outer] = p->on[inner];
}

Place shard_told(const Shard *s, Place p) {
  tell_part(s, &p, AX_CP, AX_CP_HEADS);
  tell_part(s, &p, AX_TP, AX_TP_REP);
  return p;
}

bool shard_same(const Shard *s, Place a, Place b) {
  return place_eq(shard_told(s, a), shard_told(s, b));
}
