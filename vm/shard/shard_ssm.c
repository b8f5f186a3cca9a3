/* shard_ssm.c - placements of state-space layers: heads and groups are independent, and
 * cut alike; all tokens of a sequence are on one rank, since a state goes over them. */
#include "shard_rules.h"

/* False, and reported, where cp cuts the sequence. */
static bool whole_sequence(Shard *s, Oid op) {
  if (s->n[AX_CP] * s->n[AX_CP_HEADS] == 1) return true;
  if (shard_tell_once(s, "ssm cp"))
    diag_error(s->d, "missing-rule", "mesh.cp",
               "%s is of a state-space layer, whose state goes from token to token of a "
               "sequence: cp would cut it, and no rank hands its state to the next one",
               op_info[s->g->op.at[op].code].name)
        ->suggestion = "tp cuts the heads of such layers, dp the sequences";
  return false;
}

/* Operand i: features cut over tp if `cut`, else whole rows; all tokens of a sequence. */
static Place rows(Shard *s, Oid op, int i, bool cut) {
  Place p = shard_settled(s, op, i);
  p.on[AX_TP] = cut ? 2 : PL_R;
  return p;
}

static bool is_cut(Shard *s, Oid op, int i) {
  return shard_settled(s, op, i).on[AX_TP] == 2;
}

/* doc_starts, if they are operand i: where the rows are. */
static void need_starts(Shard *s, Oid op, int i, Place x) {
  x.on[AX_TP] = PL_R;
  if (s->g->op.at[op].nin > i) shard_need(s, op, i, x);
}

/* Each feature has a filter of its own. */
bool shard_causal_conv(Shard *s, Oid op) {
  Place w;
  if (!whole_sequence(s, op) || !shard_param(s, op, 1, ROLE_BIAS, 0, &w)) return false;
  Place x = rows(s, op, 0, w.on[AX_TP] == 0);
  shard_need(s, op, 0, x);
  shard_need(s, op, 1, w);
  need_starts(s, op, 2, x);
  shard_yield(s, op, 0, x);
  return w.on[AX_TP] != 0 || shard_same_parts(s, op, 0, 2, 1, 0);
}

bool shard_ssm_steps(Shard *s, Oid op) {
  Place w[2];
  for (int i = 0; i < 2; i++)
    if (!shard_param(s, op, i + 1, ROLE_BIAS, 0, &w[i])) return false;
  bool cut = w[0].on[AX_TP] == 0;
  if (cut != (w[1].on[AX_TP] == 0)) {
    diag_error(s->d, "tp-plan", "tp_plan",
               "of what the steps of heads are made of, one parameter is cut over tp and "
               "the other is whole");
    return false;
  }
  Place x = rows(s, op, 0, cut);
  shard_need(s, op, 0, x);
  for (int i = 0; i < 2; i++) shard_need(s, op, i + 1, w[i]);
  for (int i = 0; i < 2; i++) shard_yield(s, op, i, x);
  return !cut || shard_same_parts(s, op, 0, 2, 1, 0);
}

/* Heads are cut where D is, and all that they read comes in the same pieces. */
bool shard_ssm_scan(Shard *s, Oid op) {
  const Op *o = &s->g->op.at[op];
  Place d;
  if (!whole_sequence(s, op) || !shard_param(s, op, 5, ROLE_BIAS, 0, &d)) return false;
  bool cut = d.on[AX_TP] == 0;
  for (int i = 0; i < 5 && s->tp > 1; i++) {
    if (is_cut(s, op, i) == cut) continue;
    diag_error(s->d, "tp-plan", "tp_plan",
               "operand %d of ssm_scan %s is %s over tp, D is %s: x, dt, B, C, D and the "
               "steps are cut together",
               i + 1, o->name ? o->name : "", cut ? "whole" : "cut",
               cut ? "cut" : "whole");
    return false;
  }
  for (int i = 0; i < 5; i++) shard_need(s, op, i, rows(s, op, i, cut));
  shard_need(s, op, 5, d);
  need_starts(s, op, 6, rows(s, op, 0, cut));
  shard_yield(s, op, 0, rows(s, op, 0, cut));
  int64_t heads = s->g->t.at[o->in[5]].dim[0].size;
  int size = (int)(s->g->t.at[o->in[0]].dim[2].size / heads);
  return !cut || (shard_whole_heads(s, op, 0, size) &&
                  shard_whole_heads(s, op, 3, o->attr.head_dim) &&
                  shard_whole_heads(s, op, 4, o->attr.head_dim));
}
