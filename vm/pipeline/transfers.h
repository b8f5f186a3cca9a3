/* transfers.h - the transfers of a step between pp ranks, in order. */
#ifndef WEFT_TRANSFERS_H
#define WEFT_TRANSFERS_H

#include "stages.h"
#include "timeline.h"

/* What a pp rank sends to one of its neighbours, in order. */
typedef struct Sends {
  struct SendItem {
    int32_t edge;      /* in Units.edge */
    int32_t stage, mb; /* receiving stage and microbatch */
    int32_t handle;    /* of its receive */
    int64_t posted;    /* when its receive is posted, on the clock of the timeline */
  } * at;
  int n;
} Sends;

typedef struct Transfers {
  const Stages *st;
  const Schedule *s;
  const Timeline *when; /* when actions run if each takes one unit */
  int microbatches;     /* of the whole step: the schedule's times its rounds */
  Sends *sends; /* of each pp rank: to the rank after it, then to the one before */
  /* [stage * microbatches + mb]: index of the first item that a stage receives, for
   * forward and backward. */
  int32_t *arrives[2];
} Transfers;

/* requires stages and a schedule that is ready; establishes the order of all sends. */
void transfers(const Stages *st, const Schedule *s, const Timeline *when,
               int microbatches, Arena *a, Transfers *out);
/* Which of its two lists `src` uses for `dst`, and that list. */
int send_side(const Transfers *t, int src, int dst);
Sends *sends_to(const Transfers *t, int src, int dst);
/* What an action's part receives: items [first, first + n) that `src` sends. */
typedef struct Inlet {
  int src, first, n;
} Inlet;
/* False if nothing comes from another rank. */
bool inlet(const Transfers *t, int stage, int mb, bool forward, Inlet *in);

#endif
