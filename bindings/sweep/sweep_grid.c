/* sweep_grid.c - the points of a sweep: all combinations of the values of some fields. */
#include "sweep.h"

#include "bindings/lang/schema.h"

#define GRID_TYPE "weft.grid"
enum { MAX_AXES = 32 };
static const int64_t max_points = 10 * 1000 * 1000;

/* ---- reading ---- */

static bool known_scope(const char *scope, const char *key) {
  return schema_find(scope, key) != NULL;
}

static void no_field(lua_State *L, const char *path, const char *scope, const char *key) {
  const char *names[64];
  int n = 0;
  for (const Field *f = schema; f->scope && n < LEN(names); f++)
    if (strcmp(f->scope, scope) == 0) names[n++] = f->key;
  const char *near = value_suggest(key, names, n);
  if (near) luaL_error(L, "a plan has no field '%s' (did you mean '%s'?)", path, near);
  luaL_error(L, "a plan has no field '%s'", path);
}

/* The first part of a path is a field of a plan; the second one of that field, where it
 * is a table of fields. What lies deeper is checked with the plan. */
static void check_path(lua_State *L, const char *path) {
  const char *rest = strncmp(path, "plan.", 5) == 0 ? path + 5 : path;
  size_t n = strcspn(rest, ".[");
  const char *key = lua_pushlstring(L, rest, n);
  if (!known_scope("plan", key)) no_field(L, path, "plan", key);
  const Field *f = schema_find("plan", key);
  if (f->type == FIELD_TABLE && rest[n] == '.') {
    const char *second = lua_pushlstring(L, rest + n + 1, strcspn(rest + n + 1, ".["));
    if (!known_scope(f->names, second)) no_field(L, path, f->names, second);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
}

/* The path in one spelling: `tp_plan["q"]` and `plan.tp_plan.q` are the same field. */
static const char *one_path(lua_State *L, const char *path, Arena *a) {
  const char *rest = strncmp(path, "plan.", 5) == 0 ? path + 5 : path, *s = "";
  bool bad;
  while (path_next(L, &rest, &bad)) {
    s = path_join(a, s, L, lua_gettop(L));
    lua_pop(L, 1);
  }
  if (bad) luaL_error(L, "\"%s\" is not the path of a field", path);
  return s;
}

/* "{ 7, 8, 8 }", "zbv": short enough for a table. */
static const char *value_text(lua_State *L, int idx, int nest, Arena *a) {
  enum { DEEPEST = 10 };
  idx = lua_absindex(L, idx);
  if (!lua_istable(L, idx)) return arena_str(a, plain_tostring(L, idx));
  const char *s = "{";
  luaL_checkstack(L, 8, "a value is nested too deeply");
  if (nest == DEEPEST || !sorted_keys(L, idx)) return "{...}";
  int keys = lua_gettop(L);
  for (int i = 1; lua_rawgeti(L, keys, i) != LUA_TNIL; i++, lua_settop(L, keys)) {
    lua_pushvalue(L, -1);
    lua_rawget(L, idx);
    const char *v = value_text(L, keys + 2, nest + 1, a);
    lua_settop(L, keys + 1);
    s = lua_isinteger(L, -1) ? arena_printf(a, "%s%s%s", s, i > 1 ? ", " : " ", v)
                             : arena_printf(a, "%s%s%s = %s", s, i > 1 ? ", " : " ",
                                            lua_tostring(L, -1), v);
  }
  lua_settop(L, keys - 1);
  return arena_printf(a, "%s }", s);
}

static void read_axis(lua_State *L, int i, int n, bool fields, Arena *a, SweepAxis *x) {
  int t = lua_gettop(L);
  if (!lua_istable(L, t))
    luaL_error(L, "axis %d is a %s, not { \"path\", value, value, ... }", i,
               luaL_typename(L, t));
  if (lua_rawgeti(L, t, 1) != LUA_TSTRING)
    luaL_error(L, "axis %d: the first item is the path of a field, such as \"mesh.tp\"",
               i);
  const char *path = lua_tostring(L, -1);
  if (fields) check_path(L, path);
  *x = (SweepAxis){.path = arena_str(a, path), .n = (int)lua_rawlen(L, t) - 1};
  x->field = fields ? one_path(L, path, a) : x->path;
  if (x->n < 1) luaL_error(L, "axis %d (%s) has no values", i, path);
  x->text = NEW_N(a, const char *, x->n);
  for (int k = 0; k < x->n; k++) {
    if (lua_rawgeti(L, t, k + 2) == LUA_TNIL)
      luaL_error(L, "axis %d (%s): value %d is nil", i, path, k + 1);
    x->text[k] = value_text(L, -1, 0, a);
    lua_settop(L, t + 1);
  }
  lua_settop(L, t);
}

/* Two axes may not set the same field: rows would name a value that was not used. */
static void check_axis(lua_State *L, const SweepGrid *g, int k, bool fields) {
  const SweepAxis *x = &g->axis[k];
  if (!fields && (sweep_column(x->path) >= 0 || strcmp(x->path, "comm_gib") == 0 ||
                  strcmp(x->path, "worst_rank") == 0))
    luaL_error(L, "axis %d: %s is the name of a column; choose another", k + 1, x->path);
  for (int i = 0; i < k; i++) {
    const char *was = g->axis[i].field;
    size_t n = strlen(x->field);
    if (strcmp(was, x->field) == 0)
      luaL_error(L, "the grid has two axes %s", g->axis[i].path);
    if (fields && strncmp(was, x->field, n) == 0 && (was[n] == '.' || was[n] == '['))
      luaL_error(L, "axis %s would set %s again: put it first", x->path, g->axis[i].path);
  }
}

/* The last part of a path where no other axis and no column has it. */
static void name_axes(SweepGrid *g) {
  for (int i = 0; i < g->n; i++) {
    const char *dot = strrchr(g->axis[i].path, '.');
    const char *last = dot ? dot + 1 : g->axis[i].path;
    bool taken = sweep_column(last) >= 0 || *last == '"' || strchr(last, ']');
    for (int k = 0; k < g->n; k++) {
      const char *other = strrchr(g->axis[k].path, '.');
      taken |= k != i && strcmp(last, other ? other + 1 : g->axis[k].path) == 0;
    }
    g->axis[i].name = taken ? g->axis[i].path : last;
  }
}

void sweep_grid_read(lua_State *L, int idx, bool fields, Arena *a, SweepGrid *g) {
  idx = lua_absindex(L, idx);
  if (!lua_istable(L, idx))
    luaL_error(L, "expected a list of axes, got %s", luaL_typename(L, idx));
  int n = (int)lua_rawlen(L, idx);
  if (n < 1) luaL_error(L, "the grid has no axes");
  if (n > MAX_AXES) luaL_error(L, "the grid has more than %d axes", MAX_AXES);
  *g = (SweepGrid){.axis = NEW_N(a, SweepAxis, n), .n = n, .points = 1};
  for (int i = 0; i < n; i++) {
    lua_rawgeti(L, idx, i + 1);
    read_axis(L, i + 1, n, fields, a, &g->axis[i]);
    lua_pop(L, 1);
    check_axis(L, g, i, fields);
    g->points *= g->axis[i].n;
    if (g->points > max_points)
      luaL_error(L, "the grid has more than %d million points",
                 (int)(max_points / 1000000));
  }
  name_axes(g);
}

/* ---- points ---- */

void sweep_grid_choice(const SweepGrid *g, int64_t point, int *choice) {
  for (int i = g->n - 1; i >= 0; i--) {
    choice[i] = (int)(point % g->axis[i].n);
    point /= g->axis[i].n;
  }
}

/* Replaces the table on top by a copy: what a script does to a point it does to that
 * point only. `memo`: table -> its copy. */
static void copy_table(lua_State *L, int memo) {
  int from = lua_gettop(L), to = from + 1;
  luaL_checkstack(L, 10, "a value is nested too deeply");
  lua_pushvalue(L, from);
  if (lua_rawget(L, memo) == LUA_TTABLE) {
    lua_replace(L, from);
    return;
  }
  lua_pop(L, 1);
  lua_newtable(L);
  lua_pushvalue(L, from);
  lua_pushvalue(L, to);
  lua_rawset(L, memo);
  for (lua_pushnil(L); lua_next(L, from); lua_pop(L, 1)) {
    lua_pushvalue(L, -2);
    lua_pushvalue(L, -2);
    if (lua_istable(L, -1)) copy_table(L, memo);
    lua_rawset(L, to);
  }
  if (lua_getmetatable(L, from)) lua_setmetatable(L, to);
  if (mark_push(L, from)) mark_set(L, to);
  lua_replace(L, from);
}

void sweep_grid_fields(lua_State *L, const SweepGrid *g, int idx, int64_t point) {
  int choice[MAX_AXES], t = lua_gettop(L);
  idx = lua_absindex(L, idx);
  sweep_grid_choice(g, point, choice);
  for (int i = 0; i < g->n; i++) {
    lua_rawgeti(L, idx, i + 1);
    if (lua_rawgeti(L, -1, choice[i] + 2) == LUA_TTABLE) {
      lua_newtable(L);
      lua_insert(L, -2);
      copy_table(L, lua_gettop(L) - 1);
    }
    lua_pushvalue(L, -1);
    lua_setfield(L, t, g->axis[i].path);
    lua_setfield(L, t, g->axis[i].name);
    lua_settop(L, t);
  }
}

/* ---- the object ---- */

/* Pushes the arena that the grid lies in. */
static void read_alone(lua_State *L, SweepGrid *g) {
  Arena *a = script_push_arena(L);
  if (setjmp(*arena_guard(a))) luaL_error(L, "not enough memory");
  sweep_grid_read(L, 1, false, a, g);
}

static int grid_length(lua_State *L) {
  SweepGrid g;
  read_alone(L, &g);
  lua_pushinteger(L, g.points);
  return 1;
}

/* "grid of 24 points: mesh.tp 1, 2, 4, 8; schedule gpipe, 1f1b" */
static int print_grid(lua_State *L) {
  SweepGrid g;
  read_alone(L, &g);
  Text *t = script_push_text(L);
  text_printf(t, "grid of %lld points:", (long long)g.points);
  for (int i = 0; i < g.n; i++) {
    text_printf(t, "%s %s", i ? ";" : "", g.axis[i].path);
    for (int k = 0; k < g.axis[i].n; k++)
      text_printf(t, "%s %s", k ? "," : "", g.axis[i].text[k]);
  }
  script_end_text(L);
  return 1;
}

int sweep_grid_make(lua_State *L) {
  static const luaL_Reg meta[] = {
      {"__len", grid_length}, {"__tostring", print_grid}, {NULL, NULL}};
  SweepGrid g;
  lua_settop(L, 1);
  read_alone(L, &g);
  lua_settop(L, 1);
  if (luaL_newmetatable(L, GRID_TYPE)) luaL_setfuncs(L, meta, 0);
  lua_setmetatable(L, 1);
  return 1;
}
