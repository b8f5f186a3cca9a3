/* plan_value.c - plans without a file: a script's table, or another plan's table with
 * changes, is copied into a Lua state of its own; and back to a script. */
#include "bindings/plan_table/function_export.h"
#include "plan_load.h"

typedef struct TakeJob {
  const LangValue *v;
  LangPlan *lp;
  Diags *d;
} TakeJob;

/* Applies the changes at the top to the plan's table and replaces them by a list of their
 * paths. */
static void apply_changes(lua_State *L) {
  int changes = lua_gettop(L);
  if (!sorted_keys(L, changes)) luaL_error(L, "a change is named by the path of a field");
  for (int i = 1; lua_rawgeti(L, changes + 1, i) != LUA_TNIL; i++) {
    const char *why = "a change is named by the path of a field";
    int key = lua_gettop(L);
    if (lua_type(L, key) != LUA_TSTRING || !value_find(L, lua_tostring(L, key), &why))
      luaL_error(L, "%s", why);
    lua_pushvalue(L, key);
    lua_rawget(L, changes);
    lua_rawset(L, -3);
    lua_settop(L, changes + 1);
  }
  lua_settop(L, changes + 1);
  lua_replace(L, changes);
}

/* Keeps the paths in the list at the top. */
static void note_changes(lua_State *L, LangPlan *lp) {
  int n = (int)lua_rawlen(L, -1);
  const char **path = NEW_N(lp->arena, const char *, n + 1);
  for (int i = 0; i < n; i++) {
    lua_rawgeti(L, -1, i + 1);
    const char *s = lua_tostring(L, -1);
    path[i] = arena_str(lp->arena, s + (strncmp(s, "plan.", 5) == 0 ? 5 : 0));
    lua_pop(L, 1);
  }
  lp->changed = path;
}

/* Argument: the job; results: the plan's table and the paths of the changes. The arena is
 * not used here: running out of it would jump over Lua's frames. */
static int take_value(lua_State *L) {
  TakeJob *j = lua_touserdata(L, 1);
  const LangValue *v = j->v;
  lua_settop(L, 0);
  if (v->copy) {
    if (!state_push_plan(v->copy->state)) luaL_error(L, "not enough memory");
    transfer(v->copy->state->L, -1, L, "", 0);
  } else {
    transfer(v->from, v->idx, L, "", 0);
  }
  if (v->changes)
    transfer(v->from, v->changes, L, "", 0);
  else
    lua_newtable(L);
  apply_changes(L);
  return 2;
}

static void take_job(lua_State *L, void *ud) {
  TakeJob *j = ud;
  lua_pushcfunction(L, take_value);
  lua_pushlightuserdata(L, j);
  int status = lua_pcall(L, 1, 2, 0);
  state_rethrow(L);
  if (status == LUA_OK) {
    note_changes(L, j->lp);
    lua_pop(L, 1);
    state_keep_plan(j->lp->state);
  } else if (status == LUA_ERRRUN) {
    Diag *g = diag_error(j->d, "value", "", "%s", lua_tostring(L, -1));
    if (j->v->changes) g->file = j->v->changes_file, g->line = j->v->changes_line;
  } else {
    lua_error(L);
  }
}

/* Restores the stacks, on which a failed call may have left values. */
weft_status value_take(LangPlan *lp, const LangValue *v, Diags *d, weft_error *e) {
  lua_State *copied = v->copy ? v->copy->state->L : NULL;
  int top = v->from ? lua_gettop(v->from) : 0, top2 = copied ? lua_gettop(copied) : 0;
  TakeJob job = {v, lp, d};
  weft_status st = state_protect(lp->state, take_job, &job, e);
  if (v->from) lua_settop(v->from, top);
  if (copied) lua_settop(copied, top2);
  TRY(st);
  return d->errors ? WEFT_EPLAN : lang_check_plan(lp, d, e);
}

LangValue value_origin(Arena *a, const LangValue *v) {
  LangValue own = *v;
  const LangPlan *of = v->copy;
  if (of && !v->file)
    own.file = of->state->path, own.line = of->value ? of->value->line : 1;
  if (of && !v->dir) own.dir = of->state->dir;
  own.file = arena_str(a, own.file);
  own.dir = arena_str(a, own.dir ? own.dir : "");
  own.changes_file = arena_str(a, v->changes_file);
  return own;
}

/* Arguments: the plan's state, whose table is on top there, and the object of the plan.
 */
static int copy_spec(lua_State *to) {
  const LangState *from = lua_touserdata(to, 1);
  transfer(from->L, -1, to, "", 2);
  return 1;
}

/* Restores the plan's stack, on which a failed copy has left values. */
void lang_push_spec(const LangPlan *lp, lua_State *to, int owner) {
  int top = lua_gettop(lp->state->L);
  owner = lua_absindex(to, owner);
  if (!export_number_functions(lp->state) || !state_push_plan(lp->state))
    luaL_error(to, "not enough memory");
  lua_pushcfunction(to, copy_spec);
  lua_pushlightuserdata(to, lp->state);
  lua_pushvalue(to, owner);
  int status = lua_pcall(to, 2, 1, 0);
  lua_settop(lp->state->L, top);
  if (status != LUA_OK) lua_error(to);
}
