/* sweep_given.c - the plans of a sweep: loaded for a judge, or given point by point by a
 * function of the script, which runs on one thread while all of them judge. */
#include "sweep.h"

#include <stdio.h>

#include "bindings/object/plan_object.h"
#include "bindings/object/reasons.h"

weft_status sweep_load_plan(lua_State *L, int idx, const LangPlan *copy, Arena *a,
                            LangPlan **lp, Diags *d, weft_error *e) {
  const ScriptHost *host = script_host(L);
  LangOptions o = {.stop = script_stop(L), .data = host ? host->data : NULL};
  while (o.data && o.data[o.ndata]) o.ndata++;
  weft_plan *object = plan_object_test(L, idx);
  *d = (Diags){.arena = a};
  if (object) copy = object->job.lp;
  if (copy) o.data = copy->opt.data, o.ndata = copy->opt.ndata, o.draft = copy->opt.draft;
  if (!copy && lua_type(L, idx) == LUA_TSTRING)
    return lang_load(&o, arena_str(a, lua_tostring(L, idx)), lp, d, e);
  LangValue v = {.file = "the plan of weft.sweep", .line = 1, .copy = copy};
  if (!copy) v.dir = "", v.from = L, v.idx = idx;
  if (copy) v.file = NULL;
  return lang_load_value(&o, &v, lp, d, e);
}

/* ---- plan = function(point) ---- */

static void free_given(GivenPlan *g) {
  lang_free(g->lp);
  arena_free(g->arena);
}

static void judge_given(Sweep *s, Judge *j, GivenPlan *g) {
  SweepCaches own;
  PointRow row;
  PointReason why;
  bool functions = false;
  /* Functions of a plan live for its point only: nothing may be kept by their addresses.
   */
  weft_status st = plan_key_addressed(g->lp, &functions, &j->e);
  if (functions) sweep_caches_init(&own);
  j->lp = g->lp;
  j->values = LUA_NOREF;
  j->caches = functions ? &own : &s->caches;
  if (st == WEFT_OK || st == WEFT_EPLAN) st = judge_point(j, NULL, 0, &row, &why);
  if (functions) sweep_caches_free(&own);
  j->lp = NULL;
  free_given(g);
  if (st == WEFT_EINTR) {
    s->stop = 1;
  } else if (st != WEFT_OK) {
    sweep_fail(s, j, st);
  } else {
    s->row[g->i] = row;
    sweep_note(s, g->i, &why);
  }
}

/* ---- what waits ---- */

/* The one that came first. */
static bool take(Sweep *s, bool wait, GivenPlan *out) {
  pthread_mutex_lock(&s->lock);
  while (wait && !s->nwaiting && !s->all_given && !s->stop)
    pthread_cond_wait(&s->more, &s->lock);
  bool any = s->nwaiting > 0 && !s->stop;
  if (any) {
    *out = s->waiting[0];
    s->nwaiting--;
    memmove(s->waiting, s->waiting + 1, (size_t)s->nwaiting * sizeof *s->waiting);
  }
  pthread_mutex_unlock(&s->lock);
  return any;
}

void sweep_work_given(Sweep *s, Judge *j, bool wait) {
  for (GivenPlan g; take(s, wait, &g);) judge_given(s, j, &g);
}

void sweep_end_given(Sweep *s) {
  pthread_mutex_lock(&s->lock);
  s->all_given = true;
  pthread_cond_broadcast(&s->more);
  pthread_mutex_unlock(&s->lock);
}

void sweep_free_given(Sweep *s) {
  while (s->nwaiting) free_given(&s->waiting[--s->nwaiting]);
}

/* Two for each thread wait at most: a plan has a state of its own, which takes memory. */
static void put(Sweep *s, const GivenPlan *g) {
  GivenPlan first;
  int most = MIN(2 * s->nstarted, SWEEP_WAITING - 1);
  pthread_mutex_lock(&s->lock);
  s->waiting[s->nwaiting++] = *g;
  bool full = s->nwaiting > most;
  pthread_cond_signal(&s->more);
  pthread_mutex_unlock(&s->lock);
  if (full && take(s, false, &first)) judge_given(s, &s->judge[0], &first);
}

/* ---- from the script ---- */

typedef struct Loading {
  lua_State *L;
  GivenPlan *g;
  Diags d;
  weft_error *e;
  weft_status st;
} Loading;

static void load_job(void *ud) {
  Loading *k = ud;
  k->st = sweep_load_plan(k->L, 3, NULL, k->g->arena, &k->g->lp, &k->d, k->e);
}

/* The plan at 3. `why` is filled if it is wrong, which is no error. */
static weft_status load_given(lua_State *L, GivenPlan *g, PointReason *why,
                              weft_error *e) {
  g->arena = arena_new(NULL);
  Loading k = {.L = L, .g = g, .e = e};
  if (!g->arena || !arena_try(g->arena, load_job, &k))
    k.st = err_set(e, WEFT_ENOMEM, "out of memory in a sweep");
  if (k.st != WEFT_OK && g->arena) point_reason(&k.d, e, why);
  if (k.st != WEFT_OK) arena_free(g->arena);
  return k.st;
}

int sweep_judge(lua_State *L) {
  Sweep *s = sweep_at(L, 1);
  const StopFlag *stop = script_stop(L);
  PointReason why = {.code = "plan"};
  weft_error e = NO_ERROR;
  GivenPlan g = {.i = luaL_checkinteger(L, 2)};
  luaL_argcheck(L, g.i >= 0 && g.i < s->ntodo, 2, "no such point");
  snprintf(why.text, sizeof why.text, "%s", luaL_optstring(L, 4, ""));
  snprintf(why.code, sizeof why.code, "%s", luaL_optstring(L, 5, "plan"));
  snprintf(why.path, sizeof why.path, "%s", luaL_optstring(L, 6, ""));
  weft_status st = lua_isnil(L, 3) ? WEFT_EPLAN : load_given(L, &g, &why, &e);
  if (st == WEFT_OK) put(s, &g);
  if (stop && *stop) sweep_cut(L, s);
  if (st == WEFT_OK || st == WEFT_EINTR) return 0;
  if (st != WEFT_EPLAN) return reasons_raise(L, st, NULL, &e);
  s->row[g.i] = (PointRow){.state = POINT_ILLEGAL};
  sweep_note(s, g.i, &why);
  return 0;
}
