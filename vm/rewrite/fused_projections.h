/* fused_projections.h - one product for several that read the same rows (q, k and v
 * before their ropes; gate and up), where that adds no pass over memory. */
#ifndef WEFT_JOIN_H
#define WEFT_JOIN_H

#include "vm/shard/shard.h"

/* requires a sharded graph with fused ropes (fuse_ops()); establishes products with more
 * columns, their gradients, and ops that take what they make side by side, in the place
 * of some of its ops, and in sh->joined the weights that must lie side by side for that.
 */
void fuse_projections(const CompileInput *in, Sharded *sh);

#endif
