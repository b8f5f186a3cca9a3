/* result.c - helpers that build result tables; see result.h. */
#include "plan_object.h"
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

int rank_arg(lua_State *L, const Job *j, int arg) {
  int exact;
  lua_Integer r = lua_tointegerx(L, arg, &exact);
  if (!exact)
    library_error(L, "a rank is an integer, not %s", luaL_tolstring(L, arg, NULL));
  if (r < 0 || r >= j->mesh.world)
    library_error(L, "there is no rank %I: the mesh has %d, counted from 0", r,
                  j->mesh.world);
  return (int)r;
}
