/* key_value.c - values of a plan as bytes to compare, and for people; see plan_key.h. */
#include "key_value.h"

#include <stdio.h>
#include <stdlib.h>

void key_digits(Text *out, int64_t v) {
  char buf[20], *p = buf + sizeof buf;
  uint64_t n = v < 0 ? -(uint64_t)v : (uint64_t)v;
  do {
    *--p = (char)('0' + n % 10);
  } while (n /= 10);
  if (v < 0) text_add(out, "-");
  text_addn(out, p, (size_t)(buf + sizeof buf - p));
}

/* 1.0 is written as 1: a field takes either, and a file in between may change one into
 * the other. */
static void add_number(lua_State *L, int idx, Text *out) {
  lua_Integer whole;
  if (lua_isinteger(L, idx))
    key_digits(out, lua_tointeger(L, idx));
  else if (lua_numbertointeger(lua_tonumber(L, idx), &whole) &&
           (lua_Number)whole == lua_tonumber(L, idx))
    key_digits(out, whole);
  else
    text_printf(out, "%a", lua_tonumber(L, idx));
}

static void add_table(lua_State *L, int t, KeyJob *j) {
  enum { DEEPEST = 100 };
  luaL_checkstack(L, 8, "a value is nested too deeply");
  const char *kind = mark_kind(L, t);
  text_add(j->out, kind ? kind : "");
  text_add(j->out, "{");
  /* What a function captures may be anything. */
  bool deep = j->nest == DEEPEST;
  if (deep || !sorted_keys(L, t)) {
    text_add(j->out, "table}");
    if (!j->inside)
      j->wrong = deep ? "a table in the plan is nested too deeply to be compared"
                      : "a table in the plan has keys that cannot be compared";
    return;
  }
  j->nest++;
  int keys = lua_gettop(L);
  for (int i = 1; lua_rawgeti(L, keys, i) != LUA_TNIL; i++, lua_settop(L, keys)) {
    key_value(L, keys + 1, j);
    text_add(j->out, "=");
    lua_pushvalue(L, keys + 1);
    lua_rawget(L, t);
    key_value(L, keys + 2, j);
    text_add(j->out, ",");
  }
  lua_settop(L, keys - 1);
  text_add(j->out, "}");
  j->nest--;
}

static int add_code(lua_State *L, const void *p, size_t n, void *ud) {
  uint64_t *h = ud;
  *h = hash_bytes(*h, p, n);
  return 0;
}

/* Appends a function: the same bytes in every process for the same code and captured
 * values. The table of globals is left out, because it is the same for all plans. */
static void add_function(lua_State *L, int f, KeyJob *j) {
  enum { DEEPEST = 16 };
  uint64_t h = 0;
  const char *known = known_name(L, f);
  if (known || lua_iscfunction(L, f) || j->inside == DEEPEST) {
    text_printf(j->out, "function %s", known ? known : "");
    return;
  }
  luaL_checkstack(L, 8, "a value is nested too deeply");
  lua_pushvalue(L, f);
  lua_dump(L, add_code, &h, true);
  lua_pop(L, 1);
  text_printf(j->out, "function %016llx(", (unsigned long long)h);
  lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
  int globals = lua_gettop(L);
  j->inside++;
  for (int i = 1; lua_getupvalue(L, f, i); i++) {
    if (!lua_rawequal(L, -1, globals)) key_value(L, -1, j);
    text_add(j->out, ",");
    lua_settop(L, globals);
  }
  j->inside--;
  lua_pop(L, 1);
  text_add(j->out, ")");
}

void key_value(lua_State *L, int idx, KeyJob *j) {
  size_t n;
  const char *s;
  if (j->wrong) return;
  switch (lua_type(L, idx)) {
  case LUA_TTABLE: add_table(L, lua_absindex(L, idx), j); return;
  case LUA_TSTRING:
    s = lua_tolstring(L, idx, &n);
    key_digits(j->out, (int64_t)n);
    text_add(j->out, ":");
    text_addn(j->out, s, n);
    return;
  case LUA_TNUMBER: add_number(L, idx, j->out); return;
  case LUA_TBOOLEAN: text_add(j->out, lua_toboolean(L, idx) ? "true" : "false"); return;
  default: break;
  }
  if (!j->what && lua_isfunction(L, idx)) {
    add_function(L, lua_absindex(L, idx), j);
    return;
  }
  text_add(j->out, luaL_typename(L, idx));
  /* An address identifies a value within this state only. */
  if (!j->what) return;
  text_printf(j->out, " %p@%p", lua_topointer(L, idx), (void *)state_of(L));
  j->addressed = true;
}

/* ---- for people ---- */

/* As many digits as the number has. */
static void show_number(double x, Text *out) {
  char text[32];
  snprintf(text, sizeof text, "%.15g", x);
  text_printf(out, strtod(text, NULL) == x ? "%.15g" : "%.17g", x);
}

void key_show_list(lua_State *L, int t, KeyJob *j) {
  bool one = lua_rawgeti(L, t, 2) == LUA_TNIL && lua_rawgeti(L, t, 1) == LUA_TSTRING;
  lua_settop(L, t);
  if (!one) text_add(j->out, "{ ");
  for (int i = 1; lua_rawgeti(L, t, i) != LUA_TNIL; i++, lua_settop(L, t)) {
    if (i > 1) text_add(j->out, ", ");
    key_show(L, t + 1, j);
  }
  lua_settop(L, t);
  if (!one) text_add(j->out, " }");
}

static void show_table(lua_State *L, int t, KeyJob *j) {
  luaL_checkstack(L, 8, "a value is nested too deeply");
  const char *kind = mark_kind(L, t);
  if (kind) text_printf(j->out, "weft.%s ", kind);
  if (!sorted_keys(L, t)) {
    j->wrong = "a table in the plan has keys that cannot be compared";
    return;
  }
  int keys = lua_gettop(L);
  text_add(j->out, "{");
  for (int i = 1; lua_rawgeti(L, keys, i) != LUA_TNIL; i++, lua_settop(L, keys)) {
    text_add(j->out, i > 1 ? ", " : " ");
    if (lua_type(L, keys + 1) == LUA_TSTRING)
      text_printf(j->out, "%s = ", lua_tostring(L, keys + 1));
    lua_pushvalue(L, keys + 1);
    lua_rawget(L, t);
    key_show(L, keys + 2, j);
  }
  lua_settop(L, keys - 1);
  text_add(j->out, " }");
}

void key_show(lua_State *L, int idx, KeyJob *j) {
  if (j->wrong) return;
  if (lua_istable(L, idx)) {
    show_table(L, lua_absindex(L, idx), j);
  } else if (lua_type(L, idx) == LUA_TSTRING) {
    text_printf(j->out, "\"%s\"", lua_tostring(L, idx));
  } else if (lua_isinteger(L, idx) || lua_type(L, idx) != LUA_TNUMBER) {
    Text key = {0};
    KeyJob own = {.lp = j->lp, .out = &key};
    bool function = lua_isfunction(L, idx);
    key_value(L, idx, &own);
    if (function)
      text_printf(j->out, "function %016llx",
                  (unsigned long long)hash_bytes(0, key.s, key.n));
    else
      text_addn(j->out, key.s, key.n);
    text_free(&key);
    if (own.wrong) j->wrong = own.wrong;
  } else {
    show_number(lua_tonumber(L, idx), j->out);
  }
}
