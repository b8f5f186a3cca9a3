/* shard_router.c - placement rules of routers of experts. A router works on whole rows
 * with a whole weight. Row counts depend on each rank's own data: they are partial over
 * the axes that shard tokens. */
#include "shard_rules.h"

#include "vm/graph/rules.h"

bool shard_router_logits(Shard *s, Oid op) {
  Place w, x = shard_whole_rows(shard_settled(s, op, 0));
  if (!shard_param(s, op, 1, ROLE_NORM, 0, &w)) return false;
  shard_need(s, op, 0, x);
  shard_need(s, op, 1, w);
  shard_yield(s, op, 0, x);
  return true;
}

bool shard_route(Shard *s, Oid op) {
  Place b, x = shard_whole_rows(shard_settled(s, op, 0));
  if (route_has_bias(s->g, &s->g->op.at[op])) {
    if (!shard_param(s, op, 1, ROLE_NORM, 0, &b)) return false;
    shard_need(s, op, 1, b);
  } else if (s->g->op.at[op].nin == 2) {
    shard_need(s, op, 1, x);
  }
  shard_need(s, op, 0, x);
  for (int i = 0; i < 2; i++) shard_yield(s, op, i, x);
  return true;
}

/* ---- losses of some sequences by themselves ---- of (batch, seq, ...), of which only
 * batch and sequence are cut */

static bool of_sequences(const Shard *s, Oid op) {
  return s->g->t.at[s->g->op.at[op].in[0]].ndim == 3;
}

static Place cut_sequences(Place p) {
  for (int a = 0; a < AX_N; a++)
    if (p.on[a] < 0 || p.on[a] > 1) p.on[a] = PL_R;
  return p;
}

/* What there is one of for each so many sequences: cut by batch, and `seq` over what cuts
 * sequences. */
static Place each_sequences(Place p, int seq) {
  for (int a = 0; a < AX_N; a++)
    if (p.on[a] == 1) p.on[a] = (int8_t)seq;
  return p;
}

static bool counts_of_sequences(Shard *s, Oid op) {
  Place x = cut_sequences(shard_settled(s, op, 0));
  for (int i = 0; i < 2; i++) shard_need(s, op, i, x);
  shard_yield(s, op, 0, each_sequences(x, PL_P));
  return true;
}

static bool loss_of_sequences(Shard *s, Oid op) {
  Place x = cut_sequences(shard_settled(s, op, 0)), y = x;
  shard_need(s, op, 0, x);
  shard_need(s, op, 1, each_sequences(x, PL_R));
  for (int a = 0; a < AX_N; a++) y.on[a] = x.on[a] >= 0 ? PL_P : PL_R;
  shard_yield(s, op, 0, y);
  return true;
}

/* The tokens of a sequence are balanced by each rank that has some of them, which all do
 * the same. */
bool shard_sinkhorn(Shard *s, Oid op) {
  Place x = each_sequences(cut_sequences(shard_settled(s, op, 0)), PL_R);
  shard_need(s, op, 0, x);
  shard_yield(s, op, 0, x);
  return true;
}

bool shard_sequence_bias(Shard *s, Oid op) {
  Place x = cut_sequences(shard_settled(s, op, 0));
  shard_need(s, op, 0, x);
  shard_need(s, op, 1, each_sequences(x, PL_R));
  shard_yield(s, op, 0, x);
  return true;
}

bool shard_expert_counts(Shard *s, Oid op) {
  if (of_sequences(s, op)) return counts_of_sequences(s, op);
  Place x = shard_whole_rows(shard_settled(s, op, 0));
  for (int i = 0; i < 2; i++) shard_need(s, op, i, x);
  shard_yield(s, op, 0, shard_parts_of_rows(x));
  return true;
}

/* Every rank adds up the counts of all. */
bool shard_running_counts(Shard *s, Oid op) {
  shard_need(s, op, 0, place_whole());
  for (int i = 0; i < 2; i++) shard_yield(s, op, i, place_whole());
  return true;
}

/* Linear in a rank's rows, given the counts over all rows: the result is a partial sum.
 */
bool shard_router_loss(Shard *s, Oid op) {
  if (of_sequences(s, op)) return loss_of_sequences(s, op);
  Place x = shard_whole_rows(shard_settled(s, op, 0));
  shard_need(s, op, 0, x);
  shard_need(s, op, 1, place_whole());
  shard_yield(s, op, 0, shard_dense_sum(s, shard_parts_of_rows(x)));
  return true;
}
