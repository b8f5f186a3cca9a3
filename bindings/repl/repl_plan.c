/* repl_plan.c - the plan of the prompt: its file becomes the globals `plan` and `mesh`.
 */
#include "repl.h"

#include <lauxlib.h>

#include "bindings/object/reasons.h"

/* Sets field `name` of the table on top to { NAME = value } of "NAME=value", ...; NAME
 * alone, as -D takes it, is true. */
static void push_assignments(lua_State *L, const char *name, const char *const *text,
                             int n) {
  lua_createtable(L, 0, n);
  for (int i = 0; i < n; i++) {
    const char *equals = strchr(text[i], '=');
    lua_pushlstring(L, text[i], equals ? (size_t)(equals - text[i]) : strlen(text[i]));
    if (equals)
      lua_pushstring(L, equals + 1);
    else
      lua_pushboolean(L, 1);
    lua_rawset(L, -3);
  }
  lua_setfield(L, -2, name);
}

static void push_options(lua_State *L, const Cli *cli) {
  lua_createtable(L, 0, 2);
  push_assignments(L, "set", cli->set, cli->nset);
  push_assignments(L, "define", cli->define, cli->ndefine);
}

static void set_global(lua_State *L, const char *name) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
  lua_pushstring(L, name);
  lua_pushvalue(L, -3);
  lua_rawset(L, -3);
  lua_pop(L, 2);
}

/* Returns a status and what there is to print: the plan, or the reasons. */
static int load(lua_State *L) {
  Repl *r = lua_touserdata(L, 1);
  luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
  lua_getfield(L, -1, "weft");
  lua_getfield(L, -1, "load");
  lua_pushstring(L, r->plan);
  push_options(L, r->cli);
  lua_call(L, 2, 2);
  bool good = !lua_isnil(L, -2);
  lua_pushinteger(L, good ? WEFT_OK : reasons_status(L, -1));
  if (good) {
    lua_pushvalue(L, -3);
    set_global(L, "plan");
    lua_getfield(L, -3, "mesh");
    set_global(L, "mesh");
  }
  luaL_tolstring(L, good ? -3 : -2, NULL);
  return 2;
}

weft_status repl_load_plan(Repl *r) {
  lua_State *L = r->L;
  int top = lua_gettop(L);
  lua_pushcfunction(L, load);
  lua_pushlightuserdata(L, r);
  if (!repl_call(r, 1, 2)) return WEFT_EPLAN;
  weft_status st = (weft_status)lua_tointeger(L, -2);
  size_t n;
  const char *text = lua_tolstring(L, -1, &n);
  if (st != WEFT_OK || r->input) {
    text_addn(&r->out, text, n);
    if (n && text[n - 1] != '\n') text_add(&r->out, "\n");
    repl_flush(r, st == WEFT_OK ? stdout : stderr);
  }
  lua_settop(L, top);
  return st;
}
