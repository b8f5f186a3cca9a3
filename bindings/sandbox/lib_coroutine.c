/* lib_coroutine.c - coroutine.create, resume and wrap for plans: the state knows which
 * thread runs, and a limit that is hit in a coroutine ends its caller, too. */
#include "sandbox.h"
#include "lib.h"

/* The first instructions of a coroutine run before its hook, so they are counted here. */
static int create(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  state_charge(L, 100);
  lua_State *co = lua_newthread(L);
  lua_pushvalue(L, 1);
  lua_xmove(L, co, 1);
  return 1;
}

/* Runs the coroutine with the n values on top; leaves its results or the error. Returns
 * the number of results, -1 for an error. */
static int run_coroutine(lua_State *L, lua_State *co, int n) {
  LangState *s = state_of(L);
  int results = 0;
  if (!lua_checkstack(co, n)) return luaL_error(L, "too many arguments to resume");
  lua_xmove(L, co, n);
  s->running = co;
  state_watch(s, co);
  int status = lua_resume(co, L, n, &results);
  s->running = L;
  state_watch(s, L);
  state_rethrow(L);
  if (status != LUA_OK && status != LUA_YIELD) {
    lua_xmove(co, L, 1);
    return -1;
  }
  if (!lua_checkstack(L, results + 1)) {
    lua_pop(co, results);
    return luaL_error(L, "too many results to resume");
  }
  lua_xmove(co, L, results);
  return results;
}

static int resume(lua_State *L) {
  lua_State *co = lua_tothread(L, 1);
  luaL_argexpected(L, co, 1, "coroutine");
  int n = run_coroutine(L, co, lua_gettop(L) - 1);
  lua_pushboolean(L, n >= 0);
  lua_insert(L, n >= 0 ? -(n + 1) : -2);
  return n >= 0 ? n + 1 : 2;
}

/* Upvalue: the coroutine. Raises its errors again, with the place of the call. */
static int wrapped(lua_State *L) {
  lua_State *co = lua_tothread(L, lua_upvalueindex(1));
  int n = run_coroutine(L, co, lua_gettop(L));
  if (n >= 0) return n;
  if (lua_status(co) > LUA_YIELD && lua_resetthread(co) != LUA_OK) {
    lua_pop(L, 1);
    lua_xmove(co, L, 1); /* of a variable with a close metamethod */
  }
  state_rethrow(L);
  if (lua_type(L, -1) == LUA_TSTRING) {
    luaL_where(L, 1);
    lua_insert(L, -2);
    lua_concat(L, 2);
  }
  return lua_error(L);
}

static int wrap(lua_State *L) {
  create(L);
  lua_pushcclosure(L, wrapped, 1);
  return 1;
}

void lib_coroutine(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"create", create}, {"resume", resume}, {"wrap", wrap}, {NULL, NULL}};
  luaL_setfuncs(L, functions, 0);
}
