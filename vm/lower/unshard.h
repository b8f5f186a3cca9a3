/* unshard.h - blocks of a pp rank that are whole for a while only: when their parameters
 * are gathered and freed, and when their gradients are reduced into shards.
 *
 * A copy of parameters is there from the WAIT of its GATHER to its FREE, which come
 * before the first and after the last of the calls that read it. Whole gradients begin in
 * a buffer with the first call that writes them, and end with the WAIT of their SCATTER. */
#ifndef WEFT_UNSHARD_H
#define WEFT_UNSHARD_H

#include "main_list.h"

/* What of a block is there for a while: a whole copy of its parameters, its whole
 * gradients, those in the type in which they are summed, where that is another one, and
 * the part of a copy that stays from forward to backward, where a group shares one. */
enum { HELD_COPY, HELD_SUM, HELD_WIRE, HELD_PART, HELD_N };

typedef struct HeldBlock {
  int32_t block;           /* in Regions.block */
  int32_t unit;            /* the first that uses it */
  uint64_t chunks;         /* local chunks that use it, a bit each */
  uint64_t bytes[HELD_N];  /* 0: it is always there */
  bool experts;            /* it has their parameters */
  Area area;
} HeldBlock;

typedef struct HeldUse {
  int32_t held;            /* in Held.at */
  uint8_t reads, writes;   /* 1 << Phase for each body that reads parameters of the block,
                              and for each that makes gradients */
} HeldUse;

typedef struct Held {
  HeldBlock *at;
  int n;
  int *of;                 /* block of the row -> its number here, -1 */
  uint64_t bytes[HELD_N];  /* of all of them */
  int32_t *first;          /* [units + 1]: unit u has use[first[u]] .. use[first[u+1]-1] */
  HeldUse *use;
} Held;

/* requires the steps of a main list; establishes the buffers of held blocks (Interval.what:
 * HELD_N times the number of the block, and what of it) and, in a list that is not brief,
 * what is placed between its events. */
void unshard(const Strategy *how, bool pipelined, const Held *held, Arena *scratch,
             MainList *t);

#endif
