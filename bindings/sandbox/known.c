/* known.c - names for values that every Lua state has (library functions, the table
 * weft), so that a function that is copied to another state finds them there. */
#include "sandbox.h"

#include "lua_fields.h"

static const char known_key = 'k'; /* registry: name -> value and value -> name */

static void push_known(lua_State *L) {
  luaL_checkstack(L, 8, NULL);
  registry_table(L, &known_key);
}

void known_add(lua_State *L, const char *name) {
  push_known(L);
  lua_pushvalue(L, -2);
  lua_setfield(L, -2, name);
  lua_pushvalue(L, -2);
  lua_pushstring(L, name);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

void known_library(lua_State *L, const char *name) {
  int t = lua_gettop(L);
  luaL_checkstack(L, 8, NULL);
  for (lua_pushnil(L); lua_next(L, t); lua_settop(L, t + 1)) {
    if (!lua_iscfunction(L, -1) || lua_type(L, -2) != LUA_TSTRING) continue;
    const char *full = *name ? lua_pushfstring(L, "%s.%s", name, lua_tostring(L, -2))
                             : lua_tostring(L, -2);
    lua_pushvalue(L, t + 2);
    known_add(L, full);
  }
}

void known_globals(lua_State *L, int idx) {
  static const char *const libraries[] = {
      "string", "table", "math", "utf8", "coroutine", "io", "os", "debug", "package"};
  lua_pushvalue(L, idx);
  known_library(L, "");
  for (int i = 0; i < LEN(libraries); i++) {
    lua_pushstring(L, libraries[i]);
    if (lua_rawget(L, -2) == LUA_TTABLE) {
      known_library(L, libraries[i]);
      known_add(L, libraries[i]);
    }
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
}

const char *known_name(lua_State *L, int idx) {
  idx = lua_absindex(L, idx);
  const char *name = NULL;
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &known_key) == LUA_TTABLE) {
    lua_pushvalue(L, idx);
    lua_rawget(L, -2);
    if (lua_type(L, -1) == LUA_TSTRING) name = lua_tostring(L, -1);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  return name;
}

bool known_push(lua_State *L, const char *name) {
  push_known(L);
  lua_getfield(L, -1, name);
  lua_remove(L, -2);
  if (!lua_isnil(L, -1)) return true;
  lua_pop(L, 1);
  return false;
}
