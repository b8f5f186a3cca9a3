/* unsharded_buckets.h - the buckets of a rank with sharded parameters or gradients, their
 * bindings in calls and their instructions; see unshard.h. */
#ifndef WEFT_HELD_H
#define WEFT_HELD_H

#include "unshard.h"
#include "optimizer_step.h"

/* requires a layout; establishes its held blocks. */
void unsharded_buckets(const Stages *st, const Layout *l, int rank, Arena *a,
                       UnshardedList *out);

/* Calls of a unit that bind the same. */
typedef struct BoundAt {
  uint32_t first; /* in Program.bind */
  struct BoundAt *next;
} BoundAt;

/* While lower() writes the main list. */
typedef struct UnshardedNow {
  const UnshardedList *h;
  const int *unit_at;          /* unit -> its number in the program */
  uint64_t *copy, *sum, *part; /* where those of each held block lie */
  BoundAt **bound;             /* of each unit */
} UnshardedNow;
void unsharded_begin(const Emit *e, const UnshardedList *h, const int *unit_at,
                     UnshardedNow *out);
/* The instructions of a GATHER, KEEP, FREE, TAKE, SCATTER or ADD whose buffer lies at
 * `at`. */
void emit_unsharded(Emit *e, UnshardedNow *n, const Event *ev, uint64_t at);
/* The bindings of a call now: the first in Program.bind. */
uint32_t bind_unsharded(Emit *e, UnshardedNow *n, int u, Phase ph);

#endif
