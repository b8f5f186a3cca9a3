/* schedule_facts.c - the properties of a schedule, and whether it exists for the sizes of
 * a plan; if not, the nearest sizes for which it does. */
#include "schedule_facts.h"
#include "vm/base/plural.h"

/* ---- properties of a schedule ---- */

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

bool schedule_push_own(lua_State *L, const LangPlan *lp, const char *name,
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

/* ---- sizes ---- */

typedef struct Sizes {
  lua_State *L;
  const LangPlan *lp;
  Arena *arena;
  ScheduleFacts f;
  int check, options; /* stack indices; 0: none */
} Sizes;

static bool sizes_open(Sizes *z, lua_State *L, const LangPlan *lp, const Plan *p,
                       Arena *a) {
  *z = (Sizes){.L = L, .lp = lp, .arena = a};
  luaL_checkstack(L, 16, NULL);
  if (!schedule_push_own(L, lp, p->schedule, &z->f)) return false;
  if (!lua_istable(L, -1) || field_push(L, -1, "check") != LUA_TFUNCTION) return true;
  z->check = lua_gettop(L);
  schedule_options_push(L, lp);
  z->options = lua_gettop(L);
  return true;
}

static const char *csv_text_of(const Sizes *z, int ranks, int microbatches) {
  const Schedule *csv = z->lp->schedule_csv;
  return arena_printf(z->arena,
                      "%s is for %d pipeline rank%s and %d microbatch%s, got %d "
                      "and %d",
                      csv->file, csv->ranks, plural(csv->ranks, "s"), csv->microbatches,
                      plural(csv->microbatches, "es"), ranks, microbatches);
}

/* Whether the schedule exists for these sizes; if not, *why has the reason, unless `why`
 * is NULL. */
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
                          z->f.name, z->f.chunks, plural(z->f.chunks, "s"), chunks);
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

/* The nearest valid numbers of microbatches on both sides of m, 0 if there is none. */
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

/* The advice "nearest: 8 or 10 microbatches (batch.global = 16 or 20)"; if no number is
 * valid, the nearest mesh.pp. */
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
                        plural(near[0] + near[1], "es"), one_or_two(a, near, unit));
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
