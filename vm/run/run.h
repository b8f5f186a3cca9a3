/* run.h - a run: the local ranks of a process with their threads, devices and
 * communicators. It trains, evaluates and decodes, and checks with the other processes
 * that all do the same. */
#ifndef WEFT_RUN_H
#define WEFT_RUN_H

#include "vm/comm/supervisor/rendezvous.h"
#include "vm/comm/world.h"
#include "vm/io/io.h"
#include "vm/rank/rank.h"

/* Facts that the processes of a run compare, as strings. FACT_SAME: a difference is an
 * error. FACT_FOLLOWS: the same, but reported only if no FACT_SAME differs, of which it
 * would be a consequence. FACT_TOLD: a difference is only a warning. */
typedef enum { FACT_SAME, FACT_FOLLOWS, FACT_TOLD } FactKind;
typedef struct RunFact {
  const char *what, *value; /* "plan.train.seed", "7" */
  FactKind kind;
  const char *why; /* why it matters and what to do; or NULL */
} RunFact;

typedef struct RunOptions {
  const weft_alloc *alloc;
  const WorldKind *world; /* NULL: virtual ranks of this process */
  WorldOptions settings;  /* for the backend: where processes find each other */
  int threads;            /* per rank; 0 = cores / local ranks, at least 1 */
  const StopFlag *stop;   /* may be NULL */
  const RunFact *fact;    /* compared by the consensus check, with build and programs */
  int nfact;
  double patience_s; /* of the stall detector; 0: see stall_patience */
  bool saves;        /* checkpoints will be written: reserves memory for the copy */
  bool trace;        /* record events for run_trace */
  bool *reported_elsewhere; /* set if another process reports why the run ended; may be
                               NULL */
} RunOptions;

/* Cores for each of `ranks` ranks of this machine. `shared`: the cores that this process
 * may use are those of all of them, as where they are threads of it; else a launcher may
 * have bound each process to cores of its own. */
int run_share_of_cores(int ranks, bool shared);

/* The lowest validation loss of a run. */
typedef struct BestEval {
  int64_t step; /* steps taken when it was measured; 0: there is none yet */
  double loss;
  double bar;    /* what a loss has to be below, by min_delta, to count as lower */
  int64_t since; /* evaluations since then whose loss did not */
} BestEval;

/* Of the labels of one stream of a blend, in one step or evaluation. */
typedef struct SourceLoss {
  double sum; /* of the cross entropies of its labels */
  int64_t labels;
} SourceLoss;

typedef struct StepResult {
  int64_t step, tokens; /* label tokens of the step, all ranks */
  double loss, grad_norm, lr, ms;
  double loss_scale; /* used in this step; 0: no loss scaling */
  bool skipped;      /* gradients overflowed (f16): nothing changed but the scale */
  double expert_max, expert_mean; /* tokens of an expert in a microbatch; 0: no experts */
  int64_t dropped;                /* tokens dropped by experts at capacity */
  /* Of its samples, on the first process, where the data have masks or whole documents:
   * tokens that fill up rows, and those of documents that were dropped or truncated. */
  bool partial;
  int64_t padded, left_out;
  int sources, eval_sources; /* of a blend; 0: the data are one stream */
  SourceLoss source[SOURCES_MOST], eval_source[SOURCES_MOST];
  int64_t eval_tokens; /* label tokens of the evaluation after the step; 0: none ran */
  double eval_loss, eval_ms;
  double
      eval_entropy; /* mean cross entropy of its labels; NAN: programs do not tell it */
  BestEval best;    /* with that evaluation */
  bool stops;       /* early stopping: no step follows */
} StepResult;

typedef struct Run Run;
weft_status run_open(const Plan *p, const Compiled *c, const RunOptions *o, Run **out,
                     weft_error *e);
void run_close(Run *r);
/* The consensus check (consensus.c): called on all processes with the same list of facts.
 * If values differ, all of them get WEFT_EUSAGE with an error that names ranks and
 * values. */
weft_status run_consensus(Run *r, const RunFact *fact, int n, weft_error *e);
/* Whether all copies of parameters and optimizer states hold the same bits on all ranks
 * that have them (replica_check.c), between two steps; all processes call it. WEFT_ERUN
 * on all of them otherwise, with an error that names a parameter and two ranks. */
weft_status run_check_replicas(Run *r, weft_error *e);
/* Whether copies have to be the same: on GPUs ranks may compute a product in different
 * ways, each the one that it found fastest, unless the plan is deterministic. */
bool run_copies_agree(const Run *r);
/* Whether a step or an evaluation has failed, so that the run takes no more of them. */
bool run_ended(const Run *r);
/* WEFT_ERUN if what the ranks hold of parameters is no whole, as a step failed: before
 * they are gathered, saved or exported. */
CHECKED weft_status run_holds(const Run *r, StateKind k, weft_error *e);
/* Writes the recorded events of all ranks as a file for Perfetto: as many of the first
 * steps as fit. All processes call it between steps. */
weft_status run_trace(Run *r, const char *path, weft_error *e);
/* Ends the run on all processes because this rank failed outside of a step. Processes
 * agree on one reason, which is left in `e`. */
void run_fails(Run *r, weft_error *e);
/* Has `fn` called, on all processes, before the run ends with an error that each of them
 * has found, such as a loss that is not finite: what they still have to do together is
 * done then, as they can no more once one of them has failed. NULL: nothing. */
void run_before_end(Run *r, void (*fn)(void *ud), void *ud);
/* Calls it; for the code that finds such an error, on all processes. */
void run_settle(Run *r);
/* Marks that this process exits while other ranks may still be running: run_close then
 * waits for none of them. */
void run_abandon(Run *r);
/* How steps are run on a device that can capture graphs: "replayed as one graph", or
 * "launched op by op: " and the reason. NULL: the device cannot capture. */
const char *run_way(const Run *r, char text[96]);
/* The i-th thing to tell before the first step of how the ranks of this process run;
 * NULL: there are no more. On rank 0 facts that differ between processes and may, why
 * steps that are launched op by op may stop (Comm.crowded), run_instead, and what a rank
 * computes by kernels that are not those for its device (Device.fallback). */
const char *run_warning(const Run *r, int i);
enum { RUN_WARNINGS = 4 };
/* How kernels came to the device of this process, and how long it took; NULL: they are
 * functions of the program. */
const char *run_kernels(const Run *r);
/* NULL, or how the backend has the arena (Comm.arena). */
const char *run_arena(const Run *r);
/* NULL, or that a rank of this process has weft's own kernels for ops that the program
 * leaves to a library, and why. */
const char *run_instead(const Run *r);
/* The reason why a rank of this process could not capture its step: returned once, after
 * that step. Else NULL. */
const char *run_not_captured(Run *r);
int run_world(const Run *r);         /* ranks in all */
int run_rank(const Run *r);          /* 0 without a launcher */
int run_machine_ranks(const Run *r); /* ranks on this machine */
/* Step number `step` (from 0) on the samples step*global .. of `d`. */
weft_status run_step(Run *r, const Data *d, int64_t step, StepResult *out, weft_error *e);
/* The same with given tokens and labels, each (microbatches, micro*dp, seq), global. What
 * a plan reads of a file for each sequence, losses of a reference, is then made up. */
weft_status run_step_tokens(Run *r, const int32_t *tokens, const int32_t *labels,
                            int64_t step, StepResult *out, weft_error *e);
/* Forgets the last step, which was skipped, so that the same step number can be run
 * again. */
void run_retry(Run *r);
/* One step of decoding (decode_step.c), for programs with a key-value cache
 * (Compiled.context) and all ranks in this process: runs `token` at `position`, after
 * calls for all earlier positions, and fills logits[c->vocab] for the next token. */
weft_status run_decode(Run *r, int32_t token, int64_t position, float *logits,
                       weft_error *e);
/* WEFT_ERUN if `d` has fewer samples than a step of `rows`, where the loss of the plan is
 * measured on whole steps. */
weft_status evaluation_has_steps(const Plan *p, const Data *d, int64_t rows,
                                 weft_error *e);
/* Validation loss (evaluate.c) on up to `batches` batches of a step's size, from the
 * first sample of `d`, each sample at most once, with the parameters after step
 * out->step, or of no step of this run, -1, for messages. Fills the eval_ members of
 * `out` and changes no training state. The plan must have eval_every. */
weft_status run_evaluate(Run *r, const Data *d, int64_t batches, StepResult *out,
                         weft_error *e);
/* For a plan whose sources are the rows of a step: the sum of the losses of each of
 * samples first .. first + n - 1, with the parameters as they are; n is at most
 * batch.global. All processes call it and get the same losses. */
weft_status run_row_losses(Run *r, const Data *d, int64_t first, int64_t n, double *loss,
                           weft_error *e);
uint64_t run_memory(const Run *r); /* bytes of the worst rank's arena */
/* Allocations through weft_alloc, and string lookups, since the last call; for tests. */
uint64_t run_allocations(Run *r);

#endif
