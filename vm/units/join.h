/* join.h - products of the same rows become one, where nothing more is read or written for
 * it: those of queries, keys and values before their ropes, of a gate and what it gates. */
#ifndef WEFT_JOIN_H
#define WEFT_JOIN_H

#include "shard.h"

/* requires a sharded graph with fused ropes (fuse()); establishes products with more columns,
 * their gradients, and ops that take what they make side by side, in the place of some of its
 * ops, and in sh->joined the weights that must lie side by side for that. */
void join(const CompileInput *in, Sharded *sh);

#endif
