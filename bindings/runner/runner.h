/* runner.h - Lua states for scripts, with all of Lua and weft. */
#ifndef WEFT_RUNNER_H
#define WEFT_RUNNER_H

#include "bindings/script/script.h"
#include "vm/base/json.h"

/* Pushes a new table `weft`, the result of require "weft". The module weft.so exports it
 * as luaopen_weft. */
int script_weft(lua_State *L);

/* Makes a state with all of Lua, in which require "weft" needs no file. If a stop flag is
 * set, Lua code ends with the error "interrupted!" soon after, also in coroutines and
 * inside pcall: the hook raises again until script_resume. NULL: out of memory. Closed by
 * lua_close. */
lua_State *script_new(const ScriptHost *h);
/* Message handler: adds a traceback to strings and other values; error objects with
 * __tostring stay as they are. */
int script_handler(lua_State *L);

/* Runs a file ("-": standard input) with `arg` and `...`. An error is WEFT_EPLAN or the
 * code of its error object, with message and traceback pushed as one string; without an
 * error nothing is pushed. */
weft_status script_run(lua_State *L, const char *path, int argc, char *const *argv,
                       weft_error *e);

/* ---- plan_show.c ---- */
/* Adds what the field or method `what` of the plan's object returns, with argument `arg`
 * unless it is negative: as text, and as JSON under the same key if `out` is given. */
weft_status show_report(weft_plan *plan, const char *what, int64_t arg, Text *text,
                        Json *out, weft_error *e);
/* The same of plan:sim { skew = { FIELDS } }; what is wrong with them is WEFT_EUSAGE. */
weft_status show_skewed(weft_plan *plan, const char *fields, Text *text, Json *out,
                        weft_error *e);

#endif
