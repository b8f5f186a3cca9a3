/* json_value.c - Lua tables to JSON and back. */
#include "bindings/sandbox/sandbox.h"
#include "json_value.h"

#include <lauxlib.h>

#include "bindings/sandbox/length.h"
#include "bindings/sandbox/lua_fields.h"

/* ---- writing ---- */

static void json_items(lua_State *L, int t, const char *key, Json *out) {
  json_open(out, key, '[');
  for (int i = 1; lua_rawgeti(L, t, i) != LUA_TNIL; i++) json_value(L, NULL, out);
  lua_pop(L, 1);
  json_close(out, ']');
}

/* Writes a table as a list or object; a table with both kinds of keys has the list as its
 * member "list". Leaves its keys on the stack. */
static void json_table(lua_State *L, int t, const char *key, Json *out) {
  bool list = table_length(L, t) > 0, any = false;
  if (!sorted_keys(L, t))
    luaL_error(L, "a key of a table is neither a string nor a number");
  int keys = lua_gettop(L);
  for (int i = 1; !any && lua_rawgeti(L, keys, i) != LUA_TNIL; i++) {
    any = lua_type(L, -1) == LUA_TSTRING;
    lua_pop(L, 1);
  }
  lua_settop(L, keys);
  if (!any) {
    json_items(L, t, key, out);
    return;
  }
  json_open(out, key, '{');
  for (int i = 1; lua_rawgeti(L, keys, i) != LUA_TNIL; i++, lua_settop(L, keys)) {
    if (lua_type(L, -1) != LUA_TSTRING) continue;
    const char *name = lua_tostring(L, -1);
    if (list && strcmp(name, "list") > 0) list = false, json_items(L, t, "list", out);
    lua_pushvalue(L, -1);
    lua_rawget(L, t);
    json_value(L, name, out);
  }
  if (list) json_items(L, t, "list", out);
  json_close(out, '}');
}

void json_value(lua_State *L, const char *key, Json *out) {
  luaL_checkstack(L, 8, NULL);
  int t = lua_gettop(L);
  if (lua_istable(L, t))
    json_table(L, t, key, out);
  else if (lua_isboolean(L, t))
    json_bool(out, key, lua_toboolean(L, t));
  else if (lua_isinteger(L, t))
    json_int(out, key, lua_tointeger(L, t));
  else if (lua_type(L, t) == LUA_TNUMBER)
    json_num(out, key, lua_tonumber(L, t));
  else if (lua_type(L, t) == LUA_TSTRING)
    json_str(out, key, lua_tostring(L, t));
  else if (lua_islightuserdata(L, t))
    json_none(out, key);
  else
    luaL_error(L, "a %s has no JSON", luaL_typename(L, t));
  lua_settop(L, t - 1);
}

/* ---- reading ---- */

static void push_object(lua_State *L, const json_t *v) {
  const char *key;
  json_t *item;
  lua_createtable(L, 0, (int)json_object_size(v));
  json_object_foreach((json_t *)v, key, item) {
    lua_pushstring(L, key);
    json_push(L, item);
    lua_rawset(L, -3);
  }
}

void json_push_scalar(lua_State *L, const json_t *v) {
  if (json_is_string(v))
    lua_pushlstring(L, json_string_value(v), json_string_length(v));
  else if (json_is_integer(v))
    lua_pushinteger(L, json_integer_value(v));
  else if (json_is_real(v))
    lua_pushnumber(L, json_real_value(v));
  else
    lua_pushboolean(L, json_is_true(v));
}

void json_push(lua_State *L, const json_t *v) {
  size_t i;
  json_t *item;
  luaL_checkstack(L, 4, "JSON is nested too deeply");
  switch (json_typeof(v)) {
  case JSON_OBJECT: push_object(L, v); return;
  case JSON_NULL: lua_pushnil(L); return;
  case JSON_ARRAY:
    lua_createtable(L, (int)json_array_size(v), 0);
    json_array_foreach(v, i, item) {
      json_push(L, item);
      lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    return;
  default: json_push_scalar(L, v);
  }
}

static int drop(lua_State *L) {
  json_t **doc = lua_touserdata(L, 1);
  if (*doc) json_decref(*doc);
  *doc = NULL;
  return 0;
}

json_t **json_box(lua_State *L) {
  luaL_checkstack(L, 6, "JSON is nested too deeply");
  json_t **doc = lua_newuserdatauv(L, sizeof *doc, 0);
  *doc = NULL;
  set_gc(L, "weft.json", drop);
  return doc;
}
