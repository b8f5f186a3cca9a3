/* graph_userdata.c - the userdata `g` and its tensors: inputs and units. g:param is in
 * graph_param.c, the methods of ops in graph_methods.c; model_call.c calls model
 * functions.
 *
 * No C resource is owned by C code while Lua may raise an error: the graph is in its
 * arena. */
#include "graph_userdata.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "model.h"
#include "bindings/sandbox/lua_fields.h"

/* ---- calls into the graph core ---- */

typedef struct Work {
  GraphWork fn;
  void *arg;
  weft_status st;
  weft_error e;
} Work;

static void do_work(void *ud) {
  Work *w = ud;
  w->st = w->fn(w->arg, &w->e);
}

void graph_do(lua_State *L, GraphUd *u, GraphWork fn, void *arg) {
  Work w = {.fn = fn, .arg = arg, .e = NO_ERROR};
  if (!arena_try(u->graph->arena, do_work, &w)) {
    u->out_of_memory = true;
    luaL_error(L, "not enough memory for the model's graph");
  }
  if (w.st != WEFT_OK) luaL_error(L, "%s", w.e.text);
}

/* ---- arguments ---- */

GraphUd *graph_self(lua_State *L) {
  GraphUd *u = luaL_testudata(L, 1, GRAPH_TYPE);
  if (!u) luaL_error(L, "the graph is missing: write g:method(...), with a colon");
  if (!u->graph) luaL_error(L, "this graph is finished: the model function has returned");
  return u;
}

Tid graph_tensor_arg(lua_State *L, GraphUd *u, int arg, const char *what) {
  TensorUd *t = luaL_testudata(L, arg, TENSOR_TYPE);
  if (!t) luaL_error(L, "%s must be a tensor, got %s", what, luaL_typename(L, arg));
  if (t->owner != u) luaL_error(L, "%s belongs to another graph", what);
  return t->id;
}

void graph_push_tensor(lua_State *L, int self, GraphUd *u, Tid id) {
  TensorUd *t = lua_newuserdatauv(L, sizeof *t, 1);
  t->owner = u;
  t->id = id;
  lua_pushvalue(L, self);
  lua_setiuservalue(L, -2, 1);
  luaL_setmetatable(L, TENSOR_TYPE);
}

/* The line in the nearest frame that runs code of the model function's file. */
static int line_of(lua_State *L, const char *source) {
  lua_Debug ar;
  for (int level = 0; source && lua_getstack(L, level, &ar); level++) {
    lua_getinfo(L, "Sl", &ar);
    if (ar.currentline > 0 && strcmp(ar.source, source) == 0) return ar.currentline;
  }
  return 0;
}

int graph_line(lua_State *L, const GraphUd *u) { return line_of(L, u->source); }

/* ---- tensors ---- */

static const Tensor *self_tensor(lua_State *L) {
  TensorUd *t = luaL_checkudata(L, 1, TENSOR_TYPE);
  if (!t->owner->graph)
    luaL_error(L, "this tensor's graph is finished: the model function has returned");
  return &t->owner->graph->t.at[t->id];
}

/* t:shape() -> { 4, 64, 128 } */
static int tensor_shape(lua_State *L) {
  const Tensor *t = self_tensor(L);
  lua_createtable(L, t->ndim, 0);
  for (int i = 0; i < t->ndim; i++) {
    lua_pushinteger(L, t->dim[i].size);
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

/* t:size(i): i from 1, or from -1 for the last dimension. */
static int tensor_size(lua_State *L) {
  const Tensor *t = self_tensor(L);
  lua_Integer i = luaL_checkinteger(L, 2);
  if (i < 0) i += t->ndim + 1;
  if (i < 1 || i > t->ndim)
    return luaL_error(L, "dimension %I does not exist: the tensor has %d",
                      luaL_checkinteger(L, 2), t->ndim);
  lua_pushinteger(L, t->dim[i - 1].size);
  return 1;
}

/* tensor (batch 4, seq 64, hidden 128) act */
static int tensor_tostring(lua_State *L) {
  TensorUd *ud = luaL_checkudata(L, 1, TENSOR_TYPE);
  if (!ud->owner->graph) {
    lua_pushliteral(L, "tensor of a finished graph");
    return 1;
  }
  const Tensor *t = &ud->owner->graph->t.at[ud->id];
  luaL_Buffer b;
  luaL_buffinit(L, &b);
  luaL_addstring(&b, "tensor (");
  for (int i = 0; i < t->ndim; i++) {
    const Dim *d = &t->dim[i];
    if (i) luaL_addstring(&b, ", ");
    if (d->tag != TAG_NONE) {
      luaL_addstring(&b, tag_name(d->tag));
      luaL_addchar(&b, ' ');
    }
    lua_pushinteger(L, d->size);
    luaL_addvalue(&b);
  }
  luaL_addstring(&b, ") ");
  luaL_addstring(&b, dtype_name(t->dtype));
  luaL_pushresult(&b);
  return 1;
}

/* ---- inputs ---- */

typedef struct InputWork {
  Graph *g;
  InputKind kind;
  Tid out;
} InputWork;

static weft_status make_input(void *arg, weft_error *e) {
  InputWork *w = arg;
  w->out = graph_input(w->g, w->kind);
  return WEFT_OK;
}

static int input_method(lua_State *L, InputKind kind) {
  GraphUd *u = graph_self(L);
  InputWork w = {u->graph, kind, -1};
  graph_do(L, u, make_input, &w);
  graph_push_tensor(L, 1, u, w.out);
  return 1;
}

/* g:tokens(), or g:tokens(k): those k places further on. */
static int ahead_method(lua_State *L, InputKind of, const char *name) {
  int ok = 1;
  lua_Integer k = lua_isnoneornil(L, 2) ? 0 : lua_tointegerx(L, 2, &ok);
  if (!ok || k < 0 || k > NEXT_MOST)
    return luaL_error(L, "g:%s takes how many places ahead, from 0 to %d, got %s", name,
                      NEXT_MOST, plain_tostring(L, 2));
  return input_method(L, input_ahead(of, (int)k));
}

static int g_tokens(lua_State *L) { return ahead_method(L, IN_TOKENS, "tokens"); }
static int g_labels(lua_State *L) { return ahead_method(L, IN_LABELS, "labels"); }
static int g_positions(lua_State *L) { return input_method(L, IN_POSITIONS); }

/* g:moe(): the plan's moe settings, as attributes of g:router_loss and g:permute. */
static int g_moe(lua_State *L) {
  const MoePlan *m = graph_self(L)->moe;
  bool drops = m->capacity > 0 || m->drops;
  lua_createtable(L, 0, 8);
  set_number(L, "aux", m->aux);
  set_integer(L, "aux_sequences", m->aux_sequences);
  set_boolean(L, "running", m->aux_batch == AUX_GLOBAL);
  set_integer(L, "sinkhorn", m->sinkhorn_sequences);
  set_integer(L, "groups", m->groups);
  set_integer(L, "topk_group", m->group_topk);
  set_number(L, "z", m->z);
  set_number(L, "capacity", m->capacity);
  set_number(L, "bound", m->most);
  set_integer(L, "drop", !drops ? DROP_NONE : m->drop ? m->drop : DROP_PROBS);
  return 1;
}

/* g:context(): how many tokens a sequence has, those before a token that is sampled too.
 */
static int g_context(lua_State *L) {
  const Graph *g = graph_self(L)->graph;
  lua_pushinteger(L, g->context ? g->context : g->seq);
  return 1;
}

/* g:noise_alpha(): the plan's train.neftune_noise_alpha; 0 of a second model. */
static int g_noise_alpha(lua_State *L) {
  GraphUd *u = graph_self(L);
  bool own = !second_open(u->graph);
  u->noise_asked |= own;
  lua_pushnumber(L, own ? u->noise_alpha : 0);
  return 1;
}

/* g:mtp(): how many further tokens the plan has the model predict, and the factor of
 * their losses; 0 of a second model. */
static int g_mtp(lua_State *L) {
  GraphUd *u = graph_self(L);
  bool own = !second_open(u->graph);
  u->mtp_asked |= own;
  lua_pushinteger(L, own ? u->mtp->layers : 0);
  lua_pushnumber(L, u->mtp->weight);
  return 2;
}

/* g:doc_starts(): nil unless the plan packs documents (see model.h). */
static int g_doc_starts(lua_State *L) {
  GraphUd *u = graph_self(L);
  if (u->graph->input[IN_DOC_STARTS] < 0) return 0;
  return input_method(L, IN_DOC_STARTS);
}

/* ---- units ---- */

typedef struct UnitWork {
  Graph *g;
  const char *name;
  int layer;
} UnitWork;

static weft_status open_unit(void *arg, weft_error *e) {
  UnitWork *w = arg;
  return graph_open_unit(w->g, w->name, w->layer, e);
}

/* Calls the function at index 3 inside the unit and returns its results. */
static int run_unit(lua_State *L, GraphUd *u, const char *name, int layer) {
  if (!lua_isfunction(L, 3))
    return luaL_error(L, "unit \"%s\": the second argument is a function, got %s", name,
                      luaL_typename(L, 3));
  UnitWork w = {u->graph, name, layer};
  graph_do(L, u, open_unit, &w);
  int top = lua_gettop(L);
  lua_pushvalue(L, 3);
  lua_call(L, 0, LUA_MULTRET);
  graph_close_unit(u->graph);
  return lua_gettop(L) - top;
}

/* g:layer(i, fn): runs fn in the unit "layers.i", i from 0. */
static int g_layer(lua_State *L) {
  GraphUd *u = graph_self(L);
  int ok;
  lua_Integer i = lua_tointegerx(L, 2, &ok);
  if (!ok || lua_type(L, 2) != LUA_TNUMBER || i < 0 || i > INT_MAX)
    return luaL_error(L,
                      "g:layer: the first argument is the layer's number from 0, "
                      "got %s",
                      plain_tostring(L, 2));
  return run_unit(L, u, lua_pushfstring(L, "layers.%I", i), (int)i);
}

static int g_unit(lua_State *L) {
  GraphUd *u = graph_self(L);
  if (lua_type(L, 2) != LUA_TSTRING)
    return luaL_error(L, "g:unit: the first argument is the unit's name, got %s",
                      luaL_typename(L, 2));
  return run_unit(L, u, lua_tostring(L, 2), -1);
}

/* ---- the userdata's types ---- */

/* Suggests a method for an unknown name. Upvalue 1: the table of methods. */
static int unknown_method(lua_State *L) {
  lua_pushvalue(L, 2);
  if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL) return 1;
  const char *key = plain_tostring(L, 2), *names[OP_N + 16];
  int n = 0;
  for (lua_pushnil(L); n < LEN(names) && lua_next(L, lua_upvalueindex(1)); lua_pop(L, 1))
    names[n++] = lua_tostring(L, -2);
  const char *near = str_nearest(key, names, n);
  if (near) return luaL_error(L, "g has no \"%s\" (did you mean \"%s\"?)", key, near);
  return luaL_error(L, "g has no \"%s\"", key);
}

static int g_tostring(lua_State *L) {
  GraphUd *u = luaL_checkudata(L, 1, GRAPH_TYPE);
  if (u->graph)
    lua_pushfstring(L, "graph (%d parameters, %d ops)", u->graph->param.n,
                    u->graph->op.n);
  else
    lua_pushliteral(L, "graph (finished)");
  return 1;
}

void graph_make_types(lua_State *L) {
  static const luaL_Reg methods[] = {{"tokens", g_tokens},
                                     {"labels", g_labels},
                                     {"positions", g_positions},
                                     {"doc_starts", g_doc_starts},
                                     {"layer", g_layer},
                                     {"param", graph_param_method},
                                     {"buffer", graph_buffer_method},
                                     {"unit", g_unit},
                                     {"moe", g_moe},
                                     {"mtp", g_mtp},
                                     {"noise_alpha", g_noise_alpha},
                                     {"context", g_context},
                                     {NULL, NULL}};
  static const luaL_Reg tensor[] = {
      {"shape", tensor_shape}, {"size", tensor_size}, {NULL, NULL}};
  if (luaL_newmetatable(L, GRAPH_TYPE)) {
    luaL_newlib(L, methods);
    graph_push_ops(L);
    lua_pushcclosure(L, unknown_method, 1);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, g_tostring);
    lua_setfield(L, -2, "__tostring");
    set_boolean(L, "__metatable", false);
  }
  if (luaL_newmetatable(L, TENSOR_TYPE)) {
    luaL_newlib(L, tensor);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, tensor_tostring);
    lua_setfield(L, -2, "__tostring");
    set_boolean(L, "__metatable", false);
  }
  lua_pop(L, 2);
}
