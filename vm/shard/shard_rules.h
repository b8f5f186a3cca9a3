/* shard_rules.h - the placement rules that ops.def names: which placements an op needs of
 * its operands and gives its results. shard.h has what rules may call. */
#ifndef WEFT_SHARD_RULES_H
#define WEFT_SHARD_RULES_H

#include "shard.h"

ShardRule shard_embedding, shard_linear, shard_add_bias, shard_add, shard_follow,
    shard_pairs, shard_dropout, shard_nf4, shard_feature_sqnorms, shard_feature_scale,
    shard_norm, shard_center, shard_gate, shard_rope, shard_split_heads, shard_join_heads,
    shard_attention, shard_attention_step, shard_flatten, shard_unflatten,
    shard_router_logits, shard_route, shard_expert_counts, shard_router_loss,
    shard_permute, shard_grouped_linear, shard_grouped_bias, shard_combine, shard_ce_max,
    shard_ce_sum, shard_ce_loss, shard_ce_losses, shard_label_mask, shard_row_sums,
    shard_sum_all, shard_split_pairs, shard_divergence_sums;

#endif
