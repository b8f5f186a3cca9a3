/* graph_loss.c - methods of `g` for losses that add several ops: g:cross_entropy,
 * g:token_losses, g:divergence; and g:loss, by which a model ends in the loss of the
 * plan.
 */
#include <math.h>

#include "bindings/sandbox/sandbox.h"
#include "graph_userdata.h"
#include "vm/base/plural.h"

typedef struct LossWork {
  Graph *g;
  Tid logits, labels, other, out; /* other: the logits that a divergence is from */
  double beta;
  bool tells; /* the cross entropy of each source of the data, too, */
  bool alone; /* even if no loss depends on it */
  float z;    /* of a cross entropy: the coefficient of its z-loss */
  int line;
} LossWork;

static weft_status op(const LossWork *w, int code, const Tid *in, int nin,
                      const OpAttr *attr, Tid *out, weft_error *e) {
  return graph_op(w->g, code, in, nin, attr, NULL, w->line, out, e);
}

static OpAttr vocabulary(const LossWork *w, Tid logits) {
  const Tensor *t = &w->g->t.at[logits];
  return (OpAttr){.vocab = (int32_t)t->dim[t->ndim - 1].size, .beta = w->beta};
}

/* Maximum and sums of logits: out[0] and out[1]. */
static weft_status add_stats(const LossWork *w, Tid logits, Tid out[2], weft_error *e) {
  OpAttr attr = vocabulary(w, logits);
  attr.beta = 0;
  TRY(op(w, OP_ce_max, &logits, 1, &attr, &out[0], e));
  attr.z = w->z;
  return op(w, OP_ce_sum, (Tid[]){logits, w->labels, out[0]}, 3, &attr, &out[1], e);
}

/* ---- cross entropy ---- */

/* The source of each label, in the shape of the labels. */
static weft_status sources_of(const LossWork *w, Tid *out, weft_error *e) {
  *out = graph_input(w->g, IN_SOURCES);
  if (w->g->t.at[w->labels].ndim != 1) return WEFT_OK;
  return op(w, OP_flatten, (Tid[]){*out}, 1, &(OpAttr){0}, out, e);
}

static weft_status add_cross_entropy(void *arg, weft_error *e) {
  LossWork *w = arg;
  Tid s[2];
  TRY(add_stats(w, w->logits, s, e));
  Tid in[4] = {s[1], w->labels, s[0]};
  bool tells = w->tells && w->g->sources;
  OpAttr attr = {.n = tells ? w->g->sources : 0, .z = w->z};
  int n = w->z != 0 ? 3 : 2;
  if (tells) TRY(sources_of(w, &in[n++], e));
  TRY(op(w, OP_ce_loss, in, n, &attr, &w->out, e));
  if (tells && w->alone) w->g->told = w->out;
  return WEFT_OK;
}

static weft_status add_token_losses(void *arg, weft_error *e) {
  LossWork *w = arg;
  Tid s[2];
  TRY(add_stats(w, w->logits, s, e));
  return op(w, OP_ce_losses, (Tid[]){s[1], w->labels}, 2, NULL, &w->out, e);
}

/* Whether a cross entropy is that of which each source has a part: of a model without a
 * loss of the plan any is, of one with it the first of the model's own logits and labels.
 */
static bool is_told(GraphUd *u, Tid logits, Tid labels) {
  if (second_open(u->graph)) return false;
  if (u->loss.fn == LUA_NOREF) return true;
  bool first = !u->loss.told && logits == u->loss.own;
  if (!first || labels != graph_input(u->graph, IN_LABELS)) return false;
  return u->loss.told = true;
}

static int of_logits(lua_State *L, const char *name, float z, GraphWork fn) {
  GraphUd *u = graph_self(L);
  if (lua_gettop(L) != 3)
    return luaL_error(L, "g:%s takes logits and labels, got %d tensor%s", name,
                      lua_gettop(L) - 1, plural(lua_gettop(L) - 1, "s"));
  LossWork w = {.g = u->graph, .z = z, .line = graph_line(L, u)};
  w.logits = graph_tensor_arg(L, u, 2, lua_pushfstring(L, "g:%s: logits", name));
  w.labels = graph_tensor_arg(L, u, 3, lua_pushfstring(L, "g:%s: labels", name));
  w.tells = fn == add_cross_entropy && is_told(u, w.logits, w.labels);
  w.alone = u->loss.fn != LUA_NOREF;
  graph_do(L, u, fn, &w);
  graph_push_tensor(L, 1, u, w.out);
  return 1;
}

/* The attribute z_loss of the table at 4, which is taken away; 0 without a table. */
static float z_loss_arg(lua_State *L) {
  if (lua_gettop(L) != 4 || !lua_istable(L, 4)) return 0;
  for (lua_pushnil(L); state_next(L, 4); lua_pop(L, 1))
    if (lua_type(L, -2) != LUA_TSTRING || !str_eq(lua_tostring(L, -2), "z_loss"))
      luaL_error(L, "g:cross_entropy: unknown attribute \"%s\" (it takes: z_loss)",
                 plain_tostring(L, -2));
  lua_pushliteral(L, "z_loss");
  int type = lua_rawget(L, 4);
  double z = lua_tonumber(L, -1);
  if (type != LUA_TNIL && (type != LUA_TNUMBER || !(z >= 0) || !isfinite((float)z)))
    luaL_error(L, "g:cross_entropy: z_loss must be a number from 0, got %s",
               plain_tostring(L, -1));
  lua_settop(L, 3);
  return (float)z;
}

/* g:cross_entropy(logits, labels [, { z_loss = 1e-4 }]): the sum of losses over all
 * labels but -100. The seed of its gradient divides it by the number of labels in the
 * whole step.
 */
static int g_cross_entropy(lua_State *L) {
  float z = z_loss_arg(L);
  return of_logits(L, "cross_entropy", z, add_cross_entropy);
}

/* g:token_losses(logits, labels): one for each label; 0 where that is -100. */
static int g_token_losses(lua_State *L) {
  return of_logits(L, "token_losses", 0, add_token_losses);
}

/* ---- divergence ---- */

static weft_status add_divergence(void *arg, weft_error *e) {
  LossWork *w = arg;
  Tid x[2], y[2], d;
  OpAttr attr = vocabulary(w, w->logits);
  TRY(add_stats(w, w->logits, x, e));
  TRY(add_stats(w, w->other, y, e));
  TRY(op(w, OP_divergence_sums,
         (Tid[]){w->logits, w->other, w->labels, x[0], x[1], y[0], y[1]}, 7, &attr, &d,
         e));
  return op(w, OP_divergence_rows, &d, 1, NULL, &w->out, e);
}

/* g:divergence(logits, others, labels, { beta = 0.5 }): see divergence_sums. */
static int g_divergence(lua_State *L) {
  GraphUd *u = graph_self(L);
  if (lua_gettop(L) != 5 || !lua_istable(L, 5))
    return luaL_error(L, "g:divergence takes logits, the logits that they are compared "
                         "with, labels and { beta = from 0 to 1 }");
  LossWork w = {.g = u->graph, .line = graph_line(L, u)};
  w.logits = graph_tensor_arg(L, u, 2, "g:divergence: logits");
  w.other = graph_tensor_arg(L, u, 3, "g:divergence: the other logits");
  w.labels = graph_tensor_arg(L, u, 4, "g:divergence: labels");
  for (lua_pushnil(L); state_next(L, 5); lua_pop(L, 1))
    if (lua_type(L, -2) != LUA_TSTRING || !str_eq(lua_tostring(L, -2), "beta"))
      return luaL_error(L, "g:divergence: unknown attribute \"%s\" (it takes: beta)",
                        plain_tostring(L, -2));
  lua_pushliteral(L, "beta");
  if (lua_rawget(L, 5) != LUA_TNUMBER)
    return luaL_error(L, "g:divergence: beta must be a number from 0 to 1, got %s",
                      plain_tostring(L, -1));
  w.beta = lua_tonumber(L, -1);
  graph_do(L, u, add_divergence, &w);
  graph_push_tensor(L, 1, u, w.out);
  return 1;
}

/* ---- the loss of the plan ---- */

static void set_tensor(lua_State *L, GraphUd *u, const char *key, Tid t) {
  graph_push_tensor(L, 1, u, t);
  lua_setfield(L, -2, key);
}

/* What a file of the reference has for each sequence. */
static weft_status add_reference_losses(void *arg, weft_error *e) {
  LossWork *w = arg;
  Tid rows = graph_input(w->g, IN_REFERENCE);
  return op(w, OP_row_sums, &rows, 1, NULL, &w->out, e);
}

/* Calls the plan's f(g, x, options), x = { logits, labels, and reference,
 * reference_losses or teacher }. */
static int own_loss(lua_State *L, GraphUd *u, Tid logits, Tid labels) {
  u->loss.own = logits;
  const char *second = u->loss.second == SECOND_TEACHER ? "teacher" : "reference";
  lua_rawgeti(L, LUA_REGISTRYINDEX, u->loss.fn);
  lua_pushvalue(L, 1);
  lua_createtable(L, 0, 3);
  set_tensor(L, u, "logits", logits);
  set_tensor(L, u, "labels", labels);
  if (second_is_model(u->loss.second)) set_tensor(L, u, second, u->loss.other);
  if (u->loss.second == SECOND_FILE) {
    LossWork w = {.g = u->graph, .line = graph_line(L, u)};
    graph_do(L, u, add_reference_losses, &w);
    set_tensor(L, u, "reference_losses", w.out);
  }
  lua_rawgeti(L, LUA_REGISTRYINDEX, u->loss.options);
  lua_call(L, 3, 1);
  TensorUd *t = luaL_testudata(L, -1, TENSOR_TYPE);
  if (!t || t->owner != u)
    return luaL_error(L,
                      "the function of plan.loss must return the loss, such as "
                      "g:sum_all(losses); it returned %s",
                      luaL_typename(L, -1));
  if (u->graph->sources && is_told(u, logits, labels)) {
    LossWork w = {
        .g = u->graph, .logits = logits, .labels = labels, .tells = true, .alone = true};
    graph_do(L, u, add_cross_entropy, &w);
  }
  return 1;
}

/* g:loss(logits): what the plan's loss makes of them; without one, the cross entropy with
 * g:labels(). Of a second model they are kept, for that of the first. */
static int g_loss(lua_State *L) {
  GraphUd *u = graph_self(L);
  if (lua_gettop(L) != 2)
    return luaL_error(L, "g:loss takes logits, got %d arguments", lua_gettop(L) - 1);
  LossWork w = {.g = u->graph, .line = graph_line(L, u)};
  w.logits = graph_tensor_arg(L, u, 2, "g:loss: logits");
  w.labels = graph_input(u->graph, IN_LABELS);
  u->loss.called = true;
  if (second_open(u->graph))
    u->loss.other = w.logits;
  else if (u->loss.fn != LUA_NOREF)
    return own_loss(L, u, w.logits, w.labels);
  w.tells = is_told(u, w.logits, w.labels);
  graph_do(L, u, add_cross_entropy, &w);
  graph_push_tensor(L, 1, u, w.out);
  return 1;
}

void graph_push_losses(lua_State *L) {
  static const luaL_Reg methods[] = {{"cross_entropy", g_cross_entropy},
                                     {"token_losses", g_token_losses},
                                     {"divergence", g_divergence},
                                     {"loss", g_loss},
                                     {NULL, NULL}};
  luaL_setfuncs(L, methods, 0);
}
