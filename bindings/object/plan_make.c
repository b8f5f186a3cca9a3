/* plan_make.c - makes plan objects: of files, of texts, of tables of a script, of other
 * plans that are changed. */
#include "plan_object_int.h"

#include "bindings/lang/plan_load.h"
#include "reasons.h"
#include "bindings/script/library.h"
#include "bindings/script/script.h"

/* print() of a plan calls the script's print; errors in it are ignored. */
static void print_line(void *ud, const char *line) {
  PlanObject *o = ud;
  lua_State *L = o->L;
  if (!lua_checkstack(L, 4)) return;
  int top = lua_gettop(L);
  lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
  lua_pushliteral(L, "print");
  lua_rawget(L, -2);
  lua_pushstring(L, line);
  o->busy = true;
  lua_pcall(L, 1, 0, 0);
  o->busy = false;
  lua_settop(L, top);
}

void plan_object_borrow(lua_State *L, weft_plan *plan) {
  PlanObject *o = plan_object_new(L);
  o->plan = plan;
  o->compiled = o->borrowed = true;
}

/* Ends the creation of the object on top: leaves it, or nil and the reasons. */
static int end_object(lua_State *L, PlanObject *o, weft_status st, const weft_error *e) {
  if (st == WEFT_OK) {
    plan_object_account(L, o->plan);
    return 1;
  }
  lua_pushnil(L);
  reasons_push(L, st, o->plan ? &o->plan->job.d : NULL, e);
  weft_plan_free(o->plan);
  o->plan = NULL;
  return 2;
}

static weft_plan_options options_for(lua_State *L, PlanObject *o) {
  const ScriptHost *host = script_host(L);
  return (weft_plan_options){.size = sizeof(weft_plan_options),
                             .stop = (const volatile int *)script_stop(L),
                             .print = print_line,
                             .ud = o,
                             .data = host ? host->data : NULL};
}

/* The list of strings at idx; NULL for nil. */
static const char **texts(lua_State *L, int idx) {
  return lua_isnil(L, idx) ? NULL : texts_of(L, idx);
}

static int load_object(lua_State *L, bool draft) {
  weft_error e = NO_ERROR;
  lua_settop(L, 2);
  library_push(L, "objects/options");
  lua_getfield(L, -1, "load");
  lua_replace(L, -2);
  lua_insert(L, 1);
  lua_call(L, 2, 4);
  const char **define = texts(L, 2), **set = texts(L, 3), **data = texts(L, 4);
  PlanObject *o = plan_object_new(L);
  weft_plan_options options = options_for(L, o);
  options.define = define;
  options.set = set;
  if (data) options.data = data;
  const char *path = lua_tostring(L, 1);
  weft_status st = draft ? api_plan_draft(&options, path, NULL, &o->plan, &e)
                         : weft_plan_load(&options, path, &o->plan, &e);
  return end_object(L, o, st, &e);
}

/* weft.load and weft.plan with the options define, set and data. */
int plan_object_load(lua_State *L) { return load_object(L, false); }

int plan_object_text(lua_State *L) {
  weft_error e = NO_ERROR;
  const char *name = luaL_checkstring(L, 1), *text = luaL_checkstring(L, 2);
  PlanObject *o = plan_object_new(L);
  weft_plan_options options = options_for(L, o);
  return end_object(L, o, api_plan_text(&options, name, text, &o->plan, &e), &e);
}

/* The folder of a file, "" without one. */
static const char *folder(lua_State *L, const char *file) {
  const char *slash = strrchr(file, '/');
  if (!slash) return "";
  return lua_pushlstring(L, file, (size_t)(slash - file) + (slash == file));
}

/* The plan of the table at 1. */
static int take_table(lua_State *L, bool draft) {
  weft_error e = NO_ERROR;
  const char *file = NULL;
  builders_plan(L);
  lua_pushvalue(L, -1);
  lua_replace(L, 1);
  lua_settop(L, 1);
  int line = mark_line(L, 1, &file);
  if (!line) file = "script", line = 1;
  LangValue v = {.file = file, .line = line, .dir = folder(L, file), .from = L, .idx = 1};
  PlanObject *o = plan_object_new(L);
  weft_plan_options options = options_for(L, o);
  weft_status st = api_plan_take(&options, &v, draft, &o->plan, &e);
  return end_object(L, o, st, &e);
}

int plan_object_draft(lua_State *L) {
  weft_error e = NO_ERROR;
  if (lua_istable(L, 1)) return take_table(L, true);
  if (lua_type(L, 2) != LUA_TSTRING) return load_object(L, true);
  PlanObject *o = plan_object_new(L);
  weft_plan_options options = options_for(L, o);
  weft_status st =
      api_plan_draft(&options, luaL_checkstring(L, 1), lua_tostring(L, 2), &o->plan, &e);
  return end_object(L, o, st, &e);
}

int plan_object_make(lua_State *L) {
  return take_table(L, false) == 1 ? 1 : lua_error(L);
}

int plan_object_with(lua_State *L) {
  PlanObject *of = plan_object_get(L);
  weft_error e = NO_ERROR;
  lua_Debug ar = {0};
  if (!lua_istable(L, 2))
    library_error(L, "bad argument to 'with' (table expected, got %s)",
                  luaL_typename(L, 2));
  lua_settop(L, 2);
  LangValue v = {.copy = of->plan->job.lp, .from = L, .changes = 2};
  v.changes_file = "plan:with";
  if (lua_getstack(L, 1, &ar) && lua_getinfo(L, "Sl", &ar) && ar.currentline > 0 &&
      chunk_file(ar.source)) {
    v.changes_file = lua_pushstring(L, chunk_file(ar.source));
    v.changes_line = ar.currentline;
  }
  PlanObject *o = plan_object_new(L);
  weft_plan_options options = options_for(L, o);
  options.define = of->plan->opt.define;
  options.data = of->plan->opt.data;
  weft_status st = api_plan_take(&options, &v, false, &o->plan, &e);
  if (st == WEFT_OK) st = plan_object_compile(L, o, &e);
  return end_object(L, o, st, &e);
}
