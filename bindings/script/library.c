/* library.c - the environment of stdlib's Lua in a script's state; see library.h. */
#include "library.h"

#include <lauxlib.h>

#include "bindings/plan_table/function_export.h"
#include "bindings/sandbox/stdlib.h"

static const char files_key = 'f'; /* registry: name -> value; 1: the environment */
#define OWN_FILE "@stdlib/"

/* ---- functions of the library besides Lua's ---- */

static int use(lua_State *L) {
  library_push(L, luaL_checkstring(L, 1));
  return 1;
}

/* Files that plans read, too, such as models, name others so: "weft.models.config" is the
 * file models/config. */
static int require(lua_State *L) {
  const char *name = luaL_checkstring(L, 1);
  if (strncmp(name, "weft.", 5) != 0) return luaL_error(L, "the library has no %s", name);
  library_push(L, luaL_gsub(L, name + 5, ".", "/"));
  return 1;
}

/* Raises an error without a position, because positions in the library mean nothing to
 * callers. */
int library_error(lua_State *L, const char *fmt, ...) {
  lua_Debug ar;
  bool found = false;
  va_list ap;
  luaL_checkstack(L, 6, NULL);
  for (int level = 0; !found && lua_getstack(L, level, &ar); level++) {
    lua_getinfo(L, "Sl", &ar);
    found = ar.currentline > 0 && strncmp(ar.source, OWN_FILE, strlen(OWN_FILE)) != 0;
  }
  if (found)
    lua_pushfstring(L, "%s:%d: ", ar.short_src, ar.currentline);
  else
    lua_pushliteral(L, "");
  va_start(ap, fmt);
  lua_pushvfstring(L, fmt, ap);
  va_end(ap);
  lua_concat(L, 2);
  return lua_error(L);
}

static int fail(lua_State *L) { return library_error(L, "%s", luaL_checkstring(L, 1)); }

static int expected(lua_State *L) {
  const char *type = luaL_checkstring(L, 2);
  if (strcmp(luaL_typename(L, 1), type) == 0) return 0;
  return library_error(L, "bad argument to '%s' (%s expected, got %s)",
                       luaL_checkstring(L, 3), type, luaL_typename(L, 1));
}

static int suggest(lua_State *L) {
  const char *text = luaL_checkstring(L, 1);
  luaL_checktype(L, 2, LUA_TTABLE);
  int n = (int)lua_rawlen(L, 2);
  const char **name = lua_newuserdatauv(L, sizeof *name * (size_t)(n + 1), 0);
  for (int i = 0; i < n; i++, lua_pop(L, 1)) {
    if (lua_rawgeti(L, 2, i + 1) != LUA_TSTRING) luaL_argerror(L, 2, "names expected");
    name[i] = lua_tostring(L, -1);
  }
  lua_pushstring(L, name_suggest(text, name, n));
  return 1;
}

static int keys(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  if (!sorted_keys(L, 1)) lua_pushnil(L);
  return 1;
}

static int origin(lua_State *L) {
  uint64_t hash;
  if (export_is(L, 1)) {
    lua_pushstring(L, export_place(L, 1, &hash));
    lua_pushinteger(L, (lua_Integer)hash);
  } else {
    lua_pushnil(L);
    lua_pushstring(L, known_name(L, 1));
  }
  return 2;
}

static int builder(lua_State *L) {
  lua_pushstring(L, lua_istable(L, 1) ? mark_kind(L, 1) : NULL);
  return 1;
}

static int box(lua_State *L) {
  luaL_checktype(L, 2, LUA_TTABLE);
  lua_settop(L, 2);
  lua_newuserdatauv(L, 0, 1);
  lua_pushvalue(L, 1);
  lua_setiuservalue(L, -2, 1);
  lua_pushvalue(L, 2);
  lua_setmetatable(L, -2);
  return 1;
}

static int unbox(lua_State *L) {
  luaL_checktype(L, 1, LUA_TUSERDATA);
  lua_getiuservalue(L, 1, 1);
  return 1;
}

/* ---- the environment ---- */

/* Copies the non-table fields of the table on top, which is popped, to the one below. */
static void copy(lua_State *L, bool functions_of_c) {
  int from = lua_gettop(L);
  for (lua_pushnil(L); lua_next(L, from); lua_settop(L, from + 1)) {
    bool wanted = functions_of_c ? lua_iscfunction(L, -1) : !lua_istable(L, -1);
    if (!wanted || lua_type(L, -2) != LUA_TSTRING) continue;
    lua_pushvalue(L, -2);
    lua_insert(L, -2);
    lua_rawset(L, from - 1);
  }
  lua_pop(L, 1);
}

static void push_environment(lua_State *L) {
  static const luaL_Reg own[] = {
      {"use", use},         {"fail", fail}, {"expected", expected},
      {"suggest", suggest}, {"keys", keys}, {"origin", origin},
      {"builder", builder}, {"box", box},   {"unbox", unbox},
      {"require", require}, {NULL, NULL}};
  static const char *const libraries[] = {"string", "table", "math", "utf8", "debug"};
  lua_newtable(L);
  lua_pushglobaltable(L);
  copy(L, true);
  for (int i = 0; i < LEN(libraries); i++) {
    lua_newtable(L);
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    lua_getfield(L, -1, libraries[i]);
    lua_remove(L, -2);
    if (lua_istable(L, -1))
      copy(L, false);
    else
      lua_pop(L, 1);
    lua_setfield(L, -2, libraries[i]);
  }
  luaL_setfuncs(L, own, 0);
}

/* Pushes the table of files. */
static void push_files(lua_State *L) {
  luaL_checkstack(L, 10, "not enough memory");
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &files_key) == LUA_TTABLE) return;
  lua_pop(L, 1);
  lua_newtable(L);
  push_environment(L);
  lua_rawseti(L, -2, 1);
  lua_pushvalue(L, -1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &files_key);
}

void library_open(lua_State *L) {
  push_files(L);
  lua_pop(L, 1);
}

void library_push(lua_State *L, const char *name) {
  push_files(L);
  if (lua_getfield(L, -1, name) == LUA_TNIL) {
    const StdlibFile *f = stdlib_find(name);
    if (!f) luaL_error(L, "the library has no file %s", name);
    lua_pop(L, 1);
    const char *chunk = lua_pushfstring(L, OWN_FILE "%s.lua", name);
    if (chunk_load(L, f->text, f->n, chunk) != LUA_OK) lua_error(L);
    lua_rawgeti(L, -3, 1);
    lua_setupvalue(L, -2, 1); /* _ENV is the first upvalue of every chunk */
    lua_call(L, 0, 1);
    lua_remove(L, -2);
    lua_pushvalue(L, -1);
    lua_setfield(L, -3, name);
  }
  lua_remove(L, -2);
}

void library_provide(lua_State *L, const char *name) {
  push_files(L);
  lua_insert(L, -2);
  lua_setfield(L, -2, name);
  lua_pop(L, 1);
}
