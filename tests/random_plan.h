/* random_plan.h - small legal plans by number: model, mesh, styles, schedule and batch are
 * drawn from a counter-based generator, so plan N is the same everywhere. */
#ifndef WEFT_TEST_RANDOM_PLAN_H
#define WEFT_TEST_RANDOM_PLAN_H

#include "vm/base/base.h"

typedef struct RandomPlan {
  int tp, pp, dp, micro, microbatches;
  bool sp;
  char text[4096];       /* the plan file */
} RandomPlan;

void random_plan(uint64_t seed, uint64_t number, RandomPlan *out);

/* Writes plan `number`, compiles it and its one-rank twin, and compares `steps` steps.
 * True if they agree within `tolerance`; `report` says what was run and what differs. */
bool parity_holds(uint64_t seed, uint64_t number, int steps, double tolerance,
                  Text *report);

/* `weft-tests --fuzz N [seed]`: N plans; returns the exit code. */
int fuzz(int argc, char **argv);

#endif
