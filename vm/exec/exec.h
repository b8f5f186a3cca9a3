/* exec.h - runs compiled programs: interpreter, trainer, state access, verify. */
#ifndef WEFT_EXEC_H
#define WEFT_EXEC_H

#include "../comm/comm.h"
#include "../compile/compile.h"
#include "../io/io.h"

/* Checked between actions by every rank; set from a signal handler. */
typedef volatile int StopFlag;

/* ---- one rank: interp.c ---- */
typedef struct Rank Rank;
weft_status rank_new(const weft_alloc *a, const Compiled *c, int rank, Device *dev,
                     Rank **out, weft_error *e);   /* allocates the arena, prepares kernels */
void rank_free(Rank *r);
/* The groups of this rank, in the order of Program.comm (groups of one member too). */
int rank_groups(Rank *r, const CommGroup **out);
void rank_connect(Rank *r, Comm *c);
/* Runs the program once. With `check`, looks at every kernel result and ends with
 * WEFT_ERUN naming rank and op at the first value that is not finite. */
weft_status rank_step(Rank *r, bool check, const StopFlag *stop, weft_error *e);
void *rank_arena(Rank *r);
double *rank_scalars(Rank *r);        /* host mirror: upload before, download after */

/* ---- parameters and their state: state.c ---- */
typedef enum { STATE_PARAM, STATE_GRAD, STATE_M, STATE_V, STATE_N } StateKind;

/* ---- a run: trainer.c ---- all local ranks of this process */
typedef struct RunOptions {
  const weft_alloc *alloc;
  const char *comm;           /* "local" (default) or "mpi" */
  int threads;                /* per rank; 0 = cores / local ranks, at least 1 */
  const StopFlag *stop;       /* may be NULL */
} RunOptions;

typedef struct StepResult {
  int64_t step, tokens;       /* label tokens of the step, all ranks */
  double loss, grad_norm, lr, ms;
} StepResult;

typedef struct Run Run;
weft_status run_open(const Plan *p, const Compiled *c, const RunOptions *o, Run **out,
                     weft_error *e);
void run_close(Run *r);
int run_world(const Run *r);          /* ranks in all */
int run_rank(const Run *r);           /* 0 unless a launcher says otherwise */
/* Initial values by name and global index: the same bits for every mesh. */
weft_status run_init(Run *r, weft_error *e);
/* Every parameter from the file: missing, extra and mis-shaped ones are errors. */
weft_status run_load(Run *r, const SafeTensors *s, weft_error *e);
/* Step number `step` (from 0) on the samples step*global .. of `d`. */
weft_status run_step(Run *r, const Data *d, int64_t step, StepResult *out, weft_error *e);
/* Same with the given tokens and labels: (microbatches, micro*dp, seq), global. */
weft_status run_step_tokens(Run *r, const int32_t *tokens, const int32_t *labels,
                            int64_t step, StepResult *out, weft_error *e);
/* Gathers one logical parameter (or its gradient, after the last step; before clipping)
 * in its global shape; on rank 0, other processes take part. */
weft_status run_get(Run *r, StateKind k, int param, float *out, weft_error *e);
weft_status run_set(Run *r, StateKind k, int param, const float *in, weft_error *e);
uint64_t run_memory(const Run *r);    /* bytes of the worst rank's arena */
/* Allocations through weft_alloc and string look-ups since the last call (tests). */
uint64_t run_allocations(Run *r);

/* ---- verify.c ---- */
typedef struct VerifyReport {
  int steps, tensors;
  double loss, grad_norm, grad, param;    /* worst relative differences */
  char worst[160];                        /* the tensor with the worst one */
  bool ok;
  char first_bad[256];                    /* "step 0: gradient of X differs by 3e-2" */
} VerifyReport;
/* Runs `steps` steps of `many` on virtual ranks and of `one` (mesh of one rank, f32, the
 * same logical microbatches) and compares. Tolerance is on norm-wise differences. */
weft_status verify(const Plan *plan, const Compiled *many, const Plan *plan_one,
                   const Compiled *one, int steps, double tolerance, const StopFlag *stop,
                   VerifyReport *out, weft_error *e);

#endif
