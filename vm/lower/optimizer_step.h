/* optimizer_step.h - the once-a-step part in pieces that optimizer_step.c and
 * post_validation.c put together. All of it is emitted into the main list. */
#ifndef WEFT_UPDATE_H
#define WEFT_UPDATE_H

#include "vm/storage/piece.h"
#include "lower.h"

/* ---- instructions ---- */
void emit_kernel(Emit *e, int op, const OpAttr *attr, const char *what);
/* Operands of the kernel or collective that was emitted last, results after inputs. */
void emit_in(Emit *e, Extent at, DType dt);
void emit_out(Emit *e, Extent at, DType dt);
void emit_work(Emit *e);
void emit_wait(Emit *e, int handle, const char *what);
/* Starts the sum of one scalar over some axes; false if there is nothing to wait for. */
bool emit_scalar_sum(Emit *e, AxisSet axes, int which, int handle, const char *what);

/* ---- steps ---- */
/* The loss is partial over these axes. */
AxisSet update_loss_axes(const Units *u);
/* clip_coef or clip_guess; `whole`: the norm is that of all ranks. */
void update_clip(Emit *e, int op, bool whole);
/* The next run of parameters that the optimizer treats alike; see regions_stretch. */
bool update_stretch(const Emit *e, const Compiled *c, Stretch *r);
/* The optimizer's step, or an op with its operands, on one run. They read only the
 * scalars before SC_ZERO_FROM: the others may be on their way. */
void update_step(Emit *e, const Compiled *c, const Stretch *r, int op);
/* The results that an op writes to the state of a run: value, the optimizer's states, and
 * the copy that ops read; of step_undo it is behind the value. */
void update_results(Emit *e, const Stretch *r, bool undo);
/* Whether a run is of biases that choose experts: no gradient is theirs, and no norm. */
bool update_balances(const Compiled *c, const Emit *e, const Stretch *r);
const char *update_name(Emit *e, const Compiled *c, const Stretch *r);

/* grad_buckets.c: the whole gradients of a block are about to be written from `at` on,
 * all of each parameter; what lies between them is in the shards, and so in the norm, and
 * becomes zero. */
void clear_padding(Emit *e, int block, uint64_t at);
/* The gradients of `n` parameters in a row of a block become zero, which is at `at` and
 * begins with element `first`. */
void clear_stored(Emit *e, const Stored *p, int n, uint64_t at, int64_t first);
/* The same for gradients that are kept whole, at the start of a step: a backend may use
 * what is not the rank's shard while it sums. */
void clear_paddings(Emit *e);
/* grad_buckets.c: starts gathering what ops read of a run that was stepped in shards;
 * false if it was not, or shards are what is kept. */
bool emit_gather(Emit *e, const Stretch *r, int handle, const char *what);
/* The last pass over the parameters: steps, then gathers. */
void update_last_step(Emit *e, const Compiled *c, MainList *t);

/* ---- post_validation.c ---- */
/* Sums the norm and the loss over pp while the optimizer steps. */
void post_validation(Emit *e, const Compiled *c, MainList *t);

#endif
