/* result.h - result tables of objects, to which stdlib/objects gives methods. */
#ifndef WEFT_RESULT_H
#define WEFT_RESULT_H

#include <lauxlib.h>
#include <lua.h>

#include "bindings/sandbox/lua_fields.h"

/* Adds the methods of stdlib/objects/OBJECT.lua to the table on top; functions there that
 * return values are replaced by these. */
void object_methods(lua_State *L, const char *object);

#endif
