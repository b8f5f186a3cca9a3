/* repl_plan.c - the plan of the prompt: its file becomes the globals `plan` and `mesh`.
 */
#include "repl.h"

#include <lauxlib.h>

/* { set = { "mesh.tp=4", ... }, define = { NAME = "value", ... } } */
static void push_options(lua_State *L, const Cli *cli) {
  lua_createtable(L, 0, 2);
  lua_createtable(L, cli->nset, 0);
  for (int i = 0; i < cli->nset; i++) {
    lua_pushstring(L, cli->set[i]);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "set");
  lua_createtable(L, 0, cli->ndefine);
  for (int i = 0; i < cli->ndefine; i++) {
    const char *equals = strchr(cli->define[i], '=');
    if (!equals) luaL_error(L, "-D takes NAME=value, got \"%s\"", cli->define[i]);
    lua_pushlstring(L, cli->define[i], (size_t)(equals - cli->define[i]));
    lua_pushstring(L, equals + 1);
    lua_rawset(L, -3);
  }
  lua_setfield(L, -2, "define");
}

static void set_global(lua_State *L, const char *name) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
  lua_pushstring(L, name);
  lua_pushvalue(L, -3);
  lua_rawset(L, -3);
  lua_pop(L, 2);
}

/* Returns true, or false and the reasons. */
static int load(lua_State *L) {
  Repl *r = lua_touserdata(L, 1);
  luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
  lua_getfield(L, -1, "weft");
  lua_getfield(L, -1, "load");
  lua_pushstring(L, r->plan);
  push_options(L, r->cli);
  lua_call(L, 2, 2);
  if (lua_isnil(L, -2)) {
    luaL_tolstring(L, -1, NULL);
    lua_pushboolean(L, false);
    lua_insert(L, -2);
    return 2;
  }
  lua_pop(L, 1);
  lua_pushvalue(L, -1);
  set_global(L, "plan");
  lua_getfield(L, -1, "mesh");
  set_global(L, "mesh");
  luaL_tolstring(L, -1, NULL);
  lua_pushboolean(L, true);
  lua_insert(L, -2);
  return 2;
}

bool repl_load_plan(Repl *r) {
  lua_State *L = r->L;
  int top = lua_gettop(L);
  lua_pushcfunction(L, load);
  lua_pushlightuserdata(L, r);
  if (!repl_call(r, 1, 2)) return false;
  bool good = lua_toboolean(L, -2);
  size_t n;
  const char *text = lua_tolstring(L, -1, &n);
  if (!good || r->input) {
    text_addn(&r->out, text, n);
    if (n && text[n - 1] != '\n') text_add(&r->out, "\n");
    repl_flush(r, good ? stdout : stderr);
  }
  lua_settop(L, top);
  return good;
}
