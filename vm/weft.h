/* weft.h - the public interface of libweft and libweftlua.
 *
 *   a mesh    named axes over ranks; needs nothing else (in libweft, too)
 *   a plan    a Lua file, checked, then compiled into proven programs
 *   a run     the ranks of a compiled plan, which train
 *
 * Errors. What can fail returns a weft_status and fills the weft_error that is its last
 * parameter (NULL is allowed); a call begins by clearing it. Queries of what is not there
 * give 0, -1 or NULL, as said with each. NULL for what a call needs is WEFT_EUSAGE.
 *
 * Ownership. What a `_new`, `_load` or `_open` gives belongs to the caller, who ends it
 * with `_free` or `_close` (NULL is allowed). Arguments are copied unless it is said that
 * they are borrowed. Text that a query returns belongs to the handle.
 *
 * Structs that a caller fills begin with `size`, which is set to sizeof the struct: a
 * host that was compiled with an older header goes on working. Zero the rest: 0 and NULL
 * mean the default. A NULL in place of options means the defaults.
 *
 * Threads. One handle is used by one thread at a time; different handles by different
 * threads at the same time. A run has threads of its own and uses its plan only to read,
 * so the two count as one handle. A call and its callbacks run in the C locale: numbers
 * have decimal points. Nothing prints, exits or keeps state outside of the handles. */
#ifndef WEFT_H
#define WEFT_H

#include <stddef.h>
#include <stdint.h>

#define WEFT_VERSION_MAJOR 0
#define WEFT_VERSION_MINOR 1
#define WEFT_VERSION_PATCH 0

#if defined(__GNUC__)
#define WEFT_API __attribute__((visibility("default")))
#else
#define WEFT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weft_status {
  WEFT_OK = 0,
  WEFT_EPLAN,     /* the plan is wrong, or a verification failed    (exit 1) */
  WEFT_ERUN,      /* a run failed: NaN loss, a rank that died       (exit 1) */
  WEFT_EFILE,     /* a file is missing, unreadable or malformed     (exit 2) */
  WEFT_EUSAGE,    /* wrong arguments                                (exit 2) */
  WEFT_ELIMIT,    /* an instruction, time, memory or size limit was hit (exit 3) */
  WEFT_ENOMEM,    /* the allocator returned NULL                    (exit 3) */
  WEFT_EINTERNAL, /* a broken invariant: a bug in weft              (exit 4) */
  WEFT_EINTR      /* interrupted by the user                      (exit 130) */
} weft_status;

typedef struct weft_error {
  weft_status code;
  int line;        /* of the plan, 0 if unknown */
  int rank;        /* -1 if the error is not of one rank */
  char file[256];  /* of the plan or of the data, "" if unknown */
  char text[1024]; /* one sentence or more, without a trailing newline */
} weft_error;

/* The process exit code that belongs to a status (see the list above). */
WEFT_API int weft_exit_code(weft_status s);

/* "0.1.0" */
WEFT_API const char *weft_version(void);

/* Where handles get their memory. `fn(ud, NULL, 0, n)` allocates, `fn(ud, p, old, n)`
 * resizes, `fn(ud, p, old, 0)` frees and returns NULL. Must be thread-safe if runs are
 * opened: every rank is a thread. A NULL fn stands for the C library's allocator. The
 * libraries below weft (jansson, MPI, matrix products) have memory of their own; texts of
 * files and views, while a call makes them, and checkpoints have the C library's. */
typedef struct weft_alloc {
  void *(*fn)(void *ud, void *p, size_t old_size, size_t new_size);
  void *ud;
} weft_alloc;

/* Several calls take `const volatile int *stop`, which is borrowed: as soon as it is not
 * 0 they end with WEFT_EINTR; a step that has begun to update the parameters is taken to
 * its end, and is WEFT_OK. It is set from a signal handler (as a volatile sig_atomic_t)
 * or by an atomic store of another thread. NULL: nothing interrupts. */

/* ---- meshes ---- */

typedef struct weft_mesh weft_mesh;

/* Sizes of axes; 0: not given. dp is what is left of `world`; dp_replicate cuts dp. */
typedef struct weft_mesh_spec {
  size_t size;             /* sizeof(weft_mesh_spec) */
  const weft_alloc *alloc; /* copied; NULL: the C library's */
  int64_t world, tp, pp, cp, ep, etp, dp, dp_replicate;
  const char *const *order; /* names of all axes, slowest first, NULL-terminated; NULL:
                               pp, dp_replicate, dp_shard, cp, tp */
} weft_mesh_spec;

/* WEFT_EPLAN: the sizes do not fit together; the error has all reasons, a line each. */
WEFT_API weft_status weft_mesh_new(const weft_mesh_spec *spec, weft_mesh **out,
                                   weft_error *err);
WEFT_API void weft_mesh_free(weft_mesh *mesh);
WEFT_API int weft_mesh_world(const weft_mesh *mesh); /* ranks */

/* `axis` is the name of an axis (pp, dp_replicate, dp_shard, cp, tp), of a view of some
 * (dp, dp_cp, dp_shard_cp, world, or a sum such as "dp_shard+tp"), or of an axis of the
 * expert mesh (ep_shard, ep, etp). */
/* The ranks along it; 0 if there is no such axis. */
WEFT_API int weft_mesh_size(const weft_mesh *mesh, const char *axis);
/* Where `rank` is on it, from 0; -1 if there is no such axis or rank. */
WEFT_API int weft_mesh_coord(const weft_mesh *mesh, const char *axis, int rank);
/* `rank` and those that differ from it on the axis only, in order, into ranks[room].
 * Returns their number, of which no more than `room` are written, none if `ranks` is
 * NULL; 0 if there is no such axis or rank. */
WEFT_API int weft_mesh_group(const weft_mesh *mesh, const char *axis, int rank,
                             int *ranks, int room);

/* ---- plans ---- in libweftlua only, like all that follows */

typedef struct weft_plan weft_plan;

typedef struct weft_plan_options {
  size_t size;               /* sizeof(weft_plan_options) */
  const weft_alloc *alloc;   /* copied; also for the runs of the plan */
  const char *const *set;    /* "mesh.tp=4", ... as --set, NULL-terminated */
  const char *const *define; /* "NAME=value", ... for weft.var, NULL-terminated */
  const volatile int *stop;  /* borrowed */
  uint64_t memory_limit;     /* bytes that the plan's Lua may use; 0: 256 MiB */
  int64_t instruction_limit; /* of one evaluation or call in Lua; 0: 50 million */
  void (*print)(void *ud, const char *line); /* print() in the plan; NULL: nowhere */
  void *ud;
  const char *const *data; /* folders besides the plan's that data and models may be
                              read from, NULL-terminated */
  uint64_t compile_limit;  /* bytes that graph, schedule and programs may take
                              (WEFT_ELIMIT); 0: half of the machine's memory */
  double cpu_limit; /* seconds of CPU time of one evaluation or call in Lua; 0: 60 */
} weft_plan_options;

/* Evaluates and checks a plan file; `path` begins the messages, and what the plan names
 * is relative to its folder. *out is a handle also when the plan is wrong (WEFT_EPLAN) or
 * could not be read or evaluated, so that the reports can be asked for: free it in every
 * case. It is NULL only if there was no memory for it or the options were wrong. Of a
 * wrong plan `err` has the first error. */
WEFT_API weft_status weft_plan_load(const weft_plan_options *options, const char *path,
                                    weft_plan **out, weft_error *err);
/* After the runs of the plan are closed. */
WEFT_API void weft_plan_free(weft_plan *plan);

/* Everything that is wrong (or doubtful) with the plan, found so far: by loading, and by
 * the last weft_plan_compile or weft_plan_check. As lines of text, "" if there is nothing
 * to say, or as one JSON object, that of `weft check --json` with a null result. The text
 * is valid until the next call with this plan; NULL: out of memory, or no plan. */
WEFT_API const char *weft_plan_report(weft_plan *plan);
WEFT_API const char *weft_plan_report_json(weft_plan *plan);

/* Builds the model for `world` ranks, compiles the program of every rank and proves that
 * they cannot block each other. 0: as many ranks as the plan says, or the smallest legal
 * number if it leaves that open. May be called again with another number: the queries
 * then tell of that one, runs that are open go on as they are, memory is only given back
 * with the plan. */
WEFT_API weft_status weft_plan_compile(weft_plan *plan, int world, weft_error *err);

/* Of a compiled plan, what is else only seen when it runs: whether its data, data.val,
 * tokenizer and weights can be read and fit it. The reports then have what `weft check`
 * says, also its warnings. What the plan makes of conversations is written to its cache.
 * WEFT_EPLAN, WEFT_EFILE: something does not fit, or is missing; the plan stays compiled.
 */
WEFT_API weft_status weft_plan_check(weft_plan *plan, weft_error *err);

/* Of a plan that was loaded without an error, else NULL or 0. */
WEFT_API const char *weft_plan_name(const weft_plan *plan);
WEFT_API int64_t
weft_plan_steps(const weft_plan *plan); /* train.steps; 0: train.epochs, whose steps
                                         * weft_run_steps knows */
WEFT_API int64_t weft_plan_sequences(const weft_plan *plan); /* of a step, all ranks */
WEFT_API int64_t weft_plan_tokens(const weft_plan *plan);    /* of a sequence */

/* Of a compiled plan, else NULL or 0. */
WEFT_API const weft_mesh *weft_plan_mesh(const weft_plan *plan); /* belongs to it */
WEFT_API int weft_plan_microbatches(const weft_plan *plan);      /* of a step */
/* Elements of all parameters of the model that is trained; without those of the reference
 * of a preference loss or of a teacher. */
WEFT_API uint64_t weft_plan_parameters(const weft_plan *plan);
/* Bytes of a rank's arena, which is all that its program uses; 0: no such rank. */
WEFT_API uint64_t weft_plan_memory(const weft_plan *plan, int rank);

/* A parameter as the model sees it, whole. */
typedef struct weft_param {
  const char *name; /* as in Hugging Face's files; belongs to the plan */
  int ndim;
  int64_t dim[8];
  int64_t count; /* elements */
} weft_param;
WEFT_API int weft_plan_param_count(const weft_plan *plan);
/* By number, from 0 to weft_plan_param_count - 1, or by name; WEFT_EUSAGE: there is no
 * such parameter. */
WEFT_API weft_status weft_plan_param_at(const weft_plan *plan, int index, weft_param *out,
                                        weft_error *err);
WEFT_API weft_status weft_plan_param(const weft_plan *plan, const char *name,
                                     weft_param *out, weft_error *err);

/* What the proof went through: of one rank per pipeline stage, all microbatches. */
typedef struct weft_proof {
  int64_t transfers, collectives, instructions;
  int communicators;
} weft_proof;
WEFT_API weft_status weft_plan_proof(const weft_plan *plan, weft_proof *out,
                                     weft_error *err);

/* The program of a rank as text, for people; valid until the next call with this plan. */
WEFT_API weft_status weft_plan_program(weft_plan *plan, int rank, const char **out,
                                       weft_error *err);

/* A view of a compiled plan as one JSON object: "mesh", "memory", "stages", "comm" and
 * "rank" have what weft show prints with --json as their member of that name, "sim" what
 * weft sim does, "program" is the object of docs/program.md. `rank` is that of "rank",
 * "program" and, unless it is negative, of "comm". Valid until the next call with this
 * plan. WEFT_EUSAGE: there is no such view or rank; WEFT_EPLAN: the plan lacks what "sim"
 * needs, its cluster. */
WEFT_API weft_status weft_plan_show(weft_plan *plan, const char *what, int rank,
                                    const char **out, weft_error *err);

/* ---- runs ---- */

typedef struct weft_run weft_run;

typedef struct weft_run_options {
  size_t size;              /* sizeof(weft_run_options) */
  const char *comm;         /* "local": all ranks are threads of this process (NULL
                               too); "mpi": this process is one of them */
  int threads;              /* of each rank; 0: its share of the machine's cores */
  const volatile int *stop; /* borrowed */
  double patience_s;        /* without progress, until a step fails; 0: 60, with mpi 120
                               or ten times the longest step */
} weft_run_options;

typedef struct weft_step {
  int64_t step;
  int64_t tokens;   /* that were trained on, all ranks */
  double loss;      /* mean over those tokens */
  double grad_norm; /* before clipping */
  double lr;
  double ms;
  double loss_scale; /* f16: that the step was taken with; else 0 */
  int skipped;       /* f16: gradients overflowed; nothing changed but the scale */
} weft_step;

/* A parameter, its gradient of the last step (the mean over tokens, before clipping), and
 * the optimizer's states, as many as it has: of adamw its first and second moment. After
 * a step that failed there is no gradient: WEFT_ERUN. Of a frozen parameter there is no
 * state, and the gradient is 0. */
typedef enum weft_state { WEFT_PARAM, WEFT_GRAD, WEFT_MOMENT1, WEFT_MOMENT2 } weft_state;

/* Allocates all ranks of a compiled plan, which is borrowed until weft_run_close. With
 * "mpi" every process makes the same calls with the same plan, compiled for as many ranks
 * as there are processes. All that a step needs is allocated here, but for the plan's
 * data, which weft_run_step or weft_run_steps opens when it is first called. */
WEFT_API weft_status weft_run_open(weft_plan *plan, const weft_run_options *options,
                                   weft_run **out, weft_error *err);
WEFT_API void weft_run_close(weft_run *run);
WEFT_API int weft_run_rank(const weft_run *run); /* 0 with "local"; -1: no run */

/* Before the first step: the weights that the plan names (weft.hf), else initial values,
 * which depend on the seed but not on the mesh. States and loss scale begin anew.
 * WEFT_ERUN, as of the two below: an earlier step has ended the run, see weft_run_step.
 */
WEFT_API weft_status weft_run_init(weft_run *run, weft_error *err);
/* The same from a safetensors file, its index, or a folder with one. WEFT_EFILE: missing,
 * additional or misshapen parameters, all of them. WEFT_EUSAGE: others have other values.
 */
WEFT_API weft_status weft_run_load(weft_run *run, const char *path, weft_error *err);

/* The same from a checkpoint, with the optimizer's states: `path` is one, or a folder of
 * them, whose newest whole one is taken; NULL: that of the plan's checkpoint.dir, if it
 * has any, else weft_run_init. *step is the next step: 0 without a checkpoint.
 * Checkpoints are of any mesh, and those of weft run. WEFT_EUSAGE: it is of another run;
 * all that differs and matters is in the error, what may differ in weft_run_notes.
 * WEFT_EFILE: there is none at `path`, its parameters are others, or it is damaged; one
 * that turns out to be so while it is read leaves the run without parameters. */
WEFT_API weft_status weft_run_resume(weft_run *run, const char *path, int64_t *step,
                                     weft_error *err);

/* How many steps the plan says: train.steps, or those that train.epochs takes of the
 * plan's data, which are then opened here, by every process. */
WEFT_API weft_status weft_run_steps(weft_run *run, int64_t *out, weft_error *err);
/* Trains step number `step` (from 0) on the plan's data. It stands for samples and
 * learning rate; one that was skipped may be taken again. WEFT_EUSAGE: before init and
 * load. WEFT_ERUN: loss or gradient are not finite (the error says where that began), or
 * a rank is stuck or gone. WEFT_EINTR: `stop` was set before the update. A step that ends
 * so ends the run, which no longer begins anew either: weft_run_open gives another one.
 * Parameters and states are as before the step, and can be read, saved and exported; but
 * where a rank failed in the middle of the update, or is another process, these calls are
 * WEFT_ERUN, too. */
WEFT_API weft_status weft_run_step(weft_run *run, int64_t step, weft_step *out,
                                   weft_error *err);
/* The same with tokens of the host: arrays of weft_plan_sequences x weft_plan_tokens, `n`
 * elements each. labels[i] is the token that should follow tokens[i], -100: none; where
 * the plan has packed.size, also -101: none, and tokens[i] is the last of its document.
 * A plan with train.epochs has as many steps as its own data give: they are opened here,
 * by every process, and WEFT_EUSAGE if they cannot be read. */
WEFT_API weft_status weft_run_step_tokens(weft_run *run, const int32_t *tokens,
                                          const int32_t *labels, size_t n, int64_t step,
                                          weft_step *out, weft_error *err);

typedef struct weft_evaluation {
  double loss;          /* mean over the label tokens */
  double cross_entropy; /* of which that is without losses of routers and others; NaN
                           where it is not told apart */
  int64_t tokens;       /* label tokens */
  double ms;
} weft_evaluation;

/* The loss of the plan's data.val, which are opened by the first call, on at most so many
 * batches of a step's size; 0: train.eval_batches. Changes no state. WEFT_EUSAGE: the
 * plan has no evaluations. */
WEFT_API weft_status weft_run_evaluate(weft_run *run, int64_t batches,
                                       weft_evaluation *out, weft_error *err);

/* ---- what outlasts a run ---- with "mpi" all processes make these calls, and see the
 * folders */

/* Writes a checkpoint of the state after `step` steps to the plan's checkpoint.dir, and
 * waits until it is whole: weft run --resume goes on from it, and weft_run_resume.
 * checkpoint.keep and save_consolidated hold; `every` is the host's. WEFT_EUSAGE: the
 * plan has no checkpoint.dir, or the folder has checkpoints of a run that this one has
 * not resumed from. WEFT_EFILE: it was not written; earlier ones stay. */
WEFT_API weft_status weft_run_save(weft_run *run, int64_t step, weft_error *err);
/* Writes the parameters as a new folder of Hugging Face's files, as weft run --export
 * does: safetensors, config.json, the tokenizer's files; of a plan with an adapter,
 * PEFT's. */
WEFT_API weft_status weft_run_export(weft_run *run, const char *folder, weft_error *err);
/* Warnings of the last of these calls, of weft_run_resume or weft_run_open, a line each;
 * "" if there are none. Valid until the next one. */
WEFT_API const char *weft_run_notes(const weft_run *run);

/* How many elements weft_run_get and weft_run_set take: weft_param.count, but of a state
 * that adafactor keeps of a matrix as many as it has rows and columns, in this order (of
 * experts those of each); 0: nobody keeps it, as a moment of a frozen parameter. */
WEFT_API weft_status weft_run_count(const weft_run *run, weft_state what,
                                    const char *name, size_t *out, weft_error *err);
/* Gathers one parameter as a whole, in C order, into out[n]; `n` is weft_run_count.
 * With "mpi" all processes call it and rank 0 has the result (`out` may be NULL
 * elsewhere). WEFT_EUSAGE: nobody keeps it. */
WEFT_API weft_status weft_run_get(weft_run *run, weft_state what, const char *name,
                                  float *out, size_t n, weft_error *err);
/* The way back, but for the gradient of a frozen parameter: nobody keeps it. With "mpi"
 * the values are those of rank 0. */
WEFT_API weft_status weft_run_set(weft_run *run, weft_state what, const char *name,
                                  const float *in, size_t n, weft_error *err);

/* ---- verification ---- */

typedef struct weft_verify_options {
  size_t size;              /* sizeof(weft_verify_options) */
  int ranks;                /* at most so many virtual ranks; 0: 32 */
  int steps;                /* 0: 3 */
  double tolerance;         /* relative, norm-wise; 0: 1e-5 in f32, 2e-2 in bf16,
                               5e-3 in f16, more for what rounds by more on one
                               rank, too (see rounding) */
  const volatile int *stop; /* borrowed */
} weft_verify_options;

typedef struct weft_verify_result {
  int ranks, steps, tensors; /* that were compared; steps 0: none was, see the error */
  double loss, grad_norm, grad, param; /* largest relative differences */
  double tolerance;
  char worst[160];        /* the tensor with the largest difference */
  char not_covered[1024]; /* what was made smaller: "batch.seq 128 -> 32, ..." */
  char rounding[512];     /* what is beyond `tolerance`, and why it is rounding; "": none
                             is (docs/running.md) */
} weft_verify_result;

/* Loads the plan's file once more with its options, makes it small enough for this
 * machine, runs it on virtual ranks and on one rank, and compares losses, gradients,
 * moments and parameters. WEFT_EPLAN: they differ; the error has the first difference,
 * *out all of them. WEFT_EUSAGE: an option is below 0. The plan itself stays as it is. */
WEFT_API weft_status weft_verify(const weft_plan *plan,
                                 const weft_verify_options *options,
                                 weft_verify_result *out, weft_error *err);

#ifdef __cplusplus
}
#endif
#endif
