/* plan_load.c - loads a plan: evaluate, apply --set, check. */
#include "bindings/model/model.h"
#include "bindings/schema/schema.h"
#include "plan_load.h"
#include "vm/base/terminal.h"
#include "vm/pipeline/schedule.h"
#include "vm/plan/optimizer.h"

static const char *folder_of(Arena *a, const char *path) {
  const char *slash = strrchr(path, '/');
  if (!slash) return "";
  return arena_strn(a, path, (size_t)(slash - path) + (slash == path));
}

static char *stem_of(Arena *a, const char *path) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  const char *dot = strrchr(name, '.');
  return arena_strn(a, name, dot && dot > name ? (size_t)(dot - name) : strlen(name));
}

/* ---- checking ---- */

/* Whether a field below `scope` has an error: what depends on it is then not checked. */
static bool wrong_below(const Diags *d, const char *scope) {
  size_t n = strlen(scope);
  for (int i = 0; i < d->list.n; i++) {
    const Diag *g = &d->list.at[i];
    if (g->severity == DIAG_ERROR && strncmp(g->path, scope, n) == 0 &&
        (!g->path[n] || strchr(".[", g->path[n])))
      return true;
  }
  return false;
}

/* The model of a point of a grid, whose axes change nothing that it comes from. A config
 * of the library is only read. */
static bool share_model(LangPlan *lp) {
  const LangPlan *of = lp->shared ? lp->shared->of : NULL;
  if (!of || !of->arch || of->plan.loss.second == SECOND_TEACHER) return false;
  if (!schema_shared(lp->shared, "model") || !lang_unvaried(lp->shared, "loss"))
    return false;
  lp->arch = of->arch, lp->weights = of->weights;
  lp->special_ids = of->special_ids;
  lp->config = of->config, lp->build = of->build;
  lp->plan.grown = of->plan.grown;
  return true;
}

static bool share_cluster(LangPlan *lp) {
  if (!schema_shared(lp->shared, "cluster")) return false;
  lp->plan.cluster = lp->shared->of->plan.cluster;
  return true;
}

/* An optimizer of whole matrices, or of their rows and columns, steps those that files
 * have. */
static void check_packed(lua_State *L, LangPlan *lp, Diags *d) {
  const OptimizerInfo *o = &optimizer_info[lp->plan.opt.kind];
  HfPacked packed;
  if (!o->matrices && !o->factored) return;
  model_packed(L, lp, &packed);
  if (!packed.name[0]) return;
  diag_error(d, "not-built", "optimizer",
             "%s steps each matrix of a model's files as a whole, and %s of %s models is "
             "several here",
             o->name, packed.name[0], lp->arch)
      ->suggestion = "weft.adamw";
}

typedef struct CheckJob {
  LangPlan *lp;
  Diags *d;
} CheckJob;

static void check_job(lua_State *L, void *ud) {
  LangPlan *lp = ((CheckJob *)ud)->lp;
  Diags *d = ((CheckJob *)ud)->d;
  Plan *p = &lp->plan;
  texts_check(L, lp->arena, lp->shared, d);
  schema_check(L, lp, d);
  if (!share_model(lp)) model_resolve(L, lp, d);
  model_default_tp(L, lp, d);
  model_modules(L, lp);
  check_packed(L, lp, d);
  if (!p->name)
    p->name = arena_shown(lp->arena, stem_of(lp->arena, lp->state->path), ONE_LINE);
  p->data.dir = lp->state->dir;
  p->data.folders = lp->opt.data;
  p->data.nfolders = lp->opt.ndata;
  p->data.packed = p->packed;
  if (!p->opt.lr.steps && !(p->epochs > 0)) p->opt.lr.steps = p->steps;
  if (!share_cluster(lp) && !wrong_below(d, "cluster")) cluster_resolve(L, lp, d);
}

/* Without pp_plan.virtual, the number of stages in layers_per_stage gives it. */
static void infer_virtual(LangPlan *lp, int ranks) {
  PpPlan *pp = &lp->plan.pp;
  int64_t layers;
  if (pp->virtual_stages || !pp->layers_per_stage ||
      !lang_config_int(lp, "num_hidden_layers", &layers))
    return;
  int64_t stages = stage_count_asked(pp, layers + lp->plan.mtp.layers, ranks);
  if (stages && stages % ranks == 0 &&
      stages / ranks <= schema_find("pp_plan", "virtual")->hi)
    pp->virtual_stages = (int)(stages / ranks);
}

static void says_schedule(lua_State *L, void *said) {
  *(bool *)said = field_push(L, PLAN_INDEX, "schedule") != LUA_TNIL;
}

/* Several stages of a rank want a schedule that interleaves them. */
static weft_status imply_schedule(LangPlan *lp, int ranks, weft_error *e) {
  bool said = true;
  if (ranks == 1 || lp->plan.pp.virtual_stages <= 1) return WEFT_OK;
  TRY(state_protect(lp->state, says_schedule, &said, e));
  if (!said) lp->plan.schedule = "interleaved_1f1b";
  return WEFT_OK;
}

/* Async TP cuts the sequence into chunks, so it needs sequence parallelism. */
static void force_sequence(LangPlan *lp, int tp, Diags *d) {
  Strategy *s = &lp->plan.strategy;
  if (!s->async_tp || s->sequence_parallel || tp == 1) return;
  s->sequence_parallel = true;
  diag_warn(d, "strategy", "strategy.enable_async_tensor_parallel",
            "needs activations that are sharded along the sequence: sequence_parallel is "
            "set, too");
}

/* Rules between fields, on the plan's mesh; rules about fields with errors are skipped.
 */
static weft_status check_mesh(LangPlan *lp, Diags *d, weft_error *e) {
  Mesh m;
  if (wrong_below(d, "mesh") || wrong_below(d, "cluster")) return WEFT_OK;
  if (!lang_resolve_mesh(lp, &lp->plan, 0, &m, d)) return WEFT_OK;
  infer_virtual(lp, m.size[AXIS_PP]);
  TRY(imply_schedule(lp, m.size[AXIS_PP], e));
  force_sequence(lp, m.size[AXIS_TP], d);
  Plan p = lp->plan;
  if (wrong_below(d, "batch")) p.batch.global = 0;
  if (wrong_below(d, "schedule") || wrong_below(d, "pp_plan")) p.schedule = "";
  if (wrong_below(d, "pp_plan")) p.pp = (PpPlan){0};
  weft_status st = lang_check_mesh(lp, &p, &m, d, e);
  return st == WEFT_EPLAN ? WEFT_OK : st;
}

weft_status lang_check_plan(LangPlan *lp, Diags *d, weft_error *e) {
  CheckJob job = {lp, d};
  TRY(state_protect(lp->state, check_job, &job, e));
  if (!lp->opt.draft) TRY(check_mesh(lp, d, e));
  return d->errors ? WEFT_EPLAN : WEFT_OK;
}

static weft_status evaluate(LangPlan *lp, Diags *d, weft_error *e) {
  lua_State *L = lp->state->L;
  TRY(state_run(lp->state, d, e));
  if (!lua_istable(L, -1)) {
    Diag *g = diag_error(d, "type", "", "the file returns %s, expected weft.plan { ... }",
                         lua_isnil(L, -1) ? "nothing" : luaL_typename(L, -1));
    g->suggestion = "write return weft.plan { ... }";
    g->file = lp->state->path;
    g->line = 1;
    lua_pop(L, 1);
    return WEFT_EPLAN;
  }
  state_keep_plan(lp->state);
  TRY(vars_check(lp->state, e));
  for (int i = 0; i < lp->opt.nset; i++) TRY(value_set(lp->state, lp->opt.set[i], e));
  return lang_check_plan(lp, d, e);
}

/* ---- loading ---- */

typedef struct LoadJob {
  const LangOptions *o;
  const char *path;
  const LangValue *value; /* NULL: the plan is a file */
  LangPlan *lp;
  Diags *d;
  weft_status st;
  weft_error *e;
} LoadJob;

static weft_status load(LoadJob *j) {
  Arena *a = j->d->arena;
  LangPlan *lp = j->lp = NEW(a, LangPlan);
  lp->opt = *j->o;
  lp->arena = a;
  lp->config = lp->build = lp->schedule = lp->schedule_options = LUA_NOREF;
  lp->loss = lp->loss_options = lp->teacher_build = lp->teacher_config = LUA_NOREF;
  LangValue own;
  if (j->value) own = value_origin(a, j->value);
  const char *path = lp->plan.file = j->value ? own.file : arena_str(a, j->path);
  const char *dir = j->value ? own.dir : folder_of(a, path);
  TRY(plan_state_new(&lp->opt, a, path, dir, NULL, &lp->state, j->e));
  if (j->value) {
    /* There is no file to evaluate again: lines are those of the builder calls. */
    LangValue *kept = NEW(a, LangValue);
    *kept = own;
    lp->value = kept;
    lp->replayed = true;
    lp->lines = replay_new(a);
  }
  weft_status st =
      j->value ? value_take(lp, j->value, j->d, j->e) : evaluate(lp, j->d, j->e);
  lang_locate(lp, j->d);
  return st;
}

static void load_job(void *ud) {
  LoadJob *j = ud;
  j->st = load(j);
}

static weft_status run_load(LoadJob *j, LangPlan **out) {
  *out = NULL;
  if (!arena_try(j->d->arena, load_job, j))
    j->st = err_set(j->e, WEFT_ENOMEM, "out of memory while loading %s", j->path);
  if (j->st == WEFT_OK)
    *out = j->lp;
  else
    lang_free(j->lp);
  return j->st;
}

weft_status lang_load(const LangOptions *o, const char *path, LangPlan **out, Diags *d,
                      weft_error *e) {
  return run_load(&(LoadJob){.o = o, .path = path, .d = d, .e = e}, out);
}

weft_status lang_load_value(const LangOptions *o, const LangValue *v, LangPlan **out,
                            Diags *d, weft_error *e) {
  return run_load(&(LoadJob){.o = o, .path = "a plan", .value = v, .d = d, .e = e}, out);
}

void lang_free(LangPlan *lp) {
  if (!lp) return;
  state_free(lp->state);
  state_free(lp->replay);
  lp->state = lp->replay = NULL;
}
