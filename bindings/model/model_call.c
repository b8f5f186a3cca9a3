/* model_call.c - the call of a model function, and of a second model's, which build the
 * graph of a plan. */
#include <stdio.h>
#include <string.h>

#include "graph_userdata.h"
#include "model.h"
#include "vm/graph/second_model.h"

typedef struct ModelCall {
  Graph *g;
  const MoePlan *moe;
  const MtpPlan *mtp;
  double noise_alpha;
  bool mtp_asked, noise_asked;
  /* "@file" of the model function, or NULL if it is not from a file */
  const char *source;
  PlanLoss own;
  Tid loss;
  char file[512]; /* where an error occurred, "" if not in a file of the user */
  int line;
  bool out_of_memory;
} ModelCall;

/* Message handler: keeps the innermost line in a file of the user and removes it from the
 * message, because diagnostics have it separately. Upvalue 1: the ModelCall. */
static int locate(lua_State *L) {
  ModelCall *c = lua_touserdata(L, lua_upvalueindex(1));
  const char *msg = plain_tostring(L, 1);
  lua_Debug ar;
  for (int level = 0; lua_getstack(L, level, &ar); level++) {
    lua_getinfo(L, "Sl", &ar);
    const char *file = chunk_file(ar.source);
    if (ar.currentline <= 0 || !file) continue;
    const char *at = lua_pushfstring(L, "%s:%d: ", ar.short_src, ar.currentline);
    if (strncmp(msg, at, strlen(at)) == 0) msg += strlen(at);
    snprintf(c->file, sizeof c->file, "%s", file);
    c->line = ar.currentline;
    break;
  }
  lua_pushstring(L, msg);
  return 1;
}

/* The loss that the model function has returned, on top of the stack. */
static Tid loss_of(lua_State *L, const GraphUd *u) {
  TensorUd *t = luaL_testudata(L, -1, TENSOR_TYPE);
  if (!t || t->owner != u)
    luaL_error(L,
               "the model function must return the loss, such as "
               "g:cross_entropy(logits, g:labels()); it returned %s",
               t ? "a tensor of another graph" : luaL_typename(L, -1));
  return t->id;
}

/* Arguments: the ModelCall, f, config or nil. `g` is closed at the end, also after an
 * error. */
static int call_model(lua_State *L) {
  ModelCall *c = lua_touserdata(L, 1);
  graph_make_types(L);
  lua_pushlightuserdata(L, c);
  lua_pushcclosure(L, locate, 1);
  int handler = lua_gettop(L);
  GraphUd *u = lua_newuserdatauv(L, sizeof *u, 0);
  *u = (GraphUd){.graph = c->g,
                 .moe = c->moe,
                 .mtp = c->mtp,
                 .noise_alpha = c->noise_alpha,
                 .source = c->source,
                 .loss = c->own};
  luaL_setmetatable(L, GRAPH_TYPE);
  lua_pushvalue(L, 2);
  lua_pushvalue(L, -2);
  if (lua_isnil(L, 3))
    lua_newtable(L);
  else
    lua_pushvalue(L, 3);
  int st = lua_pcall(L, 2, 1, handler);
  u->graph = NULL;
  if (st != LUA_OK) {
    c->out_of_memory = u->out_of_memory || st == LUA_ERRMEM;
    return lua_error(L);
  }
  c->loss = loss_of(L, u);
  c->own = u->loss;
  c->mtp_asked |= u->mtp_asked;
  c->noise_asked |= u->noise_asked;
  return 0;
}

/* "@file" if the function at `fn` is from a file of the user, else NULL. The string
 * belongs to Lua and lives as long as the function. */
static const char *source_of(lua_State *L, int fn) {
  lua_Debug ar;
  lua_pushvalue(L, fn);
  lua_getinfo(L, ">S", &ar);
  return chunk_file(ar.source) ? ar.source : NULL;
}

static weft_status report(const ModelCall *c, const char *msg, Diags *d) {
  Diag *x = diag_error(d, "model", "model", "%s", msg);
  if (c->file[0]) {
    x->file = arena_str(d->arena, c->file);
    x->line = c->line;
  }
  return WEFT_EPLAN;
}

/* Calls the function at `fn` with `g` and the table after it. A Lua error, a wrong call
 * or a wrong result becomes a diagnostic with path "model" and, where a file of the user
 * is on the call stack, file and line. `g` and its tensors cannot be used after the call.
 */
static weft_status call_at(lua_State *L, int fn, ModelCall *c, Diags *d, weft_error *e) {
  int top = lua_gettop(L);
  if (!lua_checkstack(L, 8)) return err_set(e, WEFT_ENOMEM, "the Lua stack is full");
  c->source = source_of(L, fn);
  c->own.called = false;
  c->g->file = c->source ? chunk_file(c->source) : NULL;
  lua_pushcfunction(L, call_model);
  lua_pushlightuserdata(L, c);
  lua_pushvalue(L, fn);
  lua_pushvalue(L, fn + 1);
  weft_status st = WEFT_OK;
  int lua_st = lua_pcall(L, 3, 0, 0);
  if (lua_st == LUA_ERRMEM || c->out_of_memory)
    st = err_set(e, WEFT_ENOMEM, "out of memory while building the model");
  else if (lua_st != LUA_OK)
    st = report(c, lua_isstring(L, -1) ? lua_tostring(L, -1) : "an error", d);
  else if (c->own.fn != LUA_NOREF && !c->own.called)
    st = report(c,
                "the plan has a loss, and the model returns one of its own: it ends in "
                "g:loss(logits) where it is to be trained with plan.loss",
                d);
  lua_settop(L, top);
  return st;
}

/* Calls the model, or the teacher, as the second one of the graph. */
static weft_status call_second(lua_State *L, const LangPlan *lp, ModelCall *c, Diags *d,
                               weft_error *e) {
  bool teacher = c->own.second == SECOND_TEACHER;
  int top = lua_gettop(L);
  second_begin(c->g, teacher                        ? TEACHER_PREFIX
                     : c->own.second == SECOND_COPY ? REFERENCE_PREFIX
                                                    : "");
  lua_rawgeti(L, LUA_REGISTRYINDEX, teacher ? lp->teacher_build : lp->build);
  lua_rawgeti(L, LUA_REGISTRYINDEX, teacher ? lp->teacher_config : lp->config);
  weft_status st = call_at(L, top + 1, c, d, e);
  second_end(c->g);
  lua_settop(L, top);
  return st;
}

/* Losses of routers are multiplied by the label tokens that the sum is divided by. */
static weft_status check_routers(const ModelCall *c, const Plan *p, Diags *d) {
  bool experts = false;
  for (int i = 0; i < c->g->op.n; i++) {
    const Op *op = &c->g->op.at[i];
    experts |= op->code == OP_permute && op->second;
    if (op->code == OP_router_loss && p->loss.per != LOSS_PER_TOKENS &&
        (op->attr.aux != 0 || op->attr.z != 0)) {
      diag_error(d, "unsupported", "loss",
                 "losses of routers are built for a loss that is divided by label tokens")
          ->suggestion = "moe = { aux_loss_coef = 0, z_loss_coef = 0 }";
      return WEFT_EPLAN;
    }
  }
  if (!experts) return WEFT_OK;
  diag_error(d, "unsupported", "loss",
             "a reference or teacher with experts is not built: a model without them is");
  return WEFT_EPLAN;
}

/* Layers for further tokens are a part of the model that its function has to build. */
static weft_status check_mtp(const ModelCall *c, Diags *d) {
  if (c->mtp->layers == 0 || c->mtp_asked) return WEFT_OK;
  diag_error(d, "not-built", "mtp.num_layers",
             "this model has no layers that predict further tokens")
      ->suggestion = "leave out mtp; a model function asks for it by g:mtp()";
  return WEFT_EPLAN;
}

/* So is noise on embeddings. */
static weft_status check_noise(const ModelCall *c, Diags *d) {
  if (c->noise_alpha == 0 || c->noise_asked) return WEFT_OK;
  diag_error(d, "not-built", "train.neftune_noise_alpha",
             "this model adds no noise to its embeddings")
      ->suggestion = "leave it out; a model function asks for it by g:noise_alpha()";
  return WEFT_EPLAN;
}

/* Whether an op mixes tokens of a sequence without knowing where documents begin. */
static bool sees_all(const Graph *g, const Op *op) {
  bool mixes =
      op->code == OP_attention || op->code == OP_causal_conv || op->code == OP_ssm_scan;
  for (int i = 0; mixes && i < op->nin; i++) mixes = op->in[i] != g->input[IN_DOC_STARTS];
  return mixes;
}

/* The plan says that documents of a sequence are apart; of a model function only the
 * operands of its ops say so. */
static void warn_of_documents(const ModelCall *c, const Plan *p, Diags *d) {
  const Graph *g = c->g;
  const Op *first = NULL;
  int n = 0;
  if (!p->packed.on || p->packed.alone) return;
  for (int i = 0; i < g->op.n; i++)
    if (sees_all(g, &g->op.at[i]) && n++ == 0) first = &g->op.at[i];
  if (!first) return;
  const char *unit = first->unit >= 0 ? g->unit.at[first->unit].name : "the model";
  const char *more = n > 1 ? arena_printf(d->arena, " and of %d more", n - 1) : "";
  Diag *x =
      diag_warn(d, "documents", "packed",
                "%s of %s%s: sees the other documents of a sequence, as it does not "
                "take g:doc_starts()",
                op_info[first->code].name, unit, more);
  if (!g->file || !first->line) return;
  x->file = arena_str(d->arena, g->file);
  x->line = first->line;
}

static weft_status call_models(lua_State *L, const LangPlan *lp, ModelCall *c,
                               const Plan *p, Diags *d, weft_error *e) {
  int top = lua_gettop(L);
  if (second_is_model(c->own.second)) TRY(call_second(L, lp, c, d, e));
  lua_rawgeti(L, LUA_REGISTRYINDEX, lp->build);
  lua_rawgeti(L, LUA_REGISTRYINDEX, lp->config);
  weft_status st = call_at(L, top + 1, c, d, e);
  if (st != WEFT_OK) return st;
  if (second_is_model(c->own.second)) second_join(c->g);
  weft_error why = NO_ERROR;
  st = graph_finish(c->g, c->loss, &why);
  if (st == WEFT_EPLAN) return report(c, why.text, d);
  if (st != WEFT_OK && e) *e = why;
  if (st == WEFT_OK) st = check_mtp(c, d);
  if (st == WEFT_OK) st = check_noise(c, d);
  if (st == WEFT_OK) warn_of_documents(c, p, d);
  return st == WEFT_OK ? check_routers(c, p, d) : st;
}

weft_status lang_build_graph(LangPlan *lp, const Plan *plan, int64_t B, int64_t T,
                             Graph *g, Diags *d, weft_error *e) {
  LangState *s = lp->state;
  lua_State *L = s->L;
  int top = lua_gettop(L);
  bool own = plan->loss.name != NULL;
  ModelCall c = {.g = g,
                 .moe = &plan->moe,
                 .mtp = &plan->mtp,
                 .noise_alpha = plan->noise_alpha,
                 .loss = -1};
  c.own = (PlanLoss){.fn = own ? lp->loss : LUA_NOREF,
                     .options = lp->loss_options,
                     .second = plan->loss.second,
                     .own = -1};
  HfPacked packed;
  TRY(lang_hf_packed(lp, &packed, e));
  const char **names = NEW_N(g->arena, const char *, HF_PACKED + 1);
  for (int i = 0; packed.name[i]; i++) names[i] = arena_str(g->arena, packed.name[i]);
  g->packed = names[0] ? names : NULL;
  if (lp->plan.packed.on) graph_input(g, IN_DOC_STARTS);
  state_arm(s, false);
  weft_status st = call_models(L, lp, &c, plan, d, e);
  state_disarm(s);
  lua_settop(L, top);
  if (s->stop != STOP_NONE) return state_stopped(s, d, e);
  if (d->list.n) lang_locate(lp, d);
  return st;
}
