/* transfers.h - what the pp ranks send each other in a step, in order. */
#ifndef WEFT_TRANSFERS_H
#define WEFT_TRANSFERS_H

#include "stages.h"
#include "timeline.h"

/* What a pp rank sends to one that lies next to it, in order. */
typedef struct Sends {
  struct SendItem {
    int32_t edge;      /* in Units.edge */
    int32_t stage, mb; /* that receives it */
    int32_t handle;    /* of its receive */
    int64_t posted;    /* when that receive is there, on the clock of the timeline */
  } * at;
  int n;
} Sends;

typedef struct Transfers {
  const Stages *st;
  const Schedule *s;
  const Timeline *when; /* when its actions run, if all take one unit */
  int microbatches;     /* of the whole step: the schedule's x rounds */
  Sends *sends; /* of each pp rank: to the rank after it, then to the one before */
  /* [stage * microbatches + mb]: number of the first item that the forward and the
   * backward of a stage receive. */
  int32_t *arrives[2];
} Transfers;

/* requires stages and a schedule that is ready; establishes the order of all sends. */
void transfers(const Stages *st, const Schedule *s, const Timeline *when,
               int microbatches, Arena *a, Transfers *out);
/* Which of its two lists `src` has for `dst`, and that list. */
int send_side(const Transfers *t, int src, int dst);
Sends *sends_to(const Transfers *t, int src, int dst);
/* What a part of an action receives: items first .. first + n - 1 of what `src` sends. */
typedef struct Inlet {
  int src, first, n;
} Inlet;
/* False if nothing comes from another rank. */
bool inlet(const Transfers *t, int stage, int mb, bool forward, Inlet *in);

#endif
