/* lang.h - shared by the files of the plan language: the private Lua state, the marks
 * that builders leave on tables, field paths, the loaded plan. */
#ifndef WEFT_LANG_H
#define WEFT_LANG_H

#include <lauxlib.h>
#include <lua.h>

#include "plan_load.h"

/* ---- lua_state.c: one private Lua state ---- */

typedef enum {
  STOP_NONE,
  STOP_INSTRUCTIONS,
  STOP_TIME,
  STOP_MEMORY,
  STOP_KEYS,
  STOP_WEAK,
  STOP_INTERRUPT
} StopReason;

typedef struct Replay Replay;
enum { PLAN_INDEX = 1 };

typedef struct LangState {
  lua_State *L;
  const LangOptions *opt;
  Arena *arena;     /* of the plan: what protected calls may run out of */
  const char *path; /* of the plan, as the user wrote it */
  const char *dir;  /* its folder */
  size_t used, cap; /* bytes */
  size_t refused;   /* bytes that were refused last, 0: nothing */
  void *refused_at;
  bool collected;      /* for that, by Lua: weak tables may have lost what they had */
  size_t collect_at;   /* so many bytes in use: garbage is collected */
  int64_t left;        /* steps until the limit */
  int64_t more;        /* of them beyond the limit: what is called is that large */
  int price;           /* steps of an instruction; more than one with long texts */
  double cpu, cpu_end; /* of the thread: at the last look, at the limit */
  double coarse;       /* a clock that is cheap to read, at the last look */
  bool slow;           /* then the next instruction looks again */
  int nexts;           /* keys that C has read */
  lua_State *running;  /* the innermost coroutine */
  bool armed;          /* the hook is set */
  bool recording;      /* ... and notes lines */
  StopReason stop;     /* once set, every further instruction raises */
  Replay *replay;      /* this state records lines; NULL in the first one */
  bool no_memory;      /* an error raised in Lua means that */
  bool quiet;          /* print says nothing */
  char file[256];      /* where the last error was raised */
  int line;
} LangState;

LangState *state_of(lua_State *L);
/* A state with the sandbox's globals. `o`, `a`, `path` and `dir` must outlive it. */
weft_status state_new(const LangOptions *o, Arena *a, const char *path, const char *dir,
                      Replay *replay, LangState **out, weft_error *e);
void state_free(LangState *s);
/* Raises again what pcall may not swallow. */
void state_rethrow(lua_State *L);
/* Evaluates the plan file; its value is left on the stack. */
weft_status state_run(LangState *s, Diags *d, weft_error *e);
/* lua_call with fresh limits; an error becomes a diagnostic at `path`. */
weft_status state_call(LangState *s, int nargs, int nresults, const char *path, Diags *d,
                       weft_error *e);
/* Takes the plan's table off the stack and keeps it for state_protect. */
void state_keep_plan(LangState *s);
/* Pushes it. Never raises; false if there is no room. */
bool state_push_plan(LangState *s);
/* Runs C code that uses the Lua API: running out of memory in it, Lua's or the arena's,
 * is an error, not the end of the process. `fn` finds the plan's table at PLAN_INDEX. */
weft_status state_protect(LangState *s, void (*fn)(lua_State *L, void *ud), void *ud,
                          weft_error *e);
/* The full path of a chunk name ("@plan.lua", or "stdin" of "=stdin"), NULL for chunks
 * of the library. */
const char *chunk_file(const char *source);

/* ---- limits.c ---- */
/* Makes the Lua state, NULL if there is no memory for it, and what collect needs in it.
 */
void limits_open(LangState *s);
void garbage_open(lua_State *L);
void state_hook(lua_State *L, lua_Debug *ar);
/* Counts work that a function in C is about to do. Raises at a limit and when the plan
 * is interrupted. */
void state_charge(lua_State *L, int64_t steps);
/* Whether L is in a plan's state and its work is counted at the moment. */
bool state_counts(lua_State *L);
/* lua_next for tables of a plan, of any state: where keys share one hash it takes long.
 */
int state_next(lua_State *L, int t);
/* Sets the hook of a thread, which is about to run, as it should be: with long texts it
 * comes sooner. */
void state_watch(LangState *s, lua_State *L);
/* Starts and ends counting for a call, that notes lines or not. If `stop` was set in it,
 * state_stopped is the error, or WEFT_EPLAN and a diagnostic; `d` may be NULL for what
 * does not run code of the plan. */
void state_arm(LangState *s, bool recording);
void state_disarm(LangState *s);
weft_status state_stopped(LangState *s, Diags *d, weft_error *e);
/* Notes that the table at idx was made a metatable. */
void metatable_note(lua_State *L, int idx);

/* ---- sandbox.c ---- */
void sandbox_open(lua_State *L); /* globals; raises on errors */
/* tostring without addresses; pushes a string. */
const char *plain_tostring(lua_State *L, int idx);

/* ---- pairs.c ---- */
/* Pushes a list of t's keys: numbers, then strings, then booleans. Returns false, with
 * nothing pushed, if a key has another type. */
bool sorted_keys(lua_State *L, int t);
int sorted_pairs(lua_State *L); /* the plan's `pairs` */

/* ---- modules.c ---- */
int modules_require(lua_State *L);
/* Pushes the value of stdlib/<name>.lua; false, with nothing pushed, if there is none. */
bool stdlib_push(lua_State *L, const char *name);
/* Links do not lead a file out of the plan's folder. */
bool path_below(const char *file, const char *dir);
/* The names below `folder` ("tp_plans"), for suggestions; an arena list. */
const char *const *stdlib_names(Arena *a, const char *folder, int *n);
/* Loads text as a chunk called `name`; leaves a function or a message. */
int chunk_load(lua_State *L, const char *text, size_t n, const char *name);

/* ---- builders.c ---- */
void builders_push(lua_State *L, const LangOptions *o); /* the table `weft` of plans */
void builders_add(lua_State *L); /* adds the builders to the table on top */
int builders_plan(lua_State *L); /* the function weft.plan of plans */
/* Pushes the mark of the table at idx; false, with nothing pushed, if it has none. Never
 * raises, given three free slots. */
bool mark_push(lua_State *L, int idx);
/* Pops a mark and gives it to the table at idx. */
void mark_set(lua_State *L, int idx);
/* The kind of builder that made the table at idx ("adamw"), or NULL. */
const char *mark_kind(lua_State *L, int idx);
/* Line and file of the builder's call; 0 if the table has no mark. */
int mark_line(lua_State *L, int idx, const char **file);
/* What was wrong with the call, or NULL; `hint` is its suggestion. */
const char *mark_bad(lua_State *L, int idx, const char **hint);
/* For merged tables: pushes the table that key (at the top, popped) came from; the table
 * itself if it was not merged. */
void mark_origin(lua_State *L, int idx);
/* True if the key at the top (popped) came from the library, not from the user. */
bool mark_is_default(lua_State *L, int idx);

/* ---- known.c: values that every state has, by name ---- */
/* Notes the C functions of the table on top as "name.function". */
void known_library(lua_State *L, const char *name);
/* Notes the value on top. */
void known_add(lua_State *L, const char *name);
/* Notes Lua's own functions and libraries in the table of globals at idx. */
void known_globals(lua_State *L, int idx);
/* The name of the value at idx, or NULL. Never raises, given two free slots. */
const char *known_name(lua_State *L, int idx);
/* Pushes the value of that name, false if this state has none. */
bool known_push(lua_State *L, const char *name);

/* ---- transfer.c ---- */
/* Pushes onto `to` a copy of the value at idx of `from`, a state of the same program.
 * Into a plan (`owner` is 0): tables with metatables and builders' marks, functions with
 * what they capture and the globals that they name. Out of one, whose object is at
 * `owner` of `to`: data and marks, and functions that only go back into a plan. Raises in
 * `to` only
 * ("WHERE is a userdata, ..."); `from` may then have more on its stack. */
void transfer(lua_State *from, int idx, lua_State *to, const char *where, int owner);

/* ---- values.c ---- */
/* Pushes t[key] without metamethods, nil if there is no table at t; returns its type.
 * Tables of a plan are read with this: no code of the plan runs while it is checked. */
int field_push(lua_State *L, int t, const char *key);
/* `string "four"`, `number 0`, `a table`, `weft.adamw{...}`: for messages. */
const char *value_describe(Arena *a, lua_State *L, int idx);
/* The name that `text` may stand for: one that begins with it, else the nearest. */
const char *value_suggest(const char *text, const char *const *names, int n);
/* Pushes what the text of --set or -D means: a Lua literal, else the text itself. */
void value_parse(lua_State *L, const char *text);
/* The path of key (at index `key`) below `base`. */
const char *path_join(Arena *a, const char *base, lua_State *L, int key);
/* Reads one step of a path and pushes the key; false at the end, *bad if malformed. */
bool path_next(lua_State *L, const char **path, bool *bad);
/* Leaves the table that holds the last key of `path` in the plan's table (PLAN_INDEX),
 * and the key; tables on the way are made. False with a reason (an own string of L) in
 * *why if that is not possible. */
bool value_find(lua_State *L, const char *path, const char **why);
/* Applies "path=value" of --set to the plan's table. */
weft_status value_set(LangState *s, const char *assignment, weft_error *e);

/* ---- the loaded plan ---- */

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

/* ---- vary.c ---- */
/* A loaded plan with other values in some fields, for a while. */
typedef struct Vary {
  LangPlan plan;
  LangPlan *of;
  int undo; /* registry reference: what the fields were */
  Arena *arena;
} Vary;
/* Takes a list of { path, value, value, ... } along into the state of the plan;
 * WEFT_EPLAN and `d` if a value cannot go there. */
weft_status vary_take(LangPlan *lp, lua_State *from, int idx, int *values, Diags *d,
                      weft_error *e);
/* Gives the field of list i its value number choice[i], from 0, and checks the plan as
 * lang_load does. vary_end must follow whatever the result is; until then nothing else
 * may be done with `lp`. All that is allocated lies in d->arena. */
weft_status vary_begin(LangPlan *lp, int values, const int *choice, int n, Vary *v,
                       Diags *d, weft_error *e);
void vary_end(Vary *v);
/* What a field influences of that which a sweep keeps; see schema.def. */
enum {
  FOR_UNITS = 1,
  FOR_SCHEDULE = 2,
  FOR_SHARES = 4,
  FOR_SIZES = 8,
  FOR_POINT = 16,
  FOR_NOTHING = 32
};
/* Adds the values of all fields that influence one of these: equal texts, equal results.
 * Functions are told apart within a state. WEFT_EPLAN: a table has no such text. */
weft_status vary_key(LangPlan *lp, unsigned what, Text *out, weft_error *e);
/* Adds what no row of the schema tells (schema_tells) as it was written: lists, tables,
 * functions by their code and what they captured. The same in another process.
 * WEFT_EPLAN: there is no such text. */
weft_status vary_others(LangPlan *lp, Text *out, weft_error *e);
/* The same of all fields. */
weft_status vary_text(LangPlan *lp, Text *out, weft_error *e);

/* ---- plan_load.c ---- */
/* Checks the plan's table and fills lp->plan. */
weft_status lang_check_plan(LangPlan *lp, Diags *d, weft_error *e);
/* Whether the value of a field is not the plan's but was given from outside: by --set, or
 * by a script that changes a plan. */
bool lang_is_set(const LangPlan *lp, const char *path);
/* ---- plan_value.c ---- */
/* Copies the table into the plan's state and checks it. */
weft_status value_take(LangPlan *lp, const LangValue *v, Diags *d, weft_error *e);
/* Copies of the texts in `v`; what it leaves open is as of the plan that it copies. */
LangValue value_origin(Arena *a, const LangValue *v);
/* ---- schema.c ---- */
void schema_check(lua_State *L, LangPlan *lp, Diags *d);
/* ---- plan_strings.c ---- */
/* Reports texts of the plan, which are names, that a terminal would obey. */
void texts_check(lua_State *L, Arena *a, Diags *d);
/* ---- cluster.c ---- */
/* Fills Plan.cluster from the plan's field, which has been checked. */
void cluster_resolve(lua_State *L, LangPlan *lp, Diags *d);
/* Is there a GPU of this name? Reports it if not. */
bool cluster_known(lua_State *L, const char *name, const char *path, Diags *d);
/* ---- model.c ---- */
void model_resolve(lua_State *L, LangPlan *lp, Diags *d);
/* Default styles of the architecture, if the plan names none. */
void model_default_tp(lua_State *L, LangPlan *lp, Diags *d);
/* ---- hf.c: pushes the table of a config.json, false with a diagnostic ---- */
bool hf_config_push(lua_State *L, const char *file, const char *path, Diags *d);

/* ---- schedule_plan.c ---- */
/* What a schedule says about itself. */
typedef struct ScheduleFacts {
  const char *name;
  int chunks; /* stages of a rank, if pp_plan does not say it */
  bool fixed; /* it has no other number of them */
  bool v;     /* their placement */
} ScheduleFacts;
/* Pushes the table of the library's schedule `name`; false, with nothing pushed, if there
 * is none. */
bool schedule_push(lua_State *L, const char *name, ScheduleFacts *f);
/* Pushes the table of options of the plan's schedule. */
void schedule_options_push(lua_State *L, const LangPlan *lp);
/* Whether the plan's schedule exists for these sizes; if not, which are the nearest. */
void schedule_check_sizes(lua_State *L, LangPlan *lp, const Plan *p, const Mesh *m,
                          int microbatches, Diags *d);
/* The least number of microbatches, not below `from`, for which the plan's schedule
 * exists on so many ranks; `from` if there is none near. */
weft_status schedule_fewest(LangPlan *lp, const Plan *p, int ranks, int from, int *found,
                            weft_error *e);

/* ---- replay.c ---- */
void replay_event(lua_State *L, lua_Debug *ar, Replay *r);
Replay *replay_new(Arena *a);
/* File and line of `path`. Both stacks end with the plan's table; `again` (the state that
 * was replayed) may be NULL. False if nothing on the path has a line. */
bool replay_find(Replay *r, lua_State *again, lua_State *first, const char *path,
                 const char **file, int *line);

#endif
