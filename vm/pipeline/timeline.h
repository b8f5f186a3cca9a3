/* timeline.h - when each action of a schedule runs if every rank works through its list
 * as soon as it can.
 *
 * A model in units, not a prediction: transfers take no time, and chunks cost the same on
 * every rank. Bubble and peak of activations in flight come from here. A schedule that
 * has not passed schedule_check is refused or gives numbers for what is there, never a
 * crash. */
#ifndef WEFT_TIMELINE_H
#define WEFT_TIMELINE_H

#include "vm/program/action.h"

/* What a chunk of one microbatch costs. B is i + w, OVERLAP f + i + w (one slot, the
 * forward part first), and UNSHARD, RESHARD and REDUCE_GRAD take no time. */
typedef struct TimelineCost {
  int f, i, w;
} TimelineCost;
#define TIMELINE_UNIT ((TimelineCost){1, 1, 1})

typedef struct TimelineSlot {
  int64_t start, end;
} TimelineSlot;

typedef struct Timeline {
  int ranks;
  int64_t makespan;      /* end of the last slot; the first one starts at 0 */
  TimelineSlot **slot;   /* [rank][action], as in Schedule.list */
  int64_t *busy;         /* [rank] time in which it works */
  int64_t *first, *last; /* [rank] its own span: first start, last end */
  int *ran;              /* [rank] actions that could run: all, unless it was refused */
  int *peak;             /* [rank] most (chunk, microbatch) pairs at a time whose F has
                            begun and whose B or W has not ended */
} Timeline;

/* Linear in the number of actions. WEFT_EPLAN if the ranks wait for each other for ever
 * or if an action names a chunk or a microbatch that is not there. */
weft_status timeline_run(const Schedule *s, TimelineCost cost, Arena *arena,
                         Timeline *out, weft_error *e);

/* Idle share of ranks x makespan: what counts if the step ends for all at once. */
double timeline_bubble(const Timeline *t);
/* Idle share within each rank's own span, summed: what counts if the next step begins
 * on each rank as soon as it is done. */
double timeline_bubble_own(const Timeline *t);

#endif
