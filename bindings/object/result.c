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

void check_options(lua_State *L, int arg, const char *const *names) {
  int n = 0;
  while (names[n])
    n++;
  if (lua_isnoneornil(L, arg)) return;
  luaL_argexpected(L, lua_istable(L, arg), arg, "table");
  for (lua_pushnil(L); lua_next(L, arg); lua_pop(L, 1)) {
    const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "1";
    bool known = false;
    for (int i = 0; i < n; i++)
      known |= strcmp(names[i], key) == 0;
    const char *near = known ? NULL : value_suggest(key, names, n);
    if (near) luaL_error(L, "there is no option '%s' (did you mean '%s'?)", key, near);
    if (!known) luaL_error(L, "there is no option '%s'", key);
  }
}

int64_t option_int(lua_State *L, int arg, const char *key, int64_t lo, int64_t hi,
                   int64_t otherwise) {
  int exact;
  if (!lua_istable(L, arg)) return otherwise;
  int type = lua_getfield(L, arg, key);
  lua_Integer v = lua_tointegerx(L, -1, &exact);
  lua_pop(L, 1);
  if (type == LUA_TNIL) return otherwise;
  if (type != LUA_TNUMBER || !exact || v < lo || v > hi)
    luaL_error(L, "%s must be an integer from %I to %I", key, (lua_Integer)lo,
               (lua_Integer)hi);
  return v;
}
