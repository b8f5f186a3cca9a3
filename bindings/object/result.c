/* result.c - helpers that build result tables; see result.h. */
#include "result.h"

#include "bindings/script/library.h"

void object_methods(lua_State *L, const char *object) {
  int methods = lua_gettop(L);
  library_push(L, lua_pushfstring(L, "objects/%s", object));
  lua_pushvalue(L, methods);
  lua_call(L, 1, 0);
  lua_settop(L, methods);
}

void set_integer(lua_State *L, const char *key, int64_t v) {
  lua_pushinteger(L, v);
  lua_setfield(L, -2, key);
}

void set_number(lua_State *L, const char *key, double v) {
  lua_pushnumber(L, v);
  lua_setfield(L, -2, key);
}

void set_text(lua_State *L, const char *key, const char *v) {
  lua_pushstring(L, v);
  lua_setfield(L, -2, key);
}
