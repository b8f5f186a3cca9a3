/* cover.h - which elements of a stretch of a parameter some ranks have. */
#ifndef WEFT_EXEC_COVER_H
#define WEFT_EXEC_COVER_H

#include "vm/storage/piece.h"

/* Runs of elements that lie close together are one: to read what is between them costs
 * less than to read twice. */
enum { COVER_NEAR = 1 << 12, COVER_STRETCH = 1 << 17 };

/* Ascending, and further apart than COVER_NEAR; of a stretch of COVER_STRETCH elements or
 * fewer. */
typedef struct Cover {
  int n;
  struct CoverRun {
    int64_t from, to;
  } run[COVER_STRETCH / COVER_NEAR + 1];
} Cover;
/* The elements of a piece. */
void cover_add(Cover *c, const Piece *p);

#endif
