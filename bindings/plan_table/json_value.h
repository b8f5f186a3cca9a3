/* json_value.h - Lua tables to JSON and back. */
#ifndef WEFT_JSON_VALUE_H
#define WEFT_JSON_VALUE_H

#include <jansson.h>
#include <lua.h>

#include "vm/base/json.h"

/* Writes the value on top, which is popped, with sorted keys; a light userdata is null. A
 * table with names and a list has the list as its member "list". */
void json_value(lua_State *L, const char *key, Json *out);
/* Pushes the value of a JSON document; null is nil. */
void json_push(lua_State *L, const json_t *v);
/* Pushes a string, a number or a boolean. */
void json_push_scalar(lua_State *L, const json_t *v);
/* Pushes a userdata that owns the document stored in it, so that it is freed after an
 * error, too. */
json_t **json_box(lua_State *L);

#endif
