/* sandbox.c - the globals of a plan: what is kept of Lua's libraries, what is replaced
 * so that a plan means the same on every run, and errors for undeclared names. */
#include "lang.h"

#include <lualib.h>

enum { REP_MAX = 16 << 20 };            /* bytes that string.rep may make */
static const double pattern_work = 1e8; /* steps that a pattern may take at worst */

/* ---- text without addresses ---- */

const char *plain_tostring(lua_State *L, int idx) {
  int type = lua_type(L, idx);
  bool named = type == LUA_TTABLE || type == LUA_TFUNCTION || type == LUA_TTHREAD ||
               type == LUA_TUSERDATA || type == LUA_TLIGHTUSERDATA;
  if (!named) return luaL_tolstring(L, idx, NULL);
  if (luaL_getmetafield(L, idx, "__tostring") != LUA_TNIL) {
    lua_pop(L, 1);
    return luaL_tolstring(L, idx, NULL);
  }
  if (luaL_getmetafield(L, idx, "__name") == LUA_TSTRING) return lua_tostring(L, -1);
  return lua_pushstring(L, lua_typename(L, type));
}

static int tostring(lua_State *L) {
  luaL_checkany(L, 1);
  plain_tostring(L, 1);
  return 1;
}

static int print(lua_State *L) {
  LangState *s = state_of(L);
  int n = lua_gettop(L);
  luaL_Buffer b;
  luaL_buffinit(L, &b);
  for (int i = 1; i <= n; i++) {
    if (i > 1) luaL_addchar(&b, '\t');
    plain_tostring(L, i);
    luaL_addvalue(&b);
  }
  luaL_pushresult(&b);
  if (s->opt->print && !s->quiet) s->opt->print(s->opt->ud, lua_tostring(L, -1));
  return 0;
}

/* Upvalue: string.format. Refuses %p and hands it texts instead of things that it would
 * print with their addresses. */
static int format(lua_State *L) {
  const char *f = luaL_checkstring(L, 1);
  for (const char *p = f; *p; p++) {
    if (*p != '%') continue;
    p++;
    while (*p && strchr("-+ #0123456789.", *p))
      p++;
    if (*p == 'p') return luaL_error(L, "string.format: %%p is not available in a plan");
    if (!*p) break;
  }
  int n = lua_gettop(L);
  for (int i = 2; i <= n; i++) {
    int type = lua_type(L, i);
    if (type == LUA_TTABLE || type == LUA_TFUNCTION || type == LUA_TTHREAD ||
        type == LUA_TUSERDATA) {
      plain_tostring(L, i);
      lua_replace(L, i);
    }
  }
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, n, 1);
  return 1;
}

/* ---- functions that could run too long ---- */

static int rep(lua_State *L) {
  size_t len, sep = 0;
  luaL_checklstring(L, 1, &len);
  lua_Number n = (lua_Number)luaL_checkinteger(L, 2);
  luaL_optlstring(L, 3, "", &sep);
  if (n > 0 && n * (lua_Number)(len + sep) > REP_MAX)
    return luaL_error(L, "string.rep: the result would have more than %d MiB",
                      REP_MAX >> 20);
  int args = lua_gettop(L);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, args, 1);
  return 1;
}

/* The number of ways in which the repetitions of a pattern can share a text of n bytes:
 * the worst case of Lua's backtracking matcher. */
static double pattern_cost(const char *p, size_t plen, size_t n) {
  int loops = plen && *p == '^' ? 0 : 1;
  for (size_t i = 0; i < plen; i++) {
    if (p[i] == '%') {
      i++;
      if (i < plen && (p[i] == 'b' || (p[i] >= '1' && p[i] <= '9'))) loops++;
    } else if (strchr("*+-?", p[i]) && p[i]) {
      loops++;
    }
  }
  double cost = 1;
  for (int k = 1; k <= loops && cost < 1e30; k++)
    cost *= ((double)n + k) / k;
  return cost;
}

/* Upvalues: a matching function of `string`, its name. */
static int match(lua_State *L) {
  size_t n, plen;
  luaL_checklstring(L, 1, &n);
  const char *p = luaL_checklstring(L, 2, &plen);
  const char *name = lua_tostring(L, lua_upvalueindex(2));
  bool plain = str_eq(name, "find") && lua_toboolean(L, 4);
  if (!plain && pattern_cost(p, plen, n) > pattern_work)
    return luaL_error(L, "string.%s: this pattern may take too long on %d bytes", name,
                      (int)MIN(n, (size_t)INT32_MAX));
  int args = lua_gettop(L);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, args, LUA_MULTRET);
  return lua_gettop(L);
}

static int guarded_end(lua_State *L, int status, lua_KContext ctx) {
  state_rethrow(L);
  return lua_gettop(L);
}

/* Upvalue: pcall, xpcall or another function that catches errors. A limit that was hit
 * inside is raised again. */
static int guarded(lua_State *L) {
  int args = lua_gettop(L);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_callk(L, args, LUA_MULTRET, 0, guarded_end);
  return guarded_end(L, LUA_OK, 0);
}

/* Upvalue: the message handler of the plan. After a limit it is not called: hooks are off
 * while an error that a hook raised is handled, so nothing would stop it. */
static int handler(lua_State *L) {
  if (state_of(L)->stop != STOP_NONE) return 1;
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, 1);
  return 1;
}

static int guarded_xpcall(lua_State *L) {
  if (lua_gettop(L) >= 2) {
    lua_pushvalue(L, 2);
    lua_pushcclosure(L, handler, 1);
    lua_replace(L, 2);
  }
  return guarded(L);
}

/* ---- functions whose results could differ between runs ---- */

static int randomseed(lua_State *L) {
  luaL_checkinteger(L, 1);
  lua_settop(L, 2);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, lua_isnil(L, 3) ? 1 : 2, 0);
  return 0;
}

/* Finalizers and weak tables would show when memory is collected. */
static int set_metatable(lua_State *L) {
  if (lua_istable(L, 2)) {
    lua_settop(L, 2);
    if (lua_getfield(L, 2, "__gc") != LUA_TNIL ||
        lua_getfield(L, 2, "__mode") != LUA_TNIL)
      return luaL_error(L, "setmetatable: __gc and __mode are not available in a plan");
    lua_settop(L, 2);
  }
  int args = lua_gettop(L);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, args, 1);
  return 1;
}

/* ---- undeclared names ---- */

/* Upvalue: the table with the globals. */
static int unknown_global(lua_State *L) {
  lua_settop(L, 2);
  lua_pushvalue(L, 2);
  if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL) return 1;
  const char *name = lua_tostring(L, 2), *names[64], *near;
  if (str_eq(name, "weft"))
    return luaL_error(L, "unknown global 'weft' (write: local weft = require \"weft\")");
  int n = 0;
  for (lua_pushnil(L); lua_next(L, lua_upvalueindex(1)) && n < LEN(names); lua_pop(L, 1))
    if (lua_type(L, -2) == LUA_TSTRING) names[n++] = lua_tostring(L, -2);
  near = name ? value_suggest(name, names, n) : NULL;
  if (near) return luaL_error(L, "unknown global '%s' (did you mean '%s'?)", name, near);
  return luaL_error(L, "unknown global '%s'", name ? name : "?");
}

static int assign_global(lua_State *L) {
  const char *name = luaL_tolstring(L, 2, NULL);
  return luaL_error(L, "assignment to global '%s' (use 'local %s = ...')", name, name);
}

/* ---- the table of globals ---- */

static const char *const kept[] = {"assert",   "error",  "getmetatable", "ipairs",
                                   "rawequal", "rawget", "rawlen",       "select",
                                   "tonumber", "type",   "_VERSION",     NULL};

/* Replaces field `name` of the table on top by a closure over the old value. */
static void wrap(lua_State *L, const char *name, lua_CFunction fn) {
  lua_getfield(L, -1, name);
  lua_pushstring(L, name);
  lua_pushcclosure(L, fn, 2);
  lua_setfield(L, -2, name);
}

/* Every function that a library keeps; what a build of Lua has besides is dropped. */
static const char string_names[] = " byte char find format gmatch gsub len lower match "
                                   "pack packsize rep reverse sub unpack"
                                   " upper ";
static const char table_names[] = " concat insert move pack remove sort unpack ";
static const char utf8_names[] = " char charpattern codepoint codes len offset ";
static const char math_names[] =
    " abs acos asin atan ceil cos deg exp floor fmod huge log max maxinteger min "
    "mininteger"
    " modf pi rad random randomseed sin sqrt tan tointeger type ult ";
static const char coroutine_names[] =
    " close create isyieldable resume running status wrap yield ";

static void keep_only(lua_State *L, const char *names) {
  for (lua_pushnil(L); lua_next(L, -2);) {
    const char *word = lua_pushfstring(L, " %s ", lua_tostring(L, -2));
    bool keep = strstr(names, word) != NULL;
    lua_pop(L, 2);
    if (keep) continue;
    lua_pushvalue(L, -1);
    lua_pushnil(L);
    lua_rawset(L, -4);
  }
}

static void open_library(lua_State *L, const char *name, lua_CFunction open,
                         const char *names) {
  luaL_requiref(L, name, open, 0);
  keep_only(L, names);
}

static void open_base(lua_State *L, int env) {
  luaL_requiref(L, "_G", luaopen_base, 0);
  for (int i = 0; kept[i]; i++) {
    lua_getfield(L, -1, kept[i]);
    lua_setfield(L, env, kept[i]);
  }
  static const char *const wrapped[] = {"pcall", "xpcall", "setmetatable"};
  wrap(L, "pcall", guarded);
  wrap(L, "xpcall", guarded_xpcall);
  wrap(L, "setmetatable", set_metatable);
  for (int i = 0; i < LEN(wrapped); i++) {
    lua_getfield(L, -1, wrapped[i]);
    lua_setfield(L, env, wrapped[i]);
  }
  lua_pop(L, 1);
  static const luaL_Reg own[] = {{"pairs", sorted_pairs},
                                 {"tostring", tostring},
                                 {"print", print},
                                 {"require", modules_require},
                                 {NULL, NULL}};
  lua_pushvalue(L, env);
  luaL_setfuncs(L, own, 0);
  lua_pop(L, 1);
}

static void open_string(lua_State *L, int env) {
  open_library(L, "string", luaopen_string, string_names);
  wrap(L, "format", format);
  wrap(L, "rep", rep);
  wrap(L, "find", match);
  wrap(L, "match", match);
  wrap(L, "gmatch", match);
  wrap(L, "gsub", match);
  lua_setfield(L, env, "string");
  lua_pushliteral(L, "");
  lua_getmetatable(L, -1);
  lua_pushliteral(L, "string");
  lua_setfield(L, -2, "__metatable");
  lua_pop(L, 2);
}

static void open_others(lua_State *L, int env) {
  open_library(L, "table", luaopen_table, table_names);
  lua_setfield(L, env, "table");
  open_library(L, "utf8", luaopen_utf8, utf8_names);
  lua_setfield(L, env, "utf8");
  open_library(L, "math", luaopen_math, math_names);
  lua_getfield(L, -1, "randomseed");
  lua_pushinteger(L, 0);
  lua_call(L, 1, 0);
  wrap(L, "randomseed", randomseed);
  lua_setfield(L, env, "math");
  open_library(L, "coroutine", luaopen_coroutine, coroutine_names);
  wrap(L, "resume", guarded);
  wrap(L, "close", guarded);
  lua_setfield(L, env, "coroutine");
}

void sandbox_open(lua_State *L) {
  lua_settop(L, 0);
  lua_newtable(L);
  open_base(L, 1);
  open_string(L, 1);
  open_others(L, 1);
  known_globals(L, 1);
  /* Chunks see an empty table in front of the real one: every write is noticed. */
  lua_newtable(L);
  lua_createtable(L, 0, 3);
  lua_pushvalue(L, 1);
  lua_pushcclosure(L, unknown_global, 1);
  lua_setfield(L, -2, "__index");
  lua_pushcfunction(L, assign_global);
  lua_setfield(L, -2, "__newindex");
  lua_pushliteral(L, "globals");
  lua_setfield(L, -2, "__metatable");
  lua_setmetatable(L, -2);
  known_add(L, "_G");
  lua_rawseti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
  lua_settop(L, 0);
}
