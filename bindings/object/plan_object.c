/* plan_object.c - plan objects: their fields, compilation, release. How they are made is
 * in plan_make.c; methods on a compiled plan have files of their own. */
#include "plan_object_int.h"

#include "format.h"
#include "bindings/lang/plan_load.h"
#include "bindings/schema/schema.h"
#include "mesh_object.h"
#include "reasons.h"
#include "bindings/script/library.h"
#include "bindings/script/script.h"

static void push_metatable(lua_State *L);

/* ---- access ---- */

weft_plan *plan_object_test(lua_State *L, int idx) {
  PlanObject *o = luaL_testudata(L, idx, PLAN_TYPE);
  return o ? o->plan : NULL;
}

static const LangPlan *loaded(const ExportOwner *owner) {
  const PlanObject *o = (const PlanObject *)owner;
  return o->plan && !o->busy ? o->plan->job.lp : NULL;
}

PlanObject *plan_object_new(lua_State *L) {
  PlanObject *o = lua_newuserdatauv(L, sizeof *o, 1);
  *o = (PlanObject){.owner = {loaded}, .L = L};
  push_metatable(L);
  lua_setmetatable(L, -2);
  return o;
}

PlanObject *plan_object_get(lua_State *L) {
  PlanObject *o = luaL_testudata(L, 1, PLAN_TYPE);
  if (!o) library_error(L, "the plan is missing: write plan:method(...), with a colon");
  if (!o->plan) library_error(L, "this plan is closed");
  if (o->busy) library_error(L, "this plan is in use");
  o->L = L;
  return o;
}

weft_plan *plan_object_self(lua_State *L) { return plan_object_get(L)->plan; }

/* Raises an error if the first argument is no plan that can be asked: for methods in Lua,
 * before they look at their other arguments. */
static int is_self(lua_State *L) {
  plan_object_get(L);
  return 0;
}

void plan_object_no_arguments(lua_State *L, const char *method) {
  if (!lua_isnoneornil(L, 2))
    library_error(L, "plan:%s() has no argument, but got a %s", method,
                  luaL_typename(L, 2));
}

int plan_object_rank(lua_State *L, const Job *j, int arg) {
  int exact;
  lua_Integer r = lua_tointegerx(L, arg, &exact);
  if (!exact)
    library_error(L, "a rank is an integer, not %s", luaL_tolstring(L, arg, NULL));
  weft_error e = NO_ERROR;
  if (mesh_check_rank(&j->mesh, r, &e) != WEFT_OK) library_error(L, "%s", e.text);
  return (int)r;
}

int plan_object_raise(lua_State *L, const weft_plan *p, weft_status st,
                      const weft_error *e) {
  return reasons_raise(L, st, &p->job.d, e);
}

void plan_object_account(lua_State *L, const weft_plan *p) {
  lua_gc(L, LUA_GCSTEP, (int)MIN(arena_bytes(p->arena) >> 10, (size_t)INT32_MAX));
}

weft_status plan_object_compile(lua_State *L, PlanObject *o, weft_error *e) {
  err_clear(e);
  if (o->compiled) return WEFT_OK;
  TRY(weft_plan_compile(o->plan, 0, e));
  o->compiled = true;
  return WEFT_OK;
}

const Job *plan_object_compiled(lua_State *L) {
  PlanObject *o = plan_object_get(L);
  weft_error e = NO_ERROR;
  bool before = o->compiled;
  weft_status st = plan_object_compile(L, o, &e);
  if (st != WEFT_OK) plan_object_raise(L, o->plan, st, &e);
  if (!before) plan_object_account(L, o->plan);
  return &o->plan->job;
}

weft_plan *plan_object_at(lua_State *L, int idx) {
  PlanObject *o = luaL_testudata(L, idx, PLAN_TYPE);
  if (!o) library_error(L, "another plan is expected, not a %s", luaL_typename(L, idx));
  if (!o->plan || o->busy) library_error(L, "the other plan is closed or in use");
  return o->plan;
}

const Job *plan_object_try(lua_State *L, int idx) {
  PlanObject *o = luaL_checkudata(L, idx, PLAN_TYPE);
  weft_error e = NO_ERROR;
  o->L = L;
  return plan_object_compile(L, o, &e) == WEFT_OK ? &o->plan->job : NULL;
}

/* plan:check(): true, or nil and all errors. */
static int check(lua_State *L) {
  PlanObject *o = plan_object_get(L);
  plan_object_no_arguments(L, "check");
  weft_error e = NO_ERROR;
  weft_status st = plan_object_compile(L, o, &e);
  if (st == WEFT_OK) {
    lua_pushboolean(L, true);
    return 1;
  }
  lua_pushnil(L);
  reasons_push(L, st, &o->plan->job.d, &e);
  return 2;
}

/* ---- fields ---- */

typedef struct MeshJob {
  const LangPlan *lp;
  Diags d;
  Mesh mesh;
  bool ok;
} MeshJob;

static void mesh_job(void *ud) {
  MeshJob *j = ud;
  Plan p = *lang_plan(j->lp);
  j->ok = mesh_resolve(&p.mesh, lang_cluster_ranks(j->lp), &j->mesh, &j->d);
}

/* The mesh that the plan was compiled for; of one that was not, that of its fields. */
static Mesh mesh_of(lua_State *L, const PlanObject *o) {
  if (o->plan->job.compiled) return o->plan->job.compiled->mesh;
  MeshJob j = {.lp = o->plan->job.lp, .d = {.arena = script_push_arena(L)}};
  /* Loading has resolved it, so it is valid. */
  if (!arena_try(j.d.arena, mesh_job, &j) || !j.ok) luaL_error(L, "not enough memory");
  lua_pop(L, 1);
  return j.mesh;
}

/* Pushes the mesh object, which is kept in user value 1. */
static void push_mesh(lua_State *L, const PlanObject *o) {
  if (lua_getiuservalue(L, 1, 1) == LUA_TUSERDATA) return;
  lua_pop(L, 1);
  Mesh m = mesh_of(L, o);
  mesh_object_push(L, &m, job_node_ranks(&o->plan->job));
  lua_pushvalue(L, -1);
  lua_setiuservalue(L, 1, 1);
}

/* __index; upvalue: the methods. */
static int index_plan(lua_State *L) {
  const char *key = luaL_checkstring(L, 2);
  lua_settop(L, 2);
  lua_pushvalue(L, 2);
  if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL) return 1;
  PlanObject *o = plan_object_get(L);
  if (strcmp(key, "spec") == 0) {
    lang_push_spec(o->plan->job.lp, L, 1);
  } else if (strcmp(key, "mesh") == 0) {
    push_mesh(L, o);
  } else if (schema_find("plan", key)) {
    return luaL_error(
        L, "weft.plan has no '%s': the fields as written are in plan.spec.%s", key, key);
  } else {
    return script_unknown(L, "plan");
  }
  return 1;
}

static int assign_plan(lua_State *L) {
  const char *key = luaL_tolstring(L, 2, NULL);
  return luaL_error(L, "a plan cannot be changed: write plan:with { %s = ... }", key);
}

/* "plan llama3-70b: pp=4 dp=2 tp=8, 64 ranks, 1f1b" */
static int print_plan(lua_State *L) {
  PlanObject *o = luaL_checkudata(L, 1, PLAN_TYPE);
  if (!o->plan) {
    lua_pushliteral(L, "plan (closed)");
    return 1;
  }
  const Plan *p = lang_plan(o->plan->job.lp);
  Mesh m = mesh_of(L, o);
  char mesh[128];
  lua_pushfstring(L, "plan %s: %s, %s", p->name, format_mesh_ranks(&m, mesh),
                  p->schedule);
  return 1;
}

static int free_plan(lua_State *L) {
  PlanObject *o = luaL_checkudata(L, 1, PLAN_TYPE);
  if (o->busy) return luaL_error(L, "this plan is in use");
  if (!o->borrowed) weft_plan_free(o->plan);
  o->plan = NULL;
  return 0;
}

/* plan:close(): of a plan that is closed, nothing. */
static int close_plan(lua_State *L) {
  PlanObject *o = luaL_testudata(L, 1, PLAN_TYPE);
  if (!o || o->plan) plan_object_get(L);
  plan_object_no_arguments(L, "close");
  return free_plan(L);
}

static void push_metatable(lua_State *L) {
  static const luaL_Reg methods[] = {{"match", plan_match},
                                     {"shards", plan_shards},
                                     {"program", plan_program},
                                     {"memory", plan_memory},
                                     {"comm", plan_comm},
                                     {"stages", plan_stages},
                                     {"schedule", plan_schedule},
                                     {"sim", plan_sim},
                                     {"figures", plan_figures},
                                     {"warnings", plan_warnings},
                                     {"verify", plan_verify},
                                     {"run", plan_run},
                                     {"with", plan_object_with},
                                     {"check", check},
                                     {"close", close_plan},
                                     {"self", is_self},
                                     {NULL, NULL}};
  static const luaL_Reg meta[] = {{"__tostring", print_plan},
                                  {"__newindex", assign_plan},
                                  {"__gc", free_plan},
                                  {"__close", free_plan},
                                  {NULL, NULL}};
  if (!luaL_newmetatable(L, PLAN_TYPE)) return;
  luaL_setfuncs(L, meta, 0);
  lua_newtable(L);
  luaL_setfuncs(L, methods, 0);
  object_methods(L, "plan");
  lua_pushvalue(L, -1);
  lua_setfield(L, -3, "methods");
  lua_pushcclosure(L, index_plan, 1);
  lua_setfield(L, -2, "__index");
  lua_pushliteral(L, PLAN_TYPE);
  lua_setfield(L, -2, "__metatable");
}
