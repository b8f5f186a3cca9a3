/* sweep_options.c - reads the options of weft.sweep and leaves what is called or copied
 * later at its place on the stack. */
#include "sweep_int.h"

#include "bindings/object/plan_object.h"

static const char *const option_names[] = {"plan",  "over",    "where",   "score",
                                           "keep",  "max_gib", "measure", "csv",
                                           "jsonl", "resume",  "threads", NULL};

static const char *file_option(lua_State *L, const char *key, Arena *a) {
  int type = lua_getfield(L, OPTIONS, key);
  if (type != LUA_TNIL && type != LUA_TSTRING)
    luaL_error(L, "weft.sweep: %s is the name of a file, got %s", key,
               luaL_typename(L, -1));
  const char *s = arena_str(a, lua_tostring(L, -1));
  lua_pop(L, 1);
  return s;
}

static void check_files(lua_State *L, const Sweep *s) {
  if (s->jsonl && s->resume)
    luaL_error(L, "weft.sweep: resume goes on with its own file; leave out jsonl");
  const char *rows = s->jsonl ? s->jsonl : s->resume;
  if (s->csv && rows && strcmp(s->csv, rows) == 0)
    luaL_error(L, "weft.sweep: two outputs would be written to %s", s->csv);
}

/* The files that the command line names are those of the first sweep. */
static void read_files(lua_State *L, Sweep *s) {
  static const char used_key = 'u';
  const ScriptHost *h = script_host(L);
  s->csv = file_option(L, "csv", s->arena);
  s->jsonl = file_option(L, "jsonl", s->arena);
  s->resume = file_option(L, "resume", s->arena);
  if (!h || (!h->csv && !h->jsonl && !h->resume)) return;
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &used_key) != LUA_TNIL)
    luaL_error(L, "weft.sweep: the files of the command line are those of the first "
                  "sweep; name those of others with csv =, jsonl = and resume =");
  lua_pop(L, 1);
  lua_pushboolean(L, 1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &used_key);
  if (!s->csv) s->csv = h->csv;
  if (!s->jsonl) s->jsonl = h->jsonl;
  if (!s->resume) s->resume = h->resume;
}

static void read_score(lua_State *L, Sweep *s) {
  lua_getfield(L, OPTIONS, "score");
  if (lua_isfunction(L, SCORE) || lua_isnil(L, SCORE)) return;
  if (lua_type(L, SCORE) != LUA_TSTRING)
    luaL_error(L, "weft.sweep: score is a column or function(row), got %s",
               luaL_typename(L, SCORE));
  s->column = arena_str(s->arena, lua_tostring(L, SCORE));
  if (strcmp(s->column, "tokens_per_s") == 0)
    luaL_error(L, "weft.sweep: tokens_per_s is measured after the rows have been ordered "
                  "by another score");
  if (sweep_column(s->column) >= 0) return;
  const char *near = value_suggest(s->column, sweep_columns, SWEEP_COLUMNS);
  if (near)
    luaL_error(L, "weft.sweep: there is no column '%s' (did you mean '%s'?)", s->column,
               near);
  luaL_error(L, "weft.sweep: there is no column '%s'", s->column);
}

static void read_limit(lua_State *L, Sweep *s) {
  s->limit = LIMIT_GPU;
  if (lua_getfield(L, OPTIONS, "max_gib") != LUA_TNIL) {
    double v = lua_tonumber(L, -1);
    if (lua_type(L, -1) != LUA_TNUMBER || !(v > 0) || v > 1e9)
      luaL_error(L, "weft.sweep: max_gib is a positive number");
    s->limit = (uint64_t)(v * (1 << 30));
  }
  lua_pop(L, 1);
}

static void want_plan(lua_State *L) {
  int type = lua_getfield(L, OPTIONS, "plan");
  if (type == LUA_TNIL)
    luaL_error(L, "weft.sweep: plan is missing: a file, a plan or function(point)");
  if (type != LUA_TSTRING && type != LUA_TTABLE && type != LUA_TFUNCTION &&
      !plan_object_test(L, -1))
    luaL_error(L, "weft.sweep: plan is a file, a plan or function(point), got %s",
               luaL_typename(L, -1));
}

static void want_function(lua_State *L, const char *key, int at) {
  lua_getfield(L, OPTIONS, key);
  if (!lua_isnil(L, at) && !lua_isfunction(L, at))
    luaL_error(L, "weft.sweep: %s is a function, got %s", key, luaL_typename(L, at));
}

/* A plain list: that of weft.grid has methods, which plans do not take along. */
static void take_axes(lua_State *L, const Sweep *s) {
  lua_createtable(L, s->grid.n, 0);
  for (int i = 0; i < s->grid.n; i++) {
    lua_rawgeti(L, AXES, i + 1);
    lua_rawseti(L, -2, i + 1);
  }
  lua_replace(L, AXES);
}

void sweep_options(lua_State *L, Sweep *s) {
  check_options(L, OPTIONS, option_names);
  want_plan(L);
  bool function = lua_isfunction(L, -1);
  lua_pop(L, 1);
  lua_getfield(L, OPTIONS, "over");
  if (lua_isnil(L, AXES)) luaL_error(L, "weft.sweep: over is missing: a grid of values");
  sweep_grid_read(L, AXES, !function, s->arena, &s->grid);
  take_axes(L, s);
  read_score(L, s);
  want_function(L, "where", WHERE);
  lua_getfield(L, OPTIONS, "plan");
  read_limit(L, s);
  read_files(L, s);
  check_files(L, s);
}
