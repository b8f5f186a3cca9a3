/* schedule_cases.h - every schedule of the library on small meshes, by number, and
 * mutations of these. */
#ifndef WEFT_TEST_SCHEDULE_CASES_H
#define WEFT_TEST_SCHEDULE_CASES_H

#include "random_plan.h"

/* Schedule x pp {2, 4} x m {P, P+1, 2P, 3P-1} x tp {1, 2} x dp {1, 2}. */
enum { CASES = SCHEDULES * 2 * 4 * 2 * 2 };
typedef struct Case {
  const SchedulePick *pick;
  int pp, m, tp, dp, chunks;
  bool legal;
} Case;
Case schedule_case(int number);

/* Checks that a legal case agrees with one rank, and an illegal one is refused with the
 * nearest legal numbers of microbatches. `report` describes the case; `worst` grows to
 * the largest relative difference. */
bool case_holds(int number, double tolerance, double *worst, Text *report);

/* Runs mutation `number` of a schedule: refused with a reason, or proven; with `parity` a
 * proven one also agrees with one rank. */
typedef enum { MUTANT_BAD, MUTANT_REFUSED, MUTANT_PROVEN } MutantFate;
MutantFate mutant_holds(uint64_t seed, int number, bool parity, double *worst,
                        Text *report);

/* `weft-tests --schedules [mutations]`: all cases, then mutations, all with parity. */
int schedules_fuzz(int argc, char **argv);

#endif
