/* repl.h - the prompt: one Lua state and the chunk being typed. Its output is made by
 * stdlib/prompt, from what the functions of `prompt/host` give. */
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
  Input *input; /* NULL: there is no terminal */
  EditHost edit;
  bool colour, timing, quit;
  Text chunk; /* what was typed so far of an incomplete chunk */
} Repl;

/* ---- repl_eval.c ---- */

typedef enum { EVAL_DONE, EVAL_INCOMPLETE, EVAL_FAILED } EvalResult;
/* Runs a chunk; values of expressions are printed and the first becomes `_`. Errors are
 * printed. A chunk that may go on is EVAL_INCOMPLETE and was not run. */
EvalResult repl_eval(Repl *r, const char *chunk, size_t n);
/* Calls the function under its `nargs` arguments, as a chunk is called: errors are
 * printed, interruption ends it. The results stay on the stack. */
bool repl_call(Repl *r, int nargs, int nresults);
/* The same for function `name` of stdlib/prompt/FILE.lua; the arguments are on top. */
bool repl_prompt(Repl *r, const char *file, const char *name, int nargs, int nresults);

/* ---- repl_host.c ---- */

/* Makes `prompt/host` for the library; `r` may be NULL, for completion alone. May raise.
 */
void repl_provide(lua_State *L, Repl *r);
/* What may stand at `cursor` of `text`, a chunk of Lua, a ,command or a ?topic. Reads
 * tables and the fields that weft's own objects have, but calls no metamethod of anybody
 * else. Nothing is raised: without memory there are no matches. */
void repl_complete(lua_State *L, const char *text, int cursor, EditMatches *m);
/* The global `help`. */
int repl_help(lua_State *L);

#endif
