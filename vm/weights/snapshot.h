/* snapshot.h - the state of a run as a checkpoint holds it: copies in host memory of the
 * pieces that each rank writes (saved_pieces.h), for a thread that writes while steps go
 * on; and filling a run from such pieces. */
#ifndef WEFT_EXEC_SNAPSHOT_H
#define WEFT_EXEC_SNAPSHOT_H

#include "vm/rank/saved_pieces.h"
#include "vm/run/run.h"
#include "vm/run/loss_scaler.h"

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
/* Parameters and the optimizer's states of all ranks, from `source`; everything else
 * becomes zero. */
weft_status run_fill(Run *r, PieceSource source, void *ud, weft_error *e);

/* The loss scale and the steps that were skipped, beside the step all that a run knows
 * besides its parameters and the optimizer's states. */
Scaler run_scaler(const Run *r);
void run_set_scaler(Run *r, const Scaler *s);
void run_reset_scaler(Run *r); /* as a run begins */

bool run_is_alone(const Run *r); /* all ranks are in this process */
/* What processes tell each other between two steps: `mine`, n bytes, becomes that of all
 * of them, the same on each; `fold` takes another one's into it. */
typedef void (*Fold)(void *mine, const void *other, size_t n);
CHECKED weft_status run_combine(Run *r, void *mine, size_t n, Fold fold, weft_error *e);
/* `it`, n bytes, becomes that of the first process. */
CHECKED weft_status run_from_first(Run *r, void *it, size_t n, weft_error *e);
/* What went wrong in one process is wrong for all: `st` and, if it is no WEFT_OK, `e` are
 * of this one; all return with the error of the lowest rank that has one. Else a process
 * that failed by itself would leave the others waiting for it. All call it, also those
 * that did not fail. */
CHECKED weft_status run_agree(Run *r, weft_status st, weft_error *e);

#endif
