/* transfer.c - copies a value from one Lua state to another.
 *
 * Into the state of a plan: what a script wrote gets a state of its own, together with
 * its functions, so that it is as sandboxed as a plan from a file. A function is dumped
 * and loaded; its upvalues are copied, and shared ones stay shared. If the table of
 * globals is among them, the globals that it may name, which are constants of its code,
 * are copied as well. Values that every state has, such as library functions, are found
 * by name.
 *
 * Out of the state of a plan, to a script: plain data without metatables. A function
 * becomes a stand-in that cannot be called (function_export.c).
 *
 * No call that may raise is made in the state that is read: only calls that neither
 * allocate nor check. */
#include "function_export.h"
#include "bindings/sandbox/length.h"

#include <stdio.h>

enum { MAX_NEST = 100 };

typedef struct Transfer {
  lua_State *from, *to;
  int memo;  /* index in `to`: address in `from` -> the copy */
  int owner; /* index in `to` of the object of the plan that is read, or 0 */
  int nest;
  TextBuf where;
} Transfer;

static void copy(Transfer *t, int idx);

static int refuse(Transfer *t, const char *what) {
  return luaL_error(t->to, "%s is %s, which cannot be copied into a plan", t->where.s,
                    what);
}

/* ---- path of the current value, for messages ---- */

static size_t enter(Transfer *t, const char *fmt, const char *name) {
  size_t was = t->where.n;
  textbuf_printf(&t->where, fmt, name);
  return was;
}

static size_t enter_key(Transfer *t, int key) {
  char number[32];
  if (lua_type(t->from, key) == LUA_TSTRING)
    return enter(t, t->where.n ? ".%s" : "%s", lua_tostring(t->from, key));
  snprintf(number, sizeof number, "%.14g", lua_tonumber(t->from, key));
  return enter(t, "[%s]", number);
}

static void leave(Transfer *t, size_t was) {
  t->where.n = was;
  t->where.s[was] = 0;
}

/* ---- values that are already copied ---- */

static bool push_copied(Transfer *t, const void *address) {
  if (lua_rawgetp(t->to, t->memo, address) != LUA_TNIL) return true;
  lua_pop(t->to, 1);
  return false;
}

/* Records the copy on top of `to`, which stays there. */
static void note_copy(Transfer *t, const void *address) {
  lua_pushvalue(t->to, -1);
  lua_rawsetp(t->to, t->memo, address);
}

/* ---- values that every state has ---- */

static bool push_same(Transfer *t, const char *name) {
  if (known_push(t->to, name)) return true;
  if (strncmp(name, "weft", 4) == 0 && known_push(t->to, "require")) {
    /* The other state has not loaded the table weft yet. */
    lua_pushliteral(t->to, "weft");
    lua_call(t->to, 1, 1);
    lua_pop(t->to, 1);
    if (known_push(t->to, name)) return true;
  }
  refuse(t, name);
  return false;
}

/* ---- tables ---- */

/* Copies the value at the top of `from` and pops it. */
static void copy_top(Transfer *t) {
  copy(t, lua_gettop(t->from));
  lua_pop(t->from, 1);
}

/* Metatables with finalizers or weak keys are refused: they would show when memory is
 * collected. */
static void check_metatable(Transfer *t) {
  static const char *const refused[] = {"__gc", "__mode"};
  for (int i = 0; i < LEN(refused); i++) {
    lua_pushstring(t->to, refused[i]);
    if (lua_rawget(t->to, -2) != LUA_TNIL) refuse(t, "a table with __gc or __mode");
    lua_pop(t->to, 1);
  }
}

static void copy_table(Transfer *t, int idx) {
  lua_newtable(t->to);
  note_copy(t, lua_topointer(t->from, idx));
  for (lua_pushnil(t->from); lua_next(t->from, idx);) {
    int key = lua_gettop(t->from) - 1;
    size_t was = enter_key(t, key);
    copy(t, key);
    copy_top(t);
    lua_rawset(t->to, -3);
    leave(t, was);
  }
  if (!t->owner && lua_getmetatable(t->from, idx)) {
    copy_top(t);
    check_metatable(t);
    metatable_note(t->to, -1);
    lua_setmetatable(t->to, -2);
  }
  if (mark_push(t->from, idx)) {
    copy_top(t);
    mark_set(t->to, -2);
  }
}

/* ---- functions ---- */

static int add_code(lua_State *from, const void *p, size_t n, void *ud) {
  luaL_addlstring(ud, p, n);
  return 0;
}

/* Whether a function has the table of globals as an upvalue, at any depth. */
static bool sees_globals(lua_State *from, int idx) {
  bool found = false;
  lua_rawgeti(from, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
  for (int i = 1; !found && lua_getupvalue(from, idx, i); i++) {
    found = lua_rawequal(from, -1, -2);
    lua_pop(from, 1);
  }
  lua_pop(from, 1);
  return found;
}

/* Whether a name occurs in dumped code as a constant. In the format of Lua 5.4 the name
 * is preceded by the last byte of its length plus one, with the top bit set. Other bytes
 * may look the same: then one global too many is copied, but never one too few. */
static bool names(const char *code, size_t n, const char *name, size_t len) {
  char mark = (char)(((len + 1) & 0x7f) | 0x80);
  const char *end = code + n, *p = code;
  while ((size_t)(end - p) > len && (p = memchr(p, mark, (size_t)(end - p) - len)))
    if (memcmp(++p, name, len) == 0) return true;
  return false;
}

/* Pushes the table of globals of functions in `from`: in the state of a plan it is behind
 * an empty table. */
static void push_globals(lua_State *L) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
  if (!lua_getmetatable(L, -1)) return;
  lua_pushliteral(L, "__index");
  lua_rawget(L, -2);
  if (lua_iscfunction(L, -1) && lua_getupvalue(L, -1, 1)) lua_replace(L, -4);
  lua_pop(L, 2);
}

/* Whether to skip a global: the other state has that name, or must not get the value. */
static bool skip_global(Transfer *t, const char *name, int value) {
  lua_State *to = t->to;
  int type = lua_type(t->from, value), top = lua_gettop(to);
  if (type == LUA_TUSERDATA || type == LUA_TTHREAD) return true;
  push_globals(to);
  lua_pushstring(to, name);
  bool skip = lua_rawget(to, -2) != LUA_TNIL;
  const char *known = known_name(t->from, value);
  if (!skip && known) skip = strncmp(known, "weft", 4) != 0 && !known_push(to, known);
  lua_settop(to, top);
  return skip;
}

/* Copies the global whose name and value are on top of `from`. */
static void copy_global(Transfer *t) {
  lua_State *to = t->to;
  int value = lua_gettop(t->from);
  const char *name = lua_tostring(t->from, value - 1);
  size_t was = enter(t, " (which names the global '%s')", name);
  push_globals(to);
  lua_pushstring(to, name);
  copy(t, value);
  lua_rawset(to, -3);
  lua_pop(to, 1);
  leave(t, was);
}

static void copy_globals(Transfer *t, const char *code, size_t n) {
  lua_State *from = t->from;
  int top = lua_gettop(from);
  push_globals(from);
  for (lua_pushnil(from); lua_next(from, top + 1); lua_settop(from, top + 2)) {
    size_t len;
    if (lua_type(from, -2) != LUA_TSTRING) continue;
    const char *name = lua_tolstring(from, -2, &len);
    if (names(code, n, name, len) && !skip_global(t, name, top + 3)) copy_global(t);
  }
  lua_settop(from, top);
}

/* Joins upvalues that several functions share: memo[id] = { function, number }. */
static void copy_upvalue(Transfer *t, int idx, int i) {
  lua_State *to = t->to;
  int fn = lua_gettop(to);
  const void *id = lua_upvalueid(t->from, idx, i);
  if (push_copied(t, id)) {
    lua_rawgeti(to, -1, 1);
    lua_rawgeti(to, -2, 2);
    lua_upvaluejoin(to, fn, i, fn + 2, (int)lua_tointeger(to, -1));
    lua_settop(to, fn);
    return;
  }
  lua_createtable(to, 2, 0);
  lua_pushvalue(to, fn);
  lua_rawseti(to, -2, 1);
  lua_pushinteger(to, i);
  lua_rawseti(to, -2, 2);
  note_copy(t, id);
  lua_pop(to, 1);
  const char *name = lua_getupvalue(t->from, idx, i);
  size_t was = enter(t, " (which uses '%s')", name ? name : "?");
  copy_top(t);
  lua_setupvalue(to, fn, i);
  leave(t, was);
}

/* Pushes the function's code, with or without debug information. */
static const char *push_code(Transfer *t, int idx, bool strip, size_t *n) {
  luaL_Buffer b;
  luaL_buffinit(t->to, &b);
  lua_pushvalue(t->from, idx);
  lua_dump(t->from, add_code, &b, strip);
  lua_pop(t->from, 1);
  luaL_pushresult(&b);
  return lua_tolstring(t->to, -1, n);
}

static void copy_function(Transfer *t, int idx) {
  lua_State *to = t->to;
  size_t n;
  lua_Debug ar;
  if (lua_iscfunction(t->from, idx)) refuse(t, "a function in C");
  const char *code = push_code(t, idx, false, &n);
  code = length_code(to, code, &n);
  if (luaL_loadbufferx(to, code, n, "=function", "b") != LUA_OK) lua_error(to);
  lua_replace(to, -3);
  lua_pop(to, 1);
  note_copy(t, lua_topointer(t->from, idx));
  if (sees_globals(t->from, idx)) {
    code = push_code(t, idx, true, &n);
    copy_globals(t, code, n);
    lua_pop(to, 1);
  }
  lua_pushvalue(t->from, idx);
  lua_getinfo(t->from, ">u", &ar);
  for (int i = 1; i <= ar.nups; i++) copy_upvalue(t, idx, i);
}

/* ---- stand-ins of a plan's functions ---- */

/* Arguments: the transfer, its memo. Copies the value on top of the state `from`. */
static int copy_inner(lua_State *to) {
  Transfer t = *(Transfer *)lua_touserdata(to, 1);
  t.memo = 2;
  luaL_checkstack(to, 40, "not enough memory");
  copy(&t, lua_gettop(t.from));
  return 1;
}

/* Copies the plan's function that the stand-in at idx represents. */
static void copy_exported(Transfer *t, int idx) {
  const char *why = NULL;
  lua_State *plan = export_push_original(t->from, idx, &why);
  if (!plan) refuse(t, why);
  Transfer inner = *t;
  inner.from = plan;
  lua_pushcfunction(t->to, copy_inner);
  lua_pushlightuserdata(t->to, &inner);
  lua_pushvalue(t->to, t->memo);
  int top = lua_gettop(plan), status = lua_pcall(t->to, 2, 1, 0);
  lua_settop(plan, top - 1);
  if (status != LUA_OK) lua_error(t->to);
}

/* ---- any value ---- */

static void copy_object(Transfer *t, int idx) {
  if (t->owner && lua_isfunction(t->from, idx)) {
    export_function(t->from, idx, t->to, t->owner);
    return;
  }
  const char *name = t->owner ? NULL : known_name(t->from, idx);
  if (name ? push_same(t, name) : push_copied(t, lua_topointer(t->from, idx))) return;
  if (++t->nest > MAX_NEST || !lua_checkstack(t->from, 40))
    luaL_error(t->to, "%s is nested too deeply", t->where.s);
  luaL_checkstack(t->to, 40, "not enough memory");
  if (lua_istable(t->from, idx))
    copy_table(t, idx);
  else if (export_is(t->from, idx))
    copy_exported(t, idx);
  else
    copy_function(t, idx);
  t->nest--;
}

static void copy(Transfer *t, int idx) {
  lua_State *from = t->from;
  size_t n;
  switch (lua_type(from, idx)) {
  case LUA_TNIL: lua_pushnil(t->to); return;
  case LUA_TBOOLEAN: lua_pushboolean(t->to, lua_toboolean(from, idx)); return;
  case LUA_TNUMBER:
    if (lua_isinteger(from, idx))
      lua_pushinteger(t->to, lua_tointeger(from, idx));
    else
      lua_pushnumber(t->to, lua_tonumber(from, idx));
    return;
  case LUA_TSTRING: {
    const char *s = lua_tolstring(from, idx, &n);
    lua_pushlstring(t->to, s, n);
    return;
  }
  case LUA_TTABLE:
  case LUA_TFUNCTION: copy_object(t, idx); return;
  default: refuse(t, lua_type(from, idx) == LUA_TTHREAD ? "a coroutine" : "a userdata");
  }
}

void transfer(lua_State *from, int idx, lua_State *to, const char *where, int owner) {
  char text[160];
  Transfer t = {
      .from = from, .to = to, .owner = owner, .where = textbuf(text, sizeof text)};
  luaL_checkstack(to, 40, "not enough memory");
  if (!lua_checkstack(from, 40)) luaL_error(to, "not enough memory");
  enter(&t, "%s", where);
  lua_newtable(to);
  t.memo = lua_gettop(to);
  copy(&t, lua_absindex(from, idx));
  lua_remove(to, t.memo);
}
