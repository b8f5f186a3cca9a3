/* sandbox.h - the private Lua state of a plan: its life, protected calls, limits, and
 * what of Lua and of the library it has. What `require "weft"` gives in it is said by
 * whoever makes the state. */
#ifndef WEFT_SANDBOX_H
#define WEFT_SANDBOX_H

#include <lauxlib.h>
#include <lua.h>

#include "vm/base/base.h"
#include "vm/base/diag.h"

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

/* What a state is for, said by who makes it. */
typedef struct StateHost {
  /* Pushes what `require "weft"` gives. */
  void (*push_weft)(lua_State *L, const LangOptions *o);
  /* NULL, or called before each line and at each return of a function. */
  void (*on_line)(lua_State *L, lua_Debug *ar, void *ud);
  void *ud;
} StateHost;

enum { PLAN_INDEX = 1 };

typedef struct LangState {
  lua_State *L;
  const LangOptions *opt;
  StateHost host;
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
  bool recording;      /* ... and calls host.on_line */
  StopReason stop;     /* once set, every further instruction raises */
  bool no_memory;      /* an error raised in Lua means that */
  bool quiet;          /* print says nothing */
  char file[256];      /* where the last error was raised */
  int line;
} LangState;

LangState *state_of(lua_State *L);
/* A state with the sandbox's globals. `o`, `a`, `path` and `dir` must outlive it. */
weft_status state_new(const LangOptions *o, Arena *a, const char *path, const char *dir,
                      const StateHost *host, LangState **out, weft_error *e);
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

/* ---- globals.c ---- */
void sandbox_open(lua_State *L); /* globals; raises on errors */
/* tostring without addresses; pushes a string. */
const char *plain_tostring(lua_State *L, int idx);

/* The name that `text` may stand for: one that begins with it, else the nearest. */
const char *name_suggest(const char *text, const char *const *names, int n);

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

#endif
