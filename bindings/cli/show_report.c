/* show_report.c - weft show by the methods of plan objects: the same values as scripts get,
 * printed as the prompt prints them, or as JSON. */
#include "cli.h"

#include <math.h>

#include "bindings/lang/lang.h"
#include "bindings/object/plan_object.h"
#include "bindings/runner/runner.h"

/* ---- JSON ---- */

static void json_value(lua_State *L, const char *key, Json *out);

static void json_items(lua_State *L, int t, const char *key, Json *out) {
  json_open(out, key, '[');
  for (int i = 1; lua_rawgeti(L, t, i) != LUA_TNIL; i++) json_value(L, NULL, out);
  lua_pop(L, 1);
  json_close(out, ']');
}

/* A list, or an object whose list, if it has one too, is its member "list". */
static void json_table(lua_State *L, int t, const char *key, Json *out) {
  bool list = lua_rawlen(L, t) > 0, any = false;
  if (!sorted_keys(L, t)) luaL_error(L, "a key is no name");
  int keys = lua_gettop(L);
  for (int i = 1; !any && lua_rawgeti(L, keys, i) != LUA_TNIL; i++) {
    any = lua_type(L, -1) == LUA_TSTRING;
    lua_pop(L, 1);
  }
  lua_settop(L, keys);
  if (!any) {
    json_items(L, t, key, out);
    lua_settop(L, keys - 1);
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
  lua_settop(L, keys - 1);
  if (list) json_items(L, t, "list", out);
  json_close(out, '}');
}

/* Takes the value on top. */
static void json_value(lua_State *L, const char *key, Json *out) {
  luaL_checkstack(L, 8, NULL);
  int t = lua_gettop(L);
  if (lua_istable(L, t)) json_table(L, t, key, out);
  else if (lua_isboolean(L, t)) json_bool(out, key, lua_toboolean(L, t));
  else if (lua_isinteger(L, t)) json_int(out, key, lua_tointeger(L, t));
  else if (lua_type(L, t) == LUA_TNUMBER) json_num(out, key, lua_tonumber(L, t));
  else if (lua_type(L, t) == LUA_TSTRING) json_str(out, key, lua_tostring(L, t));
  else luaL_error(L, "a %s has no JSON", luaL_typename(L, t));
  lua_settop(L, t - 1);
}

/* ---- the call ---- */

typedef struct Asked {
  weft_plan *plan;
  const char *what;
  int64_t arg;
  Text *text;
  Json *out;
} Asked;

static int ask(lua_State *L) {
  Asked *a = lua_touserdata(L, 1);
  lua_pushcfunction(L, script_weft); /* what objects expect to be there */
  lua_call(L, 0, 0);
  plan_object_borrow(L, a->plan);
  lua_getfield(L, -1, a->what);
  if (lua_isfunction(L, -1)) {
    lua_pushvalue(L, -2);
    if (a->arg >= 0) lua_pushinteger(L, a->arg);
    lua_call(L, a->arg >= 0 ? 2 : 1, 1);
  }
  if (a->out) {
    json_value(L, a->what, a->out);
    return 0;
  }
  size_t n;
  const char *s = luaL_tolstring(L, -1, &n);
  text_addn(a->text, s, n);
  text_add(a->text, "\n");
  return 0;
}

weft_status show_report(weft_plan *plan, const char *what, int64_t arg, Text *text,
                        Json *out, weft_error *e) {
  Asked a = {plan, what, arg, text, out};
  lua_State *L = script_new(NULL);
  if (!L) return err_set(e, WEFT_ENOMEM, "out of memory");
  lua_pushcfunction(L, ask);
  lua_pushlightuserdata(L, &a);
  weft_status st = WEFT_OK;
  if (lua_pcall(L, 1, 0, 0) != LUA_OK)
    st = err_set(e, WEFT_EINTERNAL, "show %s: %s", what,
                 lua_isstring(L, -1) ? lua_tostring(L, -1) : "failed");
  lua_close(L);
  return st;
}
