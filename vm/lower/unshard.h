/* unshard.h - buckets of a pp rank that are whole only for part of a step: when their
 * parameters are gathered and freed, and when their gradients are reduce-scattered.
 *
 * Unsharded parameters are alive from the WAIT of their GATHER to their FREE, around all
 * calls that read them (FSDP: unshard ... reshard). Unsharded gradients are alive from
 * the first call that writes them to the WAIT of their SCATTER. */
#ifndef WEFT_UNSHARD_H
#define WEFT_UNSHARD_H

#include "main_list.h"

/* Buffers of a bucket with a lifetime: the unsharded copy of its parameters; its
 * unsharded gradients; these in the type of the reduction, where that is not f32; and a
 * group's shard of the parameters, kept from forward to backward (plan_reshard_group). */
enum { FULL_PARAM, FULL_GRAD, REDUCE_BUFFER, GROUP_SHARD, UNSHARDED_N };

typedef struct UnshardedBucket {
  int32_t block;               /* in Regions.block */
  int32_t unit;                /* the first that uses it */
  uint64_t chunks;             /* local chunks that use it, one bit each */
  uint64_t bytes[UNSHARDED_N]; /* 0: no such buffer, as it is stored whole */
  bool experts;                /* it has parameters of experts */
  Area area;
} UnshardedBucket;

typedef struct BucketUse {
  int32_t bucket;        /* in UnshardedList.at */
  uint8_t reads, writes; /* 1 << Phase for each body that reads parameters of the bucket,
                            and for each that writes gradients */
} BucketUse;

typedef struct UnshardedList {
  UnshardedBucket *at;
  int n;
  int *of;                     /* index in Regions.block -> index in `at`, -1 */
  uint64_t bytes[UNSHARDED_N]; /* of all buckets */
  int32_t *first; /* [units + 1]: unit u has use[first[u]] .. use[first[u+1]-1] */
  BucketUse *use;
} UnshardedList;

/* requires the steps of a main list; establishes the buffers of unsharded buckets
 * (Interval.what: UNSHARDED_N * index of the bucket + FULL_PARAM ...) and, in a list that
 * is not brief, the events that are placed between its own. */
void unshard(const Strategy *how, bool pipelined, const UnshardedList *buckets,
             Arena *scratch, MainList *t);

#endif
