/* graph_param.c - g:param(name, dims, opts): a parameter with tagged dimensions; and
 * g:buffer(name, value): a number beside them. */
#include <math.h>
#include <string.h>

#include "bindings/plan_table/plan_table.h"
#include "bindings/sandbox/length.h"
#include "graph_userdata.h"
#include "vm/base/terminal.h"

typedef struct ParamWork {
  Graph *g;
  const char *name;
  Dim dim[MAX_DIM];
  int ndim;
  InitKind init;
  float std;
  int line;
  Tid out;
} ParamWork;

static weft_status make_param(void *arg, weft_error *e) {
  ParamWork *w = arg;
  TRY(graph_param(w->g, w->name, w->dim, w->ndim, w->init, w->std, &w->out, e));
  Param *p = &w->g->param.at[w->g->t.at[w->out].index];
  if (!p->line) p->line = w->line;
  return WEFT_OK;
}

static bool key_known(lua_State *L, int key, const char *const *known, int n, int list) {
  if (lua_isinteger(L, key))
    return lua_tointeger(L, key) >= 1 && lua_tointeger(L, key) <= list;
  if (lua_type(L, key) != LUA_TSTRING) return false;
  for (int i = 0; i < n; i++)
    if (str_eq(known[i], lua_tostring(L, key))) return true;
  return false;
}

/* Raises an error for keys of the table at `t` (absolute index) that are neither in
 * `known` nor among its first `list` items. */
static void check_keys(lua_State *L, int t, const char *const *known, int n, int list,
                       const char *what) {
  bool good = true;
  for (lua_pushnil(L); state_next(L, t); lua_pop(L, 1))
    good = good && key_known(L, -2, known, n, list);
  if (good) return;
  /* sorted, so that the error is the same in every run */
  if (!sorted_keys(L, t)) luaL_error(L, "%s: a key is neither a name nor a number", what);
  int keys = lua_gettop(L);
  for (int i = 1; lua_rawgeti(L, keys, i) != LUA_TNIL; i++, lua_settop(L, keys)) {
    if (key_known(L, -1, known, n, list)) continue;
    const char *key = plain_tostring(L, -1);
    if (lua_type(L, keys + 1) == LUA_TNUMBER)
      luaL_error(L, "%s: unexpected item %s", what, key);
    const char *near = str_nearest(key, known, n);
    if (near)
      luaL_error(L, "%s: unknown option \"%s\" (did you mean \"%s\"?)", what, key, near);
    luaL_error(L, "%s: unknown option \"%s\"", what, key);
  }
}

/* Reads a positive integer field of the table on top; `key` NULL: its second item. */
static int64_t count_field(lua_State *L, const char *key, int64_t absent, int64_t max,
                           const char *what) {
  if (key)
    field_push(L, -1, key);
  else
    lua_rawgeti(L, -1, 2);
  int ok;
  int64_t v = lua_tointegerx(L, -1, &ok);
  if (lua_isnil(L, -1) && absent > 0) v = absent, ok = 1;
  if (!ok || lua_type(L, -1) == LUA_TSTRING || v < 1 || v > max)
    luaL_error(L, "%s: %s must be a positive integer, got %s", what, key ? key : "size",
               plain_tostring(L, -1));
  lua_pop(L, 1);
  return v;
}

static int tag_field(lua_State *L, const char *what) {
  lua_rawgeti(L, -1, 1);
  if (lua_type(L, -1) != LUA_TSTRING)
    luaL_error(L, "%s: the first item is the tag, such as \"hidden\"", what);
  const char *s = lua_tostring(L, -1);
  int tag = tag_parse(s);
  if (tag < 0) {
    const char *names[TAG_N];
    for (int i = 0; i < TAG_N; i++) names[i] = tag_name(i);
    const char *near = str_nearest(s, names, TAG_N);
    luaL_Buffer b;
    luaL_buffinit(L, &b);
    for (int i = 0; i < TAG_N; i++) {
      if (i) luaL_addstring(&b, ", ");
      luaL_addstring(&b, names[i]);
    }
    luaL_pushresult(&b);
    luaL_error(L, "%s: unknown tag \"%s\" (%s%s)", what, s,
               near ? "did you mean " : "one of: ", near ? near : lua_tostring(L, -1));
  }
  lua_pop(L, 1);
  return tag;
}

/* Reads a dimension on top of the stack: { "head", 4096, unit = 128, parts = 3 }. */
static Dim one_dim(lua_State *L, const char *what) {
  static const char *const known[] = {"unit", "parts"};
  if (!lua_istable(L, -1))
    luaL_error(L, "%s: a dimension is { tag, size }, got %s", what, luaL_typename(L, -1));
  check_keys(L, lua_gettop(L), known, LEN(known), 2, what);
  Dim d = {.tag = (uint8_t)tag_field(L, what)};
  d.size = d.local = count_field(L, NULL, 0, (int64_t)1 << 48, what);
  d.unit = (int32_t)count_field(L, "unit", 1, INT32_MAX, what);
  d.parts = (uint8_t)count_field(L, "parts", 1, UINT8_MAX, what);
  if (d.size % ((int64_t)d.unit * d.parts))
    luaL_error(L, "%s: size %I is not a multiple of unit * parts = %I", what,
               (LUAI_UACINT)d.size, (LUAI_UACINT)((int64_t)d.unit * d.parts));
  return d;
}

static void param_dims(lua_State *L, int arg, ParamWork *w) {
  if (!lua_istable(L, arg))
    luaL_error(L,
               "g:param(\"%s\"): the second argument is the list of dimensions, such "
               "as { { \"ffn\", 4096 }, { \"hidden\", 1024 } }",
               w->name);
  lua_Integer n = list_length(L, arg);
  if (n < 0)
    luaL_error(L, "g:param(\"%s\"): the list of dimensions has other keys or holes",
               w->name);
  if (n < 1 || n > MAX_DIM)
    luaL_error(L, "g:param(\"%s\"): between 1 and %d dimensions, got %I", w->name,
               MAX_DIM, n);
  for (w->ndim = 0; w->ndim < n; w->ndim++) {
    const char *what =
        lua_pushfstring(L, "g:param(\"%s\"), dimension %d", w->name, w->ndim + 1);
    lua_rawgeti(L, arg, w->ndim + 1);
    w->dim[w->ndim] = one_dim(L, what);
    lua_pop(L, 2);
  }
}

/* Reads the number that all elements begin as. */
static void init_number(lua_State *L, ParamWork *w, const char *what) {
  w->init = INIT_NUMBER;
  w->std = (float)lua_tonumber(L, -1);
  if (!isfinite((double)w->std))
    luaL_error(L, "%s: init must be a finite number, got %s", what,
               plain_tostring(L, -1));
}

static void param_options(lua_State *L, int arg, ParamWork *w) {
  static const char *const known[] = {"init", "std"};
  static const char *const inits[] = {"normal", "zeros", "ones"};
  w->init = INIT_NORMAL;
  w->std = 0.02f;
  if (lua_isnoneornil(L, arg)) return;
  const char *what = lua_pushfstring(L, "g:param(\"%s\")", w->name);
  if (!lua_istable(L, arg))
    luaL_error(L, "%s: the third argument is a table of options (init, std)", what);
  check_keys(L, arg, known, LEN(known), 0, what);
  int type = field_push(L, arg, "init");
  if (type == LUA_TNUMBER) {
    init_number(L, w, what);
  } else if (type != LUA_TNIL) {
    const char *s = lua_tostring(L, -1);
    int i = 0;
    while (i < LEN(inits) && !str_eq(s, inits[i])) i++;
    if (i == LEN(inits))
      luaL_error(L,
                 "%s: init must be \"normal\", \"zeros\", \"ones\" or a number, got %s",
                 what, plain_tostring(L, -1));
    w->init = (InitKind)i;
  }
  if (field_push(L, arg, "std") != LUA_TNIL) {
    float std = (float)lua_tonumber(L, -1);
    if (lua_type(L, -1) != LUA_TNUMBER || !(std >= 0 && std < 1e6f))
      luaL_error(L, "%s: std must be a number from 0 and below 1e6, got %s", what,
                 plain_tostring(L, -1));
    if (w->init != INIT_NORMAL) luaL_error(L, "%s: std is of init = \"normal\"", what);
    w->std = std;
  }
  lua_pop(L, 3);
}

typedef struct BufferWork {
  Graph *g;
  const char *name;
  float value;
} BufferWork;

static weft_status make_buffer(void *arg, weft_error *e) {
  BufferWork *w = arg;
  return graph_buffer(w->g, w->name, w->value, e);
}

/* The name that is argument 2 of a method, of `what` it makes. */
static const char *name_arg(lua_State *L, const char *method, const char *what) {
  if (lua_type(L, 2) != LUA_TSTRING)
    luaL_error(L, "g:%s: the first argument is the %s's name, got %s", method, what,
               luaL_typename(L, 2));
  size_t n;
  const char *name = lua_tolstring(L, 2, &n);
  if (strlen(name) < n || has_control(name))
    luaL_error(L, "g:%s: the name \"%s\" has control characters", method, name);
  return name;
}

/* g:buffer(name, value) */
int graph_buffer_method(lua_State *L) {
  GraphUd *u = graph_self(L);
  BufferWork w = {.g = u->graph, .name = name_arg(L, "buffer", "buffer")};
  w.value = (float)lua_tonumber(L, 3);
  if (lua_type(L, 3) != LUA_TNUMBER || !isfinite((double)w.value))
    return luaL_error(L, "g:buffer(\"%s\"): a finite number is expected, got %s", w.name,
                      plain_tostring(L, 3));
  graph_do(L, u, make_buffer, &w);
  return 0;
}

/* g:param(name, { { tag, size, unit =, parts = }, ... }, { init =, std = }) */
int graph_param_method(lua_State *L) {
  GraphUd *u = graph_self(L);
  ParamWork w = {.g = u->graph, .line = graph_line(L, u)};
  w.name = name_arg(L, "param", "parameter");
  if (lua_gettop(L) > 4)
    return luaL_error(L, "g:param(\"%s\") takes a name, dimensions and options", w.name);
  param_dims(L, 3, &w);
  param_options(L, 4, &w);
  graph_do(L, u, make_param, &w);
  graph_push_tensor(L, 1, u, w.out);
  return 1;
}
