/* script.h - what objects and functions of weft need in a full Lua state: scripts, the
 * prompt, and require "weft" in any Lua 5.4. Unlike the state of a plan, such a state has
 * all of Lua and no limits, and it may belong to somebody else: nothing here changes its
 * globals. bindings/runner makes such states. */
#ifndef WEFT_SCRIPT_H
#define WEFT_SCRIPT_H

#include <lauxlib.h>
#include <lua.h>

#include "vm/base/base.h"

/* What the program around a state offers; all of it may be NULL. Borrowed, and read again
 * at every use. */
typedef struct ScriptHost {
  const StopFlag *stop; /* polled by Lua code and by long work in C */
  /* Work was cut short by the flag, but its result stands: clears the flag. */
  void (*kept)(void *ud);
  /* A line that shows how far a sweep is; NULL: it has ended. */
  void (*progress)(void *ud, const char *line);
  void *ud;
  bool *swept; /* becomes true with the first sweep; may be NULL */
  /* Of the first sweep, unless it names files itself. */
  const char *csv, *jsonl, *resume;
  const char *const *data; /* folders of --data, NULL-terminated */
} ScriptHost;
/* Before the first use of the table. States without a host have none of the above. */
void script_set_host(lua_State *L, const ScriptHost *h);
const StopFlag *script_stop(lua_State *L);
const ScriptHost *script_host(lua_State *L); /* NULL: none */

/* If the flag is set, the Lua code that called the running function ends at its next
 * instruction: for work in C that was interrupted, so that no script takes that for an
 * answer. True if it is set. */
bool script_interrupt(lua_State *L);
/* After an interruption, when the flag was cleared: the state may run again. */
void script_resume(lua_State *L);

/* "weft.plan has no 'mehs' (did you mean 'mesh'?)", by the names that api_doc.def lists
 * under `object`; for __index functions: the key is at index 2. */
int script_unknown(lua_State *L, const char *object);

/* Pushes a userdata that holds a text and frees it when it is collected. */
Text *script_push_text(lua_State *L);
/* Replaces the userdata of script_push_text on top by its text, without the last newline;
 * raises if there was no memory for it. */
void script_end_text(lua_State *L);

/* Pushes a userdata that holds an arena; raises if there is no memory. */
Arena *script_push_arena(lua_State *L);

#endif
