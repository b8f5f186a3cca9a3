/* graph_methods.c - methods of `g` for ops: one per forward op of vm/graph/ops.def, made
 * from op_info.
 *
 * A method takes the op's tensors in order and, last, a table of attributes named as in
 * OpAttr. Its key `name` is the op's module, for tp_plan, where that is not the module of
 * its parameter. A method returns the results that a model can use: see results_of. */
#include <math.h>
#include <string.h>

#include "bindings/sandbox/sandbox.h"
#include "graph_userdata.h"
#include "vm/base/terminal.h"
#include "vm/graph/op_attrs.h"
#include "vm/base/plural.h"

enum { MAX_IN = 8, MAX_OUT = 8 }; /* graph_op makes up to 8 results */

/* ---- attributes ---- */

static const OpKeys op_keys[] = {
#define TAKES(op, needed, ...) {OP_##op, needed, {__VA_ARGS__}},
#include "vm/graph/attrs.def"
};

const OpKeys *graph_op_keys(int code) {
  static const OpKeys none;
  for (int i = 0; i < LEN(op_keys); i++)
    if (op_keys[i].code == code) return &op_keys[i];
  return &none;
}

static int key_count(const OpKeys *k) {
  int n = 0;
  while (n < MAX_ATTR && k->key[n]) n++;
  return n;
}

/* Stores the list on top of the stack, of at most ROPE_FACTORS numbers. */
static void set_factors(lua_State *L, const char *op, float *to) {
  size_t n = lua_istable(L, -1) ? lua_rawlen(L, -1) : 0;
  if (n < 1 || n > ROPE_FACTORS)
    luaL_error(L, "g:%s: rope_factors must be a list of 1 to %d numbers", op,
               ROPE_FACTORS);
  for (size_t i = 0; i < n; i++, lua_pop(L, 1)) {
    int is = lua_rawgeti(L, -1, (lua_Integer)i + 1) == LUA_TNUMBER;
    to[i] = is ? (float)lua_tonumber(L, -1) : 0;
    if (!is || !isfinite((double)to[i]))
      luaL_error(L, "g:%s: rope_factors must be a list of finite numbers", op);
  }
}

/* Stores the attribute on top of the stack. */
static void set_attr(lua_State *L, const char *op, const AttrField *f, OpAttr *attr) {
  void *at = (char *)attr + f->at;
  int ok = lua_type(L, -1) == LUA_TNUMBER;
  if (f->storage != ATTR_INT32) {
    double v = lua_tonumber(L, -1);
    if (!ok || !isfinite(f->storage == ATTR_FLOAT ? (double)(float)v : v))
      luaL_error(L, "g:%s: %s must be a finite number, got %s", op, f->name,
                 plain_tostring(L, -1));
    if (f->storage == ATTR_FLOAT)
      *(float *)at = (float)v;
    else
      *(double *)at = v;
    return;
  }
  lua_Integer v = ok ? lua_tointegerx(L, -1, &ok) : 0;
  if (!ok || v < 0 || v > INT32_MAX)
    luaL_error(L, "g:%s: %s must be an integer from 0, got %s", op, f->name,
               plain_tostring(L, -1));
  *(int32_t *)at = (int32_t)v;
}

/* Raises an error for the first key, in sorted order, of the table at `t` that the op
 * does not have. */
static void unknown_attr(lua_State *L, const char *op, const OpKeys *k, int t) {
  int n = key_count(k);
  const char *name = NULL;
  luaL_argexpected(L, sorted_keys(L, t), t, "table of names");
  for (int i = 1; !name && lua_rawgeti(L, -1, i) != LUA_TNIL; i++, lua_pop(L, 1)) {
    const char *key = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
    bool known = false;
    for (int j = 0; j < n; j++) known |= strcmp(k->key[j], key) == 0;
    if (!known) name = plain_tostring(L, -1), lua_insert(L, -2);
  }
  const char *near = str_nearest(name, k->key, n);
  if (near)
    luaL_error(L, "g:%s: unknown attribute \"%s\" (did you mean \"%s\"?)", op, name,
               near);
  if (n == 0) luaL_error(L, "g:%s takes no attributes, got \"%s\"", op, name);
  luaL_Buffer b;
  luaL_buffinit(L, &b);
  for (int i = 0; i < n; i++) {
    if (i) luaL_addstring(&b, ", ");
    luaL_addstring(&b, k->key[i]);
  }
  luaL_pushresult(&b);
  luaL_error(L, "g:%s: unknown attribute \"%s\" (it takes: %s)", op, name,
             lua_tostring(L, -1));
}

/* Pushes t[key]; *found counts it if it is not nil. */
static int field(lua_State *L, int t, const char *key, int *found) {
  lua_pushstring(L, key);
  int type = lua_rawget(L, t);
  *found += type != LUA_TNIL;
  return type;
}

/* Reads the table at `t`, or nothing if t is 0. *name lives as long as the table. The
 * order of its keys, which differs between runs, does not matter. */
static void read_attrs(lua_State *L, int code, int t, OpAttr *attr, const char **name) {
  const OpKeys *k = graph_op_keys(code);
  const char *op = op_info[code].name;
  bool given[MAX_ATTR] = {false};
  int keys = key_count(k), found = 0, entries = 0;
  for (int i = 0; t && i < keys; i++, lua_pop(L, 1)) {
    given[i] = field(L, t, k->key[i], &found) != LUA_TNIL;
    if (given[i] && str_eq(k->key[i], "rope_factors"))
      set_factors(L, op, attr->rope_factors);
    else if (given[i])
      set_attr(L, op, attr_find(k->key[i]), attr);
  }
  if (t) {
    size_t n = 0;
    if (field(L, t, "name", &found) == LUA_TSTRING)
      *name = lua_tolstring(L, -1, &n);
    else if (!lua_isnil(L, -1))
      luaL_error(L, "g:%s: name must be a string, got a %s", op, luaL_typename(L, -1));
    if (*name && (strlen(*name) < n || has_control(*name)))
      luaL_error(L, "g:%s: the name \"%s\" has control characters", op, *name);
    lua_pop(L, 1);
    for (lua_pushnil(L); state_next(L, t); lua_pop(L, 1)) entries++;
    if (entries != found) unknown_attr(L, op, k, t);
  }
  for (int i = 0; i < k->need; i++)
    if (!given[i]) luaL_error(L, "g:%s: attribute \"%s\" is missing", op, k->key[i]);
  if (code == OP_attention && !given[1]) attr->scale = (float)(1 / sqrt(attr->head_dim));
}

/* ---- ops ---- */

/* How many results a method returns; statistics that only the gradient reads are left
 * out. */
static int results_of(int code, const OpAttr *attr) {
  switch (code) {
  case OP_split: return attr->n;
  case OP_split_heads:
  case OP_ssm_steps:
  case OP_split_pairs: return 2;
  case OP_route: return 2;
  case OP_permute: return 3;
  default: return 1;
  }
}

typedef struct OpWork {
  Graph *g;
  const char *name; /* the module, or NULL */
  int code, nin, line;
  Tid in[MAX_IN], out[MAX_OUT];
  OpAttr attr;
} OpWork;

/* Ops that draw by the numbers of tokens, which they get by themselves. */
static bool draws(int code) { return code == OP_dropout || code == OP_noise; }

/* Numbers the last op among the dropouts, or attentions, of its unit, which need not be
 * open: ops outside of units have one of their own. */
static void number_site(Graph *g) {
  Op *op = &g->op.at[g->op.n - 1];
  if (!draws(op->code) && op->code != OP_attention) return;
  for (int i = g->op.n - 2; i >= 0 && g->op.at[i].unit == op->unit; i--) {
    if (g->op.at[i].code != op->code) continue;
    op->attr.site = g->op.at[i].attr.site + 1;
    return;
  }
}

/* The tensors that a method takes; what drops gets the numbers of tokens by itself. */
static int operands_of(int code) { return op_info[code].nin - draws(code); }

static weft_status add_op(void *arg, weft_error *e) {
  OpWork *w = arg;
  if (w->attr.rate != 0) w->in[w->nin++] = graph_input(w->g, IN_TOKEN_NUMBERS);
  TRY(graph_op(w->g, w->code, w->in, w->nin, &w->attr, w->name, w->line, w->out, e));
  number_site(w->g);
  return WEFT_OK;
}

/* Reads the tensors in arguments 2 .. last. In an op with any number of tensors, optional
 * ones may be nil, as the result of g:doc_starts() may be. */
static void read_operands(lua_State *L, GraphUd *u, int last, OpWork *w) {
  const OpInfo *info = &op_info[w->code];
  int takes = operands_of(w->code);
  if (info->nin >= 0 && last - 1 != takes)
    luaL_error(L, "g:%s takes %d tensor%s, got %d: %s", info->name, takes,
               plural(takes, "s"), last - 1, info->doc);
  for (int i = 2; i <= last; i++) {
    if (info->nin < 0 && lua_isnil(L, i)) continue;
    if (w->nin == MAX_IN) luaL_error(L, "g:%s: more than %d tensors", info->name, MAX_IN);
    const char *what = lua_pushfstring(L, "g:%s: operand %d", info->name, i - 1);
    w->in[w->nin++] = graph_tensor_arg(L, u, i, what);
    lua_pop(L, 1);
  }
}

static int op_method(lua_State *L) {
  GraphUd *u = graph_self(L);
  OpWork w = {.g = u->graph, .code = (int)lua_tointeger(L, lua_upvalueindex(1))};
  int last = lua_gettop(L), attrs = last > 1 && lua_istable(L, last) ? last : 0;
  read_operands(L, u, attrs ? last - 1 : last, &w);
  read_attrs(L, w.code, attrs, &w.attr, &w.name);
  if (second_open(u->graph)) w.attr.rate = 0; /* it is not trained */
  if (draws(w.code) && w.attr.rate == 0) {
    lua_pushvalue(L, 2);
    return 1;
  }
  if (w.code == OP_split && (w.attr.n < 1 || w.attr.n > MAX_OUT))
    return luaL_error(L, "g:split: n must be from 1 to %d, got %d", MAX_OUT, w.attr.n);
  w.line = graph_line(L, u);
  graph_do(L, u, add_op, &w);
  int n = results_of(w.code, &w.attr);
  luaL_checkstack(L, n, "too many results");
  for (int i = 0; i < n; i++) graph_push_tensor(L, 1, u, w.out[i]);
  return n;
}

/* Adds a method for each op with an infer rule: the forward ops. */
void graph_push_ops(lua_State *L) {
  for (int code = 0; code < OP_N; code++) {
    if (!op_info[code].infer) continue;
    lua_pushinteger(L, code);
    lua_pushcclosure(L, op_method, 1);
    lua_setfield(L, -2, op_info[code].name);
  }
  graph_push_losses(L);
}
