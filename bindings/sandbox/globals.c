/* globals.c - the globals of a plan: which functions of Lua's libraries it has,
 * replacements that make a plan mean the same in every run, and errors for undeclared
 * names. */
#include "sandbox.h"
#include "length.h"
#include "lib.h"

#include <lualib.h>

static const Meter meter = {state_charge, 16 << 20};

/* ---- strings without addresses ---- */

const char *plain_tostring(lua_State *L, int idx) {
  int type = lua_type(L, idx);
  bool named = type == LUA_TTABLE || type == LUA_TFUNCTION || type == LUA_TTHREAD ||
               type == LUA_TUSERDATA || type == LUA_TLIGHTUSERDATA;
  if (!named) return luaL_tolstring(L, idx, NULL);
  if (luaL_getmetafield(L, idx, "__tostring") != LUA_TNIL) {
    lua_pop(L, 1);
    return luaL_tolstring(L, idx, NULL);
  }
  switch (luaL_getmetafield(L, idx, "__name")) {
  case LUA_TSTRING: return lua_tostring(L, -1);
  case LUA_TNIL: break;
  default: lua_pop(L, 1);
  }
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

/* Upvalue: string.format. Refuses %p and passes values that would be printed with their
 * addresses as strings. */
static int format(lua_State *L) {
  size_t n;
  const char *f = luaL_checklstring(L, 1, &n);
  for (const char *p = f, *end = f + n; p < end; p++) { /* as Lua does, beyond a NUL */
    if (*p != '%') continue;
    p++;
    while (*p && strchr("-+ #0123456789.", *p)) p++;
    if (*p == 'p') return luaL_error(L, "string.format: %%p is not available in a plan");
  }
  int args = lua_gettop(L);
  for (int i = 2; i <= args; i++) {
    int type = lua_type(L, i);
    if (type == LUA_TTABLE || type == LUA_TFUNCTION || type == LUA_TTHREAD ||
        type == LUA_TUSERDATA) {
      plain_tostring(L, i);
      lua_replace(L, i);
    }
  }
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, args, 1);
  return 1;
}

/* ---- functions whose work depends on their arguments ---- */

/* Upvalue: a function of Lua that inspects each byte of its arguments. Counts these bytes
 * as steps. */
static int counted(lua_State *L) {
  int args = lua_gettop(L);
  int64_t bytes = 0;
  for (int i = 1; i <= args; i++)
    if (lua_type(L, i) == LUA_TSTRING) bytes += (int64_t)lua_rawlen(L, i);
  state_charge(L, 1 + args / 4 + bytes / 8);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, args, LUA_MULTRET);
  return lua_gettop(L);
}

/* ---- functions that catch errors ---- */

static int guarded_end(lua_State *L, int status, lua_KContext ctx) {
  state_rethrow(L);
  return lua_gettop(L);
}

/* Upvalue: pcall, xpcall or another function that catches errors. If a limit was hit
 * inside, its error is raised again. */
static int guarded(lua_State *L) {
  int args = lua_gettop(L);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_callk(L, args, LUA_MULTRET, 0, guarded_end);
  return guarded_end(L, LUA_OK, 0);
}

/* Upvalue: the plan's message handler. It is not called after a limit was hit: hooks are
 * off while an error of a hook is handled, so nothing would stop it. */
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

/* Refuses finalizers and weak tables, which would show when memory is collected. */
static int set_metatable(lua_State *L) {
  if (lua_istable(L, 2)) {
    lua_settop(L, 2);
    lua_pushliteral(L, "__gc");
    lua_pushliteral(L, "__mode");
    if (lua_rawget(L, 2) != LUA_TNIL || (lua_pop(L, 1), lua_rawget(L, 2)) != LUA_TNIL)
      return luaL_error(L, "setmetatable: __gc and __mode are not available in a plan");
    lua_settop(L, 2);
    metatable_note(L, 2);
  }
  int args = lua_gettop(L);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, args, 1);
  return 1;
}

/* ---- undeclared names ---- */

const char *name_suggest(const char *text, const char *const *names, int n) {
  size_t len = strlen(text);
  const char *found = NULL;
  for (int i = 0; len >= 3 && i < n; i++)
    if (strncmp(names[i], text, len) == 0 && (!found || strcmp(names[i], found) < 0))
      found = names[i];
  return found ? found : str_nearest(text, names, n);
}

/* What is meant by a global that there is not; pushed, or NULL. */
static const char *global_hint(lua_State *L, const char *name) {
  static const struct {
    const char *name, *hint;
  } hints[] = {
      {"weft", "write: local weft = require \"weft\""},
      {"True", "write true"},
      {"False", "write false"},
      {"None", "write nil, or leave the field out"},
      {"null", "write nil, or leave the field out"},
      {"os", "a plan sees no environment: weft.var(\"NAME\", DEFAULT) and -D NAME=VALUE"},
      {"io", "a plan reads no files; weft.text and weft.tokens name them"},
      {"arg", "write weft.var(\"NAME\", DEFAULT), and -D NAME=VALUE"},
      {"torch", "types are names: \"bf16\""},
      {"dict", "a table is written { NAME = VALUE }"}};
  for (int i = 0; name && i < LEN(hints); i++)
    if (strcmp(hints[i].name, name) == 0) return hints[i].hint;
  if (!name) return NULL;
  const char *builder = lua_pushfstring(L, "weft.%s", name);
  if (known_push(L, builder)) return lua_pushfstring(L, "write %s", builder);
  return NULL;
}

/* Upvalue: the table of globals. */
static int unknown_global(lua_State *L) {
  lua_settop(L, 2);
  lua_pushvalue(L, 2);
  if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL) return 1;
  const char *name = lua_tostring(L, 2), *names[64], *near;
  const char *hint = global_hint(L, name);
  if (hint) return luaL_error(L, "unknown global '%s' (%s)", name, hint);
  int n = 0;
  for (lua_pushnil(L); state_next(L, lua_upvalueindex(1)) && n < LEN(names);
       lua_pop(L, 1))
    if (lua_type(L, -2) == LUA_TSTRING) names[n++] = lua_tostring(L, -2);
  near = name ? name_suggest(name, names, n) : NULL;
  if (near) return luaL_error(L, "unknown global '%s' (did you mean '%s'?)", name, near);
  if (!name) return luaL_error(L, "unknown global '?'");
  return luaL_error(L, "unknown global '%s' (a local, or \"%s\" if it is a name)", name,
                    name);
}

static int assign_global(lua_State *L) {
  const char *name = plain_tostring(L, 2);
  if (strcmp(name, "plan") == 0)
    return luaL_error(L, "assignment to global 'plan' (write return weft.plan { ... })");
  return luaL_error(L, "assignment to global '%s' (use 'local %s = ...')", name, name);
}

/* ---- the table of globals ---- */

static const char *const kept[] = {"assert",   "error",  "getmetatable", "ipairs",
                                   "rawequal", "rawget", "rawlen",       "type",
                                   "_VERSION", NULL};

/* Replaces field `name` of the table on top by a closure over its old value. */
static void wrap(lua_State *L, const char *name, lua_CFunction fn) {
  lua_getfield(L, -1, name);
  lua_pushstring(L, name);
  lua_pushcclosure(L, fn, 2);
  lua_setfield(L, -2, name);
}

/* ---- read-only libraries ---- */

/* Upvalue: the functions of the library. */
static int sealed_pairs(lua_State *L) {
  lua_settop(L, 0);
  lua_pushvalue(L, lua_upvalueindex(1));
  return sorted_pairs(L);
}

static int assign_sealed(lua_State *L) {
  return luaL_error(L, "the libraries of Lua cannot be changed in a plan");
}

/* Makes the library on top a read-only field `name` of the globals at env, behind an
 * empty table. The library of weft, which runs beside the plan, uses the same table. */
static void seal(lua_State *L, int env, const char *name) {
  known_library(L, name);
  lua_newtable(L);
  lua_createtable(L, 0, 4);
  lua_pushvalue(L, -3);
  lua_setfield(L, -2, "__index");
  lua_pushvalue(L, -3);
  lua_pushcclosure(L, sealed_pairs, 1);
  lua_setfield(L, -2, "__pairs");
  lua_pushcfunction(L, assign_sealed);
  lua_setfield(L, -2, "__newindex");
  lua_pushstring(L, name);
  lua_setfield(L, -2, "__metatable");
  lua_setmetatable(L, -2);
  lua_setfield(L, env, name);
  lua_pop(L, 1);
}

/* Makes every function of the table on top count its work. */
static void count_functions(lua_State *L) {
  const char *names[64];
  int n = 0;
  for (lua_pushnil(L); state_next(L, -2) && n < LEN(names); lua_pop(L, 1))
    if (lua_isfunction(L, -1)) names[n++] = lua_tostring(L, -2);
  for (int i = 0; i < n; i++) wrap(L, names[i], counted);
}

/* The functions of each library that a plan has; others, which a build of Lua may add,
 * are removed. */
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
  for (lua_pushnil(L); state_next(L, -2);) {
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
  static const char *const wrapped[] = {"pcall", "xpcall", "setmetatable", "tonumber",
                                        "select"};
  wrap(L, "pcall", guarded);
  wrap(L, "xpcall", guarded_xpcall);
  wrap(L, "setmetatable", set_metatable);
  wrap(L, "tonumber", counted);
  wrap(L, "select", counted);
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
  count_functions(L);
  wrap(L, "format", format);
  lib_string(L, &meter);
  seal(L, env, "string");
  lua_pushliteral(L, "");
  lua_getmetatable(L, -1);
  lua_pushliteral(L, "string");
  lua_setfield(L, -2, "__metatable");
  count_functions(L); /* arithmetic with strings */
  length_open(L, env, -1);
  lua_pop(L, 2);
}

static void open_others(lua_State *L, int env) {
  open_library(L, "table", luaopen_table, table_names);
  lib_table(L, &meter);
  seal(L, env, "table");
  open_library(L, "utf8", luaopen_utf8, utf8_names);
  count_functions(L);
  seal(L, env, "utf8");
  open_library(L, "math", luaopen_math, math_names);
  lua_getfield(L, -1, "randomseed");
  lua_pushinteger(L, 0);
  lua_call(L, 1, 0);
  wrap(L, "randomseed", randomseed);
  seal(L, env, "math");
  open_library(L, "coroutine", luaopen_coroutine, coroutine_names);
  lib_coroutine(L);
  wrap(L, "close", guarded);
  seal(L, env, "coroutine");
}

void sandbox_open(lua_State *L) {
  lua_settop(L, 0);
  lua_newtable(L);
  open_base(L, 1);
  open_string(L, 1);
  open_others(L, 1);
  known_globals(L, 1);
  /* Chunks see an empty table in front of the real one, so that every write is noticed.
   */
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
