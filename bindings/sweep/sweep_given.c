/* sweep_given.c - the plans of a sweep: loaded for a judge, or given point by point by a
 * function of the script. */
#include "sweep_int.h"

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

void sweep_push_point(lua_State *L, const Sweep *s, int64_t point) {
  lua_createtable(L, 0, 2 * s->grid.n);
  sweep_grid_fields(L, &s->grid, AXES, point);
}

/* ---- plan = function(point) ---- */

/* Calls the function for a point and leaves its two results; false, with nothing left, if
 * that was interrupted: whatever came of it is no judgement. */
static bool call_plan(lua_State *L, const Sweep *s, int64_t i) {
  const StopFlag *stop = script_stop(L);
  lua_pushvalue(L, PLAN);
  sweep_push_point(L, s, s->todo[i]);
  int status = lua_pcall(L, 1, 2, 0);
  if (stop && *stop) {
    lua_settop(L, PLAN);
    return false;
  }
  if (status != LUA_OK) lua_error(L);
  return true;
}

/* What a function gave instead of a plan: nil and perhaps reasons. */
static void no_plan(lua_State *L, PointReason *why) {
  if (!lua_isnil(L, -2))
    luaL_error(L, "weft.sweep: plan() returned a %s, not a plan, a file or nil",
               luaL_typename(L, -2));
  *why = (PointReason){.code = "plan"};
  const char *text =
      lua_isnil(L, -1) ? "the function gave no plan" : luaL_tolstring(L, -1, NULL);
  snprintf(why->text, sizeof why->text, "%.*s", (int)strcspn(text, "\n"), text);
}

/* Functions of such a plan exist for this point only: nothing of it may be kept by their
 * names. */
static bool has_functions(const LangPlan *lp) {
  return !lp->arch || lp->from_plan;
}

static void judge_given(lua_State *L, Sweep *s, int64_t i, SweepCaches *own) {
  Judge *j = &s->judge[0];
  PointReason why;
  PointRow row = {0};
  Diags d;
  err_clear(&j->e);
  Arena *a = script_push_arena(L);
  LangPlan *lp = NULL;
  weft_status st = sweep_load_plan(L, lua_gettop(L) - 1, NULL, a, &lp, &d, &j->e);
  if (st == WEFT_OK) {
    if (has_functions(lp)) sweep_caches_init(own);
    j->lp = lp;
    j->values = LUA_NOREF;
    j->caches = has_functions(lp) ? own : &s->caches;
    st = judge_point(j, NULL, 0, &row, &why);
    if (has_functions(lp)) sweep_caches_free(own);
    lang_free(lp);
    j->lp = NULL;
  } else {
    point_reason(&d, &j->e, &why);
    row.state = POINT_ILLEGAL;
  }
  lua_settop(L, PLAN);
  if (st == WEFT_EINTR) return;
  if (st != WEFT_OK && st != WEFT_EPLAN) reasons_raise(L, st, NULL, &j->e);
  s->row[i] = row;
  sweep_note(s, i, &why);
}

void sweep_given_next(lua_State *L, Sweep *s) {
  int64_t i = s->next++;
  SweepCaches own;
  PointReason why;
  if (i >= s->ntodo || s->ready[i]) return;
  if (!call_plan(L, s, i)) return;
  bool plan = lua_type(L, -2) == LUA_TSTRING || lua_istable(L, -2) ||
              plan_object_test(L, lua_gettop(L) - 1);
  if (!plan) {
    no_plan(L, &why);
    lua_settop(L, PLAN);
    s->row[i].state = POINT_ILLEGAL;
    sweep_note(s, i, &why);
    return;
  }
  lua_pop(L, 1);
  judge_given(L, s, i, &own);
}
