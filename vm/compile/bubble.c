/* bubble.c - the idle share of a schedule whose chunks cost one unit in each part. */
#include "bubble.h"

#include "timeline.h"

weft_status schedule_bubble(const Schedule *s, Arena *scratch, double *out,
                            weft_error *e) {
  Timeline t;
  TRY(timeline_run(s, TIMELINE_UNIT, scratch, &t, e));
  *out = timeline_bubble(&t);
  return WEFT_OK;
}
