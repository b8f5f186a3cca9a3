/* run_int.h - a run and its workers; shared by run.c (threads), train_step.c (steps),
 * what watches it (stall_detector.c, heartbeat.c), and vm/weights.
 *
 * One worker thread per local rank lives as long as the run. All that touches a rank's
 * device or its communication is a Job, which every worker runs on its own rank. */
#ifndef WEFT_RUN_INT_H
#define WEFT_RUN_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include "loss_scaler.h"
#include "run.h"
#include "vm/comm/supervisor/supervisor.h"
#include "vm/graph/sequence.h"
#include "vm/rank/trace.h"

typedef struct StallDetector {
  uint64_t ticks;
  double seen, idle; /* the last look; seconds for which nothing happened */
} StallDetector;

typedef struct Worker {
  Run *run;
  int rank; /* world rank */
  pthread_t thread;
  bool has_thread, has_device, has_comm;
  Device dev;
  Comm comm;
  Rank *r;
  Rank *eval;            /* over it, forward only; NULL: there is none */
  float *block;          /* of a piece of a parameter, Run.block_max elements */
  _Atomic int64_t taken; /* stretches that have a lane: see Crew in param_fill.c */
  Tracer tracer;         /* without events: there is no trace */
  double apart;          /* result of run_apart */
  char *copy; /* of what this rank writes (saved_pieces.h); NULL: nothing is saved */
} Worker;

typedef weft_status (*Job)(Worker *w, void *arg, weft_error *e);

struct Run {
  weft_alloc alloc; /* counts, then calls `inner` */
  weft_alloc inner;
  _Atomic uint64_t allocations;
  const Plan *plan;
  const Compiled *c;
  const DeviceVtable *device;
  const StopFlag *stop;
  WorldOptions settings; /* while the run is opened */
  Supervisor *control;   /* between processes; else NULL */
  Net net;               /* if the world has none of its own */
  bool *told;
  char uneven[400]; /* see run_uneven; "": nothing */
  bool traces;
  double patience_s; /* 0: stall_patience chooses */
  double longest_s;  /* step so far; 0: there was none */
  int threads;
  const WorldKind *kind;
  World world;
  Worker *worker;
  int nworker;
  StallDetector dog; /* over all processes */
  Scaler scaler;
  double scaled;            /* scale of the gradients in the arenas */
  _Atomic int64_t step;     /* that runs; -1: none */
  _Atomic bool evaluates;   /* what runs is the evaluation after it */
  bool dead;                /* a job failed: the communicators are of no more use */
  int32_t *tokens, *labels; /* a step: (microbatches, micro*dp, T) */
  int64_t block_max;        /* elements of Worker.block: rank_block */
  bool saves;               /* see RunOptions */

  pthread_mutex_t lock; /* for all below */
  pthread_cond_t go, done;
  uint64_t generation; /* of the job; workers wait for the next */
  int busy;            /* workers that still run it */
  bool quit, failed;
  Job job;
  void *arg;
  weft_error first;   /* the first failure of the job */
  bool over;          /* the processes have ended the run: */
  weft_error verdict; /* why */
};

/* Runs `job` on all workers; the first failure in time is the result. `watched`: the job
 * communicates, so a failure aborts the world and the watchdog looks on. */
weft_status run_all(Run *r, Job job, void *arg, bool watched, weft_error *e);

/* The same for a job that touches `elements` of what a rank holds and waits for no other
 * rank: where ranks are threads on the host, the caller runs a short one itself. */
weft_status run_each(Run *r, Job job, void *arg, int64_t elements, weft_error *e);

/* What the rank of a worker runs, or ran last. */
static inline Rank *worker_rank(const Worker *w) {
  return w->run->evaluates ? w->eval : w->r;
}

/* "" or "the evaluation after ": before "step 7". */
static inline const char *run_part(const Run *r) {
  return r->evaluates ? "the evaluation after " : "";
}

/* ---- world_options.c ---- */
enum { RUN_SETTINGS = 64 };
/* The options of the run with what the plan says; `setting` is room for its list. */
WorldOptions run_world_options(const Run *r, WorldSetting setting[RUN_SETTINGS]);

/* ---- train_step.c ---- */
/* Reads the rows that the ranks of this process need of samples first .. first + n - 1,
 * one for each row of a step; rows from `n` on are left as they are. */
weft_status step_read(Run *r, const Data *d, int64_t first, int64_t n, weft_error *e);
/* Puts them where the worker's rank takes its inputs from. */
void step_inputs(Worker *w, const int32_t *tokens, const int32_t *labels);

/* Rows of a step's global arrays for one data-parallel index. */
static inline int64_t run_dp(const Run *r) { return mesh_size(&r->c->mesh, AXES_DP); }
static inline int64_t run_rows(const Run *r) {
  return (int64_t)r->c->microbatches * r->c->micro * run_dp(r);
}

/* ---- packed_inputs.c ---- */
/* Of a piece of a row, which is given with its labels as the data gives them: where each
 * token's document begins in the row (or, for positions, how far the token is from
 * there). A row begins a document; unpacked, it is one. */
void packed_places(const Packed *p, const int32_t *row, const int32_t *labels,
                   const SeqPiece *piece, bool positions, int32_t *to);
/* Its labels; those that do not count are LABEL_IGNORED. */
void packed_labels(const Packed *p, const int32_t *row, const int32_t *labels,
                   const SeqPiece *piece, int32_t *to);
/* The same, and tokens, where each document is cut by itself: input `kind` of a row of T.
 */
void packed_chunks(const Packed *p, const int32_t *row, const int32_t *labels, int64_t T,
                   const SeqPiece *piece, InputKind kind, int32_t *to);

/* ---- consensus.c ---- */
/* run_consensus with the facts of the options, this build and the programs. */
weft_status consensus_at_start(Run *r, const RunFact *fact, int n, weft_error *e);

/* The first failure of a job counts; what follows on other ranks is its consequence. */
void job_failed(Run *r, const weft_error *why);

/* ---- heartbeat.c ---- */
/* Lets the processes of a run watch each other; a Job of the worker that calls the world.
 */
weft_status job_supervise(Worker *w, void *arg, weft_error *e);

/* ---- stall_detector.c ---- */
/* Who is looked at: all ranks of a run, as its processes say, or, NULL, those of this
 * process. */
typedef const RankSeen *Ranks;
RankNote stall_note(const Worker *w);
/* Seconds in which a rank may wait for another: 60 among threads. A process does not see
 * whether the other one computes: 120 s, but ten times the longest step so far, and what
 * the first step may take on a slow core, at most 600 s. */
double stall_patience(const Run *r);
/* True if no rank has done anything for the run's patience and all that are in a step
 * wait; then `why` says who waits for what. */
bool stall_found(StallDetector *w, const Run *r, Ranks all, char *why, size_t n);
/* "; rank 1 waits in ...": of all ranks but `culprit`. */
void stall_others(const Run *r, Ranks all, int culprit, Text *out);

#endif
