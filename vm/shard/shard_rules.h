/* shard_rules.h - the placement rules that ops.def names: which placements an op needs of
 * its operands and gives its results. shard.h has what rules may call. */
#ifndef WEFT_SHARD_RULES_H
#define WEFT_SHARD_RULES_H

#include "shard.h"

#pragma push_macro("NULL") /* of ops without a rule, see vm/graph/rules.h */
#undef NULL
#define NULL                                               no_shard
#define OP(name, nin, nout, infer, grad, shard, cost, doc) ShardRule shard;
#include "vm/graph/ops.def"
#undef NULL
#pragma pop_macro("NULL")

/* ---- what rules ask of operands ---- */

/* Operand i of an op. */
static inline const Tensor *shard_tensor(const Shard *s, Oid op, int i) {
  return &s->g->t.at[s->g->op.at[op].in[i]];
}

/* The number of its last dimension. */
static inline int shard_last_dim(const Shard *s, Oid op, int i) {
  return shard_tensor(s, op, i)->ndim - 1;
}

/* The placement of the rows of a tensor: R for what shards its last dimension. */
static inline Place shard_rows_of(Place p, int last) {
  for (int a = 0; a < AX_N; a++)
    if (p.on[a] >= last) p.on[a] = PL_R;
  return p;
}

static inline bool shard_cuts_rows(int on) { return on == 0; }

/* `p` with only the sharding of rows, over the first dimension. */
static inline Place shard_whole_rows(Place p) {
  for (int a = 0; a < AX_N; a++)
    if (!shard_cuts_rows(p.on[a])) p.on[a] = PL_R;
  return p;
}

/* The placement of what a rank computes from its own rows: partial where rows are
 * sharded. */
static inline Place shard_parts_of_rows(Place p) {
  for (int a = 0; a < AX_N; a++) p.on[a] = shard_cuts_rows(p.on[a]) ? PL_P : PL_R;
  return p;
}

#endif
