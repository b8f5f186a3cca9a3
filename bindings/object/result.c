/* result.c - what methods of plans give back: tables that print through a file of
 * stdlib/reports, or as a text which was made with them (their field `text`), and the
 * options that methods take. */
#include "bindings/lang/lang.h"
#include "plan_object.h"
#include "bindings/script/library.h"
#include "bindings/script/script.h"

static int to_string(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_pushliteral(L, "text");
  lua_rawget(L, 1);
  if (!lua_isstring(L, -1)) lua_pushliteral(L, "");
  return 1;
}

Text *result_begin(lua_State *L) {
  luaL_checkstack(L, 10, "not enough memory");
  lua_newtable(L);
  if (luaL_newmetatable(L, "weft.result")) {
    lua_pushcfunction(L, to_string);
    lua_setfield(L, -2, "__tostring");
  }
  lua_setmetatable(L, -2);
  Text *t = script_push_text(L);
  lua_insert(L, -2);
  return t;
}

void result_end(lua_State *L) {
  lua_insert(L, -2);
  script_end_text(L);
  lua_setfield(L, -2, "text");
}

void report_new(lua_State *L, const char *kind) {
  luaL_checkstack(L, 10, "not enough memory");
  library_push(L, "reports/report");
  lua_pushstring(L, kind);
  lua_newtable(L);
  lua_call(L, 2, 1);
}

void report_made(lua_State *L) {
  script_end_text(L);
  report_new(L, "result");
  lua_insert(L, -2);
  lua_setfield(L, -2, "text");
}

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

/* ---- arguments ---- */

int rank_arg(lua_State *L, const Job *j, int arg) {
  lua_Integer r = luaL_checkinteger(L, arg);
  if (r < 0 || r >= j->mesh.world)
    luaL_error(L, "there is no rank %I: the mesh has %d, counted from 0", r,
               j->mesh.world);
  return (int)r;
}
