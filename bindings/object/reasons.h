/* reasons.h - diagnostics as a Lua value: a list of tables with path, message, file,
 * line, severity and suggestion; tostring() gives the report of `weft check`. Methods
 * return it after nil, or raise it. */
#ifndef WEFT_REASONS_H
#define WEFT_REASONS_H

#include <lua.h>

#include "vm/base/diag.h"

/* Pushes the reasons: the diagnostics of a wrong plan, or else the error. */
void reasons_push(lua_State *L, weft_status st, const Diags *d, const weft_error *e);
/* Pushes a list of diagnostics, warnings too. */
void reasons_list(lua_State *L, const Diags *d);
/* Raises the reasons, prefixed with the script's place where they have none. */
int reasons_raise(lua_State *L, weft_status st, const Diags *d, const weft_error *e);
/* The same, of an error alone; returns 0 where the status is WEFT_OK. */
int reasons_check(lua_State *L, weft_status st, const weft_error *e);
/* The status of an error object; WEFT_EPLAN for any other value. */
weft_status reasons_status(lua_State *L, int idx);
/* Whether the value is a list of reasons. */
bool reasons_of_plan(lua_State *L, int idx);

#endif
