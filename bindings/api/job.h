/* job.h - a plan file on its way to proven programs, one function per step. The command
 * line, the C interface and the tests call the same steps.
 *
 * All memory of a job is in its arena; job_free closes the Lua state and leaves the arena
 * to its owner, whose guard catches running out of memory. After a failed step `e` or `d`
 * has the reason, and later steps must not be called. */
#ifndef WEFT_JOB_H
#define WEFT_JOB_H

#include "bindings/lang/plan_load.h"
#include "bindings/lang/report.h"
#include "vm/run/run.h"
#include "vm/sim/cost_table.h"
#include "vm/session/verify.h"

typedef struct Job {
  Arena *arena;
  Diags d;
  weft_error e;
  LangPlan *lp;
  Plan plan; /* a copy: verify changes its mesh and batch */
  Mesh mesh;
  int microbatches; /* of a round */
  Graph *graph;
  Schedule schedule;
  Compiled *compiled;
  const DeviceKind *device;    /* to compile for; NULL: the first row of the table */
  char no_library[DEVICE_WAY]; /* why attention is not left to a library, or "" */
  const CostTable *costs;      /* measured times for the clock, or NULL */
  bool evaluates;     /* compile for evaluations alone; the plan has eval_every */
  bool tells_rows;    /* losses of each row of a step are told apart */
  bool tells_entropy; /* evaluations have the cross entropy apart from the loss */
  const char *dump;   /* letters of passes whose graph job_compile dumps, or NULL */
  Text dumped;
} Job;

/* The first step; `*j` is overwritten. */
weft_status job_load(Job *j, Arena *arena, const LangOptions *o, const char *path);
weft_status job_load_value(Job *j, Arena *arena, const LangOptions *o,
                           const LangValue *v);
void job_free(Job *j);
/* `world`: the number of ranks that a launcher has started; 0: that of the cluster, or
 * the smallest possible one. */
weft_status job_mesh(Job *j, int64_t world);
weft_status job_graph(Job *j);
weft_status job_schedule(Job *j);
/* Asks the device, which is going to run the plan, for the library that "auto" may leave
 * attention to. Before job_compile. */
void job_library(Job *j);
/* Who computes attention on a device that has a choice, unless the plan says that weft's
 * own kernels do; or NULL. After job_compile. */
const char *job_attention(const Job *j);
/* Builds graph and schedule (unless that was done for this mesh) and compiles and proves.
 */
weft_status job_compile(Job *j);
/* job_decode.c: instead of job_mesh and job_compile, after job_load. Compiles the program
 * for one token that follows up to context - 1 others, on the tp ranks of the plan. See
 * run_decode. */
weft_status job_decode(Job *j, int64_t context);
/* Before it, for several texts: raises each of n contexts to the largest of those for
 * which the model is the same. */
void job_decode_contexts(const Job *j, int64_t *context, int n);
/* Part of job_compile: warns of settings that are legal and have less effect than they
 * seem to. */
void job_advise(Job *j);
/* sizing.c: of those the rules by which layouts are sized, for plans with GPUs. */
void job_sizing(Job *j);
/* what_if.c: the plan with another setting, after job_compile. */
typedef struct WhatIf {
  bool timed, compiles;
  double memory;  /* bytes of the rank that needs most */
  double seconds; /* of a step by the clock; 0: it cannot say */
} WhatIf;
void job_what_if(const Job *j, void (*change)(Job *), bool timed, WhatIf *out);
/* By the clock; 0: a figure of the cluster is missing. */
double job_step_seconds(const Job *j, Arena *a);
/* gradient_sync.c: a warning if gradients that are reduced once a step are why the plan
 * needs more than `room` bytes. */
void job_gradient_sync(Job *j, double room);
/* no_effect.c: another part of it, about fields that change nothing in this plan. */
weft_status job_no_effect(Job *j);
/* unsaid.c, after job_mesh: what the plan leaves to defaults with which other systems do
 * not begin, for people. */
typedef struct JobUnsaid {
  const char *text[2];
  int n;
} JobUnsaid;
weft_status job_unsaid(Job *j, JobUnsaid *out);
/* Another part of it: warns if a plan begins with weights and names no data. */
weft_status job_no_data(Job *j);
/* After job_compile: every limit of plan.expect that is exceeded is an error. `n`, which
 * may be NULL, gets the number of limits. */
weft_status job_expect(Job *j, int *n);
/* Makes token files of data that are conversations; others stay. */
weft_status job_sources(Job *j);
/* Sets the steps of a plan that says epochs. */
void job_epochs(Plan *p, const Data *d);
/* Opens the plan's data, after job_compile, and so knows its steps. */
weft_status job_data(Job *j, const weft_alloc *a, Data **out);
/* Reads what a run reads of its data before the first step. */
weft_status job_look(Job *j, const Data *d);
/* job_val.c: opens the validation data, if there are evaluations, and refuses those that
 * none can be made of; *out is NULL if the plan has none. */
weft_status job_val(Job *j, const weft_alloc *a, Data **out);
/* The same, of data that no evaluation takes, too, and looks inside. */
weft_status job_check_val(Job *j);
/* After job_compile: what is wrong with plan.tokenizer is said alike by all that open the
 * plan's data or weights. */
weft_status job_tokenizer(Job *j);
/* job_reference.c: the file that the plan's loss reads. Its path, as it is opened; or
 * where it is to be written, NULL if that is not below the plan's folder. */
const char *job_reference_path(Job *j, bool write);
/* Of the model as a run begins: its config, adapter and weights. */
weft_status job_reference_model(Job *j, uint64_t *hash, weft_error *e);
/* Says to the plan's data which file that is and of which model it has to be, if there is
 * one. Before data are opened. */
weft_status job_reference(Job *j, weft_error *e);
/* Opens the files that the plan begins at, after job_compile; *out is NULL without any.
 */
weft_status job_weights(Job *j, const weft_alloc *a, SafeTensors **out, weft_error *e);
/* job_field.c: what came of opening a file that this field names; an error of the file
 * then says so, with the field's line. */
weft_status job_of_field(Job *j, weft_status st, const char *field, weft_error *e);
/* After job_compile: checks that data, weights and tokenizer exist, can be read and fit
 * the plan. */
weft_status job_check_files(Job *j);
/* job_facts.c: what the processes of a run must have in common, after job_compile: every
 * field of the plan, data and weights. These may be NULL. */
typedef struct JobFacts {
  Arena *arena; /* the list is allocated here */
  const Data *data, *val;
  const SafeTensors *weights;
  int64_t steps;       /* 0: train.steps */
  const char *resumed; /* the checkpoint that the run resumes from, or NULL */
  const RunFact *fact;
  int n;
} JobFacts;
weft_status job_facts(const Job *j, JobFacts *f, weft_error *e);
/* A hash of the plan after --set and -D: of the values of its fields, not of its text. */
uint64_t job_hash(const JobFacts *f);
/* All steps up to job_compile; the caller looks at `d` and `e`. */
weft_status job_open(Job *j, Arena *arena, const LangOptions *o, const char *path);
/* True if nothing in the plan says how many ranks there are. */
bool job_open_world(const Job *j);
/* Ranks of one machine: the cluster's GPUs, or GPUS_OF_A_NODE without a cluster. */
int job_node_ranks(const Job *j);
/* Adds the error in `e` to the diagnostics. */
void job_note(Job *j, weft_status st);
/* The schedule of a whole step: the plan's, once for each round. */
Schedule job_step_schedule(const Job *j, Arena *a);
/* The arena bytes of the pp rank that needs most, and its number. */
uint64_t job_worst_memory(const Job *j, int *pp);

/* ---- job_learns.c ---- */
/* Of a compiled plan in which some parameters are frozen: how many elements learn, and
 * bytes of the worst rank, those of the host with them. */
typedef struct JobLearns {
  uint64_t parameters;
  uint64_t frozen, learning;    /* parameters, as ops read them */
  uint64_t states, activations; /* gradients, master weights, the optimizer's state */
  uint64_t saved; /* it needs so much less than with nothing frozen and no adapter */
} JobLearns;
/* False: the plan has neither `adapter` nor `freeze`. */
bool job_learns(const Job *j, JobLearns *out);

/* ---- shrink.c ---- */
typedef struct LangShrunk {
  const char *const *what; /* "num_hidden_layers 32 -> 4" */
  int n;
} LangShrunk;
/* Shrinks a plan for `verify`: at most `ranks` ranks, a small model and batch. Changes
 * the config inside `lp` and writes the plan to `out`. */
weft_status lang_shrink(LangPlan *lp, int ranks, Plan *out, LangShrunk *what, Diags *d,
                        weft_error *e);

/* ---- job_verify.c ---- */

/* Compiles for one CPU rank in f32 what `many` (meshed) computes: the same logical
 * microbatches of micro * dp sequences, without stages or sharding. */
weft_status job_twin(const Job *many, Job *one);

/* Compiles the plan itself if it is small, else a shrunk one of at most this many ranks.
 */
weft_status job_compile_small(Job *j, int ranks, LangShrunk *shrunk);

typedef struct JobVerify {
  int ranks, steps; /* ranks: at most; 0: 32 ranks, 2 steps */
  double tolerance; /* 0: that of the formats (job_rounding.h); on return the one used */
  const StopFlag *stop; /* may be NULL */
  LangShrunk shrunk;
  VerifyReport report;
} JobVerify;
/* For a loaded job: shrinks it, runs it and its one-rank job and compares. A difference
 * is WEFT_EPLAN with the first one in `e`. Afterwards the job is that of the shrunk plan.
 */
weft_status job_verify(Job *j, JobVerify *v);

#endif
