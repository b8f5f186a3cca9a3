/* timeline.h - when each action of a schedule runs if every rank executes its list as
 * early as possible.
 *
 * In units it is no prediction: transfers take no time, and chunks cost the same on every
 * rank. It gives the bubble and the peak of activations in flight. A schedule that
 * has not passed schedule_check is refused or gives wrong numbers, never a crash. */
#ifndef WEFT_TIMELINE_H
#define WEFT_TIMELINE_H

#include "vm/program/action.h"

/* Cost per chunk and microbatch. B is i + w, OVERLAP f + i + w (one slot, forward first),
 * and UNSHARD, RESHARD and REDUCE_GRAD take no time. */
typedef struct TimelineCost {
  int f, i, w;
} TimelineCost;
#define TIMELINE_UNIT ((TimelineCost){1, 1, 1})

typedef struct TimelineSlot {
  int64_t start, end;
} TimelineSlot;

/* A rank runs so many actions before another one goes on. */
typedef struct TimelineTurn {
  int rank, n;
} TimelineTurn;

typedef struct Timeline {
  int ranks;
  int64_t makespan;      /* end of the last slot; the first one starts at 0 */
  TimelineSlot **slot;   /* [rank][action], as in Schedule.list */
  int64_t *busy;         /* [rank] time spent in actions */
  int64_t *first, *last; /* [rank] start of its first action, end of its last */
  int64_t *last_w; /* [rank * virtual stages + chunk] of timeline_of_stages: when the
                    * last B or W of the chunk began */
  int *ran;        /* [rank] actions that ran: all, unless the schedule was refused */
  int *peak;       /* [rank] peak number of (chunk, microbatch) pairs whose F has
                    * begun and whose B or W has not ended */
  double tick;     /* seconds of a unit of time; 0: it is one of TimelineCost */
  TimelineSlot *
      *after;  /* [rank] what follows its actions, in order: reductions of gradients
                * and the optimizer; NULL: not a part of this timeline */
  int *nafter; /* [rank] */
  /* of timeline_run: an order of all actions in which each comes after those that it
   * waits for */
  TimelineTurn *turn;
  int nturn;
} Timeline;

/* Ticks of what a stage does for a microbatch, and of the transfers to the stages after
 * and before it, in which both ranks may go on. */
typedef struct StageTicks {
  int64_t f, i, w, after, before;
  int64_t late; /* of w: behind the send to the stage before, if one action is i + w */
} StageTicks;

/* Linear in the number of actions. WEFT_EPLAN if ranks wait for each other for ever or an
 * action names a chunk or microbatch that does not exist. */
weft_status timeline_run(const Schedule *s, TimelineCost cost, Arena *arena,
                         Timeline *out, weft_error *e);

/* stage_timeline.c: makespan, busy, last, last_w and ran where each stage has its own
 * costs: `cost` of all stages. B is i + w. The parts of OVERLAP run one after the other,
 * the forward as soon as it can. `ran` comes from timeline_run. */
void timeline_of_stages(const Schedule *s, const Timeline *ran, const StageTicks *cost,
                        Arena *arena, Timeline *out);

/* Idle share of ranks x makespan: right if the step ends for all ranks at once. */
double timeline_bubble(const Timeline *t);
/* Idle share within each rank's own span, summed: right if each rank begins the next step
 * as soon as it is done. */
double timeline_bubble_own(const Timeline *t);

#endif
