/* transfers.h - what the pp ranks send each other, in order. */
#ifndef WEFT_TRANSFERS_H
#define WEFT_TRANSFERS_H

#include "stages.h"
#include "timeline.h"

/* What a pp rank sends to one that lies next to it, in order. */
typedef struct Sends {
  struct SendItem {
    Tid t;
    int32_t stage, mb;   /* that receives it */
    int32_t handle;      /* of its receive */
    int64_t posted;      /* when that receive is there, on the clock of the timeline */
  } *at;
  int n;
} Sends;

struct Build;
/* The order of all sends, for all ranks; before actions(). */
void transfers(struct Build *b);
/* Which of its two lists `src` has for `dst`, and that list. */
int send_side(const struct Build *b, int src, int dst);
Sends *sends_to(const struct Build *b, int src, int dst);
/* What a part of an action receives: items first .. first + n - 1 of what `src` sends. */
typedef struct Inlet {
  int src, first, n;
} Inlet;
/* False if nothing comes from another rank. */
bool inlet(const struct Build *b, int stage, int mb, bool forward, Inlet *in);

#endif
