/* unshard.h - buckets of a pp rank that are whole only for part of a step: when their
 * parameters are gathered and freed, and when their gradients are reduce-scattered.
 *
 * Unsharded parameters are alive from the WAIT of their GATHER to their FREE, around all
 * calls that read them (FSDP: unshard ... reshard). Unsharded gradients are alive from
 * the first call that writes them to the WAIT of their SCATTER. */
#ifndef WEFT_UNSHARD_H
#define WEFT_UNSHARD_H

#include "main_list.h"

/* What of a block is there for a while: a whole copy of its parameters, its whole
 * gradients, those in the type in which they are summed, where that is another one, and
 * the part of a copy that stays from forward to backward, where a group shares one. */
enum { FULL_PARAM, FULL_GRAD, REDUCE_BUFFER, GROUP_SHARD, UNSHARDED_N };

typedef struct UnshardedBucket {
  int32_t block;               /* in Regions.block */
  int32_t unit;                /* the first that uses it */
  uint64_t chunks;             /* local chunks that use it, a bit each */
  uint64_t bytes[UNSHARDED_N]; /* 0: it is always there */
  bool experts;                /* it has their parameters */
  Area area;
} UnshardedBucket;

typedef struct BucketUse {
  int32_t held;          /* in UnshardedList.at */
  uint8_t reads, writes; /* 1 << Phase for each body that reads parameters of the block,
                            and for each that makes gradients */
} BucketUse;

typedef struct UnshardedList {
  UnshardedBucket *at;
  int n;
  int *of;                     /* block of the row -> its number here, -1 */
  uint64_t bytes[UNSHARDED_N]; /* of all of them */
  int32_t *first; /* [units + 1]: unit u has use[first[u]] .. use[first[u+1]-1] */
  BucketUse *use;
} UnshardedList;

/* requires the steps of a main list; establishes the buffers of held blocks
 * (Interval.what: UNSHARDED_N times the number of the block, and what of it) and, in a
 * list that is not brief, what is placed between its events. */
void unshard(const Strategy *how, bool pipelined, const UnshardedList *held,
             Arena *scratch, MainList *t);

#endif
