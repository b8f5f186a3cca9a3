/* plan_facts.c - what verbs that are written in Lua read of a plan object, beside its
 * methods. */
#include "convert.h"

#include "bindings/object/plan_object.h"
#include "bindings/object/reasons.h"
#include "bindings/object/result.h"
#include "bindings/plan_table/json_value.h"
#include "bindings/runner/runner.h"
#include "bindings/schedule/schedule_csv.h"
#include "bindings/schema/schema.h"
#include "bindings/script/library.h"

static void add_proof(lua_State *L, const Proof *p) {
  lua_createtable(L, 0, 4);
  set_integer(L, "transfers", p->transfers);
  set_integer(L, "collectives", p->collectives);
  set_integer(L, "communicators", p->communicators);
  set_integer(L, "instructions", p->instructions);
  lua_setfield(L, -2, "proof");
}

/* plan_facts(plan): raises all reasons why it cannot be compiled. */
static int plan_facts(lua_State *L) {
  char mesh[96];
  const Job *j = plan_object_compiled(L);
  const Batch *b = &j->plan.batch;
  lua_newtable(L);
  set_text(L, "name", j->plan.name);
  set_text(L, "mesh", mesh_text(&j->mesh, mesh));
  set_integer(L, "world", j->mesh.world);
  set_boolean(L, "open_world", job_open_world(j));
  plan_bounds_set(L, j);
  if (lang_architecture(j->lp)) set_text(L, "model", lang_architecture(j->lp));
  set_integer(L, "parameters", (int64_t)params_of_model(j->compiled));
  set_integer(L, "global", b->global);
  set_integer(L, "micro", b->micro);
  set_integer(L, "seq", b->seq);
  set_integer(L, "microbatches", j->compiled->microbatches);
  set_text(L, "schedule", j->plan.schedule);
  add_proof(L, &j->compiled->proof);
  reasons_list(L, &j->d);
  lua_setfield(L, -2, "warnings");
  return 1;
}

/* Adds what every field that has a value in Plan comes to, as texts by path. */
static void add_stored(lua_State *L, const Job *j) {
  Arena *a = script_push_arena(L);
  if (setjmp(*arena_guard(a))) luaL_error(L, "not enough memory");
  lua_newtable(L);
  for (const Field *f = schema; f->scope; f++) {
    if (!schema_tells(f)) continue;
    Text *t = script_push_text(L);
    field_print(f, &j->plan, t);
    script_end_text(L);
    lua_setfield(L, -2, schema_path(a, f));
  }
  lua_setfield(L, -3, "stored");
  lua_pop(L, 1);
}

static bool is_plain(const Field *f) {
  return f->stored && f->type != FIELD_OWN && f->type != FIELD_ALIAS;
}

/* Of two fields with one path the value depends on what another field says. */
static bool one_place(const Field *f, const char *const *path) {
  for (const Field *g = schema; g->scope; g++)
    if (str_eq(path[g - schema], path[f - schema]) && (!is_plain(g) || g->at != f->at))
      return false;
  return true;
}

/* plan_means(plan): what the plan's fields come to that have a value of their own, as
 * texts by path; "{}" for those that are nothing but a table of fields. Both are the same
 * whether they are written or left to the default. */
static int plan_means(lua_State *L) {
  const Job *j = plan_object_compiled(L);
  Arena *a = script_push_arena(L);
  if (setjmp(*arena_guard(a))) luaL_error(L, "not enough memory");
  int n = 0;
  while (schema[n].scope) n++;
  const char **path = NEW_N(a, const char *, n + 1);
  for (int i = 0; i < n; i++) path[i] = schema_path(a, &schema[i]);
  lua_newtable(L);
  for (int i = 0; i < n; i++) {
    const Field *f = &schema[i];
    bool table = f->type == FIELD_TABLE;
    if (!table && !(is_plain(f) && one_place(f, path))) continue;
    Text *t = script_push_text(L);
    if (table)
      text_add(t, "{}");
    else
      field_print(f, &j->plan, t);
    script_end_text(L);
    lua_setfield(L, -2, path[i]);
  }
  return 1;
}

/* Adds the sizes of the model, as its config.json has them, unless it is a function. */
static void add_config(lua_State *L, Job *j) {
  weft_error e = NO_ERROR;
  if (!lang_architecture(j->lp)) return;
  Text *t = script_push_text(L);
  if (lang_config_text(j->lp, t, &e) != WEFT_OK) luaL_error(L, "%s", e.text);
  json_t **doc = json_box(L);
  json_error_t why;
  *doc = json_loadb(t->s, t->n, JSON_DECODE_ANY, &why);
  if (!*doc) luaL_error(L, "the model's sizes are no JSON: %s", why.text);
  json_push(L, *doc);
  lua_setfield(L, -4, "config");
  lua_pop(L, 2);
}

/* Adds the learning rate in steps, whatever way the plan says it. */
static void add_rate(lua_State *L, const Job *j) {
  LrSchedule lr = lr_resolved(&j->plan);
  lua_createtable(L, 0, 5);
  set_integer(L, "warmup", lr.warmup);
  set_integer(L, "decay", lr.decay);
  set_integer(L, "timescale", lr.timescale);
  set_integer(L, "steps", lr.steps);
  set_number(L, "min", lr.min);
  lua_setfield(L, -2, "rate");
}

/* plan_fields(plan): a compiled plan as settings of another system are made of it. */
static int plan_fields(lua_State *L) {
  plan_object_compiled(L);
  Job *j = &plan_object_self(L)->job;
  lua_newtable(L);
  if (lang_architecture(j->lp)) set_text(L, "architecture", lang_architecture(j->lp));
  if (lang_weights(j->lp)) set_text(L, "weights", lang_weights(j->lp));
  add_stored(L, j);
  add_rate(L, j);
  add_config(L, j);
  schedule_csv_write(&j->schedule, false, script_push_text(L));
  script_end_text(L);
  lua_setfield(L, -2, "csv");
  return 1;
}

void plan_facts_provide(lua_State *L) {
  script_weft(L);
  library_provide(L, "weft");
  lua_pushcfunction(L, plan_facts);
  library_provide(L, "plan_facts");
  lua_pushcfunction(L, plan_fields);
  library_provide(L, "plan_fields");
  lua_pushcfunction(L, plan_means);
  library_provide(L, "plan_means");
  lua_pushcfunction(L, plan_object_text);
  library_provide(L, "plan_of_text");
}
