/* unsharded_buckets.h - the buckets of a rank with sharded parameters or gradients, their
 * bindings in calls and their instructions; see unshard.h. */
#ifndef WEFT_UNSHARDED_BUCKETS_H
#define WEFT_UNSHARDED_BUCKETS_H

#include "unshard.h"
#include "optimizer_step.h"

/* requires a layout; establishes the buckets that are unsharded for part of a step. */
void unsharded_buckets(const Stages *st, const Layout *l, int rank, Arena *a,
                       UnshardedList *out);

/* Bindings of a unit's calls, kept once. */
typedef struct BoundAt {
  uint32_t first; /* index in Program.bind */
  struct BoundAt *next;
} BoundAt;

/* State while lower() writes the main list. */
typedef struct UnshardedNow {
  const UnshardedList *h;
  const int *unit_at;          /* unit -> its number in the program */
  uint64_t *copy, *sum, *part; /* current offsets of each bucket's buffers */
  BoundAt **bound;             /* for each unit */
} UnshardedNow;
/* The gradient of parameter `i` of a unit, as the unit's body `ph` is bound to it. */
Bind bind_gradient(const Emit *e, const UnshardedNow *n, const CompiledUnit *x, int i,
                   Phase ph);
void unsharded_begin(const Emit *e, const UnshardedList *h, const int *unit_at,
                     UnshardedNow *out);
/* Writes the instructions of a GATHER, KEEP, FREE, TAKE, SCATTER or ADD whose buffer is
 * at `at`. */
void emit_unsharded(Emit *e, UnshardedNow *n, const Event *ev, uint64_t at);
/* The index in Program.bind of the bindings of a call at this point. */
uint32_t bind_unsharded(Emit *e, UnshardedNow *n, int u, Phase ph);

#endif
