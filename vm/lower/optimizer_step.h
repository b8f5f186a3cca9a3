/* optimizer_step.h - the parts of the once-per-step code that optimizer_step.c and
 * post_validation.c assemble. All of it is emitted into the main list. */
#ifndef WEFT_UPDATE_H
#define WEFT_UPDATE_H

#include "vm/storage/piece.h"
#include "lower.h"

/* ---- instructions ---- */
void emit_kernel(Emit *e, int op, const OpAttr *attr, const char *what);
/* Adds an operand of the last kernel or collective: inputs, then results. */
void emit_in(Emit *e, Extent at, DType dt);
void emit_out(Emit *e, Extent at, DType dt);
void emit_work(Emit *e);
/* The same, at an offset of the arena. */
void emit_work_at(Emit *e, uint64_t at);
/* Zeroes n elements. */
void emit_zeros(Emit *e, DType dt, uint64_t at, int64_t n, const char *what);
/* Starts a collective; its input and result follow. */
void emit_coll(Emit *e, CollKind coll, AxisSet axes, int handle, const char *what);
/* Handle for collectives that are waited for at once: handles of bodies are free between
 * calls. */
enum { SCALAR_HANDLE = 0 };
void emit_wait(Emit *e, int handle, const char *what);
/* The first n scalars. */
Extent step_scalars(const Emit *e, int64_t n);
/* Makes the block of scalars an operand and result of the last kernel. */
void emit_scalars(Emit *e);

/* ---- step_reductions.c ---- */
/* Starts the reduction of one scalar; false if the axes have one rank, and nothing is to
 * be waited for. */
bool emit_scalar_sum(Emit *e, AxisSet axes, int which, int handle, const char *what);
/* The same, and waits for it. */
void emit_scalar_summed(Emit *e, AxisSet axes, int which, const char *what);
/* Of gradients, counts of experts, losses of sources and the norm of this pp rank. */
void step_reductions(Emit *e, const Compiled *c, MainList *t);
AxisSet update_loss_axes(const Units *u);

/* ---- steps ---- */
/* Emits clip_coef or clip_guess; `whole`: the norm is that of all pp ranks. */
void update_clip(Emit *e, int op, bool whole);
/* The next range of parameters with equal optimizer settings; see regions_stretch. */
bool update_stretch(const Emit *e, const Compiled *c, Stretch *r);
/* The attributes of the step of a parameter. */
OpAttr update_attr(const Emit *e, const CompiledParam *of);
/* Emits the optimizer's step, or an op with the same operands, on one range. It reads
 * only the scalars before SC_ZERO_FROM, so reductions of the others may be in flight. */
void update_step(Emit *e, const Compiled *c, const Stretch *r, int op);
/* Adds the results of an op that updates a range: master value, optimizer states and the
 * parameters that ops read; for step_undo the parameters come after the value. */
void update_results(Emit *e, const Stretch *r, bool undo);
/* Whether a range is of router biases, which have counts instead of gradients and no part
 * in the norm. */
bool update_balances(const Compiled *c, const Emit *e, const Stretch *r);
/* The region of its gradients; NULL: it is frozen. */
const Region *update_gradients(const Emit *e, const Stretch *r);
const char *update_name(Emit *e, const Compiled *c, const Stretch *r);

/* grad_buckets.c: zeroes the padding of unsharded gradients at `at`, whose parameters are
 * about to be written: padding is part of the shards, and so of the norm. */
void clear_padding(Emit *e, int block, uint64_t at);
/* Zeroes the gradients of `n` adjacent parameters of a bucket whose buffer is at `at` and
 * begins with element `first`. */
void clear_stored(Emit *e, const Stored *p, int n, uint64_t at, int64_t first);
/* The same for gradients that are stored whole, at the start of a step: a backend may
 * overwrite what is not the rank's shard in a reduce-scatter. */
void clear_paddings(Emit *e);
/* grad_buckets.c: starts the all-gather of the parameters of a range that was stepped in
 * shards; false if it was not, or only shards are stored. */
bool emit_gather(Emit *e, const Stretch *r, int handle, const char *what);
/* The last pass over the parameters: steps and gathers them. */
void update_last_step(Emit *e, const Compiled *c, MainList *t);

/* ---- whole_matrices.c ---- */
/* The axes that cut dimension `dim` of a parameter, and those that cut its matrices: of
 * experts' weights the first dimension counts these. */
AxisSet matrix_dim_cut(const Mesh *m, const UnitParam *p, int dim);
AxisSet matrix_cut(const Mesh *m, const UnitParam *p);
/* WEFT_EPLAN, with `why`, if several axes cut the matrices, or one both dimensions. */
weft_status matrix_one_cut(const Mesh *m, const UnitParam *p, const char *why,
                           weft_error *e);
typedef struct Matrix {
  const char *name;
  int64_t rows, cols;
  uint64_t first; /* element of the block */
  int cut, parts; /* the dimension that is cut, in each of its parts */
} Matrix;

/* A block of the buffer whose matrices are stepped as a whole. */
typedef struct Whole {
  AxisSet flat, cut; /* axes over which it is gathered */
  int ways, pieces;  /* ranks of these */
  int64_t box;       /* elements of the block */
  VEC(Matrix) matrix;
} Whole;
Whole whole_of(const Mesh *m, const Units *u, const Regions *s, int block, Arena *a);
/* Bytes of a block once it is gathered over `flat`, and of all its pieces. */
uint64_t whole_bytes(const Whole *w);
static inline int64_t matrix_shorter(const Matrix *x) { return MIN(x->rows, x->cols); }
static inline int64_t matrix_longer(const Matrix *x) { return MAX(x->rows, x->cols); }

/* Where matrices are stepped, from Layout.end on, while activations are dead. Offsets
 * from there. */
typedef struct MatrixRoom {
  uint64_t x[2];   /* a matrix */
  uint64_t y[3];   /* a square of its shorter side */
  uint64_t work;   /* scratch of kernels */
  uint64_t blocks; /* the largest gathered block, and more where there is room */
  uint64_t bytes;  /* of all of them; 0: there is no such matrix */
} MatrixRoom;
MatrixRoom matrix_room(const Plan *plan, const Mesh *m, const Units *u, const Layout *l,
                       Arena *scratch);
/* Whether the parameters of a range are stepped as whole matrices. */
bool matrices_in(const Emit *e, const Stretch *r);

/* ---- matrix_step.c ---- */
/* Emits the step of as many blocks, from parameter `first` of the regions on and before
 * `end`, as have room at a time. Returns the parameter behind them. */
int matrix_step(Emit *e, const Compiled *c, const MatrixRoom *at, int first, int end);

/* ---- factored_step.c ---- */
/* Where it works, from Layout.end on: sums, and behind them norms and scratch. */
typedef struct FactoredRoom {
  uint64_t norms, work;
  uint64_t bytes; /* of all of them; 0: nothing is stepped so */
} FactoredRoom;
FactoredRoom factored_room(const Plan *plan, const Mesh *m, const Units *u,
                           const Layout *l, Arena *scratch);
/* Whether the parameters of a range are stepped by what the whole of each says. */
bool factored_in(const Emit *e, const Stretch *r);
/* Emits the step of one block of them. */
void factored_step(Emit *e, const Compiled *c, const FactoredRoom *room,
                   const Stretch *block);

/* ---- post_validation.c ---- */
/* Post-validation: reduces norm and loss over pp while the optimizer steps. */
void post_validation(Emit *e, const Compiled *c, MainList *t);

#endif
