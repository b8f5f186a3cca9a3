/* step_end.h - where the step of all ranks of a process may be ended: before its update,
 * or behind it. An update that only some ranks have taken, or of some parameters, would
 * leave a state of no step. So the rank that comes first to the update decides for all:
 * from then on nobody is asked to stop; and once a rank has been, nobody begins it. */
#ifndef WEFT_STEP_END_H
#define WEFT_STEP_END_H

#include <stdatomic.h>

#include "vm/base/base.h"

typedef enum {
  STEP_NONE,    /* no step runs */
  STEP_OPEN,    /* one does, and no rank has come to its update */
  STEP_UPDATES, /* a rank has */
  STEP_ENDED    /* it ends without an update: of a signal, or as a rank has failed */
} StepPhase;

typedef struct StepEnd {
  const StopFlag *stop; /* may be NULL */
  _Atomic int phase;    /* StepPhase */
} StepEnd;

/* True if the phase was the open one, and has become `to`; or was `to` already. */
static inline bool step_turns(StepEnd *s, StepPhase to) {
  int was = STEP_OPEN;
  return atomic_compare_exchange_strong(&s->phase, &was, (int)to) || was == (int)to;
}

/* Whether a rank is to end here. */
static inline bool step_ends(StepEnd *s) {
  int phase = atomic_load(&s->phase);
  bool asked = s->stop && *s->stop;
  if (phase == STEP_NONE) return asked;
  if (phase == STEP_UPDATES) return false;
  return phase == STEP_ENDED || (asked && step_turns(s, STEP_ENDED));
}

/* Whether a rank may begin the update. */
static inline bool step_updates(StepEnd *s) {
  return !step_ends(s) && (step_turns(s, STEP_UPDATES) || s->phase == STEP_NONE);
}

#endif
