/* plan_show.c - views of a plan by the methods of plan objects: the same values as in
 * scripts, printed as at the prompt or as JSON, for weft show and weft_plan_show. */
#include "runner.h"

#include "bindings/api/api.h"
#include "bindings/object/plan_object.h"
#include "bindings/plan_table/json_value.h"
#include "bindings/plan_table/plan_table.h"
#include "bindings/sandbox/stdlib.h"
#include "bindings/script/library.h"
#include "vm/base/c_locale.h"
#include "vm/sim/step_clock.h"

typedef struct Asked {
  weft_plan *plan;
  const char *what;
  int64_t arg;
  const char *skew; /* fields of it, or NULL */
  Text *text;
  Json *out;
} Asked;

/* Adds the members of the table that stdlib/show/WHAT.lua makes of the value on top;
 * without such a file, the value itself. */
static void add_json(lua_State *L, const char *what, Json *out) {
  const char *form = lua_pushfstring(L, "show/%s", what);
  if (!stdlib_find(form)) {
    lua_pop(L, 1);
    json_value(L, what, out);
    return;
  }
  lua_pushlightuserdata(L, NULL);
  library_provide(L, "show/null");
  library_push(L, form);
  lua_pushvalue(L, -3);
  lua_call(L, 1, 1);
  int t = lua_gettop(L);
  if (!sorted_keys(L, t))
    luaL_error(L, "a key of a table is neither a string nor a number");
  for (int i = 1; lua_rawgeti(L, t + 1, i) != LUA_TNIL; i++, lua_settop(L, t + 1)) {
    lua_pushvalue(L, -1);
    lua_rawget(L, t);
    json_value(L, lua_tostring(L, -2), out);
  }
}

/* Pushes { skew = { FIELDS } }; the fields are values without any names. */
static void push_skew(lua_State *L, const char *fields) {
  lua_newtable(L);
  lua_pushfstring(L, "return { %s }", fields);
  if (!literal_load(L, lua_tostring(L, -1), "=--skew")) lua_error(L);
  lua_call(L, 0, 1);
  lua_setfield(L, -3, "skew");
  lua_pop(L, 1);
}

static int ask(lua_State *L) {
  Asked *a = lua_touserdata(L, 1);
  lua_pushcfunction(L, script_weft); /* objects need it to be loaded */
  lua_call(L, 0, 0);
  plan_object_borrow(L, a->plan);
  lua_getfield(L, -1, a->what);
  if (lua_isfunction(L, -1)) {
    lua_pushvalue(L, -2);
    if (a->arg >= 0) lua_pushinteger(L, a->arg);
    if (a->skew) push_skew(L, a->skew);
    lua_call(L, a->arg >= 0 || a->skew ? 2 : 1, 1);
  }
  if (a->out) {
    add_json(L, a->what, a->out);
    return 0;
  }
  size_t n;
  const char *s = luaL_tolstring(L, -1, &n);
  text_addn(a->text, s, n);
  text_add(a->text, "\n");
  return 0;
}

static weft_status run_ask(Asked *a, weft_error *e) {
  lua_State *L = script_new(NULL);
  if (!L) return err_set(e, WEFT_ENOMEM, "out of memory");
  lua_pushcfunction(L, ask);
  lua_pushlightuserdata(L, a);
  weft_status st = WEFT_OK;
  if (lua_pcall(L, 1, 0, 0) != LUA_OK) {
    const char *why = luaL_tolstring(L, -1, NULL); /* reasons are an object */
    st = a->skew ? err_set(e, WEFT_EUSAGE, "--skew \"%s\": %s", a->skew, why)
                 : err_set(e, WEFT_EINTERNAL, "show %s: %s", a->what, why);
  }
  lua_close(L);
  return st;
}

weft_status show_report(weft_plan *plan, const char *what, int64_t arg, Text *text,
                        Json *out, weft_error *e) {
  return run_ask(&(Asked){plan, what, arg, NULL, text, out}, e);
}

weft_status show_skewed(weft_plan *plan, const char *fields, Text *text, Json *out,
                        weft_error *e) {
  return run_ask(&(Asked){plan, "sim", -1, fields, text, out}, e);
}

/* ---- weft.h ---- */

typedef enum { WHOLE, OF_A_RANK, OF_A_RANK_OR_THE_WORST } About;

static const struct {
  const char *name;
  About about;
} views[] = {{"mesh", WHOLE},        {"memory", WHOLE},
             {"stages", WHOLE},      {"rank", OF_A_RANK},
             {"program", OF_A_RANK}, {"comm", OF_A_RANK_OR_THE_WORST},
             {"sim", WHOLE}};
#define VIEWS "mesh, memory, stages, comm, rank, program, sim"

/* Whether the plan can be on the clock, as weft sim asks. */
static weft_status can_simulate(Arena *a, void *ud, weft_error *e) {
  const Job *j = ud;
  SimOptions slow = {.rates = sheet_rates(RATES_WORSE), .table = j->costs};
  return sim_check(j->compiled, &j->plan, &slow, a, e);
}

/* Takes the rank away from a view that is of all of them. */
static weft_status check_view(const weft_plan *p, const char *what, int *rank,
                              weft_error *err) {
  int i = 0;
  while (i < LEN(views) && !(what && strcmp(views[i].name, what) == 0)) i++;
  if (i == LEN(views))
    return err_set(err, WEFT_EUSAGE, "\"%s\" is none of " VIEWS, what ? what : "");
  if (!p || !p->job.compiled)
    return err_set(err, WEFT_EUSAGE, "the plan is not compiled: call weft_plan_compile");
  if (strcmp(what, "sim") == 0)
    TRY(arena_scoped(NULL, can_simulate, (void *)&p->job, err));
  if (views[i].about == WHOLE) *rank = -1;
  if (*rank < 0 && views[i].about != OF_A_RANK) return WEFT_OK;
  return mesh_check_rank(&p->job.compiled->mesh, *rank, err);
}

weft_status weft_plan_show(weft_plan *p, const char *what, int rank, const char **out,
                           weft_error *err) {
  IN_C_LOCALE;
  err_clear(err);
  if (!out) return err_set(err, WEFT_EUSAGE, "the output argument for the view is NULL");
  *out = NULL;
  TRY(check_view(p, what, &rank, err));
  weft_error e = NO_ERROR;
  weft_status st = WEFT_OK;
  text_free(&p->text);
  if (strcmp(what, "program") == 0) {
    program_json(p->job.compiled, rank, &p->text);
  } else {
    Json json = {.out = &p->text};
    json_open(&json, NULL, '{');
    st = show_report(p, what, rank, NULL, &json, &e);
    json_close(&json, '}');
  }
  if (st != WEFT_OK) return err_set(err, st, "%s", e.text);
  *out = p->text.oom ? NULL : p->text.s;
  return *out ? WEFT_OK : err_set(err, WEFT_ENOMEM, "out of memory");
}
