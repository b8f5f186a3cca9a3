/* repl.h - the prompt: one Lua state and the chunk being typed. stdlib/prompt formats all
 * output, with the functions in `prompt/host`. */
#ifndef WEFT_REPL_H
#define WEFT_REPL_H

#include "bindings/cli/cli.h"
#include "bindings/runner/runner.h"
#include "repl_input.h"

typedef struct Repl {
  Cli *cli;
  Arena *arena;
  lua_State *L;
  ScriptHost host;
  Input *input; /* NULL: no terminal */
  EditHost edit;
  bool colour, timing, quit;
  Text chunk; /* lines of an incomplete chunk */
} Repl;

/* ---- repl_eval.c ---- */

typedef enum { EVAL_DONE, EVAL_INCOMPLETE, EVAL_FAILED } EvalResult;
/* Runs a chunk; values of expressions are printed and the first one becomes `_`; errors
 * are printed. An incomplete chunk (EVAL_INCOMPLETE) is not run. */
EvalResult repl_eval(Repl *r, const char *chunk, size_t n);
/* Calls function `name` of stdlib/prompt/FILE.lua like a chunk, with the arguments on
 * top: errors are printed, Ctrl-C ends it. The results stay on the stack. */
bool repl_prompt(Repl *r, const char *file, const char *name, int nargs, int nresults);

/* ---- repl_host.c ---- */

/* Provides `prompt/host` for the library; `r` may be NULL, for completion only. May
 * raise. */
void repl_provide(lua_State *L, Repl *r);
/* Completions at `cursor` of `text`, a chunk of Lua, a ,command or a ?topic. Reads tables
 * and the fields of weft's objects, but calls no other metamethod. Never raises: without
 * memory there are no matches. */
void repl_complete(lua_State *L, const char *text, int cursor, EditMatches *m);
/* The global function `help`. */
int repl_help(lua_State *L);

#endif
