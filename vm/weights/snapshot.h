/* snapshot.h - the state of a run as a checkpoint holds it: which rank writes which piece
 * of it, and copies of these pieces in host memory, for a thread that writes while steps
 * go on.
 *
 * Of every piece one rank writes: those that hold copies share them evenly. */
#ifndef WEFT_EXEC_SNAPSHOT_H
#define WEFT_EXEC_SNAPSHOT_H

#include "vm/run/exec.h"
#include "vm/run/loss_scaler.h"

/* A piece that a rank writes, as its region holds it. */
typedef struct Saved {
  StateKind kind; /* but for STATE_GRAD */
  int param;
  Piece piece;
  uint64_t at; /* of its bytes in the rank's share */
} Saved;
static inline uint64_t saved_size(const Saved *s) {
  return (uint64_t)s->piece.count * (uint64_t)dtype_size((DType)s->piece.region->dtype);
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

/* Copies the shares of all local ranks. The run was opened with `saves`. */
weft_status run_snapshot(Run *r, weft_error *e);
int run_local(const Run *r); /* ranks of this process, run_rank() the first of them */
const char *run_snapshot_at(const Run *r, int local);
const Compiled *run_compiled(const Run *r);

/* Gives the elements of a piece, or of a part of it, as f32: p->count of them, paddings
 * are zero already. `reader`: which of run_readers threads calls. */
typedef weft_status (*PieceSource)(void *ud, int reader, StateKind k, int param,
                                   const Piece *p, float *to, weft_error *e);
int run_readers(const Run *r);
/* Parameters and moments of all ranks, from `source`; everything else becomes zero. */
weft_status run_fill(Run *r, PieceSource source, void *ud, weft_error *e);

/* The loss scale and the steps that were skipped, beside the step all that a run knows
 * besides its parameters and moments. */
Scaler run_scaler(const Run *r);
void run_set_scaler(Run *r, const Scaler *s);

bool run_is_alone(const Run *r); /* all ranks are in this process */
/* What processes tell each other between two steps: `mine`, n bytes, becomes that of all
 * of them, the same on each; `fold` takes another one's into it. */
typedef void (*Fold)(void *mine, const void *other, size_t n);
CHECKED weft_status run_combine(Run *r, void *mine, size_t n, Fold fold, weft_error *e);

#endif
