/* vary.c - a loaded plan with other values in some fields: the table that the file
 * returned is changed, checked as after loading, and changed back. The file is evaluated
 * once, however many variations there are. */
#include "plan_load.h"
#include "vary.h"

#include <stdio.h>

/* ---- values ---- */

typedef struct TakeJob {
  lua_State *from;
  int idx, ref;
  Diags *d;
} TakeJob;

static int take_values(lua_State *L) {
  const TakeJob *j = lua_touserdata(L, 1);
  transfer(j->from, j->idx, L, "", 0);
  return 1;
}

/* Gets the job from its light userdata. The arena is not used here: running out of it
 * would jump over Lua's frames. */
static void take_job(lua_State *L, void *ud) {
  TakeJob *j = ud;
  lua_pushcfunction(L, take_values);
  lua_pushlightuserdata(L, j);
  int status = lua_pcall(L, 1, 1, 0);
  state_rethrow(L);
  if (status == LUA_OK)
    j->ref = luaL_ref(L, LUA_REGISTRYINDEX);
  else if (status == LUA_ERRRUN)
    diag_error(j->d, "value", "", "%s", lua_tostring(L, -1));
  else
    lua_error(L);
}

weft_status vary_take(LangPlan *lp, lua_State *from, int idx, int *values, Diags *d,
                      weft_error *e) {
  int top = lua_gettop(from);
  TakeJob j = {from, lua_absindex(from, idx), LUA_NOREF, d};
  weft_status st = state_protect(lp->state, take_job, &j, e);
  lua_settop(from, top);
  *values = j.ref;
  return st == WEFT_OK && j.ref == LUA_NOREF ? WEFT_EPLAN : st;
}

/* ---- changing and changing back ---- */

typedef struct ChangeJob {
  Vary *v;
  int values, n;
  const int *choice;
  Diags *d;
} ChangeJob;

/* Saves table, key and value of the field (at the top: table, key) in the undo list. */
static void keep_old(lua_State *L, int undo) {
  int n = (int)lua_rawlen(L, undo);
  lua_pushvalue(L, -2);
  lua_rawseti(L, undo, n + 1);
  lua_pushvalue(L, -1);
  lua_rawseti(L, undo, n + 2);
  lua_pushvalue(L, -1);
  lua_rawget(L, -3);
  if (lua_isnil(L, -1)) {
    lua_pop(L, 1);
    lua_pushlightuserdata(L, NULL);
  }
  lua_rawseti(L, undo, n + 3);
}

static void change_job(lua_State *L, void *ud) {
  ChangeJob *j = ud;
  lua_createtable(L, 3 * j->n, 0);
  int undo = lua_gettop(L);
  lua_pushvalue(L, undo);
  j->v->undo = luaL_ref(L, LUA_REGISTRYINDEX);
  lua_rawgeti(L, LUA_REGISTRYINDEX, j->values);
  for (int i = 0; i < j->n; i++, lua_settop(L, undo + 1)) {
    const char *why = NULL;
    lua_rawgeti(L, undo + 1, i + 1);
    lua_rawgeti(L, undo + 2, 1);
    const char *path = lua_tostring(L, -1);
    if (!value_find(L, path, &why)) {
      diag_error(j->d, "value", path, "%s", why);
      continue;
    }
    keep_old(L, undo);
    lua_rawgeti(L, undo + 2, j->choice[i] + 2);
    lua_rawset(L, -3);
  }
}

static void unref(lua_State *L, int ref, int of) {
  if (ref != of) luaL_unref(L, LUA_REGISTRYINDEX, ref);
}

static void restore_job(lua_State *L, void *ud) {
  Vary *v = ud;
  lua_rawgeti(L, LUA_REGISTRYINDEX, v->undo);
  int undo = lua_gettop(L);
  for (int n = (int)lua_rawlen(L, undo); n >= 3; n -= 3) {
    lua_rawgeti(L, undo, n - 2);
    lua_rawgeti(L, undo, n - 1);
    if (lua_rawgeti(L, undo, n) == LUA_TLIGHTUSERDATA) {
      lua_pop(L, 1);
      lua_pushnil(L);
    }
    lua_rawset(L, -3);
    lua_settop(L, undo);
  }
  unref(L, v->undo, LUA_NOREF);
  unref(L, v->plan.config, v->of->config);
  unref(L, v->plan.build, v->of->build);
  unref(L, v->plan.schedule, v->of->schedule);
  unref(L, v->plan.schedule_options, v->of->schedule_options);
  unref(L, v->plan.loss, v->of->loss);
  unref(L, v->plan.loss_options, v->of->loss_options);
  unref(L, v->plan.teacher_build, v->of->teacher_build);
  unref(L, v->plan.teacher_config, v->of->teacher_config);
}

weft_status vary_begin(LangPlan *lp, int values, const LangShared *shared,
                       const int *choice, int n, Vary *v, Diags *d, weft_error *e) {
  *v = (Vary){.plan = *lp, .of = lp, .undo = LUA_NOREF, .arena = lp->state->arena};
  LangPlan *p = &v->plan;
  p->arena = lp->state->arena = d->arena;
  p->opt.draft = false; /* others of a draft are plans */
  p->shared = shared;
  p->plan = (Plan){.file = lp->plan.file};
  p->config = p->build = p->schedule = p->schedule_options = LUA_NOREF;
  p->loss = p->loss_options = p->teacher_build = p->teacher_config = LUA_NOREF;
  p->schedule_csv = NULL;
  p->arch = p->weights = p->special_ids = NULL;
  p->schedule_v = p->from_plan = false;
  /* Lines would need another evaluation, so errors name fields only. */
  p->replayed = true;
  p->replay = NULL;
  p->lines = replay_new(d->arena);
  ChangeJob job = {v, values, n, choice, d};
  TRY(state_protect(lp->state, change_job, &job, e));
  return d->errors ? WEFT_EPLAN : lang_check_plan(p, d, e);
}

void vary_end(Vary *v) {
  weft_error e = NO_ERROR;
  v->of->state->arena = v->arena;
  state_protect(v->of->state, restore_job, v, &e);
}
