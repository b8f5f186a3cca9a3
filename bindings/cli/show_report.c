/* show_report.c - weft show by the methods of plan objects: the same values as scripts get,
 * printed as the prompt prints them, or as JSON. */
#include "cli.h"

#include "bindings/object/plan_object.h"
#include "bindings/lang/json_value.h"
#include "bindings/runner/runner.h"

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
