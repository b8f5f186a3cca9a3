/* bubble.h - one number of timeline.h, for those who compile, too: both call something
 * else a timeline. */
#ifndef WEFT_BUBBLE_H
#define WEFT_BUBBLE_H

#include "compile.h"

/* timeline_bubble with unit costs. */
weft_status schedule_bubble(const Schedule *s, Arena *scratch, double *out,
                            weft_error *e);

#endif
