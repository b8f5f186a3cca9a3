/* script.h - what objects and functions of weft need in a full Lua state: scripts, the
 * prompt, and require "weft" in any Lua 5.4. Unlike the state of a plan it has all of Lua
 * and no limits, and it may belong to another program: nothing here changes its globals.
 * bindings/runner makes such states. */
#ifndef WEFT_SCRIPT_H
#define WEFT_SCRIPT_H

#include <lauxlib.h>
#include <lua.h>

#include "vm/base/base.h"

/* What the program around a state provides; every member may be NULL. Borrowed, and read
 * again at each use. */
typedef struct ScriptHost {
  const StopFlag *stop; /* polled by Lua code and by long work in C */
  /* Called after the flag has cut work short whose partial result is kept: clears the
   * flag. */
  void (*kept)(void *ud);
  /* Shows a progress line of a sweep; NULL: the sweep has ended. */
  void (*progress)(void *ud, const char *line);
  void *ud;
  bool *swept; /* set to true by the first sweep; may be NULL */
  /* Files of the first sweep, which must name none for the same itself. */
  const char *csv, *jsonl, *resume;
  Text *json;              /* gets the result of the first sweep, as one line of JSON */
  const char *const *data; /* folders of --data, NULL-terminated */
} ScriptHost;
/* Must be called before the first use of the table. Without it a state has none of the
 * above. */
void script_set_host(lua_State *L, const ScriptHost *h);
const StopFlag *script_stop(lua_State *L);
const ScriptHost *script_host(lua_State *L); /* NULL: none */

/* If the flag is set, makes the Lua code that called the running function end at its next
 * instruction, so that no script takes an interrupted result for an answer. Returns
 * whether it is set. */
bool script_interrupt(lua_State *L);
/* To be called when the flag was cleared after an interruption: the state may run again.
 */
void script_resume(lua_State *L);

/* Raises "weft.plan has no 'mehs' (did you mean 'mesh'?)", with names from api_doc.def
 * under `object`; for __index functions: the key is at index 2. */
int script_unknown(lua_State *L, const char *object);

/* Pushes a userdata that owns a text and frees it when it is collected. */
Text *script_push_text(lua_State *L);
/* Replaces the userdata of script_push_text on top by its text without the last newline;
 * raises an error if there was no memory for the text. */
void script_end_text(lua_State *L);

/* Until the C function that runs returns or raises an error, numbers are written as in
 * the C locale: for what it writes to files. Pushes a value that must stay. */
void script_in_c_locale(lua_State *L);

/* Pushes a userdata that owns an arena; raises an error without memory. */
Arena *script_push_arena(lua_State *L);

#endif
