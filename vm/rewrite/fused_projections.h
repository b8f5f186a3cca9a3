/* fused_projections.h - one product instead of several that read the same rows (q, k and
 * v before their ropes; gate and up), where that adds no pass over memory. */
#ifndef WEFT_JOIN_H
#define WEFT_JOIN_H

#include "vm/shard/shard.h"

/* requires a sharded graph with fused ropes (fuse_ops()); replaces products, their
 * gradients and the ops that read them by wider products and ops that read columns in
 * place, and establishes in sh->joined the weights that must be adjacent in memory for
 * that. */
void fuse_projections(const CompileInput *in, Sharded *sh);

#endif
