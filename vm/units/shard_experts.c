/* shard_experts.c - placement rules of mixture of experts. Tokens are cut as batch and
 * sequence were; what the data decides (how many rows an expert has) is each rank's own:
 * offsets and counts of its tokens are parts of a sum over the axes that cut them. */
#include "shard.h"
#include "vm/graph/rules.h"

static bool cuts_rows(int on) {
  return on == 0;
}

/* Rows cut as they are, no other dimension. */
static Place whole_rows(Place p) {
  for (int a = 0; a < AX_N; a++)
    if (!cuts_rows(p.on[a])) p.on[a] = PL_R;
  return p;
}

/* What each rank has of its own rows only. */
static Place parts_of_rows(Place p) {
  for (int a = 0; a < AX_N; a++)
    p.on[a] = cuts_rows(p.on[a]) ? PL_P : PL_R;
  return p;
}

/* ---- tokens ---- batch and sequence are one dimension: each axis that cuts one of them
 * cuts it; which token is where only `unflatten` asks, and it asks the same way */

bool shard_flatten(Shard *s, Oid op) {
  Place x = shard_settled(s, op, 0), y;
  for (int a = 0; a < AX_N; a++) {
    if (x.on[a] > 1) x.on[a] = PL_R;
    y.on[a] = x.on[a] >= 0 ? 0 : PL_R;
  }
  shard_need(s, op, 0, x);
  shard_yield(s, op, 0, y);
  return true;
}

bool shard_unflatten(Shard *s, Oid op) {
  Place x = shard_in(s, op, 0), y;
  for (int a = 0; a < AX_N; a++) {
    if (x.on[a] > 0) x.on[a] = PL_R;
    y.on[a] = x.on[a];
    if (cuts_rows(x.on[a]) && a != AX_DP) y.on[a] = 1;
  }
  shard_need(s, op, 0, x);
  shard_yield(s, op, 0, y);
  return true;
}

/* ---- the router ---- works on whole rows, with a whole weight */

bool shard_router_logits(Shard *s, Oid op) {
  Place w, x = whole_rows(shard_settled(s, op, 0));
  if (!shard_param(s, op, 1, ROLE_NORM, 0, &w)) return false;
  shard_need(s, op, 0, x);
  shard_need(s, op, 1, w);
  shard_yield(s, op, 0, x);
  return true;
}

bool shard_route(Shard *s, Oid op) {
  Place b, x = whole_rows(shard_settled(s, op, 0));
  if (s->g->op.at[op].nin == 2) {
    if (!shard_param(s, op, 1, ROLE_NORM, 0, &b)) return false;
    shard_need(s, op, 1, b);
  }
  shard_need(s, op, 0, x);
  for (int i = 0; i < 2; i++)
    shard_yield(s, op, i, x);
  return true;
}

bool shard_expert_counts(Shard *s, Oid op) {
  Place x = whole_rows(shard_settled(s, op, 0));
  for (int i = 0; i < 2; i++)
    shard_need(s, op, i, x);
  shard_yield(s, op, 0, parts_of_rows(x));
  return true;
}

/* Linear in the rows, given the counts of all of them. */
bool shard_router_loss(Shard *s, Oid op) {
  Place x = whole_rows(shard_settled(s, op, 0));
  shard_need(s, op, 0, x);
  shard_need(s, op, 1, place_whole());
  shard_yield(s, op, 0, parts_of_rows(x));
  return true;
}

/* ---- to the experts and back ---- */

/* Experts may be cut by features over tp, so it has all rows. */
bool shard_permute(Shard *s, Oid op) {
  Place x = whole_rows(shard_settled(s, op, 0));
  x.on[AX_TP] = PL_R;
  for (int i = 0; i < 3; i++)
    shard_need(s, op, i, x);
  shard_yield(s, op, 0, x);
  shard_yield(s, op, 1, parts_of_rows(x));
  shard_yield(s, op, 2, x);
  return true;
}

bool shard_grouped_linear(Shard *s, Oid op) {
  Place w, x = shard_settled(s, op, 0), ends = shard_in(s, op, 2);
  if (!shard_param(s, op, 1, ROLE_EXPERTS, 1, &w)) return false;
  Place y = x;
  if (w.on[AX_TP] == 1) {
    x.on[AX_TP] = PL_R;
    y.on[AX_TP] = 1;
  } else if (w.on[AX_TP] == 2) {
    x.on[AX_TP] = 1;
    shard_divide(&y, w, PL_P);
  } else if (x.on[AX_TP] == 1) {
    x.on[AX_TP] = y.on[AX_TP] = PL_R;
  }
  shard_need(s, op, 0, x);
  shard_need(s, op, 1, w);
  shard_need(s, op, 2, ends);
  shard_yield(s, op, 0, y);
  return w.on[AX_TP] != 2 || shard_same_parts(s, op, 0, 1, 1, 2);
}

/* Linear in what comes back: parts of a sum pass. */
bool shard_combine(Shard *s, Oid op) {
  Place x = shard_in(s, op, 0), w = shard_in(s, op, 2), y = w;
  for (int a = 0; a < AX_N; a++) {
    if (x.on[a] != PL_P)
      x.on[a] = w.on[a];
    else
      y.on[a] = PL_P;
  }
  shard_need(s, op, 0, x);
  shard_need(s, op, 1, w);
  shard_need(s, op, 2, w);
  shard_yield(s, op, 0, y);
  return true;
}
