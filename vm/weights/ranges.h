/* ranges.h - which elements of a parameter the local ranks hold, as a set of ranges. */
#ifndef WEFT_EXEC_COVER_H
#define WEFT_EXEC_COVER_H

#include "vm/storage/piece.h"

/* Runs of elements that lie close together are one: to read what is between them costs
 * less than to read twice. */
enum { COVER_NEAR = 1 << 12, COVER_STRETCH = 1 << 17 };

/* Ascending, and further apart than COVER_NEAR; of a stretch of COVER_STRETCH elements or
 * fewer. */
typedef struct RangeSet {
  int n;
  struct RangeRun {
    int64_t from, to;
  } run[COVER_STRETCH / COVER_NEAR + 1];
} RangeSet;
/* The elements of a piece. */
void ranges_add(RangeSet *c, const Piece *p);

#endif
