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

/* Why there is no key with the table's items in it. */
static const char *unseen(bool deep, const KeyJob *j) {
  if (!j->inside)
    return deep ? "a table in the plan is nested too deeply to be compared"
                : "a table in the plan has keys that cannot be compared";
  return j->whole
             ? "a function of the plan captures a table with keys other than numbers, "
               "strings and booleans: whether its results change cannot be seen"
             : NULL;
}

static void add_items(lua_State *L, int t, KeyJob *j) {
  bool deep = j->nest > KEY_DEEPEST && !j->inside;
  text_add(j->out, "{");
  if (deep || !sorted_keys(L, t)) {
    text_add(j->out, "table}");
    j->wrong = unseen(deep, j);
    return;
  }
  int keys = lua_gettop(L);
  for (int i = 1; lua_rawgeti(L, keys, i) != LUA_TNIL; i++, lua_settop(L, keys)) {
    key_inner(L, keys + 1, j);
    text_add(j->out, "=");
    lua_pushvalue(L, keys + 1);
    lua_rawget(L, t);
    key_inner(L, keys + 2, j);
    text_add(j->out, ",");
  }
  lua_settop(L, keys - 1);
  text_add(j->out, "}");
}

/* A metatable may lead anywhere, as what a function captures. Libraries are told apart by
 * their names: what plans see of them is empty. */
static void add_metatable(lua_State *L, int t, const char *known, KeyJob *j) {
  if (j->what || !lua_getmetatable(L, t)) return;
  bool weft = known && strncmp(known, "weft", 4) == 0;
  if (!known) {
    text_add(j->out, "meta ");
    j->inside++;
    key_inner(L, lua_gettop(L), j);
    j->inside--;
  } else if (!weft) {
    text_printf(j->out, "known %s", known);
  }
  j->variables |= weft;
  lua_pop(L, 1);
}

void key_table(lua_State *L, int t, KeyJob *j) {
  luaL_checkstack(L, 12, "a value is nested too deeply");
  const char *kind = mark_kind(L, t), *known = known_name(L, t);
  text_add(j->out, kind ? kind : "");
  j->nest++;
  add_items(L, t, j);
  add_metatable(L, t, known, j);
  j->nest--;
}

/* A table outside of functions was appended, again or not: tables of tables that repeat
 * are more with each depth. */
static void count_again(KeyJob *j, bool again, size_t from) {
  enum { MOST = 64 << 20, VISIT = 64 };
  if (again) j->again += VISIT + (int64_t)(j->out->n - from);
  if (j->again > MOST) j->wrong = "tables in the plan repeat too often to be compared";
}

/* Inside of functions a table is the same wherever it is met; outside it counts as what
 * it holds, because a plan that is written again has copies of it. */
static void add_table(lua_State *L, int t, KeyJob *j) {
  luaL_checkstack(L, 12, "a value is nested too deeply");
  if (j->inside) {
    bool known = known_name(L, t) != NULL;
    if (known || (!key_met(L, t, j) && !key_later(L, t, j))) key_table(L, t, j);
    return;
  }
  size_t from = j->out->n;
  bool again = key_again(L, t, j);
  key_table(L, t, j);
  count_again(j, again, from);
}

void key_inner(lua_State *L, int idx, KeyJob *j) {
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
  if (!j->what && (lua_isfunction(L, idx) || lua_isthread(L, idx))) {
    key_function(L, lua_absindex(L, idx), j);
    return;
  }
  text_add(j->out, luaL_typename(L, idx));
  /* An address identifies a value within this state only. */
  if (!j->what) return;
  text_printf(j->out, " %p@%p", lua_topointer(L, idx), (void *)state_of(L));
  j->addressed = true;
}

void key_value(lua_State *L, int idx, KeyJob *j) {
  key_inner(L, idx, j);
  key_rest(L, j);
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

/* The sorted keys of the table are on top, and are popped. */
static void show_items(lua_State *L, int t, KeyJob *j) {
  int keys = lua_gettop(L);
  for (int i = 1; lua_rawgeti(L, keys, i) != LUA_TNIL; i++, lua_settop(L, keys)) {
    text_add(j->out, i > 1 ? ", " : " ");
    if (lua_type(L, keys + 1) == LUA_TSTRING)
      text_printf(j->out, "%s = ", lua_tostring(L, keys + 1));
    lua_pushvalue(L, keys + 1);
    lua_rawget(L, t);
    key_show(L, keys + 2, j);
  }
  lua_settop(L, keys - 1);
}

static void show_table(lua_State *L, int t, KeyJob *j) {
  luaL_checkstack(L, 12, "a value is nested too deeply");
  const char *kind = mark_kind(L, t);
  size_t from = j->out->n;
  bool deep = ++j->nest > KEY_DEEPEST, again = key_again(L, t, j);
  if (kind) text_printf(j->out, "weft.%s ", kind);
  if (deep || !sorted_keys(L, t)) {
    j->wrong = unseen(deep, j);
    return;
  }
  text_add(j->out, "{");
  show_items(L, t, j);
  text_add(j->out, " }");
  count_again(j, again, from);
  j->nest--;
}

/* Appends a function by a hash of its key, anything else as it is in a key. */
static void show_key(lua_State *L, int idx, KeyJob *j) {
  Text key = {0}, *out = j->out;
  j->requires = j->variables = false;
  j->out = &key;
  key_value(L, idx, j);
  key_surroundings(L, j);
  j->out = out;
  if (lua_isfunction(L, idx))
    text_printf(out, "function %016llx", (unsigned long long)hash_bytes(0, key.s, key.n));
  else
    text_addn(out, key.s, key.n);
  text_free(&key);
}

void key_show(lua_State *L, int idx, KeyJob *j) {
  idx = lua_absindex(L, idx);
  if (j->wrong) return;
  if (lua_istable(L, idx))
    show_table(L, idx, j);
  else if (lua_type(L, idx) == LUA_TSTRING)
    text_printf(j->out, "\"%s\"", lua_tostring(L, idx));
  else if (lua_isinteger(L, idx) || lua_type(L, idx) != LUA_TNUMBER)
    show_key(L, idx, j);
  else
    show_number(lua_tonumber(L, idx), j->out);
}
