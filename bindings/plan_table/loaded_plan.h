/* loaded_plan.h - a loaded plan: its table in a Lua state of its own, the Plan that was
 * filled from it, and the model and schedule functions, which are called later, maybe
 * several times. Results of these calls are allocated in the arena of the Diags that the
 * plan was loaded with. */
#ifndef WEFT_LOADED_PLAN_H
#define WEFT_LOADED_PLAN_H

#include "plan_table.h"
#include "vm/compile/compile.h"
#include "vm/io/file.h"

typedef struct LangPlan LangPlan;

/* What the points of a grid have in common: fields of a checked plan that no axis
 * changes.
 */
typedef struct LangShared {
  const LangPlan *of;
  Plan plan;                 /* defaults, and what shared fields came to */
  const char *const *varied; /* fields of the plan that axes change, or parts of them */
  int nvaried;
  const struct KeyRows *keys; /* see plan_key.c */
} LangShared;
/* Whether no axis changes the field of this name, nor a part of it. */
bool lang_unvaried(const LangShared *s, const char *field);

/* ---- plan_strings.c ---- */
/* Reports control characters in strings of the plan, which terminals would obey; with
 * `shared` in those of fields that axes change. */
void texts_check(lua_State *L, Arena *a, const LangShared *shared, Diags *d);

/* A plan that is not a file: a table in a Lua state, or another plan's table. */
typedef struct LangValue {
  const char *file; /* where it was written: the default file of messages */
  int line;
  const char *dir;      /* folder for relative file names; NULL: that of `copy`, else the
                           current folder */
  lua_State *from;      /* its state; does not raise during the call */
  int idx;              /* index of the table, unless `copy` is given */
  const LangPlan *copy; /* the plan whose table is copied; its state must not be in use */
  int changes;          /* index in `from` of a table path -> value of changes, or 0 */
  const char *changes_file; /* file of the changes, for messages */
  int changes_line;
} LangValue;

struct LangPlan {
  LangOptions opt;
  Arena *arena;
  LangState *state;
  Plan plan;
  const char *arch; /* the architecture; NULL: the model is a function of the plan */
  const char *weights;
  const char *folder;             /* of weft.hf, or NULL; if set: */
  int folder_file, folder_config; /* registry references: its config.json as a table, and
                                     the config made of it without the plan's keys */
  int config, build;              /* registry references: table, function */
  const char
      *special_ids; /* that the plan's model has, as JSON, or NULL: special_ids.h */
  int schedule;     /* registry reference of the plan's schedule function, or LUA_NOREF */
  bool schedule_v;  /* placement = "v" */
  bool from_plan;   /* the schedule function is from the plan's file, so its lines are
                       reported */
  int loss, loss_options; /* registry references of the plan's loss, or LUA_NOREF */
  int teacher_build, teacher_config; /* those of its teacher's model, or LUA_NOREF */
  const LangValue *value;            /* what it was made from; NULL: a file */
  const char *const *changed;        /* paths of value->changes, NULL-terminated */
  int schedule_options; /* registry reference of the schedule's options, or LUA_NOREF */
  const LangShared *shared;     /* of a point of a grid, or NULL */
  const Schedule *schedule_csv; /* the schedule read by weft.schedule_csv, or NULL */
  LangState *replay;            /* made by the first lang_locate that needs it */
  Replay *lines;
  bool replayed;
};

/* Makes a state in which `require "weft"` returns the builders; with `lines` it records
 * the lines of table fields. */
weft_status plan_state_new(const LangOptions *o, Arena *a, const char *path,
                           const char *dir, Replay *lines, LangState **out,
                           weft_error *e);

/* The plan, with all defaults. A caller may copy it and change the copy. */
const Plan *lang_plan(const LangPlan *lp);
/* Nodes * gpus of the cluster, for mesh_resolve; 0 without a cluster. */
int64_t lang_cluster_ranks(const LangPlan *lp);
/* mesh_resolve of `plan`, the plan or a changed copy, on `world` ranks of a launcher or,
 * with 0, on those of the cluster: a reason that speaks of these says so where they are
 * one machine, which no plan needs to write. */
bool lang_resolve_mesh(const LangPlan *lp, const Plan *plan, int64_t world, Mesh *m,
                       Diags *d);
/* The folder with the weights of weft.hf; NULL: the model is initialised from the seed.
 */
const char *lang_weights(const LangPlan *lp);
/* The folder of weft.hf, with or without its weights, or NULL. */
const char *lang_folder(const LangPlan *lp);
/* The folders that files of the plan may be in. */
Folders lang_folders(const LangPlan *lp);
/* Whether print() of the plan prints nothing, while it is evaluated once more; returns
 * whether it did so before. */
bool lang_quiet(LangPlan *lp, bool quiet);
/* The folder of plan.tokenizer, which has a tokenizer.json; NULL: the plan names none.
 * WEFT_EPLAN, with a text that begins with the field: there is none. */
weft_status lang_tokenizer_folder(LangPlan *lp, const char **folder, weft_error *e);
/* "llama", or NULL if the model is a function of the plan. */
const char *lang_architecture(const LangPlan *lp);

/* Normalised Hugging Face names ("hidden_size"); false if absent or not an integer. */
bool lang_config_int(LangPlan *lp, const char *key, int64_t *value);
/* Whether it has the key, of any value but false. */
bool lang_config_has(LangPlan *lp, const char *key);
/* Appends the config of an architecture as JSON, keys sorted. */
weft_status lang_config_text(LangPlan *lp, Text *out, weft_error *e);
weft_status lang_set_config_int(LangPlan *lp, const char *key, int64_t value,
                                weft_error *e);

/* Whether the value of a field was given from outside of the plan: by --set or plan:with.
 */
bool lang_is_set(const LangPlan *lp, const char *path);
/* Sets file and line of every entry of `d` that has none, then sorts. */
void lang_locate(LangPlan *lp, Diags *d);

#endif
