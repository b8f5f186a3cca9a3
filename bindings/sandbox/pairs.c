/* pairs.c - pairs() in sorted order of keys, because stock Lua's order differs between
 * runs. */
#include "sandbox.h"

#include <stdlib.h>

typedef struct Key {
  int type, slot; /* slot: index in the list of keys */
  bool is_int;
  lua_Integer i;
  lua_Number n;
  const char *s;
  size_t len;
} Key;

static int compare_numbers(const Key *a, const Key *b) {
  if (a->is_int && b->is_int) return (a->i > b->i) - (a->i < b->i);
  if (a->n != b->n) return a->n > b->n ? 1 : -1;
  return a->is_int - b->is_int;
}

/* Returns 0 once the plan is stopped, so that sorting ends quickly. */
static int compare_keys(const void *pa, const void *pb, void *ud) {
  const Key *a = pa, *b = pb;
  const StopFlag *stop = ud;
  if (stop && *stop) return 0;
  if (a->type != b->type) {
    static const int order[LUA_NUMTYPES] = {[LUA_TSTRING] = 1, [LUA_TBOOLEAN] = 2};
    return order[a->type] - order[b->type];
  }
  if (a->type == LUA_TNUMBER) return compare_numbers(a, b);
  if (a->type == LUA_TBOOLEAN) return (int)(a->i - b->i);
  int c = memcmp(a->s, b->s, MIN(a->len, b->len));
  return c ? c : (a->len > b->len) - (a->len < b->len);
}

static bool read_key(lua_State *L, int idx, Key *k) {
  *k = (Key){.type = lua_type(L, idx)};
  if (k->type == LUA_TSTRING) {
    k->s = lua_tolstring(L, idx, &k->len);
  } else if (k->type == LUA_TNUMBER) {
    k->is_int = lua_isinteger(L, idx);
    if (k->is_int) k->i = lua_tointeger(L, idx);
    k->n = lua_tonumber(L, idx);
  } else if (k->type == LUA_TBOOLEAN) {
    k->i = lua_toboolean(L, idx);
  } else {
    return false;
  }
  return true;
}

static bool sort_keys(lua_State *L, int t, const StopFlag *stop) {
  int n = 0;
  t = lua_absindex(L, t);
  luaL_checkstack(L, 6, NULL);
  for (lua_pushnil(L); state_next(L, t); lua_pop(L, 1)) n++;
  Key *key = lua_newuserdatauv(L, sizeof *key * (size_t)MAX(n, 1), 0);
  lua_createtable(L, n, 0); /* keeps the strings alive */
  int i = 0;
  for (lua_pushnil(L); state_next(L, t); lua_pop(L, 1)) {
    if (!read_key(L, -2, &key[i])) {
      lua_pop(L, 4);
      return false;
    }
    key[i].slot = i + 1;
    i++;
    lua_pushvalue(L, -2);
    lua_rawseti(L, -4, i);
  }
  qsort_r(key, (size_t)n, sizeof *key, compare_keys, (void *)stop);
  lua_createtable(L, n, 0);
  for (i = 0; i < n; i++) {
    lua_rawgeti(L, -2, key[i].slot);
    lua_rawseti(L, -2, i + 1);
  }
  lua_replace(L, -3);
  lua_pop(L, 1);
  return true;
}

bool sorted_keys(lua_State *L, int t) { return sort_keys(L, t, NULL); }

/* Upvalues: the table, its sorted keys, the position. The iterator ignores its arguments.
 * Keys that were removed meanwhile are skipped. */
static int pairs_next(lua_State *L) {
  lua_Integer i = lua_tointeger(L, lua_upvalueindex(3));
  lua_settop(L, 0);
  for (;;) {
    state_charge(L, 1);
    lua_settop(L, 0);
    if (lua_rawgeti(L, lua_upvalueindex(2), ++i) == LUA_TNIL) return 1;
    lua_pushvalue(L, 1);
    if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL) break;
  }
  lua_pushinteger(L, i);
  lua_replace(L, lua_upvalueindex(3));
  return 2;
}

/* Counts the work of sorting the keys of the table at index 1. */
static void charge_sort(lua_State *L) {
  int64_t n = 0, steps = 0;
  for (lua_pushnil(L); state_next(L, 1); lua_pop(L, 1)) n++;
  for (int64_t rest = n; rest > 0; rest /= 2) steps += 2 * n;
  state_charge(L, steps);
}

int sorted_pairs(lua_State *L) {
  luaL_checkany(L, 1);
  if (luaL_getmetafield(L, 1, "__pairs") != LUA_TNIL) {
    lua_pushvalue(L, 1);
    lua_call(L, 1, 3);
    return 3;
  }
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  charge_sort(L);
  lua_pushvalue(L, 1);
  if (!sort_keys(L, 1, state_of(L)->opt->stop))
    return luaL_error(
        L, "pairs: keys other than numbers, strings and booleans have no order");
  lua_pushinteger(L, 0);
  lua_pushcclosure(L, pairs_next, 3);
  lua_pushvalue(L, 1);
  lua_pushnil(L);
  return 3;
}
