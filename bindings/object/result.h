/* result.h - tables that methods give back: they print as a report of the library, or as a
 * text that was made with them. */
#ifndef WEFT_RESULT_H
#define WEFT_RESULT_H

#include <lauxlib.h>
#include <lua.h>

#include "vm/base/base.h"

/* Begins a result: pushes the userdata of its text, then its table. */
Text *result_begin(lua_State *L);
/* Ends it: the text becomes field `text` of the table, which is left. */
void result_end(lua_State *L);

/* Pushes an empty table that prints as stdlib/reports/KIND.lua says. */
void report_new(lua_State *L, const char *kind);
/* Replaces the text of script_push_text on top by a report that prints it: its field
 * `text`. */
void report_made(lua_State *L);
/* Adds the methods of stdlib/objects/OBJECT.lua to the table on top, or in the place of
 * functions there that give them values. */
void object_methods(lua_State *L, const char *object);

/* Fields of the table on top. */
void set_integer(lua_State *L, const char *key, int64_t v);
void set_number(lua_State *L, const char *key, double v);
void set_text(lua_State *L, const char *key, const char *v);

#endif
