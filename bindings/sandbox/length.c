/* length.c - see length.h. The code of a plan has "mark ^ x" in place of #x
 * (length_code.c): since the mark is a string that is no number, `^` calls the metamethod
 * __pow of strings, which is defined here. */
#include "length.h"
#include "sandbox.h"

#include <lauxlib.h>
#include <limits.h>

static const char open_key = 'l'; /* registry: true in states of plans */

static bool has(lua_State *L, int t, lua_Integer i) {
  bool yes = lua_rawgeti(L, t, i) != LUA_TNIL;
  lua_pop(L, 1);
  return yes;
}

lua_Integer table_length(lua_State *L, int t) {
  t = lua_absindex(L, t);
  lua_Integer low = 0, high = 1;
  while (has(L, t, high)) {
    low = high;
    if (high == LUA_MAXINTEGER) return high;
    high = high > LUA_MAXINTEGER / 2 ? LUA_MAXINTEGER : 2 * high;
  }
  while (high - low > 1) {
    lua_Integer middle = low + (high - low) / 2;
    if (has(L, t, middle))
      low = middle;
    else
      high = middle;
  }
  return low;
}

lua_Integer list_length(lua_State *L, int t) {
  t = lua_absindex(L, t);
  lua_Integer keys = 0;
  for (lua_pushnil(L); state_next(L, t); lua_pop(L, 1)) keys++;
  for (lua_Integer i = 1; i <= keys; i++)
    if (!has(L, t, i)) return -1;
  return keys;
}

static int given(lua_State *L, int status, lua_KContext ctx) { return 1; }

/* #x: x is at index 2, the mark at 1. */
static int length(lua_State *L) {
  if (lua_type(L, 2) == LUA_TSTRING) {
    lua_pushinteger(L, (lua_Integer)lua_rawlen(L, 2));
  } else if (luaL_getmetafield(L, 2, "__len") != LUA_TNIL) {
    lua_pushvalue(L, 2);
    lua_pushvalue(L, 2);
    lua_callk(L, 2, 1, 0, given);
  } else if (lua_istable(L, 2)) {
    lua_pushinteger(L, table_length(L, 2));
  } else {
    const char *type = luaL_typename(L, 2);
    if (luaL_getmetafield(L, 2, "__name") == LUA_TSTRING) type = lua_tostring(L, -1);
    return luaL_error(L, "attempt to get length of a %s value%s", type,
                      lua_tostring(L, 1) + LENGTH_MARK_BYTES);
  }
  return 1;
}

/* __pow of strings; upvalue: Lua's own. */
static int power(lua_State *L) {
  size_t n;
  const char *s = lua_type(L, 1) == LUA_TSTRING ? lua_tolstring(L, 1, &n) : NULL;
  if (s && n >= LENGTH_MARK_BYTES && memcmp(s, LENGTH_MARK, LENGTH_MARK_BYTES) == 0)
    return length(L);
  lua_settop(L, 2);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, 2, 1);
  return 1;
}

static int rawlen(lua_State *L) {
  luaL_argexpected(L, lua_istable(L, 1) || lua_type(L, 1) == LUA_TSTRING, 1,
                   "table or string");
  lua_pushinteger(L,
                  lua_istable(L, 1) ? table_length(L, 1) : (lua_Integer)lua_rawlen(L, 1));
  return 1;
}

void length_open(lua_State *L, int globals, int text_metatable) {
  globals = lua_absindex(L, globals);
  text_metatable = lua_absindex(L, text_metatable);
  lua_getfield(L, text_metatable, "__pow");
  lua_pushcclosure(L, power, 1);
  lua_setfield(L, text_metatable, "__pow");
  lua_pushcfunction(L, rawlen);
  lua_setfield(L, globals, "rawlen");
  lua_pushboolean(L, 1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &open_key);
}

bool length_is_open(lua_State *L) {
  bool open = lua_rawgetp(L, LUA_REGISTRYINDEX, &open_key) == LUA_TBOOLEAN;
  lua_pop(L, 1);
  return open;
}
