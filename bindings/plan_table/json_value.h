/* json_value.h - Lua tables to JSON and back. */
#ifndef WEFT_JSON_VALUE_H
#define WEFT_JSON_VALUE_H

#include <jansson.h>
#include <lua.h>

#include "vm/base/json.h"

/* Adds the value on top, which is popped, keys sorted; a light userdata is null. A table
 * with names and a list has the list as its member "list". */
void json_value(lua_State *L, const char *key, Json *out);
/* Pushes what a document says; null is nil. */
void json_push(lua_State *L, const json_t *v);
/* Pushes a userdata that a document, put there, belongs to: running out of memory does
 * not lose it. */
json_t **json_box(lua_State *L);

#endif
