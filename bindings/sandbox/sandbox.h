/* sandbox.h - the private Lua state of a plan: creation, protected calls, limits, and the
 * functions of Lua and the library that it has. The caller decides what `require "weft"`
 * returns in it. */
#ifndef WEFT_SANDBOX_H
#define WEFT_SANDBOX_H

#include <lauxlib.h>
#include <lua.h>

#include "vm/base/base.h"
#include "vm/base/diag.h"

typedef struct LangOptions {
  const weft_alloc *alloc;   /* may refuse to grow a block, but must not refuse to shrink
                                one: Lua relies on that */
  size_t memory_limit;       /* bytes of the Lua state; 0: 256 MiB */
  int64_t instruction_limit; /* per evaluation or call; 0: 50 million */
  double cpu_limit;          /* seconds of CPU time per evaluation or call; 0: 60 */
  const char *const *set;    /* "mesh.tp=4", from the command line */
  int nset;
  const char *const *define; /* "NAME=value": weft.var, weft.vars.NAME */
  int ndefine;
  const char *const *data; /* folders besides the plan's from which files may be read */
  int ndata;
  const StopFlag *stop;                      /* may be NULL */
  void (*print)(void *ud, const char *line); /* print() of the plan; may be NULL */
  void *ud;
  const char *text; /* what the plan's file would hold, which is then not read; or NULL */
  bool draft;       /* of a plan only what each field says is checked, not its layout */
  bool measures;    /* nothing learns: when a training would evaluate is not checked */
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

/* What a state is for, set by its creator. */
typedef struct StateHost {
  /* Pushes the result of `require "weft"`. */
  void (*push_weft)(lua_State *L, const LangOptions *o);
  /* Called before each line and at each return of a function; may be NULL. */
  void (*on_line)(lua_State *L, lua_Debug *ar, void *ud);
  void *ud;
} StateHost;

enum { PLAN_INDEX = 1 };

typedef struct LangState {
  lua_State *L;
  const LangOptions *opt;
  StateHost host;
  Arena *arena;     /* of the plan: protected calls may run out of it */
  const char *path; /* of the plan, as given by the user */
  const char *dir;  /* its folder */
  size_t used, cap; /* bytes */
  size_t refused;   /* size of the last refused block, 0: none */
  void *refused_at;
  bool collected; /* Lua has collected garbage after the refusal, which may have emptied
                     weak tables */
  size_t collect_at;   /* garbage is collected when so many bytes are in use */
  int64_t left;        /* steps until the limit */
  int64_t more;        /* steps beyond the normal limit, for large calls */
  int price;           /* steps per instruction; above 1 with long strings */
  double cpu, cpu_end; /* CPU time of the thread: at the last check, at the limit */
  double coarse;       /* a cheap clock at the last check */
  bool slow;           /* the next instruction checks the clock */
  int nexts;           /* keys read by state_next */
  lua_State *running;  /* the innermost coroutine */
  bool armed;          /* the hook is set */
  bool recording;      /* ... and calls host.on_line */
  StopReason stop;     /* once set, every further instruction raises */
  bool no_memory;      /* an error raised in Lua means out of memory */
  bool quiet;          /* print does nothing */
  char file[256];      /* where the last error was raised */
  int line;
} LangState;

LangState *state_of(lua_State *L);
/* Makes a state with the sandbox's globals. `o`, `a`, `path` and `dir` must outlive it.
 */
weft_status state_new(const LangOptions *o, Arena *a, const char *path, const char *dir,
                      const StateHost *host, LangState **out, weft_error *e);
void state_free(LangState *s);
/* Raises again an error that pcall must not catch. */
void state_rethrow(lua_State *L);
/* Evaluates the plan file; its value is left on the stack. */
weft_status state_run(LangState *s, Diags *d, weft_error *e);
/* lua_call with new limits; an error becomes a diagnostic at `path`. */
weft_status state_call(LangState *s, int nargs, int nresults, const char *path, Diags *d,
                       weft_error *e);
/* Pops the plan's table and keeps it for state_protect. */
void state_keep_plan(LangState *s);
/* Pushes the plan's table. Never raises; false without memory. */
bool state_push_plan(LangState *s);
/* Runs C code that uses the Lua API: running out of memory in it, Lua's or the arena's,
 * is returned as an error. `fn` finds the plan's table at PLAN_INDEX. */
weft_status state_protect(LangState *s, void (*fn)(lua_State *L, void *ud), void *ud,
                          weft_error *e);
/* The file name of a chunk name ("@plan.lua", or "stdin" of "=stdin"), NULL for chunks of
 * the library. */
const char *chunk_file(const char *source);

/* ---- syntax_hint.c ---- */
/* What is usually meant where the parser gives this message, or NULL. */
const char *syntax_hint(const char *msg);
/* What to do with a file that by the ending of its name has settings of another system;
 * NULL: it has another ending. */
const char *settings_hint(Arena *a, const char *file);

/* ---- folder_hint.c ---- */
/* What is meant by a folder where a plan is expected; NULL: it is none, or cannot be
 * read. */
const char *folder_hint(Arena *a, const char *path);

/* ---- limits.c ---- */
/* Makes the Lua state, NULL if there is no memory for it, and what collecting garbage
 * needs in it. */
void limits_open(LangState *s);
void garbage_open(lua_State *L);
void state_hook(lua_State *L, lua_Debug *ar);
/* Counts steps that a C function is about to do. Raises at a limit and when the plan is
 * interrupted. */
void state_charge(lua_State *L, int64_t steps);
/* Whether L is in the state of a plan whose work is being counted. */
bool state_counts(lua_State *L);
/* lua_next for tables of a plan, in any state: counted, because it is slow where keys
 * have equal hashes. */
int state_next(lua_State *L, int t);
/* Sets the hook of a thread that is about to run; with long strings it fires more often.
 */
void state_watch(LangState *s, lua_State *L);
/* Start and end counting for a call, with lines recorded or not. If a limit was hit,
 * state_stopped returns its error, or WEFT_EPLAN and a diagnostic; `d` may be NULL for
 * calls that run no code of the plan. */
void state_arm(LangState *s, bool recording);
void state_disarm(LangState *s);
weft_status state_stopped(LangState *s, Diags *d, weft_error *e);
/* Records that the table at idx has become a metatable. */
void metatable_note(lua_State *L, int idx);

/* ---- globals.c ---- */
void sandbox_open(lua_State *L); /* globals; raises on errors */
/* tostring without addresses; pushes a string. */
const char *plain_tostring(lua_State *L, int idx);

/* The name that `text` was probably meant to be: one that begins with it, else the most
 * similar. */
const char *name_suggest(const char *text, const char *const *names, int n);

/* ---- pairs.c ---- */
/* Pushes a sorted list of t's keys: numbers, then strings, then booleans. False, with
 * nothing pushed, if a key has another type. */
bool sorted_keys(lua_State *L, int t);
int sorted_pairs(lua_State *L); /* the plan's `pairs` */

/* ---- modules.c ---- */
int modules_require(lua_State *L);
/* Pushes a table of what require has given, name -> value, but for weft itself. */
void modules_push_loaded(lua_State *L);
/* Pushes a table of the plan's modules that were asked for: name -> hash of the text, 0:
 * it could not be read. */
void modules_push_texts(lua_State *L);
/* Forgets what require has given since the table at idx was pushed by
 * modules_push_loaded.
 */
void modules_forget(lua_State *L, int idx);
/* The hash of a module's text as it is now, 0: it cannot be read. */
uint64_t modules_hash(lua_State *L, const char *name);
/* Pushes the value of stdlib/<name>.lua; false, with nothing pushed, if there is none. */
bool stdlib_push(lua_State *L, const char *name);
/* Whether a file is below the folder, symbolic links resolved. */
bool path_below(const char *file, const char *dir);
/* The names of stdlib files below `folder` ("tp_plans"), for suggestions. */
const char *const *stdlib_names(Arena *a, const char *folder, int *n);
/* Loads text as a chunk called `name`; leaves a function or an error message. */
int chunk_load(lua_State *L, const char *text, size_t n, const char *name);

/* ---- known.c: values that every state has, by name ---- */
/* Registers the C functions of the table on top as "name.function". */
void known_library(lua_State *L, const char *name);
/* Registers the value on top. */
void known_add(lua_State *L, const char *name);
/* Registers Lua's own functions and libraries in the table of globals at idx. */
void known_globals(lua_State *L, int idx);
/* The name of the value at idx, or NULL. Never raises, given two free slots. */
const char *known_name(lua_State *L, int idx);
/* Pushes the value of that name, false if this state has none. */
bool known_push(lua_State *L, const char *name);

#endif
