/* result.h - result tables of objects, to which stdlib/objects gives methods. */
#ifndef WEFT_RESULT_H
#define WEFT_RESULT_H

#include <lauxlib.h>
#include <lua.h>

#include "vm/base/base.h"

/* Adds the methods of stdlib/objects/OBJECT.lua to the table on top; functions there that
 * return values are replaced by these. */
void object_methods(lua_State *L, const char *object);

/* Set fields of the table on top. */
void set_integer(lua_State *L, const char *key, int64_t v);
void set_number(lua_State *L, const char *key, double v);
void set_text(lua_State *L, const char *key, const char *v);

#endif
