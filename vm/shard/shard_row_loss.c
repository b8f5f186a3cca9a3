/* shard_row_loss.c - the placement rules of the ops that losses of a plan's own are
 * written of. Tokens are cut over dp and cp, sequences and pairs over dp: what a sequence
 * sums up over its tokens is partial over cp, and stays so while it is added. */
#include "shard_rules.h"

/* One number for each row of the first operand. */
bool shard_ce_losses(Shard *s, Oid op) {
  Place x = shard_settled(s, op, 0);
  for (int i = 0; i < s->g->op.at[op].nin; i++) shard_need(s, op, i, x);
  shard_yield(s, op, 0, x);
  return true;
}

bool shard_label_mask(Shard *s, Oid op) {
  Place x = shard_in(s, op, 0);
  return shard_placed(s, op, 1, (Place[]){x}, x);
}

bool shard_row_sums(Shard *s, Oid op) {
  Place x = shard_settled(s, op, 0), y = x;
  for (int a = 0; a < AX_N; a++)
    if (y.on[a] == 1) y.on[a] = PL_P;
  return shard_placed(s, op, 1, (Place[]){x}, y);
}

/* As the cross entropy is summed over rows. */
bool shard_sum_all(Shard *s, Oid op) { return shard_ce_loss(s, op); }

/* The sequences of a rank begin with a whole pair and end with one. */
bool shard_split_pairs(Shard *s, Oid op) {
  Place x = shard_settled(s, op, 0);
  shard_need(s, op, 0, x);
  for (int i = 0; i < 2; i++) shard_yield(s, op, i, x);
  if (s->plan->batch.micro % 2 == 0) return true;
  diag_error(
      s->d, "divisibility", "batch.micro",
      "the loss is of pairs of sequences, and %lld in a microbatch would split one",
      (long long)s->plan->batch.micro)
      ->suggestion = "an even number";
  return false;
}

/* As logits of cross entropy: the vocabulary may stay cut, and both are cut alike. */
bool shard_divergence_sums(Shard *s, Oid op) {
  int last = shard_tensor(s, op, 0)->ndim - 1;
  Place x = shard_settled(s, op, 0), rows, y;
  if (x.on[AX_TP] == last && !s->plan->strategy.loss_parallel) x.on[AX_TP] = PL_R;
  x = shard_one_run(s, s->g->op.at[op].in[0], x);
  rows = x;
  for (int a = 0; a < AX_N; a++)
    if (rows.on[a] >= last) rows.on[a] = PL_R;
  y = rows;
  if (x.on[AX_TP] == last) shard_divide(&y, x, PL_P);
  for (int i = 0; i < s->g->op.at[op].nin; i++) shard_need(s, op, i, i < 2 ? x : rows);
  shard_yield(s, op, 0, y);
  return true;
}
