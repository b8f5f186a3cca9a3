/* marks.c - which builder made a table of a plan, where, and what was wrong with the
 * call: kept beside the tables, which are the plan's own. */
#include "plan_table.h"

#include "bindings/sandbox/lua_fields.h"

/* Registry: table -> mark. A mark is a table with kind, file, line and, where they apply:
 * bad and hint (a wrong call), from (of a merged table: key -> the table it came from),
 * default (keys that came from the library). */
static const char marks_key = 'm';

static void push_marks(lua_State *L) {
  luaL_checkstack(L, 8, NULL);
  registry_table(L, &marks_key);
}

bool mark_push(lua_State *L, int idx) {
  idx = lua_absindex(L, idx);
  if (!lua_istable(L, idx)) return false;
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &marks_key) == LUA_TTABLE) {
    lua_pushvalue(L, idx);
    lua_rawget(L, -2);
    lua_remove(L, -2);
  }
  if (lua_istable(L, -1)) return true;
  lua_pop(L, 1);
  return false;
}

void mark_set(lua_State *L, int idx) {
  idx = lua_absindex(L, idx);
  push_marks(L);
  lua_pushvalue(L, idx);
  lua_pushvalue(L, -3);
  lua_rawset(L, -3);
  lua_pop(L, 2);
}

/* A string field of the mark; it lives as long as the state. */
static const char *mark_text(lua_State *L, int idx, const char *field) {
  if (!mark_push(L, idx)) return NULL;
  lua_getfield(L, -1, field);
  const char *s = lua_tostring(L, -1);
  lua_pop(L, 2);
  return s;
}

const char *mark_kind(lua_State *L, int idx) { return mark_text(L, idx, "kind"); }

int mark_line(lua_State *L, int idx, const char **file) {
  if (!mark_push(L, idx)) return 0;
  lua_getfield(L, -1, "line");
  lua_getfield(L, -2, "file");
  int line = (int)lua_tointeger(L, -2);
  *file = lua_tostring(L, -1);
  lua_pop(L, 3);
  return line;
}

const char *mark_bad(lua_State *L, int idx, const char **hint) {
  *hint = mark_text(L, idx, "hint");
  return mark_text(L, idx, "bad");
}

/* Replaces the key on top by mark[field][key], or nil. */
static void mark_lookup(lua_State *L, int idx, const char *field) {
  if (!mark_push(L, idx)) {
    lua_pop(L, 1);
    lua_pushnil(L);
    return;
  }
  if (lua_getfield(L, -1, field) == LUA_TTABLE) {
    lua_pushvalue(L, -3);
    lua_rawget(L, -2);
  } else {
    lua_pushnil(L);
  }
  lua_replace(L, -4);
  lua_pop(L, 2);
}

void mark_origin(lua_State *L, int idx) {
  idx = lua_absindex(L, idx);
  mark_lookup(L, idx, "from");
  if (lua_istable(L, -1)) return;
  lua_pop(L, 1);
  lua_pushvalue(L, idx);
}

bool mark_is_default(lua_State *L, int idx) {
  idx = lua_absindex(L, idx);
  mark_lookup(L, idx, "default");
  bool yes = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return yes;
}

void mark_new(lua_State *L, const char *kind) {
  lua_Debug ar;
  luaL_checkstack(L, 8, NULL);
  lua_createtable(L, 0, 4);
  set_text(L, "kind", kind);
  if (lua_getstack(L, 1, &ar) && lua_getinfo(L, "Sl", &ar) && ar.currentline > 0 &&
      chunk_file(ar.source)) {
    set_text(L, "file", chunk_file(ar.source));
    set_integer(L, "line", ar.currentline);
  }
  lua_pushvalue(L, -1);
  mark_set(L, -3);
}

void mark_note_bad(lua_State *L, int mark, const char *bad, const char *hint) {
  lua_pushstring(L, bad);
  lua_setfield(L, mark, "bad");
  if (!hint) return;
  lua_pushstring(L, hint);
  lua_setfield(L, mark, "hint");
}
