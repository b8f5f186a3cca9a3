/* lua_fields.h - what C sets in tables of Lua: fields, lists of strings, what collects a
 * userdata. */
#ifndef WEFT_LUA_FIELDS_H
#define WEFT_LUA_FIELDS_H

#include <lauxlib.h>
#include <lua.h>

#include "vm/base/base.h"

/* ---- fields of the table on top ---- */

static inline void set_integer(lua_State *L, const char *key, int64_t v) {
  lua_pushinteger(L, v);
  lua_setfield(L, -2, key);
}

static inline void set_number(lua_State *L, const char *key, double v) {
  lua_pushnumber(L, v);
  lua_setfield(L, -2, key);
}

static inline void set_boolean(lua_State *L, const char *key, bool v) {
  lua_pushboolean(L, v);
  lua_setfield(L, -2, key);
}

/* NULL: nil. */
static inline void set_text(lua_State *L, const char *key, const char *v) {
  lua_pushstring(L, v);
  lua_setfield(L, -2, key);
}

/* ---- lists ---- */

static inline void push_texts(lua_State *L, const char *const *list, int n) {
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_pushstring(L, list[i]);
    lua_rawseti(L, -2, i + 1);
  }
}

static inline void set_texts(lua_State *L, const char *key, const char *const *list,
                             int n) {
  push_texts(L, list, n);
  lua_setfield(L, -2, key);
}

/* The list of strings at idx, NULL-terminated. Pushes the userdata that it is in, which
 * does not keep the strings. */
static inline const char **texts_of(lua_State *L, int idx) {
  int n = (int)lua_rawlen(L, idx);
  const char **list = lua_newuserdatauv(L, sizeof *list * (size_t)(n + 1), 0);
  for (int i = 0; i < n; i++, lua_pop(L, 1)) {
    lua_rawgeti(L, idx, i + 1);
    list[i] = lua_tostring(L, -1);
  }
  list[n] = NULL;
  return list;
}

/* ---- userdata, and tables of the registry ---- */

/* Gives the userdata on top the metatable of its type, which frees it. */
static inline void set_gc(lua_State *L, const char *type, lua_CFunction free) {
  if (luaL_newmetatable(L, type)) {
    lua_pushcfunction(L, free);
    lua_setfield(L, -2, "__gc");
  }
  lua_setmetatable(L, -2);
}

/* Pushes the table of the registry at `key`, which its first use makes. */
static inline void registry_table(lua_State *L, const char *key) {
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, key) == LUA_TTABLE) return;
  lua_pop(L, 1);
  lua_newtable(L);
  lua_pushvalue(L, -1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, key);
}

#endif
