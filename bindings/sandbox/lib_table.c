/* lib_table.c - table.concat, insert, move, remove, sort and unpack. Stock Lua chooses
 * the pivot of a sort by the clock and an address; this sort is stable and always makes
 * the same comparisons. */
#include "length.h"
#include "lib.h"

#include <limits.h>

/* Raises an error if the argument is no table and lacks one of these metamethods. */
static void check_table(lua_State *L, int arg, const char *const *methods) {
  if (lua_istable(L, arg)) return;
  for (; *methods; methods++) {
    if (luaL_getmetafield(L, arg, *methods) == LUA_TNIL)
      luaL_checktype(L, arg, LUA_TTABLE);
    lua_pop(L, 1);
  }
}

static const char *const reads[] = {"__index", "__len", NULL};
static const char *const writes[] = {"__index", "__newindex", "__len", NULL};

/* The length as by `#` in a plan: for a table with holes, stock Lua's length differs
 * between processes. */
static lua_Integer list_len(lua_State *L, int arg) {
  bool own = luaL_getmetafield(L, arg, "__len") != LUA_TNIL;
  if (own) lua_pop(L, 1);
  return own || !lua_istable(L, arg) ? luaL_len(L, arg) : table_length(L, arg);
}

static lua_Integer length(lua_State *L, int arg, const char *const *methods) {
  check_table(L, arg, methods);
  return list_len(L, arg);
}

/* ---- insert, remove, move ---- */

/* t[to] = t[from] */
static void shift(lua_State *L, int from_table, lua_Integer from, int to_table,
                  lua_Integer to) {
  lib_charge(L, 1);
  lua_geti(L, from_table, from);
  lua_seti(L, to_table, to);
}

static int insert(lua_State *L) {
  lua_Integer end = (lua_Integer)((lua_Unsigned)length(L, 1, writes) + 1u), at = end;
  int args = lua_gettop(L);
  if (args != 2 && args != 3)
    return luaL_error(L, "wrong number of arguments to 'insert'");
  if (args == 3) {
    at = luaL_checkinteger(L, 2);
    luaL_argcheck(L, (lua_Unsigned)at - 1u < (lua_Unsigned)end, 2,
                  "position out of bounds");
    for (lua_Integer i = end; i > at; i--) shift(L, 1, i - 1, 1, i);
  }
  lua_seti(L, 1, at);
  return 0;
}

static int remove_item(lua_State *L) {
  lua_Integer n = length(L, 1, writes), at = luaL_optinteger(L, 2, n);
  if (at != n)
    luaL_argcheck(L, (lua_Unsigned)at - 1u <= (lua_Unsigned)n, 2,
                  "position out of bounds");
  lua_geti(L, 1, at);
  for (; at < n; at++) shift(L, 1, at + 1, 1, at);
  lua_pushnil(L);
  lua_seti(L, 1, at);
  return 1;
}

static int move(lua_State *L) {
  lua_Integer from = luaL_checkinteger(L, 2), last = luaL_checkinteger(L, 3);
  lua_Integer to = luaL_checkinteger(L, 4);
  int other = lua_isnoneornil(L, 5) ? 1 : 5;
  check_table(L, 1, (const char *const[]){"__index", NULL});
  check_table(L, other, (const char *const[]){"__newindex", NULL});
  if (last >= from) {
    luaL_argcheck(L, from > 0 || last < LUA_MAXINTEGER + from, 3,
                  "too many elements to move");
    lua_Integer n = last - from + 1;
    luaL_argcheck(L, to <= LUA_MAXINTEGER - n + 1, 4, "destination wrap around");
    /* Copies backwards if copying forwards would overwrite elements that are still to be
     * read. */
    bool back = to > from && to <= last && (other == 1 || lua_compare(L, 1, 5, LUA_OPEQ));
    for (lua_Integer k = 0; k < n; k++) {
      lua_Integer i = back ? n - 1 - k : k;
      shift(L, 1, from + i, other, to + i);
    }
  }
  lua_pushvalue(L, other);
  return 1;
}

/* ---- concat, unpack ---- */

static void add_item(lua_State *L, luaL_Buffer *b, lua_Integer i) {
  lua_geti(L, 1, i);
  if (!lua_isstring(L, -1))
    luaL_error(L, "invalid value (at index %I) in table for 'concat'", (LUAI_UACINT)i);
  lib_charge(L, 1 + (int64_t)lua_rawlen(L, -1) / 64);
  luaL_addvalue(b);
}

static int concat(lua_State *L) {
  size_t n;
  lua_Integer last = length(L, 1, reads);
  const char *sep = luaL_optlstring(L, 2, "", &n);
  lua_Integer i = luaL_optinteger(L, 3, 1);
  last = luaL_optinteger(L, 4, last);
  luaL_Buffer b;
  luaL_buffinit(L, &b);
  for (; i <= last; i++) {
    add_item(L, &b, i);
    if (i == last)
      break; /* `last` may be the largest integer, so i must not go beyond it */
    luaL_addlstring(&b, sep, n);
  }
  luaL_pushresult(&b);
  return 1;
}

static int unpack(lua_State *L) {
  lua_Integer i = luaL_optinteger(L, 2, 1);
  lua_Integer last = lua_isnoneornil(L, 3) ? list_len(L, 1) : luaL_checkinteger(L, 3);
  if (i > last) return 0;
  lua_Unsigned n = (lua_Unsigned)last - (lua_Unsigned)i;
  if (n >= INT_MAX || !lua_checkstack(L, (int)n + 1))
    return luaL_error(L, "too many results to unpack");
  for (lua_Unsigned k = 0; k <= n; k++) {
    lib_charge(L, 1);
    lua_geti(L, 1, (lua_Integer)((lua_Unsigned)i + k));
  }
  return (int)n + 1;
}

/* ---- sort ---- */

/* Whether the value on top comes before the one below it; both stay. */
static bool before(lua_State *L) {
  lib_charge(L, 4);
  if (lua_isnil(L, 2)) return lua_compare(L, -1, -2, LUA_OPLT);
  lua_pushvalue(L, 2);
  lua_pushvalue(L, -2);
  lua_pushvalue(L, -4);
  lua_call(L, 2, 1);
  bool yes = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return yes;
}

/* Merges the sorted ranges [lo, mid) and [mid, hi) of the list at `from` into the list at
 * `to`. Of equal elements, the left one comes first. */
static void merge(lua_State *L, int from, int to, lua_Integer lo, lua_Integer mid,
                  lua_Integer hi) {
  lua_Integer a = lo, b = mid;
  for (lua_Integer k = lo; k < hi; k++) {
    lua_rawgeti(L, from, a < mid ? a : b);
    if (a < mid && b < hi) {
      lua_rawgeti(L, from, b);
      if (before(L)) {
        b++;
        lua_remove(L, -2);
      } else {
        a++;
        lua_pop(L, 1);
      }
    } else if (a < mid) {
      a++;
    } else {
      b++;
    }
    lua_rawseti(L, to, k);
  }
}

/* Merge sort between two lists, at indices 3 and 4; the result is copied back at the end.
 */
static int sort(lua_State *L) {
  lua_Integer n = length(L, 1, writes);
  if (n < 2) return 0;
  luaL_argcheck(L, n < INT_MAX, 1, "array too big");
  if (!lua_isnoneornil(L, 2)) luaL_checktype(L, 2, LUA_TFUNCTION);
  lua_settop(L, 2);
  lua_newtable(L);
  lua_newtable(L);
  int from = 3, to = 4;
  for (lua_Integer i = 1; i <= n; i++) shift(L, 1, i, from, i);
  for (lua_Integer run = 1; run < n; run *= 2) {
    for (lua_Integer lo = 1; lo <= n; lo += 2 * run)
      merge(L, from, to, lo, MIN(lo + run, n + 1), MIN(lo + 2 * run, n + 1));
    from = to, to = 7 - from;
  }
  for (lua_Integer i = 1; i <= n; i++) shift(L, from, i, 1, i);
  return 0;
}

void lib_table(lua_State *L, const Meter *m) {
  static const luaL_Reg functions[] = {
      {"concat", concat}, {"insert", insert}, {"move", move}, {"remove", remove_item},
      {"sort", sort},     {"unpack", unpack}, {NULL, NULL}};
  lua_pushlightuserdata(L, (void *)m);
  luaL_setfuncs(L, functions, 1);
}
