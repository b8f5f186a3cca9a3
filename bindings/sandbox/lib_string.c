/* lib_string.c - string.find, match, gmatch, gsub and rep, on the matcher of pattern.c.
 */
#include "lib.h"

#include <string.h>

void lib_charge(lua_State *L, int64_t steps) {
  const Meter *m = lua_touserdata(L, lua_upvalueindex(1));
  m->charge(L, steps);
}

/* ---- what the functions share ---- */

/* The subject string at 1 and the pattern at 2. */
static Matcher matcher(lua_State *L, int text, int pattern) {
  size_t n, np;
  Matcher m = {.L = L};
  m.text = luaL_checklstring(L, text, &n);
  m.pattern = luaL_checklstring(L, pattern, &np);
  m.text_end = m.text + n;
  m.pattern_end = m.pattern + np;
  return m;
}

/* Counts the remaining steps at the end of a call. */
static void settle(Matcher *m) {
  lib_charge(m->L, m->steps + 1);
  m->steps = 0;
}

/* Argument `arg`, a position from 1 or, if negative, from the end, as an offset; may be
 * beyond n. */
static size_t start_of(lua_State *L, int arg, size_t n) {
  lua_Integer i = luaL_optinteger(L, arg, 1);
  if (i > 0) return (size_t)i - 1;
  if (i == 0 || i < -(lua_Integer)n) return 0;
  return n + (size_t)i;
}

/* Pushes capture i; without captures, the first one is the whole match from s to end. */
static void push_capture(Matcher *m, int i, const char *s, const char *end) {
  lua_State *L = m->L;
  if (i >= m->ncapture) {
    if (i != 0) luaL_error(L, "invalid capture index %%%d", i + 1);
    lua_pushlstring(L, s, (size_t)(end - s));
    return;
  }
  const Capture *c = &m->capture[i];
  if (c->n == CAPTURE_OPEN) luaL_error(L, "unfinished capture");
  if (c->n == CAPTURE_POSITION)
    lua_pushinteger(L, c->at - m->text + 1);
  else
    lua_pushlstring(L, c->at, (size_t)c->n);
}

/* Pushes all captures, or the whole match if there are none and s is not NULL. */
static int push_captures(Matcher *m, const char *s, const char *end) {
  int n = m->ncapture || !s ? m->ncapture : 1;
  luaL_checkstack(m->L, n, "too many captures");
  for (int i = 0; i < n; i++) push_capture(m, i, s, end);
  return n;
}

/* ---- find and match ---- */

static int find_plain(Matcher *m, size_t from) {
  lua_State *L = m->L;
  size_t n = (size_t)(m->text_end - m->text), np = (size_t)(m->pattern_end - m->pattern);
  m->steps = (int64_t)((n - from) / 8 + np);
  settle(m);
  const char *at = memmem(m->text + from, n - from, m->pattern, np);
  if (!at) {
    lua_pushnil(L);
    return 1;
  }
  lua_pushinteger(L, at - m->text + 1);
  lua_pushinteger(L, at - m->text + (lua_Integer)np);
  return 2;
}

static bool has_specials(const Matcher *m) {
  for (const char *p = m->pattern; p < m->pattern_end; p++)
    if (*p && strchr("^$*+?.([%-", *p)) return true;
  return false;
}

static int search(lua_State *L, bool find) {
  Matcher m = matcher(L, 1, 2);
  size_t n = (size_t)(m.text_end - m.text), from = start_of(L, 3, n);
  if (from > n) {
    lua_pushnil(L);
    return 1;
  }
  if (find && (lua_toboolean(L, 4) || !has_specials(&m))) return find_plain(&m, from);
  bool anchored = m.pattern < m.pattern_end && *m.pattern == '^';
  m.pattern += anchored;
  const char *s = m.text + from, *end;
  while (!(end = pattern_match(&m, s)) && s < m.text_end && !anchored) s++;
  settle(&m);
  if (!end) {
    lua_pushnil(L);
    return 1;
  }
  if (!find) return push_captures(&m, s, end);
  lua_pushinteger(L, s - m.text + 1);
  lua_pushinteger(L, end - m.text);
  return 2 + push_captures(&m, NULL, NULL);
}

static int find(lua_State *L) { return search(L, true); }
static int match(lua_State *L) { return search(L, false); }

/* ---- gmatch ---- */

/* Upvalues: the meter, the subject, the pattern, the next position, the end of the last
 * match or -1: an empty match there is skipped. */
static int gmatch_next(lua_State *L) {
  Matcher m = matcher(L, lua_upvalueindex(2), lua_upvalueindex(3));
  const char *s = m.text + lua_tointeger(L, lua_upvalueindex(4));
  const char *last = m.text + lua_tointeger(L, lua_upvalueindex(5));
  for (; s <= m.text_end; s++) {
    const char *end = pattern_match(&m, s);
    if (!end || end == last) continue;
    settle(&m);
    for (int up = 4; up <= 5; up++) {
      lua_pushinteger(L, end - m.text);
      lua_replace(L, lua_upvalueindex(up));
    }
    return push_captures(&m, s, end);
  }
  lua_pushinteger(L, s - m.text);
  lua_replace(L, lua_upvalueindex(4));
  settle(&m);
  return 0;
}

static int gmatch(lua_State *L) {
  size_t n;
  luaL_checklstring(L, 1, &n);
  luaL_checkstring(L, 2);
  size_t from = MIN(start_of(L, 3, n), n + 1);
  lua_settop(L, 2);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_pushinteger(L, (lua_Integer)from);
  lua_pushinteger(L, -1);
  lua_pushcclosure(L, gmatch_next, 5);
  return 1;
}

/* ---- gsub ---- */

/* Appends the replacement string at 3, in which %0 to %9 are captures. */
static void add_text(Matcher *m, luaL_Buffer *b, const char *s, const char *end) {
  lua_State *L = m->L;
  size_t n;
  const char *p = lua_tolstring(L, 3, &n), *last = p + n, *mark;
  m->steps += (int64_t)n / 8;
  for (; (mark = memchr(p, '%', (size_t)(last - p))); p = mark + 2) {
    luaL_addlstring(b, p, (size_t)(mark - p));
    char c = mark + 1 < last ? mark[1] : 0;
    if (c == '%') {
      luaL_addchar(b, c);
    } else if (c == '0') {
      luaL_addlstring(b, s, (size_t)(end - s));
    } else if (c >= '1' && c <= '9') {
      push_capture(m, c - '1', s, end);
      luaL_tolstring(L, -1, NULL); /* a position is a number */
      lua_remove(L, -2);
      luaL_addvalue(b);
    } else {
      luaL_error(L, "invalid use of '%%' in replacement string");
    }
  }
  luaL_addlstring(b, p, (size_t)(last - p));
}

/* Appends the replacement of a match; true if it differs from the match. */
static bool add_value(Matcher *m, luaL_Buffer *b, const char *s, const char *end) {
  lua_State *L = m->L;
  int type = lua_type(L, 3);
  if (type == LUA_TFUNCTION) {
    lua_pushvalue(L, 3);
    lua_call(L, push_captures(m, s, end), 1);
  } else if (type == LUA_TTABLE) {
    push_capture(m, 0, s, end);
    lua_gettable(L, 3);
  } else {
    add_text(m, b, s, end);
    return true;
  }
  if (!lua_toboolean(L, -1)) {
    lua_pop(L, 1);
    luaL_addlstring(b, s, (size_t)(end - s));
    return false;
  }
  if (!lua_isstring(L, -1))
    luaL_error(L, "invalid replacement value (a %s)", luaL_typename(L, -1));
  luaL_addvalue(b);
  return true;
}

static int gsub(lua_State *L) {
  Matcher m = matcher(L, 1, 2);
  const char *s = m.text, *last = NULL;
  int type = lua_type(L, 3);
  lua_Integer most = luaL_optinteger(L, 4, m.text_end - m.text + 1), n = 0;
  luaL_argexpected(L,
                   type == LUA_TNUMBER || type == LUA_TSTRING || type == LUA_TTABLE ||
                       type == LUA_TFUNCTION,
                   3, "string/function/table");
  if (type == LUA_TNUMBER) lua_tostring(L, 3);
  bool anchored = m.pattern < m.pattern_end && *m.pattern == '^', changed = false;
  m.pattern += anchored;
  luaL_Buffer b;
  luaL_buffinit(L, &b);
  while (n < most) {
    const char *end = pattern_match(&m, s);
    if (end && end != last) {
      n++;
      changed |= add_value(&m, &b, s, end);
      s = last = end;
    } else if (s < m.text_end) {
      luaL_addchar(&b, *s++);
    } else {
      break;
    }
    if (anchored) break;
  }
  if (changed) luaL_addlstring(&b, s, (size_t)(m.text_end - s));
  luaL_pushresult(&b);
  if (!changed) lua_pushvalue(L, 1);
  lua_pushinteger(L, n);
  settle(&m);
  return 2;
}

/* ---- rep ---- */

static int rep(lua_State *L) {
  size_t n, nsep, piece = 1 << 20;
  const Meter *m = lua_touserdata(L, lua_upvalueindex(1));
  const char *s = luaL_checklstring(L, 1, &n);
  lua_Integer times = luaL_checkinteger(L, 2);
  const char *sep = luaL_optlstring(L, 3, "", &nsep);
  size_t one = n + nsep;
  if (times <= 0 || one == 0) {
    lua_pushliteral(L, "");
    return 1;
  }
  if ((size_t)times > m->longest / one)
    return luaL_error(L, "string.rep: the result would have more than %I MiB",
                      (LUAI_UACINT)(m->longest >> 20));
  size_t total = one * (size_t)times - nsep, have = MIN(one, total);
  luaL_Buffer b;
  char *out = luaL_buffinitsize(L, &b, total);
  memcpy(out, s, n);
  memcpy(out + n, sep, have - n);
  /* Doubles the result so far, but appends no more than a piece between two polls. */
  while (have < total) {
    size_t more = MIN(MIN(have, total - have), piece / one * one + one);
    memcpy(out + have, out, more);
    have += more;
    lib_charge(L, (int64_t)more / 64 + 1);
  }
  luaL_pushresultsize(&b, total);
  return 1;
}

void lib_string(lua_State *L, const Meter *m) {
  static const luaL_Reg functions[] = {{"find", find},     {"match", match},
                                       {"gmatch", gmatch}, {"gsub", gsub},
                                       {"rep", rep},       {NULL, NULL}};
  lua_pushlightuserdata(L, (void *)m);
  luaL_setfuncs(L, functions, 1);
}
