/* function_export.c - functions of a plan must not run outside of its sandbox. A script
 * that reads the fields of a plan gets, in place of each function, a C function that
 * raises an error when called and remembers the plan's object and the function's number.
 * transfer.c replaces it by the original when it is copied into a plan. */
#include "function_export.h"

#include <stdio.h>

/* Registry of a plan's state: function -> number and number -> function. */
static const char numbers_key = 'n';

/* ---- numbers ---- */

/* Stack: the numbers, the tables that were visited, a value, which is popped. */
static void number_value(lua_State *L, int numbers, int seen) {
  int v = lua_gettop(L);
  luaL_checkstack(L, 8, "the plan is nested too deeply");
  bool table = lua_istable(L, v);
  lua_pushvalue(L, v);
  if ((!table && !lua_isfunction(L, v)) ||
      lua_rawget(L, table ? seen : numbers) != LUA_TNIL) {
    lua_settop(L, v - 1);
    return;
  }
  lua_pushvalue(L, v);
  if (table) {
    lua_pushboolean(L, 1);
    lua_rawset(L, seen);
    for (lua_pushnil(L); lua_next(L, v);) {
      number_value(L, numbers, seen);
      lua_pushvalue(L, -1);
      number_value(L, numbers, seen);
    }
  } else {
    lua_Integer n = (lua_Integer)lua_rawlen(L, numbers) + 1;
    lua_pushinteger(L, n);
    lua_rawset(L, numbers);
    lua_pushvalue(L, v);
    lua_rawseti(L, numbers, n);
  }
  lua_settop(L, v - 1);
}

static void number_job(lua_State *L, void *ud) {
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &numbers_key) != LUA_TTABLE) {
    lua_pop(L, 1);
    lua_newtable(L);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &numbers_key);
  }
  lua_newtable(L);
  lua_pushvalue(L, PLAN_INDEX);
  number_value(L, PLAN_INDEX + 1, PLAN_INDEX + 2);
}

bool export_number_functions(LangState *s) {
  weft_error e = NO_ERROR;
  return state_protect(s, number_job, NULL, &e) == WEFT_OK;
}

/* ---- stand-ins in other states ---- */

/* Upvalues: the plan's object, the number, the place in the source, the hash. */
enum { UP_OWNER = 1, UP_NUMBER, UP_PLACE, UP_HASH };

static int refuse_call(lua_State *L) {
  return luaL_error(L, "this function belongs to a plan (%s): it runs in plans only",
                    lua_tostring(L, lua_upvalueindex(UP_PLACE)));
}

static int add_code(lua_State *L, const void *p, size_t n, void *ud) {
  uint64_t *hash = ud;
  *hash = hash_bytes(*hash, p, n);
  return 0;
}

void export_function(lua_State *from, int idx, lua_State *to, int owner) {
  lua_Debug ar;
  uint64_t hash = 0;
  char place[LUA_IDSIZE + 32];
  const char *name = known_name(from, idx);
  lua_pushvalue(from, idx);
  if (!lua_iscfunction(from, idx)) lua_dump(from, add_code, &hash, 1);
  lua_getinfo(from, ">S", &ar);
  if (name)
    snprintf(place, sizeof place, "%s", name);
  else
    snprintf(place, sizeof place, "%s:%d", ar.short_src, ar.linedefined);
  lua_rawgetp(from, LUA_REGISTRYINDEX, &numbers_key);
  lua_pushvalue(from, idx);
  lua_rawget(from, -2);
  lua_Integer number = lua_tointeger(from, -1);
  lua_pop(from, 2);
  lua_pushvalue(to, owner);
  lua_pushinteger(to, number);
  lua_pushstring(to, place);
  lua_pushinteger(to, (lua_Integer)hash);
  lua_pushcclosure(to, refuse_call, UP_HASH);
}

bool export_is(lua_State *L, int idx) { return lua_tocfunction(L, idx) == refuse_call; }

const char *export_place(lua_State *L, int idx, uint64_t *hash) {
  lua_getupvalue(L, idx, UP_HASH);
  *hash = (uint64_t)lua_tointeger(L, -1);
  lua_pop(L, 1);
  lua_getupvalue(L, idx, UP_PLACE);
  const char *place = lua_tostring(L, -1);
  lua_pop(L, 1);
  return place;
}

lua_State *export_push_original(lua_State *L, int idx, const char **why) {
  lua_getupvalue(L, idx, UP_OWNER);
  const ExportOwner *owner = lua_touserdata(L, -1);
  const LangPlan *lp = owner->plan(owner);
  lua_getupvalue(L, idx, UP_NUMBER);
  lua_Integer number = lua_tointeger(L, -1);
  lua_pop(L, 2);
  *why = "a function of a plan that is closed or in use";
  if (!lp) return NULL;
  lua_State *plan = lp->state->L;
  if (!lua_checkstack(plan, 40)) return NULL;
  lua_rawgetp(plan, LUA_REGISTRYINDEX, &numbers_key);
  lua_rawgeti(plan, -1, number);
  lua_remove(plan, -2);
  return plan;
}
