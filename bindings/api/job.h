/* job.h - a plan file on its way to proven programs, one step per function. The command
 * line, the C interface and the tests take the same steps.
 *
 * Everything lies in the arena of the job; job_free closes the Lua state and leaves the
 * arena to its owner, whose guard catches running out of it. After a failed step `e` or
 * `d` says why, and the later steps must not be taken. */
#ifndef WEFT_JOB_H
#define WEFT_JOB_H

#include "bindings/lang/plan_load.h"
#include "bindings/lang/report.h"
#include "vm/run/run.h"
#include "vm/session/verify.h"

typedef struct Job {
  Arena *arena;
  Diags d;
  weft_error e;
  LangPlan *lp;
  Plan plan; /* a copy: verify changes its mesh and batch */
  Mesh mesh;
  int microbatches;
  Graph *graph;
  Schedule schedule;
  Compiled *compiled;
  const DeviceKind *device; /* to compile for; NULL: the first row of the table */
  const char *dump;         /* letters of passes whose graph job_compile dumps, or NULL */
  Text dumped;
} Job;

/* Begins: `*j` has nothing to give back before. */
weft_status job_load(Job *j, Arena *arena, const LangOptions *o, const char *path);
weft_status job_load_value(Job *j, Arena *arena, const LangOptions *o,
                           const LangValue *v);
void job_free(Job *j);
/* `world`: what the launcher says, 0 for the cluster's size or an open one. */
weft_status job_mesh(Job *j, int64_t world);
weft_status job_graph(Job *j);
weft_status job_schedule(Job *j);
/* Graph and proof included, and the schedule unless that was done for this mesh. */
weft_status job_compile(Job *j);
/* job_decode.c: instead of job_mesh and job_compile, after job_load: the program of one
 * token after at most context - 1 others, on the ranks of the plan's tp. See run_decode.
 */
weft_status job_decode(Job *j, int64_t context);
/* Part of job_compile: warns of what is legal and does not do what it looks like. */
void job_advise(Job *j);
/* After job_compile: every limit of plan.expect that is not kept is an error. `n`, which
 * may be NULL, gets the number of limits. */
weft_status job_expect(Job *j, int *n);
/* Opens the plan's data, after job_compile. */
weft_status job_data(Job *j, const weft_alloc *a, Data **out);
/* Those for evaluations, if the plan has any; else *out is NULL. */
weft_status job_val(Job *j, const weft_alloc *a, Data **out);
/* After job_compile: data and weights are there, can be read, and fit the plan. */
weft_status job_check_files(Job *j);
/* job_facts.c: what all processes of a run must have in common, after job_compile: every
 * field of the plan, and its data and weights, all of which may be NULL. */
typedef struct JobFacts {
  Arena *arena; /* of the list */
  const Data *data, *val;
  const SafeTensors *weights;
  int64_t steps;       /* 0: train.steps */
  const char *resumed; /* what the run goes on from; NULL: it cannot */
  const RunFact *fact;
  int n;
} JobFacts;
weft_status job_facts(const Job *j, JobFacts *f, weft_error *e);
/* Of the plan in them, as --set and -D have made it: what it means, not how it is
 * written. */
uint64_t job_hash(const JobFacts *f);
/* All of it; the caller looks at `d` and `e`. */
weft_status job_open(Job *j, Arena *arena, const LangOptions *o, const char *path);
/* True if nothing in the plan says how many ranks there are. */
bool job_open_world(const Job *j);
/* Ranks of a machine: the cluster's GPUs, GPUS_OF_A_NODE if the plan names none. */
int job_node_ranks(const Job *j);
/* Adds an error that came with `e` to the diagnostics, which have those of a plan. */
void job_note(Job *j, weft_status st);
/* The arena of a rank on the worst pp rank, and which that is. */
uint64_t job_worst_memory(const Job *j, int *pp);

/* ---- shrink.c ---- */
typedef struct LangShrunk {
  const char *const *what; /* "num_hidden_layers 32 -> 4" */
  int n;
} LangShrunk;
/* Makes a plan small enough for `verify`: at most `ranks` ranks, a small model and batch.
 * Changes the config inside `lp` and writes the plan to `out`. */
weft_status lang_shrink(LangPlan *lp, int ranks, Plan *out, LangShrunk *what, Diags *d,
                        weft_error *e);

/* ---- job_verify.c ---- */

/* The program of one rank of the CPU in f32 that does what `many` (meshed) does: the same
 * logical microbatches of micro * dp sequences, neither stages nor cuts. */
weft_status job_twin(const Job *many, Job *one);

/* Compiles the plan itself if it is small, else a smaller one of at most so many ranks.
 */
weft_status job_compile_small(Job *j, int ranks, LangShrunk *shrunk);

typedef struct JobVerify {
  int ranks, steps;     /* at most so many ranks; 0: 32 and 2 */
  double tolerance;     /* 0: 1e-5 in f32, 2e-2 in bf16; then what was used */
  const StopFlag *stop; /* may be NULL */
  LangShrunk shrunk;
  VerifyReport report;
} JobVerify;
/* Of a loaded job: makes it small, runs it and its twin and compares. A difference is
 * WEFT_EPLAN with the first one in `e`. The job is that of the small plan afterwards. */
weft_status job_verify(Job *j, JobVerify *v);

#endif
