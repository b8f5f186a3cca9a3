/* no_effect.c - warnings about settings that change nothing in this plan: a table of
 * fields, conditions under which they have no effect, and reasons. */
#include "bindings/schema/schema.h"
#include "job.h"
#include "vm/graph/rules.h"

/* ---- conditions: their words if they hold, else NULL ---- */

static const char *holds(bool yes, const char *words) { return yes ? words : NULL; }
static int ranks(const Job *j, Axis a) { return j->mesh.size[a]; }
static int shards(const Job *j) { return ranks(j, AXIS_DP_SHARD) * ranks(j, AXIS_CP); }

/* Of the forward ops with this code the one with most inputs, or NULL. */
static const Op *op_of(const Job *j, int code) {
  const Op *found = NULL;
  for (int i = 0; i < j->graph->forward_ops; i++) {
    const Op *op = &j->graph->op.at[i];
    if (op->code == code && (!found || op->nin > found->nin)) found = op;
  }
  return found;
}

static const char *one_axis(const Job *j) {
  int n = 0;
  for (Axis a = 0; a < AXIS_DENSE_END; a++) n += ranks(j, a) > 1;
  return holds(n <= 1, "on a mesh of one axis");
}

static const char *one_tp(const Job *j) {
  return holds(ranks(j, AXIS_TP) == 1, "at tp = 1");
}
static const char *one_cp(const Job *j) {
  return holds(ranks(j, AXIS_CP) == 1, "at cp = 1");
}
static const char *one_ep(const Job *j) {
  return holds(ranks(j, AXIS_EP) == 1, "at ep = 1");
}

static const char *one_dp(const Job *j) {
  return holds(shards(j) * ranks(j, AXIS_DP_REPLICATE) == 1, "at dp = 1");
}

static const char *no_shards(const Job *j) {
  bool copies = ranks(j, AXIS_DP_REPLICATE) > 1;
  return holds(shards(j) == 1, copies ? "where all of dp holds copies" : "at dp = 1");
}

static const char *one_stage(const Job *j) {
  return holds(ranks(j, AXIS_PP) * plan_virtual(&j->plan) == 1, "with one stage");
}

static const char *no_layers_per_stage(const Job *j) {
  return holds(!j->plan.pp.layers_per_stage, "without layers_per_stage");
}

/* "in stage 2", if that is from first to last. */
static const char *in_stage(const Job *j, int first, int last) {
  int stage = j->plan.strategy.stage;
  bool yes = stage >= first && stage <= last;
  return yes ? arena_printf(j->arena, "in stage %d", stage) : NULL;
}

static const char *whole_state(const Job *j) { return in_stage(j, 0, 0); }
static const char *whole_gradients(const Job *j) { return in_stage(j, 0, 1); }
static const char *cut_gradients(const Job *j) { return in_stage(j, 2, 3); }
static const char *whole_parameters(const Job *j) { return in_stage(j, 0, 2); }

static const char *no_sequence(const Job *j) {
  return holds(!j->plan.strategy.sequence_parallel, "without sequence_parallel");
}

static const char *no_split(const Job *j) {
  bool whole = !schedule_splits(&j->schedule);
  return whole ? arena_printf(j->arena, "with the schedule %s", j->plan.schedule) : NULL;
}

static const char *no_experts(const Job *j) {
  return holds(!op_of(j, OP_grouped_linear), "on a model without experts");
}

/* What a model function has to ask for by g:moe(). */
static const char *unasked(bool there) {
  return holds(!there, "on a model function that does not take it from g:moe()");
}

/* Whether a forward op with this code has what a setting of experts gives such ops. */
static bool any(const Job *j, int code, bool (*has)(const Op *op)) {
  bool found = false;
  for (int i = 0; i < j->graph->forward_ops && !found; i++) {
    const Op *op = &j->graph->op.at[i];
    found = op->code == code && has(op);
  }
  return found;
}

static bool balances(const Op *op) { return op->attr.aux != 0; }
static bool has_z(const Op *op) { return op->attr.z != 0; }
static bool is_bounded(const Op *op) { return op->attr.bound > 0; }
static bool has_capacity(const Op *op) { return op->attr.capacity > 0; }
static bool drops(const Op *op) { return op->attr.drop != DROP_NONE; }
static bool has_groups(const Op *op) { return op->attr.groups > 0; }

static const char *no_balance(const Job *j) {
  return unasked(any(j, OP_router_loss, balances));
}
static const char *no_router_z(const Job *j) {
  return unasked(any(j, OP_router_loss, has_z));
}
static const char *no_bound(const Job *j) {
  return unasked(any(j, OP_permute, is_bounded));
}
static const char *no_capacity(const Job *j) {
  return unasked(any(j, OP_permute, has_capacity));
}
static const char *no_drop(const Job *j) { return unasked(any(j, OP_permute, drops)); }
static const char *no_sinkhorn(const Job *j) { return unasked(op_of(j, OP_sinkhorn)); }

/* All groups, or one, limit nothing. */
static const char *no_groups(const Job *j) {
  const MoePlan *m = &j->plan.moe;
  bool limits = m->groups > 1 && m->groups != m->group_topk;
  return unasked(!limits || any(j, OP_route, has_groups));
}

static const char *no_bias(const Job *j) {
  const Op *route = op_of(j, OP_route);
  return holds(!route || !route_has_bias(j->graph, route), "on routers without a bias");
}

static const char *bias_stays(const Job *j) {
  return holds(j->plan.moe.bias_rate == 0, "without moe.bias_update_rate");
}

/* Routers that are saved beside the adapter learn. */
static const char *adapter_alone(const Job *j) {
  bool moves = false;
  for (int i = 0; i < j->compiled->nparam; i++) {
    const CompiledParam *p = &j->compiled->param[i];
    moves |= p->share > 0 && !p->frozen;
  }
  return holds(j->plan.adapter.rank > 0 && !moves, "beside an adapter");
}

static const char *no_recompute(const Job *j) {
  const Recompute *r = &j->plan.recompute;
  return holds(!r->full && !r->selective && !r->cheap && !r->npattern,
               "without recompute");
}

static const char *no_momentum(const Job *j) {
  return holds(j->plan.opt.momentum == 0, "without momentum");
}

static const char *one_file(const Job *j) {
  return holds(j->plan.data.nfiles == 1, "with one name of files");
}

static const char *format_has_width(const Job *j) {
  TokenFormat f = j->plan.data.format;
  return holds(f != TOKENS_AUTO && f != TOKENS_RAW, "on files with a header or an index");
}

static const char *no_evaluation(const Job *j) {
  return holds(!j->plan.eval_every, "without train.eval_every");
}

static const struct Row {
  const char *path;
  const char *(*when)(const Job *j);
  const char *why;
} rows[] = {
#define NO_EFFECT(path, when, why) {path, when, why},
#include "no_effect.def"
};

/* ---- what the plan says ---- */

/* Whether a name, or an alias, is the first one of the row. */
static bool is_first_name(Arena *a, const Field *f, const char *text) {
  const char *first = NULL, *p = f->names;
  bool later = false;
  for (NameWord w; name_next(a, &p, &later, &w);) {
    if (!first) first = w.canon;
    if (name_same(arena_strn(a, w.s, w.n), text)) return strcmp(w.canon, first) == 0;
  }
  return false;
}

/* Whether the value on top asks for what is there without it. */
static bool is_default(lua_State *L, Arena *a, const Field *f) {
  int type = lua_type(L, -1);
  if (type == LUA_TBOOLEAN) return lua_toboolean(L, -1) == f->def;
  if (type == LUA_TNUMBER) return lua_tonumber(L, -1) == f->def;
  return type == LUA_TSTRING && f->type == FIELD_NAME &&
         is_first_name(a, f, lua_tostring(L, -1));
}

/* The row of a path; of one that leads into another table, such as strategy.mp_policy,
 * that of its last name. */
static const Field *row_of(Arena *a, const char *path) {
  const Field *named = NULL;
  const char *key = strrchr(path, '.') ? strrchr(path, '.') + 1 : path;
  for (const Field *f = schema; f->scope; f++) {
    if (f->type == FIELD_ALIAS || strcmp(f->key, key) != 0) continue;
    if (strcmp(schema_path(a, f), path) == 0) return f;
    if (!named) named = f;
  }
  return named;
}

/* The field of a row as the plan writes its path; NULL: the plan does not say it, or
 * nothing but the default. */
static const char *asks(lua_State *L, Arena *a, const char *path) {
  const char *written = field_said(L, a, path);
  const Field *f = row_of(a, path);
  return written && f && is_default(L, a, f) ? NULL : written;
}

static void look_at_rows(lua_State *L, void *ud) {
  Job *j = ud;
  const char *last = "";
  int top = lua_gettop(L);
  luaL_checkstack(L, 12, NULL);
  for (int i = 0; i < LEN(rows); i++, lua_settop(L, top)) {
    const struct Row *r = &rows[i];
    const char *words = r->when(j);
    if (!words || strcmp(r->path, last) == 0) continue;
    const char *path = asks(L, j->arena, r->path);
    if (!path) continue;
    diag_warn(&j->d, "no-effect", path, "has no effect %s: %s", words, r->why);
    last = r->path;
  }
}

weft_status job_no_effect(Job *j) {
  return state_protect(j->lp->state, look_at_rows, j, &j->e);
}
