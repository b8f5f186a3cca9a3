/* saved_pieces.h - which rank writes which piece of a checkpoint.
 *
 * Of every piece one rank writes: those that hold copies share them evenly. */
#ifndef WEFT_SAVED_PIECES_H
#define WEFT_SAVED_PIECES_H

#include "rank.h"

/* A piece that a rank writes, as its region holds it, but for blocks: region_saved. */
typedef struct Saved {
  StateKind kind; /* but for STATE_GRAD */
  int param;
  Piece piece;
  uint64_t at; /* of its bytes in the rank's share */
} Saved;
static inline uint64_t saved_size(const Saved *s) {
  return (uint64_t)s->piece.count * (uint64_t)dtype_size(region_saved(s->piece.region));
}

/* All that a rank writes: for (SavedList l = saved_list(c, rank); saved_next(&l, &s);) */
enum { SAVED_COPIES = 16 };
typedef struct SavedList {
  const Compiled *c;
  int rank;
  int item; /* the next one: parameter and kind */
  uint64_t at;
  struct SavedCopies {
    AxisSet axes;          /* over which pieces are copies */
    uint64_t total, dealt; /* their bytes on one rank, and those that have a writer */
  } copies[SAVED_COPIES];
  int ncopies;
} SavedList;
SavedList saved_list(const Compiled *c, int rank);
bool saved_next(SavedList *l, Saved *out);
/* Bytes of a rank's share, and so many at most on each rank of a pp rank. */
uint64_t saved_share(const Compiled *c, int rank);
uint64_t saved_most(const Compiled *c, int pp);

#endif
