/* plan_load.c - loads a plan: evaluate, apply --set, check, find lines. */
#include "json_value.h"
#include "bindings/schema/schema.h"
#include "vm/base/terminal.h"
#include "vm/pipeline/schedule.h"

#include <stdio.h>

const Plan *lang_plan(const LangPlan *lp) { return &lp->plan; }
int64_t lang_cluster_ranks(const LangPlan *lp) {
  return lp->plan.cluster.nodes * lp->plan.cluster.gpus;
}
const char *lang_weights(const LangPlan *lp) { return lp->weights; }
const char *lang_folder(const LangPlan *lp) { return lp->folder; }
Folders lang_folders(const LangPlan *lp) {
  return (Folders){lp->state->dir, lp->opt.data, lp->opt.ndata};
}
const char *lang_architecture(const LangPlan *lp) { return lp->arch; }

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

/* True if a field below `scope` is wrong: then what depends on it is not checked. */
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

typedef struct CheckJob {
  LangPlan *lp;
  Diags *d;
} CheckJob;

static void check_job(lua_State *L, void *ud) {
  LangPlan *lp = ((CheckJob *)ud)->lp;
  Diags *d = ((CheckJob *)ud)->d;
  Plan *p = &lp->plan;
  texts_check(L, lp->arena, d);
  schema_check(L, lp, d);
  model_resolve(L, lp, d);
  model_default_tp(L, lp, d);
  if (!p->name)
    p->name = arena_shown(lp->arena, stem_of(lp->arena, lp->state->path), ONE_LINE);
  p->data.dir = lp->state->dir;
  p->data.folders = lp->opt.data;
  p->data.nfolders = lp->opt.ndata;
  p->data.packed = p->packed;
  if (!p->opt.lr.steps) p->opt.lr.steps = p->steps;
  if (!wrong_below(d, "cluster")) cluster_resolve(L, lp, d);
}

/* layers_per_stage says how many stages there are, so it may stand for `virtual`. */
static void infer_virtual(LangPlan *lp, int ranks) {
  PpPlan *pp = &lp->plan.pp;
  int64_t layers;
  if (pp->virtual_stages || !pp->layers_per_stage ||
      !lang_config_int(lp, "num_hidden_layers", &layers))
    return;
  int64_t stages = stage_count_asked(pp, layers);
  if (stages % ranks == 0 && stages / ranks <= schema_find("pp_plan", "virtual")->hi)
    pp->virtual_stages = (int)(stages / ranks);
}

/* Chunks are rows of the sequence. */
static void force_sequence(LangPlan *lp, int tp, Diags *d) {
  Strategy *s = &lp->plan.strategy;
  if (!s->async_tp || s->sequence_parallel || tp == 1) return;
  s->sequence_parallel = true;
  diag_warn(d, "strategy", "strategy.enable_async_tensor_parallel",
            "needs activations that are cut by sequence: sequence_parallel is set, too");
}

/* Rules between fields, on the mesh of the file; those about fields that are wrong in
 * themselves are left out. */
static weft_status check_mesh(LangPlan *lp, Diags *d, weft_error *e) {
  Mesh m;
  if (wrong_below(d, "mesh") || wrong_below(d, "cluster")) return WEFT_OK;
  if (!mesh_resolve(&lp->plan.mesh, lang_cluster_ranks(lp), &m, d)) return WEFT_OK;
  infer_virtual(lp, m.size[AXIS_PP]);
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
  TRY(check_mesh(lp, d, e));
  return d->errors ? WEFT_EPLAN : WEFT_OK;
}

static weft_status evaluate(LangPlan *lp, Diags *d, weft_error *e) {
  lua_State *L = lp->state->L;
  TRY(state_run(lp->state, d, e));
  if (!lua_istable(L, -1)) {
    Diag *g = diag_error(d, "type", "", "the file returns %s, expected weft.plan { ... }",
                         lua_isnil(L, -1) ? "nothing" : luaL_typename(L, -1));
    g->file = lp->state->path;
    g->line = 1;
    return WEFT_EPLAN;
  }
  state_keep_plan(lp->state);
  for (int i = 0; i < lp->opt.nset; i++) TRY(value_set(lp->state, lp->opt.set[i], e));
  return lang_check_plan(lp, d, e);
}

/* ---- loading ---- */

typedef struct LoadJob {
  const LangOptions *o;
  const char *path;
  const LangValue *value; /* NULL: a file */
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
  LangValue own;
  if (j->value) own = value_origin(a, j->value);
  const char *path = lp->plan.file = j->value ? own.file : arena_str(a, j->path);
  const char *dir = j->value ? own.dir : folder_of(a, path);
  TRY(state_new(&lp->opt, a, path, dir, NULL, &lp->state, j->e));
  if (j->value) {
    /* There is nothing to evaluate again: the lines are those of the builders. */
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

/* ---- lines ---- */

static bool below(const char *path, const char *field, size_t n) {
  return strncmp(path, field, n) == 0 && (!path[n] || strchr(".[", path[n]));
}

/* The --set that has changed a field, or NULL. */
static const char *set_by(const LangPlan *lp, const char *path) {
  for (int i = lp->opt.nset - 1; i >= 0; i--) {
    const char *set = lp->opt.set[i], *eq = strchr(set, '=');
    if (strncmp(set, "plan.", 5) == 0) set += 5;
    if (below(path, set, (size_t)(eq - set))) return lp->opt.set[i];
  }
  return NULL;
}

/* Whether it was laid over a plan's table. */
static bool is_changed(const LangPlan *lp, const char *path) {
  for (int i = 0; lp->changed && lp->changed[i]; i++)
    if (below(path, lp->changed[i], strlen(lp->changed[i]))) return true;
  return false;
}

bool lang_is_set(const LangPlan *lp, const char *path) {
  return set_by(lp, path) || is_changed(lp, path);
}

/* A field that --set has changed is at the command line, one that was laid over a plan's
 * table where that was done. */
static bool set_place(const LangPlan *lp, Diag *g) {
  const char *set = set_by(lp, g->path);
  if (set) {
    g->file = arena_printf(lp->arena, "--set %s", set);
    return true;
  }
  if (!is_changed(lp, g->path)) return false;
  g->file = lp->value->changes_file;
  g->line = lp->value->changes_line;
  return true;
}

/* Evaluates the plan again with a state that records lines. What goes wrong there only
 * means that the builders' lines have to do. */
static void replay(LangPlan *lp) {
  weft_error e;
  err_clear(&e);
  Diags ignored = {.arena = lp->arena};
  lp->replayed = true;
  lp->lines = replay_new(lp->arena);
  if (state_new(&lp->opt, lp->arena, lp->state->path, lp->state->dir, lp->lines,
                &lp->replay, &e))
    return;
  if (state_run(lp->replay, &ignored, &e) == WEFT_OK && lua_istable(lp->replay->L, -1)) {
    state_keep_plan(lp->replay);
  } else {
    state_free(lp->replay);
    lp->replay = NULL;
  }
}

typedef struct FindJob {
  LangPlan *lp;
  Diags *d;
} FindJob;

/* Passes know one name of a field; the plan may have written its alias. */
static const char *written_path(lua_State *L, Arena *a, const char *path) {
  int top = lua_gettop(L);
  bool moved = false;
  if (strncmp(path, "tp_plan", 7) == 0 &&
      field_push(L, PLAN_INDEX, "tp_plan") == LUA_TNIL)
    moved = field_push(L, PLAN_INDEX, "strategy") == LUA_TTABLE;
  lua_settop(L, top);
  return moved ? arena_printf(a, "strategy.%s", path) : path;
}

static void find_one(lua_State *first, lua_State *again, LangPlan *lp, Diag *g) {
  int top = lua_gettop(first), top2 = again ? lua_gettop(again) : 0;
  const char *file = NULL, *path = written_path(first, lp->arena, g->path);
  lua_pushvalue(first, PLAN_INDEX);
  if (again) lua_pushvalue(again, PLAN_INDEX);
  if (replay_find(lp->lines, again, first, path, &file, &g->line))
    g->file = arena_str(lp->arena, file ? file : lp->state->path);
  else
    g->file = lp->state->path, g->line = lp->value ? lp->value->line : 1;
  lua_settop(first, top);
  if (again) lua_settop(again, top2);
}

static void find_with(lua_State *first, lua_State *again, FindJob *j) {
  for (int i = 0; i < j->d->list.n; i++) {
    Diag *g = &j->d->list.at[i];
    if (g->file) continue;
    if (!set_place(j->lp, g)) find_one(first, again, j->lp, g);
  }
}

/* The two states are protected one inside the other. */
typedef struct Nested {
  FindJob *job;
  lua_State *first;
} Nested;

static void find_inner(lua_State *again, void *ud) {
  Nested *n = ud;
  find_with(n->first, again, n->job);
}

static void find_outer(lua_State *first, void *ud) {
  FindJob *j = ud;
  weft_error e;
  err_clear(&e);
  Nested n = {j, first};
  if (!j->lp->replay || state_protect(j->lp->replay, find_inner, &n, &e) != WEFT_OK)
    find_with(first, NULL, j);
}

/* Running out of memory here is the same as running out of the arena. */
void lang_locate(LangPlan *lp, Diags *d) {
  bool missing = false;
  for (int i = 0; i < d->list.n; i++) missing |= !d->list.at[i].file;
  if (missing) {
    weft_error e;
    err_clear(&e);
    FindJob job = {lp, d};
    if (!lp->replayed) replay(lp);
    if (state_protect(lp->state, find_outer, &job, &e) == WEFT_ENOMEM)
      longjmp(*arena_guard(lp->arena), 1);
  }
  diag_sort(d);
}

/* ---- config and model ---- */

typedef struct ConfigJob {
  LangPlan *lp;
  const char *key;
  int64_t value;
  bool set, ok;
} ConfigJob;

static void config_job(lua_State *L, void *ud) {
  ConfigJob *j = ud;
  lua_rawgeti(L, LUA_REGISTRYINDEX, j->lp->config);
  if (j->set) {
    lua_pushstring(L, j->key);
    lua_pushinteger(L, j->value);
    lua_rawset(L, -3);
  } else if (field_push(L, -1, j->key) == LUA_TNUMBER && lua_isinteger(L, -1)) {
    j->value = lua_tointeger(L, -1);
    j->ok = true;
  }
}

bool lang_config_int(LangPlan *lp, const char *key, int64_t *value) {
  ConfigJob j = {.lp = lp, .key = key};
  weft_error e;
  err_clear(&e);
  if (state_protect(lp->state, config_job, &j, &e) != WEFT_OK || !j.ok) return false;
  *value = j.value;
  return true;
}

typedef struct ConfigText {
  LangPlan *lp;
  Text *out;
} ConfigText;

static void config_text(lua_State *L, void *ud) {
  const ConfigText *c = ud;
  Json j = {.out = c->out};
  lua_rawgeti(L, LUA_REGISTRYINDEX, c->lp->config);
  json_value(L, NULL, &j);
}

weft_status lang_config_text(LangPlan *lp, Text *out, weft_error *e) {
  ConfigText c = {lp, out};
  if (lp->arch) return state_protect(lp->state, config_text, &c, e);
  text_add(out, "a function");
  return WEFT_OK;
}

weft_status lang_set_config_int(LangPlan *lp, const char *key, int64_t value,
                                weft_error *e) {
  ConfigJob j = {.lp = lp, .key = key, .value = value, .set = true};
  return state_protect(lp->state, config_job, &j, e);
}
