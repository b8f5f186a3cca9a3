/* fields_schedule.c - plan.schedule: a name with options, a function, or a CSV file. */
#include "bindings/sandbox/length.h"
#include "bindings/schedule/schedule_csv.h"
#include "bindings/schedule/schedule_facts.h"
#include "schema.h"

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

static void no_option(Check *c, const char *path, const char *scope, int key) {
  Diag *g = diag_error(c->d, "unknown-field", path, "this schedule has no options");
  if (lua_type(c->L, key) == LUA_TSTRING)
    g->suggestion = field_hint(c, scope, path, lua_tostring(c->L, key));
}

/* Options beside the name or the function: fields of the scope with its name. */
static void check_options(Check *c, int t, const char *path, const char *scope) {
  lua_State *L = c->L;
  if (schema_has_scope(scope)) {
    check_scope(c, t, scope, path, 2);
    keep_options(c, t, scope);
    return;
  }
  if (!sorted_keys(L, t)) return;
  int keys = lua_gettop(L);
  for (int i = 1; lua_rawgeti(L, keys, i) != LUA_TNIL; i++, lua_settop(L, keys))
    if (!lua_isinteger(L, -1) || lua_tointeger(L, -1) != 1)
      no_option(c, path_join(c->arena, path, L, keys + 1), scope, keys + 1);
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
  weft_error e = NO_ERROR;
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
  const char *name = check_name(c, SCHEDULE_NAMES, path, lua_tostring(c->L, -1));
  if (!name) return false;
  c->plan->schedule = name;
  if (t) check_options(c, t, path, name);
  return true;
}

void field_schedule(Check *c, int idx, const char *path) {
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
    else if (t && lua_isnil(L, -1))
      diag_error(c->d, "type", path,
                 "the first item is the name of a schedule or a function: { \"1f1b\", "
                 "option = value }");
    else if (lua_type(L, -1) != LUA_TSTRING)
      check_type(c, path, "a name, a function or weft.schedule_csv", t ? -1 : idx);
    else
      named(c, t, path);
  }
  lua_settop(L, top);
  if (schedule_push_own(L, c->lp, c->plan->schedule, &facts))
    c->plan->pp.virtual_default = facts.chunks;
  lua_settop(L, top);
}
