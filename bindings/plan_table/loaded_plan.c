/* loaded_plan.c - queries on a loaded plan: its config, and the lines of its fields. */
#include "json_value.h"
#include "loaded_plan.h"

#include <stdio.h>
#include <unistd.h>

#include "vm/base/plural.h"

weft_status plan_state_new(const LangOptions *o, Arena *a, const char *path,
                           const char *dir, Replay *lines, LangState **out,
                           weft_error *e) {
  StateHost host = {
      .push_weft = builders_push, .on_line = lines ? replay_event : NULL, .ud = lines};
  return state_new(o, a, path, dir, &host, out, e);
}

bool lang_unvaried(const LangShared *s, const char *field) {
  for (int i = 0; i < s->nvaried; i++)
    if (strcmp(s->varied[i], field) == 0) return false;
  return true;
}

const Plan *lang_plan(const LangPlan *lp) { return &lp->plan; }
int64_t lang_cluster_ranks(const LangPlan *lp) {
  return lp->plan.cluster.nodes * lp->plan.cluster.gpus;
}

/* Nobody may have written this world: where it comes from, and what leaves it open. */
static void say_cluster(const Cluster *c, Diag *g, Arena *a) {
  g->summary = arena_printf(a, "%s: plan.cluster has 1 machine of %lld GPU%s", g->summary,
                            (long long)c->gpus, plural(c->gpus, "s"));
  if (!c->gpu || !g->suggestion) return;
  g->suggestion = arena_printf(
      a, "%s; cluster = \"%s\", a name alone, has as many machines as the mesh needs",
      g->suggestion, c->gpu);
}

bool lang_resolve_mesh(const LangPlan *lp, const Plan *plan, int64_t world, Mesh *m,
                       Diags *d) {
  int64_t ranks = world ? 0 : lang_cluster_ranks(lp);
  int before = d->list.n;
  if (mesh_resolve(&plan->mesh, world ? world : ranks, m, d)) return true;
  bool usual = ranks && plan->cluster.nodes == 1; /* more machines are written */
  for (int i = before; usual && i < d->list.n; i++) {
    Diag *g = &d->list.at[i];
    bool speaks = str_eq(g->code, "world") || strstr(g->summary, "world = ");
    bool stated = plan->mesh.world && !str_eq(g->path, "mesh.world");
    if (speaks && !stated) say_cluster(&plan->cluster, g, d->arena);
  }
  return false;
}

const char *lang_weights(const LangPlan *lp) { return lp->weights; }
const char *lang_folder(const LangPlan *lp) { return lp->folder; }
Folders lang_folders(const LangPlan *lp) {
  return (Folders){lp->state->dir, lp->opt.data, lp->opt.ndata};
}
weft_status lang_tokenizer_folder(LangPlan *lp, const char **folder, weft_error *e) {
  const char *named = lp->plan.tokenizer;
  Folders in = lang_folders(lp);
  *folder = NULL;
  if (!named) return WEFT_OK;
  const char *found = folders_find(&in, lp->arena, named);
  const char *file = arena_printf(lp->arena, "%s/tokenizer.json", found);
  if (access(file, R_OK) != 0)
    return err_set(e, WEFT_EPLAN,
                   "plan.tokenizer: \"%s\" is no folder with a tokenizer.json, "
                   "below the plan's folder or one of --data",
                   named);
  TRY(folders_hold(&in, found, e));
  *folder = found;
  return WEFT_OK;
}

bool lang_quiet(LangPlan *lp, bool quiet) {
  bool before = lp->state->quiet;
  lp->state->quiet = quiet;
  return before;
}

const char *lang_architecture(const LangPlan *lp) { return lp->arch; }

/* ---- lines ---- */

static bool below(const char *path, const char *field, size_t n) {
  return strncmp(path, field, n) == 0 && (!path[n] || strchr(".[", path[n]));
}

/* The --set option that has changed a field, or NULL. */
static const char *set_by(const LangPlan *lp, const char *path) {
  for (int i = lp->opt.nset - 1; i >= 0; i--) {
    const char *set = lp->opt.set[i], *eq = strchr(set, '=');
    if (strncmp(set, "plan.", 5) == 0) set += 5;
    if (below(path, set, (size_t)(eq - set))) return lp->opt.set[i];
  }
  return NULL;
}

/* Whether the field was changed by a script (plan:with). */
static bool is_changed(const LangPlan *lp, const char *path) {
  for (int i = 0; lp->changed && lp->changed[i]; i++)
    if (below(path, lp->changed[i], strlen(lp->changed[i]))) return true;
  return false;
}

bool lang_is_set(const LangPlan *lp, const char *path) {
  return set_by(lp, path) || is_changed(lp, path);
}

/* The place of a field that was changed: the command line for --set, else the script. */
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

/* Evaluates the plan again in a state that records lines. If that fails, the lines of
 * builder calls are used. */
static void replay(LangPlan *lp) {
  weft_error e = NO_ERROR;
  Diags ignored = {.arena = lp->arena};
  lp->replayed = true;
  lp->lines = replay_new(lp->arena);
  if (plan_state_new(&lp->opt, lp->arena, lp->state->path, lp->state->dir, lp->lines,
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

/* Compiler passes use a field's first name, while the plan may have written an alias. */
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

/* Whether the table at PLAN_INDEX has a value at the path. */
static bool has_field(lua_State *L, Arena *a, const char *path) {
  int top = lua_gettop(L);
  lua_pushvalue(L, PLAN_INDEX);
  while (*path && lua_istable(L, -1)) {
    size_t n = strcspn(path, ".[");
    field_push(L, -1, arena_strn(a, path, n));
    path += n + (path[n] == '.');
    if (*path == '[') break;
  }
  bool has = !lua_isnil(L, -1) && (!*path || *path == '[');
  lua_settop(L, top);
  return has;
}

/* A field that the file does not have, made by a --set option of a field below it: that
 * is its place, and an option of the whole is the way out. */
static bool made_place(LangPlan *lp, lua_State *again, Diag *g) {
  size_t n = strlen(g->path);
  if (!again || !n || has_field(again, lp->arena, g->path)) return false;
  for (int i = lp->opt.nset - 1; i >= 0; i--) {
    const char *set = lp->opt.set[i];
    if (strncmp(set, "plan.", 5) == 0) set += 5;
    if (strncmp(set, g->path, n) != 0 || set[n] != '.') continue;
    g->file = arena_printf(lp->arena, "--set %s", lp->opt.set[i]);
    if (!g->suggestion)
      g->suggestion =
          arena_printf(lp->arena, "the file has no %s: --set '%s={ ... }' gives it whole",
                       g->path, g->path);
    return true;
  }
  return false;
}

static void find_with(lua_State *first, lua_State *again, FindJob *j) {
  for (int i = 0; i < j->d->list.n; i++) {
    Diag *g = &j->d->list.at[i];
    if (g->file) continue;
    if (!set_place(j->lp, g) && !made_place(j->lp, again, g))
      find_one(first, again, j->lp, g);
  }
}

/* For protected calls in both states, one inside the other. */
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
  weft_error e = NO_ERROR;
  Nested n = {j, first};
  if (!j->lp->replay || state_protect(j->lp->replay, find_inner, &n, &e) != WEFT_OK)
    find_with(first, NULL, j);
}

/* Sets the places of all diagnostics. Running out of Lua memory counts as running out of
 * the arena. */
void lang_locate(LangPlan *lp, Diags *d) {
  bool missing = false;
  for (int i = 0; i < d->list.n; i++) missing |= !d->list.at[i].file;
  if (missing) {
    weft_error e = NO_ERROR;
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
  bool set, ok, has;
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
  j->has = !j->set && lua_toboolean(L, -1);
}

bool lang_config_has(LangPlan *lp, const char *key) {
  ConfigJob j = {.lp = lp, .key = key};
  weft_error e = NO_ERROR;
  return state_protect(lp->state, config_job, &j, &e) == WEFT_OK && j.has;
}

bool lang_config_int(LangPlan *lp, const char *key, int64_t *value) {
  ConfigJob j = {.lp = lp, .key = key};
  weft_error e = NO_ERROR;
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
