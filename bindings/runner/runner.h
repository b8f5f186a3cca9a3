/* runner.h - full Lua states with all of weft. */
#ifndef WEFT_RUNNER_H
#define WEFT_RUNNER_H

#include "bindings/script/script.h"

/* Pushes the table `weft`, a new one at each call: what require "weft" runs. The module
 * weft.so exports it as luaopen_weft. */
int script_weft(lua_State *L);

/* A state with all of Lua, in which require "weft" gives the table, no file needed. With
 * a stop flag, Lua code ends with the error "interrupted!" soon after it is set, also in
 * coroutines and inside pcall: the hook goes on raising until script_resume. NULL: out of
 * memory. lua_close ends it. */
lua_State *script_new(const ScriptHost *h);
/* Message handler: adds a traceback to texts and to what has none of its own; error
 * objects with __tostring stay what they are. */
int script_handler(lua_State *L);

/* Runs a file ("-": the standard input) with `arg` and `...`. An error of the script is
 * WEFT_EPLAN, or the code that its error object has, with message and traceback pushed
 * as one text; nothing is pushed otherwise. */
weft_status script_run(lua_State *L, const char *path, int argc, char *const *argv,
                       weft_error *e);

#endif
