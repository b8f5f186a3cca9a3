/* sweep_given.c - the plans of a sweep: loaded for a judge, or given point by point by a
 * function of the script. */
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
  if (copy) o.data = copy->opt.data, o.ndata = copy->opt.ndata;
  if (!copy && lua_type(L, idx) == LUA_TSTRING)
    return lang_load(&o, arena_str(a, lua_tostring(L, idx)), lp, d, e);
  LangValue v = {.file = "the plan of weft.sweep", .line = 1, .copy = copy};
  if (!copy) v.dir = "", v.from = L, v.idx = idx;
  if (copy) v.file = NULL;
  return lang_load_value(&o, &v, lp, d, e);
}

/* ---- plan = function(point) ---- */

/* Functions of such a plan exist for this point only: nothing of it may be kept by their
 * names. */
static bool has_functions(const LangPlan *lp) {
  return !lp->arch || lp->from_plan;
}

/* The plan at 3. */
static weft_status judge_given(lua_State *L, Sweep *s, PointRow *row, PointReason *why) {
  Judge *j = &s->judge[0];
  SweepCaches own;
  Diags d;
  err_clear(&j->e);
  Arena *a = script_push_arena(L);
  LangPlan *lp = NULL;
  weft_status st = sweep_load_plan(L, 3, NULL, a, &lp, &d, &j->e);
  if (st != WEFT_OK) {
    point_reason(&d, &j->e, why);
    row->state = POINT_ILLEGAL;
    return st == WEFT_EPLAN ? WEFT_OK : st;
  }
  bool functions = has_functions(lp);
  if (functions) sweep_caches_init(&own);
  j->lp = lp;
  j->values = LUA_NOREF;
  j->caches = functions ? &own : &s->caches;
  st = judge_point(j, NULL, 0, row, why);
  if (functions) sweep_caches_free(&own);
  lang_free(lp);
  j->lp = NULL;
  return st;
}

int sweep_judge(lua_State *L) {
  Sweep *s = sweep_at(L, 1);
  int64_t i = luaL_checkinteger(L, 2);
  const StopFlag *stop = script_stop(L);
  PointReason why = {.code = "plan"};
  PointRow row = {.state = POINT_ILLEGAL};
  luaL_argcheck(L, i >= 0 && i < s->ntodo, 2, "no such point");
  snprintf(why.text, sizeof why.text, "%s", luaL_optstring(L, 4, ""));
  weft_status st = lua_isnil(L, 3) ? WEFT_OK : judge_given(L, s, &row, &why);
  if (stop && *stop) sweep_cut(L, s);
  if (st == WEFT_EINTR) return 0;
  if (st != WEFT_OK) return reasons_raise(L, st, NULL, &s->judge[0].e);
  s->row[i] = row;
  sweep_note(s, i, &why);
  return 0;
}
