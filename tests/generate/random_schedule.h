/* random_schedule.h - schedules by number: legal ones in a random order, and small
 * mutations of any schedule. The same number gives the same schedule everywhere. */
#ifndef WEFT_TEST_SCHED_RANDOM_H
#define WEFT_TEST_SCHED_RANDOM_H

#include "vm/base/rng.h"
#include "vm/compile/compile.h"

typedef struct Dice {
  Rng rng;
  uint64_t at;
} Dice;

Dice dice(uint64_t seed, const char *name);
int throw_dice(Dice *d, int n); /* 0 .. n - 1 */

/* A legal schedule: at each point some rank takes one of the actions that can begin.
 * Backwards are B, I and W, or pairs with a forward. */
Schedule sched_random(Arena *a, Dice *d, int ranks, int virtual_stages, int microbatches,
                      bool v_placement);

/* A copy with one mutation: two actions of a rank swapped, one dropped, repeated, or
 * moved to another rank. `what` describes it. */
Schedule sched_mutant(Arena *a, Dice *d, const Schedule *from, const char **what);

#endif
