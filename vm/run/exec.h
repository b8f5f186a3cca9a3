/* exec.h - the interface of a loaded rank and of a run: loading, stepping, state access,
 * evaluation, verification. */
#ifndef WEFT_EXEC_H
#define WEFT_EXEC_H

#include "vm/comm/supervisor/rendezvous.h"
#include "vm/comm/world.h"
#include "vm/compile/compile.h"
#include "vm/io/io.h"
#include "vm/storage/piece.h"

/* ---- one rank: rank_load.c, interp.c ---- */
typedef struct Rank Rank;
/* Allocates the arena and what rank_footprint says, and prepares the kernels;
 * program_check() has passed before. */
weft_status rank_new(const weft_alloc *a, const Compiled *c, int rank, Device *dev,
                     Rank **out, weft_error *e);
/* The same rank with the other program c->eval, in the arenas and with the staging of
 * `under`, which is freed after it. */
weft_status rank_new_over(const Compiled *c, Rank *under, Rank **out, weft_error *e);
void rank_free(Rank *r);
/* What this rank connects to: its groups in the order of Program.comm (of one member,
 * too), and the ranks that it sends to or receives from. */
CommNeeds rank_needs(const Rank *r);
void rank_connect(Rank *r, Comm *c);
/* One step, in three phases: upload takes the inputs and scalars of the host to their
 * places, main runs the program, download brings the scalars back. Nothing of the host is
 * in main, so a device can capture it once and replay it, see rank_capture. With `check`,
 * which is no step to capture, looks at every kernel result and ends with WEFT_ERUN
 * naming rank and op at the first value that is not finite. */
weft_status rank_step(Rank *r, bool check, const StopFlag *stop, weft_error *e);
/* From now on its steps are kept, if the device can (graph_capture.c). */
void rank_capture(Rank *r);
/* Once, if that could not be: why. Else NULL. */
const char *rank_not_captured(Rank *r);
void *rank_arena(Rank *r);
/* Writes what its steps do from now on into `t`, see trace.h. */
struct Tracer;
void rank_trace(Rank *r, struct Tracer *t);
/* What upload takes and download brings, to be filled before a step: the scalars up to
 * SC_CLIP, and the inputs that the rank reads (NULL: it does not). */
double *rank_scalars(Rank *r);
int32_t *rank_input(Rank *r, InputKind k);
static inline size_t staged_bytes(const Compiled *c) {
  return (size_t)c->microbatches * (size_t)c->micro * (size_t)c->tokens * sizeof(int32_t);
}
/* Bytes of the host that a rank of this pp rank holds besides its arena. */
typedef struct RankFootprint {
  uint64_t tables, staging, states;
} RankFootprint;
RankFootprint rank_footprint(const Compiled *c, int pp);
/* After a step with `check` failed: the instruction whose result is not finite and what
 * it gave ("nan", "inf"); NULL if the step failed in another way. */
const Instr *rank_bad(const Rank *r, const char **gave);
/* "op linear of layers.3.mlp.up_proj", "all_reduce(tp) of ...", "send to rank 2 of F" */
void instr_describe(const Compiled *c, int rank, const Instr *in, char *buf, size_t n);
void rank_describe(const Rank *r, const Instr *in, char *buf, size_t n);

/* Where a rank is; may be read by other threads at any time. */
typedef enum { RANK_IDLE, RANK_BUSY, RANK_WAITS } RankState;
typedef struct RankAt {
  RankState state;
  uint64_t ticks;     /* grows with every instruction */
  const Instr *instr; /* when it waits: the transfer that it waits for, */
  uint64_t nth;       /* which its communicator has counted so (pairs: all) */
} RankAt;
RankAt rank_at(const Rank *r);

/* ---- parameters and their state: rank_state.c ---- */
typedef enum { STATE_PARAM, STATE_GRAD, STATE_M, STATE_V, STATE_N } StateKind;

/* Initial values of a piece by (seed, name, global index). */
void piece_init(const Piece *p, const CompiledParam *cp, uint64_t seed, float *local);

/* What a rank holds of a state of a parameter: the piece that is read first, then, for
 * STATE_PARAM, that of the copy that ops read where it is another. Returns their number,
 * 0 if the parameter is on other pp ranks, or nobody keeps this state of it. */
int state_pieces(const Compiled *c, int rank, StateKind k, int param, Piece out[2]);
/* A piece as f32. */
void rank_read(Rank *r, const Piece *p, float *local);
void rank_write(Rank *r, const Piece *p, const float *local);
/* Where a piece lies, if that is memory that the host can write; NULL if not, or if it is
 * of another size. */
float *rank_floats(Rank *r, const Piece *p);
uint16_t *rank_halves(Rank *r, const Piece *p);
/* As it is stored. */
void rank_read_raw(Rank *r, const Piece *p, void *to);
/* Zeros in all that a step reads before it writes it: in all regions but those of
 * gradients, paddings too. `block` has room for n elements. */
void rank_clear(Rank *r, float *block, int64_t n);

/* ---- a run: run.c ---- all local ranks of this process */
/* What processes of a run compare, as text: an error if it differs; the same, but told
 * only if what it follows from does not; told, and no error. */
typedef enum { FACT_SAME, FACT_FOLLOWS, FACT_TOLD } FactKind;
typedef struct RunFact {
  const char *what, *value; /* "plan.train.seed", "7" */
  FactKind kind;
  const char *why; /* it matters, and what to do; or NULL */
} RunFact;

typedef struct RunOptions {
  const weft_alloc *alloc;
  const WorldKind *world; /* NULL: virtual ranks of this process */
  WorldOptions settings;  /* of the world: where its processes find each other */
  int threads;            /* per rank; 0 = cores / local ranks, at least 1 */
  const StopFlag *stop;   /* may be NULL */
  const RunFact *fact;    /* compared over all processes, beside build and programs, */
  int nfact;              /* before any of them waits for another */
  double patience_s;      /* of the watchdog; 0: see stall_patience */
  bool saves;             /* the plan's checkpoints will be written: room for copies */
  bool trace;             /* keep what steps do, for run_trace */
  bool *told;             /* set when another process tells why the run ends; NULL: no */
} RunOptions;

typedef struct StepResult {
  int64_t step, tokens; /* label tokens of the step, all ranks */
  double loss, grad_norm, lr, ms;
  double loss_scale; /* that it was taken with; 0: the type needs none */
  bool skipped;      /* gradients overflowed (f16): nothing changed but the scale */
  double expert_max, expert_mean; /* rows of an expert in a microbatch; 0: no experts */
  int64_t dropped;                /* choices of experts that none took */
  int64_t eval_tokens; /* label tokens of the evaluation after it; 0: there was none */
  double eval_loss, eval_ms;
} StepResult;

typedef struct Run Run;
weft_status run_open(const Plan *p, const Compiled *c, const RunOptions *o, Run **out,
                     weft_error *e);
void run_close(Run *r);
/* All processes call it with the same list of facts. WEFT_EUSAGE on all of them if the
 * values differ: the error names ranks and values. consensus.c */
weft_status run_consensus(Run *r, const RunFact *fact, int n, weft_error *e);
/* On rank 0, how processes differ in what may: a warning; else NULL. */
const char *run_uneven(const Run *r);
/* Writes what the first steps of all ranks did, as many as fit, for Perfetto. All
 * processes call it between steps. */
weft_status run_trace(Run *r, const char *path, weft_error *e);
/* This rank gives up for a reason that has nothing to do with a step: the others are
 * told. `e` is then what all of them say. */
void run_fails(Run *r, weft_error *e);
/* This process ends although other ranks may not: run_close waits for none of them. In
 * a world of processes they end when this one does; else there are none. */
void run_abandon(Run *r);
/* How steps are taken on a device that can keep one: "replayed as one graph", or, after
 * "launched op by op: ", why not. NULL: it cannot. */
const char *run_way(const Run *r, char text[96]);
/* After a step: once, why a rank of this process could not keep its step. Else NULL. */
const char *run_not_captured(Run *r);
int run_world(const Run *r);         /* ranks in all */
int run_rank(const Run *r);          /* 0 unless a launcher says otherwise */
int run_machine_ranks(const Run *r); /* of them on this machine */
/* Initial values by name and global index: the same bits for every mesh. The moments of
 * the optimizer become zero, as in run_load. */
weft_status run_init(Run *r, weft_error *e);
/* Every parameter from the file: missing, extra and mis-shaped ones are errors. */
weft_status run_load(Run *r, const SafeTensors *s, weft_error *e);
/* Step number `step` (from 0) on the samples step*global .. of `d`. */
weft_status run_step(Run *r, const Data *d, int64_t step, StepResult *out, weft_error *e);
/* Same with the given tokens and labels: (microbatches, micro*dp, seq), global. */
weft_status run_step_tokens(Run *r, const int32_t *tokens, const int32_t *labels,
                            int64_t step, StepResult *out, weft_error *e);
/* The last step was skipped and shall be taken again, as if it had not been tried. */
void run_retry(Run *r);
/* decode_step.c: of a run whose programs take one token each (Compiled.context), all
 * ranks in this process: `token` at `position`, after run_decode of all positions before
 * it. Fills logits[c->vocab] of the token that follows. */
weft_status run_decode(Run *r, int32_t token, int64_t position, float *logits,
                       weft_error *e);
/* evaluate.c: the loss on samples of `d` from its first one on, `batches` of a step's
 * size but each sample at most once, with the parameters that step out->step has left.
 * Fills what StepResult says of an evaluation and changes nothing that training reads.
 * The plan has eval_every. */
weft_status run_evaluate(Run *r, const Data *d, int64_t batches, StepResult *out,
                         weft_error *e);
/* Gathers one logical parameter (or its gradient, after the last step; before clipping)
 * in its global shape. Every process takes part; `out` and `in` are those of rank 0. */
weft_status run_get(Run *r, StateKind k, int param, float *out, weft_error *e);
weft_status run_set(Run *r, StateKind k, int param, const float *in, weft_error *e);
/* The largest distance (L2) of what any local rank holds of a gathered parameter from it,
 * the copy that ops read too. Replicas hold the same bits, so it is 0 unless a collective
 * is missing. */
weft_status run_apart(Run *r, StateKind k, int param, float *global, double *out,
                      weft_error *e);
uint64_t run_memory(const Run *r); /* bytes of the worst rank's arena */

/* ---- what a run holds besides its arenas: footprint.c ---- */
typedef enum { FOOTPRINT_RANK, FOOTPRINT_PROCESS, FOOTPRINT_LIBRARY } FootprintOwner;
/* A line of footprint.def. The lines of all ranks and that of their process, with the
 * arenas, are to the byte the most that weft allocates in a run. */
typedef struct FootprintLine {
  const char *name, *what;
  FootprintOwner by;
  bool known; /* `bytes` says how many: what weft allocates */
  uint64_t bytes;
} FootprintLine;
enum { FOOTPRINT_MOST = 16 };
/* The lines of each rank of a pp rank (FOOTPRINT_RANK), of a process with all ranks of
 * the mesh, or of the libraries below weft; returns their number. `with`: what not every
 * run has, a file of weights and a trace. */
enum { FOOTPRINT_WEIGHTS = 1, FOOTPRINT_TRACE = 2 };
int footprint_lines(const Plan *p, const Compiled *c, unsigned with, FootprintOwner by,
                    int pp, FootprintLine out[FOOTPRINT_MOST]);
/* Elements of the buffer through which the pieces of parameters pass. */
int64_t footprint_block(const Compiled *c);
/* Allocations through weft_alloc and string look-ups since the last call (tests). */
uint64_t run_allocations(Run *r);

/* ---- verify.c ---- */
typedef struct VerifyReport {
  int steps, tensors;
  double loss, grad_norm, grad, param; /* worst relative differences */
  char worst[160];                     /* the tensor with the worst one */
  bool ok;
  char first_bad[256]; /* "step 0: gradient of X differs by 3e-2" */
  char not_kept[512];  /* see run_not_captured; "": nothing */
} VerifyReport;
/* Runs `steps` steps of `many` with these options (NULL: the usual ones) and of `one`
 * (mesh of one rank, f32, the same logical microbatches) and compares. Tolerance is on
 * norm-wise differences. A difference is no error here: it is out->ok and
 * out->first_bad, on the process of rank 0. */
weft_status verify(const Plan *plan, const Compiled *many, const Plan *plan_one,
                   const Compiled *one, int steps, double tolerance,
                   const RunOptions *options, VerifyReport *out, weft_error *e);

#endif
