/* plan_strings.c - what no table and no string of a plan may be, wherever it stands.
 *
 * Strings of a plan are names: of a run, files, modules, axes. Control characters in them
 * are refused, because printing them could fake lines of output, and a NUL would end
 * them. Fields are read as they are in a table, so those that a metatable would give are
 * refused too: they would be left out without a word. */
#include "loaded_plan.h"
#include "vm/base/terminal.h"

enum { MAX_NEST = 100 };

/* State of a walk. The table `seen` is at its index, because tables may contain each
 * other. */
typedef struct Walk {
  lua_State *L;
  Arena *arena;
  const LangShared *shared; /* fields that it has were visited before; or NULL */
  Diags *d;                 /* NULL: reports nothing */
  int seen, nest;
  bool found;
  bool passed; /* in what a function of the plan is given, which may be any Lua */
} Walk;

static void visit(Walk *w, const char *path);

static void note(Walk *w, const char *path, const char *what) {
  w->found = true;
  if (w->d) diag_error(w->d, "text", path, "%s", what);
}

/* Whether the string has what no name has. */
static bool no_name(lua_State *L, int idx) {
  size_t n;
  const char *s = lua_tolstring(L, idx, &n);
  return strlen(s) < n || has_control(s);
}

/* Reports a table with fields that only its metatable has. */
static void behind(Walk *w, int t, const char *path) {
  static const char *const by[] = {"__index", "__pairs"};
  lua_State *L = w->L;
  int top = lua_gettop(L);
  if (!lua_getmetatable(L, t)) return;
  for (int i = 0; i < LEN(by); i++) {
    if (field_push(L, top + 1, by[i]) == LUA_TNIL) continue;
    w->found = true;
    if (w->d)
      diag_error(w->d, "type", path,
                 "a table of a plan has its fields itself; those that come by %s of a "
                 "metatable are not read",
                 by[i])
          ->suggestion = "write weft.extend(DEFAULTS, { ... }), of tables without one";
    break;
  }
  lua_settop(L, top);
}

/* { f, option = value }: a function with what it is given. */
static bool gives_options(lua_State *L, int t) {
  bool yes = lua_rawgeti(L, t, 1) == LUA_TFUNCTION;
  lua_pop(L, 1);
  return yes;
}

/* Checks the value at the top, which stays; its key is below it. */
static void entry(Walk *w, const char *path) {
  lua_State *L = w->L;
  int value = lua_gettop(L);
  bool text = lua_type(L, value) == LUA_TSTRING, table = lua_istable(L, value);
  bool named = lua_type(L, value - 1) == LUA_TSTRING;
  if (named && no_name(L, value - 1))
    note(w, path, "a key of this table has control characters");
  if (!text && !table) return;
  if (w->shared && w->nest == 1 && named &&
      lang_unvaried(w->shared, lua_tostring(L, value - 1)))
    return;
  const char *sub = w->d ? path_join(w->arena, path, L, value - 1) : "";
  if (text && no_name(L, value))
    note(w, sub, "a string of a plan has no control characters");
  if (table) visit(w, sub);
}

/* Visits a table, in sorted order if it reports, so that reports are the same in every
 * run. */
static void visit(Walk *w, const char *path) {
  lua_State *L = w->L;
  int t = lua_gettop(L);
  if (w->nest == MAX_NEST) {
    note(w, path, "the plan is nested too deeply");
    return;
  }
  w->nest++;
  luaL_checkstack(L, 10, NULL);
  bool outer = w->passed;
  lua_pushvalue(L, t);
  bool new = lua_rawget(L, w->seen) == LUA_TNIL;
  if (new || (!outer && !lua_toboolean(L, -1))) {
    lua_pushvalue(L, t);
    lua_pushboolean(L, !outer);
    lua_rawset(L, w->seen);
    if (!outer) behind(w, t, path);
    w->passed |= gives_options(L, t);
    if (!w->d) {
      for (lua_pushnil(L); state_next(L, t); lua_settop(L, t + 2)) entry(w, path);
    } else if (sorted_keys(L, t)) {
      for (int i = 1; lua_rawgeti(L, t + 2, i) != LUA_TNIL; i++, lua_settop(L, t + 2)) {
        lua_pushvalue(L, -1);
        lua_rawget(L, t);
        entry(w, path);
      }
    }
  }
  lua_settop(L, t);
  w->passed = outer;
  w->nest--;
}

static bool walk(lua_State *L, Arena *a, const LangShared *shared, Diags *d) {
  int top = lua_gettop(L);
  lua_newtable(L);
  Walk w = {.L = L, .arena = a, .shared = shared, .d = d, .seen = top + 1};
  lua_pushvalue(L, PLAN_INDEX);
  visit(&w, "");
  lua_settop(L, top);
  return w.found;
}

void texts_check(lua_State *L, Arena *a, const LangShared *shared, Diags *d) {
  if (walk(L, a, shared, NULL)) walk(L, a, shared, d);
}
