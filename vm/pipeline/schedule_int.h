/* schedule_int.h - shared by the files that check a schedule. */
#ifndef WEFT_SCHEDULE_INT_H
#define WEFT_SCHEDULE_INT_H

#include "schedule.h"

/* Positions of F, I and W of a chunk's microbatch in its rank's list: step + 1; 0:
 * none. */
typedef struct Parts {
  int32_t step[3];
} Parts;

typedef struct Problem {
  int rank, step, order;
  const char *text;
} Problem;

typedef struct ScheduleCheck {
  const Schedule *s;
  Diags *d;
  Arena *a;     /* for strings */
  Parts *parts; /* [(rank * chunks + chunk) * microbatches + mb] */
  VEC(Problem) problem;
} ScheduleCheck;

static inline Parts *schedule_parts(const ScheduleCheck *c, int rank, int chunk, int mb) {
  size_t at = (size_t)rank * (size_t)c->s->virtual_stages + (size_t)chunk;
  return &c->parts[at * (size_t)c->s->microbatches + (size_t)mb];
}

/* "step 7 (line 12)"; the line if it is known, and the cell of a table. */
const char *schedule_place(const ScheduleCheck *c, int rank, int step);

/* schedule_parameters.c: UNSHARD before the use of a chunk, RESHARD after it, REDUCE_GRAD
 * after its last W. */
void schedule_parameters(ScheduleCheck *c, int rank,
                         void (*problem)(ScheduleCheck *c, int rank, int step,
                                         const char *text));

/* schedule_deadlock.c: which actions of a schedule that cannot run wait for which. */
void schedule_deadlock(ScheduleCheck *c, const Timeline *t);

#endif
