/* schedule_plan.c - plan.schedule: a name with options, a function, or a CSV file; what
 * such a schedule declares, and whether it fits the sizes of a plan. */
#include "schedule_csv.h"
#include "bindings/sandbox/length.h"
#include "bindings/schema/schema.h"
#include "vm/io/io.h"

/* ---- names ---- */

/* All names and aliases; case, '-' and '_' do not matter. */
const char schema_schedules[] =
    "gpipe afab=gpipe all_forward_all_backward=gpipe schedule_gpipe=gpipe "
    "1f1b one_forward_one_backward=1f1b train_schedule=1f1b schedule_1f1b=1f1b "
    "interleaved_1f1b interleaved=interleaved_1f1b vpp=interleaved_1f1b "
    "dfs=interleaved_1f1b schedule_interleaved_1f1b=interleaved_1f1b "
    "looped_bfs bfs=looped_bfs schedule_looped_bfs=looped_bfs "
    "zero_bubble zb=zero_bubble zb1p=zero_bubble zb_h1=zero_bubble "
    "interleaved_zero_bubble=zero_bubble schedule_interleaved_zero_bubble=zero_bubble "
    "zb_h2 zb2p=zb_h2 "
    "zbv v_schedule=zbv zbv_zero_bubble=zbv schedule_zbv_zero_bubble=zbv "
    "dualpipe_v schedule_dualpipe_v=dualpipe_v "
    "v_half v_min "
    "eager_1f1b "
    "| dualpipe zbv_greedy 1f1b_v seq1f1b group_interleaved_1f1b";

/* ---- what a schedule says about itself ---- */

bool schedule_push(lua_State *L, const char *name, ScheduleFacts *f) {
  *f = (ScheduleFacts){.name = name, .chunks = 1};
  const char *file = lua_pushfstring(L, "schedules/%s", name);
  bool found = stdlib_push(L, file);
  lua_remove(L, found ? -2 : -1);
  if (!found) return false;
  field_push(L, -1, "virtual");
  field_push(L, -2, "fixed");
  field_push(L, -3, "placement");
  if (lua_isinteger(L, -3)) f->chunks = (int)lua_tointeger(L, -3);
  f->fixed = lua_toboolean(L, -2);
  f->v = lua_isstring(L, -1) && str_eq(lua_tostring(L, -1), "v");
  lua_pop(L, 3);
  return true;
}

void schedule_options_push(lua_State *L, const LangPlan *lp) {
  if (lp->schedule_options == LUA_NOREF)
    lua_newtable(L);
  else
    lua_rawgeti(L, LUA_REGISTRYINDEX, lp->schedule_options);
}

/* Of the plan's own schedule; the library's table is left on the stack, or nil. */
static bool plan_facts(lua_State *L, const LangPlan *lp, const char *name,
                       ScheduleFacts *f) {
  const Schedule *csv = lp->schedule_csv;
  *f = (ScheduleFacts){.name = name, .chunks = 1};
  if (csv) {
    *f = (ScheduleFacts){csv->file, csv->virtual_stages, true, csv->v_placement};
  } else if (lp->from_plan) {
    if (lp->schedule_v) *f = (ScheduleFacts){"placement = \"v\"", 2, true, true};
  } else {
    return schedule_push(L, name, f);
  }
  lua_pushnil(L);
  return true;
}

/* ---- the field ---- */

/* The values that were given, under their own names: for run(s, options). */
static void keep_options(Check *c, int t, const char *scope) {
  lua_State *L = c->L;
  lua_newtable(L);
  for (const Field *f = schema; f->scope; f++) {
    if (strcmp(f->scope, scope) != 0) continue;
    lua_pushstring(L, f->key);
    if (lua_rawget(L, t) == LUA_TNIL)
      lua_pop(L, 1);
    else
      lua_setfield(L, -2, f->type == FIELD_ALIAS ? f->names : f->key);
  }
  c->lp->schedule_options = luaL_ref(L, LUA_REGISTRYINDEX);
}

static bool has_options(const char *scope) {
  for (const Field *f = schema; f->scope; f++)
    if (strcmp(f->scope, scope) == 0) return true;
  return false;
}

/* Options beside the name or the function: fields of the scope with its name. */
static void check_options(Check *c, int t, const char *path, const char *scope) {
  lua_State *L = c->L;
  if (has_options(scope)) {
    check_scope(c, t, scope, path, 2);
    keep_options(c, t, scope);
    return;
  }
  if (!sorted_keys(L, t)) return;
  int keys = lua_gettop(L);
  for (int i = 1; lua_rawgeti(L, keys, i) != LUA_TNIL; i++, lua_settop(L, keys))
    if (!lua_isinteger(L, -1) || lua_tointeger(L, -1) != 1)
      diag_error(c->d, "unknown-field", path_join(c->arena, path, L, keys + 1),
                 "this schedule has no options");
  lua_settop(L, keys - 1);
}

static void own_function(Check *c, int t, const char *path) {
  lua_State *L = c->L;
  c->plan->schedule = "function";
  c->lp->from_plan = true;
  lua_pushvalue(L, -1);
  c->lp->schedule = luaL_ref(L, LUA_REGISTRYINDEX);
  if (!t) return;
  check_options(c, t, path, "function");
  field_push(L, t, "placement");
  c->lp->schedule_v = lua_type(L, -1) == LUA_TSTRING && str_ieq(lua_tostring(L, -1), "v");
  lua_pop(L, 1);
}

/* ---- weft.schedule_csv ---- */

typedef struct CsvJob {
  Check *c;
  const char *file, *text;
  Schedule *s;
  bool ok;
} CsvJob;

static void csv_job(void *ud) {
  CsvJob *j = ud;
  j->ok = schedule_csv_read(j->text, j->file, j->s, j->c->d);
}

static void csv_text(Check *c, const char *file, const char *path) {
  char *text;
  size_t n;
  weft_error e;
  err_clear(&e);
  weft_status st = file_read(c->lp->opt.alloc, file, FILE_CODE_MAX, &text, &n, &e);
  if (st == WEFT_ENOMEM) longjmp(*arena_guard(c->arena), 1);
  if (st != WEFT_OK) {
    diag_error(c->d, "file", path, "%s: %s", file, e.text);
    return;
  }
  CsvJob j = {.c = c, .file = file, .text = text, .s = NEW(c->arena, Schedule)};
  bool memory = true;
  if (strlen(text) != n)
    diag_error(c->d, "file", path, "%s: is not a string", file);
  else
    memory = arena_try(c->arena, csv_job, &j);
  mem_free(c->lp->opt.alloc, text, n + 1);
  if (!memory) longjmp(*arena_guard(c->arena), 1);
  if (j.ok) c->lp->schedule_csv = j.s;
}

static void csv(Check *c, int t, const char *path) {
  lua_State *L = c->L;
  const char *dir = c->lp->state->dir;
  if (!check_mark(c, t, path)) return;
  lua_rawgeti(L, t, 1);
  if (table_length(L, t) != 1 || lua_type(L, -1) != LUA_TSTRING) {
    diag_error(c->d, "builder", path, "weft.schedule_csv takes the name of a file");
  } else {
    const char *file = lua_tostring(L, -1);
    if (*file != '/' && *dir)
      file = arena_printf(c->arena, "%s/%s", dir, file);
    else
      file = arena_str(c->arena, file);
    if (path_below(file, dir))
      csv_text(c, file, path);
    else
      diag_error(c->d, "file", path, "there is no file %s below the plan's folder", file);
  }
  lua_pop(L, 1);
  check_options(c, t, path, "csv");
  c->plan->schedule = "csv";
}

/* ---- the value ---- */

static bool named(Check *c, int t, const char *path) {
  const char *name = check_name(c, schema_schedules, path, lua_tostring(c->L, -1));
  if (!name) return false;
  c->plan->schedule = name;
  if (t) check_options(c, t, path, name);
  return true;
}

void schedule_field(Check *c, int idx, const char *path) {
  lua_State *L = c->L;
  idx = lua_absindex(L, idx);
  int t = lua_istable(L, idx) ? idx : 0, top = lua_gettop(L);
  ScheduleFacts facts;
  if (t && str_eq(mark_kind(L, t), "schedule_csv")) {
    csv(c, t, path);
  } else {
    if (t)
      lua_rawgeti(L, idx, 1);
    else
      lua_pushvalue(L, idx);
    if (lua_isfunction(L, -1))
      own_function(c, t, path);
    else if (lua_type(L, -1) != LUA_TSTRING)
      check_type(c, path, "a name, a function or weft.schedule_csv", t ? -1 : idx);
    else
      named(c, t, path);
  }
  lua_settop(L, top);
  if (plan_facts(L, c->lp, c->plan->schedule, &facts))
    c->plan->pp.virtual_default = facts.chunks;
  lua_settop(L, top);
}

/* ---- sizes ---- */

typedef struct Sizes {
  lua_State *L;
  const LangPlan *lp;
  Arena *arena;
  ScheduleFacts f;
  int check, options; /* on the stack; 0: there is none */
} Sizes;

static bool sizes_open(Sizes *z, lua_State *L, const LangPlan *lp, const Plan *p,
                       Arena *a) {
  *z = (Sizes){.L = L, .lp = lp, .arena = a};
  luaL_checkstack(L, 16, NULL);
  if (!plan_facts(L, lp, p->schedule, &z->f)) return false;
  if (!lua_istable(L, -1) || field_push(L, -1, "check") != LUA_TFUNCTION) return true;
  z->check = lua_gettop(L);
  schedule_options_push(L, lp);
  z->options = lua_gettop(L);
  return true;
}

static const char *plural(int n, const char *one, const char *more) {
  return n == 1 ? one : more;
}

static const char *csv_text_of(const Sizes *z, int ranks, int microbatches) {
  const Schedule *csv = z->lp->schedule_csv;
  return arena_printf(z->arena,
                      "%s is for %d pipeline rank%s and %d microbatch%s, got %d "
                      "and %d",
                      csv->file, csv->ranks, plural(csv->ranks, "", "s"),
                      csv->microbatches, plural(csv->microbatches, "", "es"), ranks,
                      microbatches);
}

/* Does the schedule exist for these sizes? If not, *why says so, unless `why` is NULL. */
static bool legal(const Sizes *z, int ranks, int chunks, int microbatches,
                  const char **why) {
  const Schedule *csv = z->lp->schedule_csv;
  lua_State *L = z->L;
  if (csv && (csv->ranks != ranks || csv->microbatches != microbatches)) {
    if (why) *why = csv_text_of(z, ranks, microbatches);
    return false;
  }
  if (z->f.fixed && chunks != z->f.chunks) {
    if (why)
      *why = arena_printf(z->arena, "%s has %d stage%s per rank, got virtual = %d",
                          z->f.name, z->f.chunks, plural(z->f.chunks, "", "s"), chunks);
    return false;
  }
  if (!z->check) return true;
  lua_pushvalue(L, z->check);
  lua_pushinteger(L, ranks);
  lua_pushinteger(L, chunks);
  lua_pushinteger(L, microbatches);
  lua_pushvalue(L, z->options);
  lua_call(L, 4, 1);
  bool ok = lua_isnil(L, -1);
  if (!ok && why) *why = arena_str(z->arena, lua_tostring(L, -1));
  lua_pop(L, 1);
  return ok;
}

enum { SEARCH = 4096 };

/* The legal numbers of microbatches next to m, 0 where there is none. */
static bool near_microbatches(const Sizes *z, int ranks, int chunks, int m, int near[2]) {
  for (int d = 0; d <= SEARCH; d++) {
    near[0] = m - d >= 1 && legal(z, ranks, chunks, m - d, NULL) ? m - d : 0;
    near[1] = d && legal(z, ranks, chunks, m + d, NULL) ? m + d : 0;
    if (near[0] || near[1]) return true;
  }
  return false;
}

static const char *one_or_two(Arena *a, const int near[2], int64_t unit) {
  if (!near[0] || !near[1])
    return arena_printf(a, "%lld", (long long)(MAX(near[0], near[1]) * unit));
  return arena_printf(a, "%lld or %lld", (long long)(near[0] * unit),
                      (long long)(near[1] * unit));
}

/* "nearest: 8 or 10 microbatches (batch.global = 16 or 20)"; if no number will do, the
 * nearest mesh.pp. */
static const char *nearest(const Sizes *z, const Plan *p, const Mesh *m,
                           int microbatches) {
  Arena *a = z->arena;
  int ranks = m->size[AXIS_PP], chunks = z->f.fixed ? z->f.chunks : plan_virtual(p);
  int near[2];
  int64_t unit = p->batch.micro * mesh_size(m, AXES_DP) * MAX(p->batch.rounds, 1);
  const char *virtual = chunks == plan_virtual(p)
                            ? ""
                            : arena_printf(a, "pp_plan.virtual = %d", chunks);
  if (near_microbatches(z, ranks, chunks, microbatches, near)) {
    if (near[0] == microbatches) return arena_printf(a, "nearest: %s", virtual);
    return arena_printf(a, "nearest: %s%s%s microbatch%s (batch.global = %s)", virtual,
                        *virtual ? " with " : "", one_or_two(a, near, 1),
                        plural(near[0] + near[1], "", "es"), one_or_two(a, near, unit));
  }
  for (int d = 1; d <= SEARCH; d++)
    for (int r = ranks - d; r <= ranks + d; r += 2 * d)
      if (r >= 1 && legal(z, r, chunks, microbatches, NULL))
        return arena_printf(a, "nearest: mesh.pp = %d", r);
  return NULL;
}

void schedule_check_sizes(lua_State *L, LangPlan *lp, const Plan *p, const Mesh *m,
                          int microbatches, Diags *d) {
  Sizes z;
  int top = lua_gettop(L);
  if (sizes_open(&z, L, lp, p, d->arena)) {
    const char *why;
    if (!legal(&z, m->size[AXIS_PP], plan_virtual(p), microbatches, &why)) {
      const char *hint = nearest(&z, p, m, microbatches);
      diag_error(d, "schedule", "schedule", "%s", why)->suggestion = hint;
    }
  }
  lua_settop(L, top);
}

typedef struct FewestJob {
  const LangPlan *lp;
  const Plan *plan;
  int ranks, from, found;
} FewestJob;

static void fewest_job(lua_State *L, void *ud) {
  FewestJob *j = ud;
  Sizes z;
  int chunks = plan_virtual(j->plan);
  if (!sizes_open(&z, L, j->lp, j->plan, j->lp->arena)) return;
  for (int m = j->from; m <= j->from + SEARCH && !j->found; m++)
    if (legal(&z, j->ranks, chunks, m, NULL)) j->found = m;
}

weft_status schedule_fewest(LangPlan *lp, const Plan *p, int ranks, int from, int *found,
                            weft_error *e) {
  FewestJob j = {lp, p, ranks, from, 0};
  TRY(state_protect(lp->state, fewest_job, &j, e));
  *found = j.found ? j.found : from;
  return WEFT_OK;
}
