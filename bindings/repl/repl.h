/* repl.h - the prompt: one Lua state, the chunk that is being typed, the plan. */
#ifndef WEFT_REPL_H
#define WEFT_REPL_H

#include "bindings/script/script.h"
#include "bindings/cli/cli.h"
#include "repl_commands.h"
#include "repl_complete.h"
#include "repl_input.h"
#include "repl_print.h"

typedef struct Repl {
  Cli *cli;
  Arena *arena;
  lua_State *L;
  ScriptHost host;
  Input *input;
  EditHost edit;
  bool colour, timing, quit;
  bool warned;      /* that locals end with their chunk */
  Text chunk;       /* what was typed so far of an incomplete chunk */
  Text out;         /* what is printed next: here, so that no error in Lua can lose it */
  Arena *matches;   /* of the last completion */
  const char *plan; /* the file that is loaded or was to be; NULL: none yet */
  int nset;         /* of cli->set: those that came with the command line or ,set */
} Repl;

/* ---- repl_eval.c ---- */

typedef enum { EVAL_DONE, EVAL_INCOMPLETE, EVAL_FAILED } EvalResult;
/* Runs a chunk; values of expressions are printed and the first becomes `_`. Errors are
 * printed. A chunk that may go on is EVAL_INCOMPLETE and was not run. */
EvalResult repl_eval(Repl *r, const char *chunk, size_t n);
/* Calls the function under its `nargs` arguments, as a chunk is called: errors are
 * printed, interruption ends it. The results stay on the stack. */
bool repl_call(Repl *r, int nargs, int nresults);
/* Prints "error: ..." for the value on top, which is popped. */
void repl_show_error(Repl *r);
PrintOptions repl_print_options(const Repl *r);
/* Prints what is in r->out on `f` and empties it. */
void repl_flush(Repl *r, FILE *f);
/* `text` in a colour, if colours are wanted. */
void repl_paint(const Repl *r, const char *colour, const char *text, Text *out);

/* ---- repl_plan.c ---- */

/* Loads r->plan into the globals `plan` and `mesh`. What is wrong is printed, and the
 * globals stay what they were. */
weft_status repl_load_plan(Repl *r);

/* ---- repl_help.c ---- */

/* Adds what is known about a topic ("mesh.tp", "plan:with"); false: nothing. `names` gets
 * the nearest topic then, or NULL. */
bool help_topic(lua_State *L, Arena *a, const char *topic, Text *out, const char **near);
void help_overview(Text *out);
/* The global `help`. Upvalue: light userdata, the Repl. */
int help_function(lua_State *L);

#endif
