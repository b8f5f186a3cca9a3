/* step_clock_int.h - what step_clock.c gathers while the machine walks, for
 * step_report.c. */
#ifndef WEFT_STEP_CLOCK_INT_H
#define WEFT_STEP_CLOCK_INT_H

#include "step_clock.h"

typedef struct Known {
  bool has;
  double seconds;
  CostFrom from;
  LinkLoad load;
} Known;

typedef struct Clock {
  const Compiled *c;
  const Plan *plan;
  const SimOptions *o;
  CostSource source;
  Arena *a;
  EvenList *even, *busiest;               /* [pp] rows of experts: the mean, and on the
                                             rank with most */
  Known **known;                          /* [pp][pc] */
  int64_t (*exposed)[SIM_AXES], *stalled; /* [pp] */
  int64_t *first,
      *summing; /* [pp]: its first unit, -1 before; waits for sums over pp since */
  VEC(SimWait) wait;
  VEC(SimOp) op;
} Clock;

/* What an instruction of a pp rank costs, found once. */
const Known *clock_know(Clock *k, int pp, const Instr *in);

/* ---- step_report.c ---- */
/* Sums up a walk, whose ranks took `t`. */
void clock_report(Clock *k, const RankTime *t, SimReport *out);

#endif
