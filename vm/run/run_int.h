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
  double seen, idle; /* time of the last poll; seconds without progress */
} StallDetector;

typedef struct Worker {
  Run *run;
  int rank; /* world rank */
  pthread_t thread;
  bool has_thread, has_device, has_comm;
  Device dev;
  Comm comm;
  Rank *r;
  Rank *eval;            /* forward-only, on the same arena; NULL: there is none */
  float *block;          /* a block of a parameter on the host, Run.block_max elements */
  _Atomic int64_t taken; /* ranges claimed by workers: see Crew in param_fill.c */
  Tracer tracer;         /* without an event buffer nothing is traced */
  double apart;          /* result of run_apart */
  char *copy; /* host copy of the state that this rank saves (saved_pieces.h); NULL:
                 nothing is saved */
} Worker;

typedef weft_status (*Job)(Worker *w, void *arg, weft_error *e);

struct Run {
  weft_alloc alloc; /* counts allocations, then calls `inner` */
  weft_alloc inner;
  _Atomic uint64_t allocations;
  const Plan *plan;
  const Compiled *c;
  const DeviceVtable *device;
  const StopFlag *stop;
  WorldOptions settings; /* used while the run is opened */
  Supervisor *control;   /* NULL with one process */
  Net net;               /* for a backend that has no connections of its own */
  bool *reported_elsewhere;
  char uneven[400]; /* see run_warning; "": no difference */
  bool traces;
  double patience_s; /* 0: stall_patience chooses */
  double longest_s;  /* the longest step so far; 0: none yet */
  int threads;
  const WorldKind *kind;
  World world;
  Worker *worker;
  int nworker;
  StallDetector dog; /* polled by the supervisor */
  Scaler scaler;
  double scaled;            /* scale of the gradients in the arenas */
  _Atomic int64_t step;     /* the step that runs; -1: none */
  _Atomic bool evaluates;   /* the evaluation after that step is running, or one alone */
  StepEnd end;              /* of the job that is watched */
  bool dead;                /* a job failed: communicators are unusable */
  bool torn;                /* in the update of the step `cut` */
  int64_t cut;              /* the step that failed; -1: none has */
  int32_t *tokens, *labels; /* of a step: (microbatches, micro*dp, T) */
  int32_t *source;          /* of each row; NULL: none is told apart */
  float *reference;         /* the loss of a reference of each row; NULL: none is read */
  int64_t block_max;        /* elements of Worker.block: rank_block */
  bool saves;               /* see RunOptions */
  void (*settle)(void *ud); /* see run_before_end */
  void *settle_ud;

  pthread_mutex_t lock; /* guards all members below */
  pthread_cond_t go, done;
  uint64_t generation; /* number of the job; workers wait for the next */
  int busy;            /* workers that have not finished the job */
  bool quit, failed;
  Job job;
  void *arg;
  weft_error first;   /* the failure of the job that came first */
  bool over;          /* the supervisor has ended the run */
  weft_error verdict; /* and this is why */
};

/* Threads of each of `ranks` ranks of a machine with so many cores, of which this process
 * may use some; see run_share_of_cores. */
int threads_of_rank(int machine, int process, int ranks, bool shared);

/* ---- run_jobs.c ---- */
/* Starts the worker threads of n local ranks. */
weft_status run_start_workers(Run *r, int n, weft_error *e);

/* Runs `job` on all workers; returns the failure that came first. `watched`: the job
 * communicates, so a failure aborts the backend's waits and the stall detector is active.
 */
weft_status run_all(Run *r, Job job, void *arg, bool watched, weft_error *e);

/* The same for a job on local memory of `elements` elements that waits for no other rank:
 * where ranks are threads on the host, a short one runs on the calling thread. */
weft_status run_each(Run *r, Job job, void *arg, int64_t elements, weft_error *e);

/* Whether the caller of a run of threads wants its step to end. */
static inline bool run_asked(const Run *r) {
  return r->stop && *r->stop && !r->kind->processes;
}

/* The training or evaluation rank of a worker, whichever runs or ran last. */
static inline Rank *worker_rank(const Worker *w) {
  return w->run->evaluates ? w->eval : w->r;
}

/* What runs, for messages: "step 7", "the evaluation after step 7" or, of a run that has
 * taken no steps, "the evaluation". */
enum { RUN_PART = 64 };
const char *run_part(const Run *r, char out[RUN_PART]);

/* ---- launch_way.c ---- */
/* Whether steps may be captured as graphs on a device that can. */
bool run_captures(const Run *r);

/* ---- world_options.c ---- */
enum { RUN_SETTINGS = 64 };
/* The run's options for the backend, with the plan's settings; `setting` is memory for
 * their list. */
WorldOptions run_world_options(const Run *r, WorldSetting setting[RUN_SETTINGS]);

/* ---- train_step.c ---- */
/* Reads samples first .. first + n - 1 into the rows of a step, as far as ranks of this
 * process need them. Rows from `n` on have these samples again, without labels: programs
 * have them, too, and experts see there what they see elsewhere, where one token over and
 * over would want one expert, which may have no room for it. */
weft_status step_read(Run *r, const Data *d, int64_t first, int64_t n, weft_error *e);
/* A step as global arrays; `sample` is the number of its first row. */
typedef struct StepRows {
  const int32_t *tokens, *labels;
  const int32_t *source;  /* of each row; NULL: 0 */
  const float *reference; /* of each row; NULL: none is read */
  int64_t sample;
} StepRows;
/* Copies a rank's part of them, with positions and the numbers of tokens, into its input
 * buffers. */
void step_inputs(Worker *w, const StepRows *s);
/* The streams of a blend whose losses programs tell apart; 0: there are none, or too
 * many, whose rows then count as those of one. */
int step_streams(const Run *r, const Data *d);
/* Sums what the step's programs have counted for each of n sources. */
void step_sources(const Run *r, int n, SourceLoss *sum);

/* Rows of a step's global arrays for one data-parallel index. */
static inline int64_t run_dp(const Run *r) { return mesh_size(&r->c->mesh, AXES_DP); }
static inline int64_t run_rows(const Run *r) {
  return (int64_t)r->c->microbatches * r->c->micro * run_dp(r);
}

/* ---- packed_inputs.c ---- */
/* For each token of a rank's piece of a sequence (`row`, `labels`: the whole sequence):
 * where its document begins or, with `positions`, how far it is from there. A sequence
 * begins a document; without packing it is one. */
void packed_places(const Packed *p, const int32_t *row, const int32_t *labels,
                   const SeqPiece *piece, bool positions, int32_t *to);
/* The labels of the piece, LABEL_IGNORED where they do not count. */
void packed_labels(const Packed *p, const int32_t *row, const int32_t *labels,
                   const SeqPiece *piece, int32_t *to);
/* Input `kind`, of those that look ahead, of the piece of a sequence of T tokens. */
void packed_further(const Packed *p, const int32_t *row, const int32_t *labels, int64_t T,
                    const SeqPiece *piece, InputKind kind, int32_t *to);
/* The numbers of the piece's tokens in a sequence that begins with number `first`. */
void token_numbers(const SeqPiece *piece, uint32_t first, int32_t *to);
/* Input `kind` of the piece where each document is cut over cp by itself; a sequence has
 * T tokens, numbered from `number` on. */
void packed_chunks(const Packed *p, const int32_t *row, const int32_t *labels, int64_t T,
                   uint32_t number, const SeqPiece *piece, InputKind kind, int32_t *to);

/* ---- consensus.c ---- */
/* library_variables.c: those of the environment, NULL-terminated, that have to be the
 * same in all processes: "NCCL_ALGO=Ring NCCL_PROTO=Simple", or "none". */
void nccl_variables(char *const *environment, Text *out);
/* run_consensus on the facts of the options, this build and the programs. */
weft_status consensus_at_start(Run *r, const RunFact *fact, int n, weft_error *e);

/* An error as other processes are told it: one text, with its file and line before it. */
enum { ERROR_TOLD = 1400 };
const char *error_told(const weft_error *e, char out[ERROR_TOLD]);

/* ---- heartbeat.c ---- */
/* Job that starts the supervisor, so that the processes of a run watch each other; for
 * the worker that calls the backend. */
weft_status job_supervise(Worker *w, void *arg, weft_error *e);

/* ---- stall_detector.c ---- */
/* Which ranks are looked at: all of the run, as their processes report; NULL: those of
 * this process. */
typedef const RankSeen *Ranks;
RankNote stall_note(const Worker *w);
/* Seconds that a rank may wait for another. Threads: 60; 1 once the caller wants the step
 * to end, of which an update that moves is waited for. Processes, which cannot see
 * whether the other one computes: 10 times the longest step so far, at least 120; before
 * the first step an estimate for a slow core, from 120 to 600. */
double stall_patience(const Run *r);
/* Whether no rank has made progress for stall_patience seconds and all that are in a step
 * wait; then `why` names what each waits for. */
bool stall_found(StallDetector *w, const Run *r, Ranks all, char *why, size_t n);
/* Appends "; rank 1 waits in ..." for all ranks but `culprit`. */
void stall_others(const Run *r, Ranks all, int culprit, Text *out);

#endif
