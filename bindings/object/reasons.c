/* reasons.c - diagnostics as Lua values. */
#include "reasons.h"

#include <lauxlib.h>

#include "bindings/lang/report.h"
#include "result.h"
#include "bindings/script/script.h"

#define REASONS_TYPE "weft.reasons"

static bool is_own(lua_State *L, int idx) {
  if (!lua_istable(L, idx) || !lua_getmetatable(L, idx)) return false;
  luaL_getmetatable(L, REASONS_TYPE);
  bool own = lua_rawequal(L, -1, -2);
  lua_pop(L, 2);
  return own;
}

bool reasons_of_plan(lua_State *L, int idx) {
  return is_own(L, lua_absindex(L, idx)) && reasons_status(L, idx) == WEFT_EPLAN;
}

weft_status reasons_status(lua_State *L, int idx) {
  idx = lua_absindex(L, idx);
  if (!is_own(L, idx)) return WEFT_EPLAN;
  lua_pushliteral(L, "status");
  lua_rawget(L, idx);
  lua_Integer st = lua_tointeger(L, -1);
  lua_pop(L, 1);
  return st > WEFT_OK && st <= WEFT_EINTR ? (weft_status)st : WEFT_EPLAN;
}

/* Returns field `text`, which was made together with the reasons. */
static int to_string(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  lua_pushliteral(L, "text");
  lua_rawget(L, 1);
  return 1;
}

static int concat(lua_State *L) {
  luaL_tolstring(L, 1, NULL);
  luaL_tolstring(L, 2, NULL);
  lua_concat(L, 2);
  return 1;
}

static void push_metatable(lua_State *L) {
  if (!luaL_newmetatable(L, REASONS_TYPE)) return;
  lua_pushcfunction(L, to_string);
  lua_setfield(L, -2, "__tostring");
  lua_pushcfunction(L, concat);
  lua_setfield(L, -2, "__concat");
}

static void push_diag(lua_State *L, const Diag *g) {
  lua_createtable(L, 0, 7);
  set_text(L, "severity", g->severity == DIAG_ERROR ? "error" : "warning");
  set_text(L, "code", g->code);
  set_text(L, "path", g->path);
  set_text(L, "message", g->summary);
  set_text(L, "suggestion", g->suggestion);
  set_text(L, "file", g->file);
  if (!g->line) return;
  set_integer(L, "line", g->line);
}

void reasons_list(lua_State *L, const Diags *d) {
  lua_createtable(L, d->list.n, 0);
  for (int i = 0; i < d->list.n; i++) {
    push_diag(L, &d->list.at[i]);
    lua_rawseti(L, -2, i + 1);
  }
}

/* Pushes one entry for an error that is not about a plan's fields. */
static void push_error(lua_State *L, const weft_error *e, Text *t) {
  lua_createtable(L, 0, 4);
  set_text(L, "severity", "error");
  set_text(L, "message", e->text);
  if (!e->file[0]) {
    text_add(t, e->text);
    return;
  }
  set_text(L, "file", e->file);
  text_add(t, e->file);
  if (e->line) {
    set_integer(L, "line", e->line);
    text_printf(t, ":%d", e->line);
  }
  text_printf(t, ": error: %s", e->text);
}

void reasons_push(lua_State *L, weft_status st, const Diags *d, const weft_error *e) {
  bool plan = st == WEFT_EPLAN && d && d->errors;
  if (st == WEFT_EINTR) script_interrupt(L);
  luaL_checkstack(L, 6, NULL);
  Text *t = script_push_text(L);
  lua_createtable(L, plan ? d->list.n : 1, 2);
  for (int i = 0; plan && i < d->list.n; i++) {
    push_diag(L, &d->list.at[i]);
    lua_rawseti(L, -2, i + 1);
  }
  if (plan) {
    report_text(d, REPORT_CODES, t);
  } else {
    push_error(L, e, t);
    lua_rawseti(L, -2, 1);
  }
  lua_insert(L, -2);
  script_end_text(L);
  lua_setfield(L, -2, "text");
  set_integer(L, "status", st);
  push_metatable(L);
  lua_setmetatable(L, -2);
}

int reasons_raise(lua_State *L, weft_status st, const Diags *d, const weft_error *e) {
  reasons_push(L, st, d, e);
  return lua_error(L);
}

int reasons_check(lua_State *L, weft_status st, const weft_error *e) {
  return st == WEFT_OK ? 0 : reasons_raise(L, st, NULL, e);
}
