/* plan_load.h - from a plan file to what the compiler takes.
 *
 * lang_load evaluates the file in a private Lua state (text only, no access to the
 * world, limits on instructions and memory), checks every field and fills a Plan. The
 * Lua state lives on inside LangPlan, because the model and the schedule are functions
 * that are called later, maybe several times. Everything that these functions allocate
 * and that outlives the call lies in the arena of the Diags that lang_load was given;
 * lang_free only closes the Lua states. */
#ifndef WEFT_PLAN_LOAD_H
#define WEFT_PLAN_LOAD_H

#include "vm/compile/compile.h"
#include "vm/io/file.h"

typedef struct LangOptions {
  const weft_alloc *alloc;   /* may refuse to grow a block, but not to shrink one:
                                Lua relies on that */
  size_t memory_limit;       /* bytes of the Lua state; 0: 256 MiB */
  int64_t instruction_limit; /* per evaluation or call; 0: 50 million */
  double cpu_limit;          /* seconds of CPU time per evaluation or call; 0: 60 */
  const char *const *set;    /* "mesh.tp=4", from the command line */
  int nset;
  const char *const *define; /* "NAME=value": weft.vars.NAME */
  int ndefine;
  const char *const *data; /* folders besides the plan's that files may be read from */
  int ndata;
  const StopFlag *stop;                      /* may be NULL */
  void (*print)(void *ud, const char *line); /* print() of the plan; may be NULL */
  void *ud;
} LangOptions;

typedef struct LangPlan LangPlan;

/* WEFT_EPLAN: the plan is wrong, `d` says how, with files and lines, and *out is NULL.
 * WEFT_EFILE, WEFT_EUSAGE (a malformed --set), WEFT_ELIMIT, WEFT_ENOMEM: see `e`. */
weft_status lang_load(const LangOptions *o, const char *path, LangPlan **out, Diags *d,
                      weft_error *e);
/* The same from a table in a Lua state, which is copied together with its functions;
 * nothing of `v` is used later. */
struct lua_State;
typedef struct LangValue {
  const char *file; /* where it was written: the default place of messages */
  int line;
  const char *dir; /* what files are relative to; NULL: as of `copy`, else this folder */
  struct lua_State *from; /* never raises in the call */
  int idx;                /* of the table; of `copy` instead if that is given */
  const LangPlan *copy;   /* take the table of this plan; its state may not be in use */
  int changes; /* index in `from` of a table path -> value that is laid over, or 0 */
  const char *changes_file; /* their place */
  int changes_line;
} LangValue;
weft_status lang_load_value(const LangOptions *o, const LangValue *v, LangPlan **out,
                            Diags *d, weft_error *e);
void lang_free(LangPlan *lp); /* NULL is allowed */
/* Pushes a copy of the fields as they were written onto `to`; raises in it. It is plain
 * data; functions in it belong to the object of the plan, at `owner`, and run in the
 * state of a plan only. */
void lang_push_spec(const LangPlan *lp, struct lua_State *to, int owner);

/* The plan, with every default filled in. A caller may change its own copy. */
const Plan *lang_plan(const LangPlan *lp);
/* nodes * gpus of the cluster, 0 without one: for mesh_resolve. */
int64_t lang_cluster_ranks(const LangPlan *lp);
/* The folder with the weights of weft.hf, or NULL: the model starts from its seed. */
const char *lang_weights(const LangPlan *lp);
/* The folder of weft.hf, with or without its weights, or NULL. */
const char *lang_folder(const LangPlan *lp);
/* Where the plan's files may lie. */
Folders lang_folders(const LangPlan *lp);
/* "llama", or NULL if the model is a function of the plan. */
const char *lang_architecture(const LangPlan *lp);
/* Checks of the plan against a mesh other than the one in the file (paths "mesh.tp"...):
 * heads, batch. WEFT_EPLAN if `d` got errors. lang_load does this for the file's mesh. */
weft_status lang_check_mesh(LangPlan *lp, const Plan *p, const Mesh *m, Diags *d,
                            weft_error *e);

/* Normalised Hugging Face names ("hidden_size"); false if absent or not an integer. */
bool lang_config_int(LangPlan *lp, const char *key, int64_t *value);
/* Adds the configuration of an architecture as JSON, keys sorted. */
weft_status lang_config_text(LangPlan *lp, Text *out, weft_error *e);
weft_status lang_set_config_int(LangPlan *lp, const char *key, int64_t value,
                                weft_error *e);

/* hf_export.c: Hugging Face's config.json of the model, with weights of type `dtype`, or,
 * DT_ACT, of that which they have in its folder; of a folder the text that is there, but
 * for what the plan has changed. *known: false if the model is a function of the plan, of
 * which Hugging Face knows nothing. */
weft_status lang_hf_config(LangPlan *lp, DType dtype, Text *out, bool *known,
                           weft_error *e);

/* Calls the model function for a batch of B sequences of T tokens; `g` comes from
 * graph_new(arena, B, T) and is finished; `moe` is what g:moe() says. May be called
 * again, with a changed config. */
weft_status lang_build_graph(LangPlan *lp, const MoePlan *moe, int64_t B, int64_t T,
                             Graph *g, Diags *d, weft_error *e);
/* Calls the plan's schedule once per pp rank; the lists lie in the arena of `d`. */
weft_status lang_schedule(LangPlan *lp, const Mesh *m, int microbatches, Schedule *s,
                          Diags *d, weft_error *e);
/* The same with a schedule of the library ("1f1b") instead of the plan's. */
weft_status lang_schedule_named(LangPlan *lp, const char *name, const Mesh *m,
                                int microbatches, Schedule *s, Diags *d, weft_error *e);

/* Gives every entry of `d` that has none its file and line, then sorts. */
void lang_locate(LangPlan *lp, Diags *d);

/* "plan.lua:12: error: plan.mesh.tp: ..." for each entry, then "2 errors"; nothing for
 * an empty list. A suggestion of one word is offered as `did you mean "word"?`, a longer
 * one is printed as it is. */
void report_text(const Diags *d, bool colour, Text *out);
/* The first error of `d`, which has one, as WEFT_EPLAN. */
weft_status report_first(const Diags *d, weft_error *e);
/* The members command ... valid of the object that --json prints, up to `result`, which
 * the caller writes (json_null if there is none) before report_json_end. */
struct Json;
void report_json_begin(const Diags *d, const char *command, struct Json *j);
void report_json_end(const Diags *d, struct Json *j);

/* ---- shrink.c ---- */
typedef struct LangShrunk {
  const char *const *what; /* "num_hidden_layers 32 -> 4" */
  int n;
} LangShrunk;
/* Makes a plan small enough for `verify`: at most `ranks` ranks, a small model and batch.
 * Changes the config inside `lp` and writes the plan to `out`. */
weft_status lang_shrink(LangPlan *lp, int ranks, Plan *out, LangShrunk *what, Diags *d,
                        weft_error *e);

#endif
