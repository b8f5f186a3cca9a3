/* run.h - a run: all ranks of this process, training, evaluating, decoding, compared with
 * and watched by the other processes. */
#ifndef WEFT_RUN_H
#define WEFT_RUN_H

#include "vm/comm/supervisor/rendezvous.h"
#include "vm/comm/world.h"
#include "vm/io/io.h"
#include "vm/rank/rank.h"

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
uint64_t run_memory(const Run *r); /* bytes of the worst rank's arena */
/* Allocations through weft_alloc and string look-ups since the last call (tests). */
uint64_t run_allocations(Run *r);

#endif
