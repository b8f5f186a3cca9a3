/* loaded_plan.h - a loaded plan: its table in a Lua state of its own, the Plan that was
 * filled from it, and the model and schedule functions, which are called later, maybe
 * several times. Everything that these allocate and that outlives the call lies in the
 * arena of the Diags that the plan was loaded with. */
#ifndef WEFT_LOADED_PLAN_H
#define WEFT_LOADED_PLAN_H

#include "plan_table.h"
#include "vm/compile/compile.h"
#include "vm/io/file.h"

typedef struct LangPlan LangPlan;

/* A plan that is a table in a Lua state, or that of another plan, and no file. */
typedef struct LangValue {
  const char *file; /* where it was written: the default place of messages */
  int line;
  const char *dir; /* what files are relative to; NULL: as of `copy`, else this folder */
  lua_State *from; /* never raises in the call */
  int idx;         /* of the table; of `copy` instead if that is given */
  const LangPlan *copy; /* take the table of this plan; its state may not be in use */
  int changes; /* index in `from` of a table path -> value that is laid over, or 0 */
  const char *changes_file; /* their place */
  int changes_line;
} LangValue;

struct LangPlan {
  LangOptions opt;
  Arena *arena;
  LangState *state;
  Plan plan;
  const char *arch; /* NULL for a function of the plan */
  const char *weights;
  const char *folder;             /* of weft.hf, or NULL; then: */
  int folder_file, folder_config; /* registry references: its config.json as a table, and
                                     the config that it gives without the plan's keys */
  int config, build;              /* registry references: table, function */
  int schedule;           /* registry reference of the plan's function, or LUA_NOREF */
  bool schedule_v;        /* placement = "v" */
  bool from_plan;         /* the schedule's function has lines in the plan */
  const LangValue *value; /* what it was made from, or NULL: a file */
  const char *const *changed;   /* paths of value->changes, NULL-terminated */
  int schedule_options;         /* registry reference of its options, or LUA_NOREF */
  const Schedule *schedule_csv; /* what weft.schedule_csv read, or NULL */
  LangState *replay;            /* made by the first lang_locate that needs it */
  Replay *lines;
  bool replayed;
};

/* A state in which `require "weft"` gives the builders; with `lines` it records where the
 * fields of tables are written. */
weft_status plan_state_new(const LangOptions *o, Arena *a, const char *path,
                           const char *dir, Replay *lines, LangState **out,
                           weft_error *e);

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

/* Normalised Hugging Face names ("hidden_size"); false if absent or not an integer. */
bool lang_config_int(LangPlan *lp, const char *key, int64_t *value);
/* Adds the configuration of an architecture as JSON, keys sorted. */
weft_status lang_config_text(LangPlan *lp, Text *out, weft_error *e);
weft_status lang_set_config_int(LangPlan *lp, const char *key, int64_t value,
                                weft_error *e);

/* Whether the value of a field is not the plan's but was given from outside: by --set, or
 * by a script that changes a plan. */
bool lang_is_set(const LangPlan *lp, const char *path);
/* Gives every entry of `d` that has none its file and line, then sorts. */
void lang_locate(LangPlan *lp, Diags *d);

#endif
