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

#endif
