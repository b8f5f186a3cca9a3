/* schema.c - checks the plan's table against schema.def and stores its values in Plan.
 * Every problem becomes a diagnostic; nothing stops the check. */
#include "schema.h"
#include "vm/plan/optimizer.h"

#include <math.h>

/* Columns: what the field influences, where it goes. */
#define GRAPH    (FOR_GRAPH | FOR_UNITS)
#define UNITS    FOR_UNITS
#define SCHEDULE FOR_SCHEDULE
#define SHARES   FOR_SHARES
#define SIZES    FOR_SIZES
#define POINT    FOR_POINT
#define NOTHING  FOR_NOTHING
/* The member's type says how it is stored, so that no row can say it wrongly. */
#define AT(member)                                                                       \
  offsetof(Plan, member), _Generic(((Plan *)0)->member,                                  \
      bool: STORED_BOOL,                                                                 \
      int: STORED_INT,                                                                   \
      unsigned: STORED_INT,                                                              \
      int64_t: STORED_INT64,                                                             \
      uint64_t: STORED_INT64,                                                            \
      double: STORED_DOUBLE,                                                             \
      const char *: STORED_TEXT,                                                         \
      ExpectRange: STORED_RANGE)
#define NOWHERE        0, STORED_NOWHERE
#define MUST           INFINITY
#define NONE           NAN
#define ROW(s, k, ...) {#s, #k, __VA_ARGS__, NULL, NULL},
#define LATER          NULL /* by model.c, when all other fields are known */
#define OWN(s, k, to, form, check, scopes, def, at, doc)                                 \
  {#s, #k, FIELD_OWN, to, scopes, 0, 0, def, at, doc, form, check},
#define TEXT(s, k, to, at, doc) ROW(s, k, FIELD_TEXT, to, NULL, 0, 0, NONE, at, doc)
#define INT(s, k, to, lo, hi, def, at, doc)                                              \
  ROW(s, k, FIELD_INT, to, NULL, lo, hi, def, at, doc)
#define NUM(s, k, to, lo, hi, def, at, doc)                                              \
  ROW(s, k, FIELD_NUM, to, NULL, lo, hi, def, at, doc)
#define BOOL(s, k, to, def, at, doc) ROW(s, k, FIELD_BOOL, to, NULL, 0, 1, def, at, doc)
#define NAME(s, k, to, at, names, doc)                                                   \
  ROW(s, k, FIELD_NAME, to, names, 0, 0, NONE, at, doc)
#define NAMED(s, k, to, at, names, doc)                                                  \
  ROW(s, k, FIELD_NAMED, to, names, 0, 0, NONE, at, doc)
#define BUILT(s, k, to, at, names, doc)                                                  \
  ROW(s, k, FIELD_BUILT, to, names, 0, 0, NONE, at, doc)
#define TABLE(s, k, scope, def, doc)                                                     \
  ROW(s, k, FIELD_TABLE, NOTHING, scope, 0, 0, def, NOWHERE, doc)
#define ALIAS(s, k, of) ROW(s, k, FIELD_ALIAS, NOTHING, of, 0, 0, NONE, NOWHERE, "alias")

#define RANGE(s, k, to, at, doc) ROW(s, k, FIELD_RANGE, to, NULL, 0, 0, NONE, at, doc)
#define NOOP(s, k, want, doc)                                                            \
  ROW(s, k, FIELD_NOOP, NOTHING, want, 0, 0, NONE, NOWHERE, doc)
#define REFUSED(s, k, doc)                                                               \
  ROW(s, k, FIELD_REFUSED, NOTHING, NULL, 0, 0, NONE, NOWHERE, doc)
#define SOURCE(ID, name) " " #name
static const char data_sources[] =
#include "vm/plan/sources.def"
    ;
#define DATA_SOURCES                                         (data_sources + 1)
#define OPTIMIZER(ID, name, states, flops, changes, formula) " " #name
static const char optimizers[] =
#define MATRICES(ID, name, rest, states, flops, changes) " " #name
#define FACTORED(ID, name, flops)                        " " #name
#include "vm/plan/optimizers.def"
    ;
#define OPTIMIZERS (optimizers + 1)

static const char learning_rates[] = ""
#define LR(ID, name) " " #name
#include "vm/plan/lr.def"
    ;
#define LR_SCOPES (learning_rates + 1)

const Field schema[] = {
#include "schema.def"
    {0}};

/* The table is searched for every field of every point of a sweep. */
static bool same(const char *a, const char *b) { return *a == *b && strcmp(a, b) == 0; }

const Field *schema_find(const char *scope, const char *key) {
  for (const Field *f = schema; f->scope; f++)
    if (same(f->key, key) && same(f->scope, scope)) return f;
  return NULL;
}

bool schema_has_scope(const char *scope) {
  for (const Field *f = schema; f->scope; f++)
    if (same(f->scope, scope)) return true;
  return false;
}

/* Does the value of field `f` select this scope? */
static bool selects(const Field *f, const char *scope) {
  switch (f->type) {
  case FIELD_TABLE: return same(f->names, scope);
  case FIELD_NAMED:
  case FIELD_BUILT: return name_listed(f->names, scope);
  case FIELD_RANGE: return name_listed("at_most at_least between", scope);
  case FIELD_OWN: return f->names && name_listed(f->names, scope);
  default: return false;
  }
}

const Field *schema_parent(const Field *f) {
  if (str_eq(f->scope, "plan")) return NULL;
  for (const Field *g = schema; g->scope; g++)
    if (selects(g, f->scope)) return g;
  return NULL;
}

const char *schema_path(Arena *a, const Field *f) {
  const Field *in = schema_parent(f);
  return in ? arena_printf(a, "%s.%s", schema_path(a, in), f->key) : f->key;
}

bool schema_influences(const Field *f, unsigned what) {
  return !f->influences || f->influences & what;
}

/* A row that has a form of its own only if no other leads there, of which field_print
 * knows more; where it has a table, the fields of that tell. */
static const Field *teller(const Field *f) {
  const Field *own = NULL;
  for (const Field *g = schema; f->stored && g->scope; g++) {
    if (!g->stored || g->at != f->at) continue;
    if (g->type != FIELD_OWN) return g;
    if (!own && !g->names) own = g;
  }
  return own;
}

bool schema_tells(const Field *f) { return f->stored && teller(f) == f; }

bool schema_required(const Field *f) { return isinf(f->def); }

/* ---- fields ---- */

/* Where several rows lead to one place the first counts. */
static void store_defaults(Check *c) {
  for (const Field *f = schema + LEN(schema) - 1; f-- > schema;)
    if (isfinite(f->def)) field_set(c->arena, f, c->plan, f->def);
}

void schema_optimizer(Check *c, const char *name) {
  optimizer_begin(&c->plan->opt, (OptimizerKind)optimizer_parse(name));
  for (const Field *f = schema; f->scope; f++)
    if (same(f->scope, name) && isfinite(f->def)) field_set(c->arena, f, c->plan, f->def);
}

static bool has_key(lua_State *L, int t, const char *key) {
  lua_pushstring(L, key);
  bool yes = lua_rawget(L, t) != LUA_TNIL;
  lua_pop(L, 1);
  return yes;
}

/* The other name under which the table has the field of `alias`, NULL: none. Of two
 * aliases the later one is told. */
static const char *other_name(Check *c, int t, const Field *alias) {
  if (has_key(c->L, t, alias->names)) return alias->names;
  for (const Field *f = schema; f->scope; f++)
    if (f->type == FIELD_ALIAS && same(f->scope, alias->scope) &&
        strcmp(f->names, alias->names) == 0 && strcmp(f->key, alias->key) < 0 &&
        has_key(c->L, t, f->key))
      return f->key;
  return NULL;
}

static void check_alias(Check *c, int t, const Field *alias, const char *path) {
  const char *other = other_name(c, t, alias), *dot = strrchr(path, '.');
  if (other)
    diag_error(c->d, "alias", path, "is another name of plan.%.*s%s, which is given too",
               dot ? (int)(dot + 1 - path) : 0, path, other);
  else
    check_value(c, schema_find(alias->scope, alias->names), -1, path);
}

/* A field may be given by its own name or by an alias. */
static bool given(Check *c, int t, const Field *of) {
  if (has_key(c->L, t, of->key)) return true;
  for (const Field *f = schema; f->scope; f++)
    if (f->type == FIELD_ALIAS && same(f->scope, of->scope) &&
        strcmp(f->names, of->key) == 0 && has_key(c->L, t, f->key))
      return true;
  return false;
}

/* Is `path` the field that `text` begins with, or a table around it? */
static bool leads_into(const char *text, const char *path) {
  size_t n = strlen(path);
  return strncmp(text, path, n) == 0 && (!text[n] || strchr(". ,;[=", text[n]));
}

/* A field that is missing because its name is misspelt, or another system's, has its
 * message already. */
static bool misspelt(Check *c, const char *path) {
  for (int i = 0; i < c->told.n; i++)
    if (leads_into(c->told.at[i], path)) return true;
  for (int i = 0; i < c->d->list.n; i++) {
    const Diag *g = &c->d->list.at[i];
    const char *dot = strrchr(g->path, '.'), *own = strrchr(path, '.');
    size_t base = dot ? (size_t)(dot - g->path) : 0,
           own_base = own ? (size_t)(own - path) : 0;
    if (strcmp(g->code, "unknown-field") == 0 && base == own_base &&
        strncmp(g->path, path, base) == 0 && str_eq(g->suggestion, own ? own + 1 : path))
      return true;
  }
  return false;
}

static void check_required(Check *c, int t, const char *scope, const char *path) {
  for (const Field *f = schema; f->scope; f++) {
    if (!schema_required(f) || !same(f->scope, scope) || given(c, t, f)) continue;
    lua_pushstring(c->L, f->key);
    const char *sub = path_join(c->arena, path, c->L, -1);
    if (!misspelt(c, sub))
      diag_error(c->d, "required", sub, "this field is required (%s)", f->doc);
    lua_pop(c->L, 1);
  }
}

/* Fields of the plan whose checks neither read nor fill what lies at other fields. */
bool schema_shared(const LangShared *s, const char *field) {
  static const char *const alone[] = {"model", "cluster",   "optimizer",  "data",
                                      "train", "expect",    "checkpoint", "nccl",
                                      "name",  "tokenizer", "tp_plan"};
  for (int i = 0; s && i < LEN(alone); i++)
    if (strcmp(alone[i], field) == 0) return lang_unvaried(s, field);
  return false;
}

/* Whether the key at the top of the stack is that of a field that others than this check
 * look at. */
static bool is_elsewhere(const Check *c, const char *path) {
  if (!c->shared || *path || lua_type(c->L, -1) != LUA_TSTRING) return false;
  return schema_shared(c->shared, lua_tostring(c->L, -1)) != c->only_shared;
}

void check_scope(Check *c, int t, const char *scope, const char *path, int from) {
  lua_State *L = c->L;
  t = lua_absindex(L, t);
  luaL_checkstack(L, 10, NULL);
  if (!sorted_keys(L, t)) {
    diag_error(c->d, "unknown-field", path, "the keys of this table must be names");
    return;
  }
  int keys = lua_gettop(L);
  for (int i = 1; lua_rawgeti(L, keys, i) != LUA_TNIL; i++, lua_settop(L, keys)) {
    int key = keys + 1;
    if (lua_isinteger(L, key) && lua_tointeger(L, key) < from) continue;
    if (is_elsewhere(c, path)) continue;
    const char *sub = path_join(c->arena, path, L, key);
    const Field *f =
        lua_type(L, key) == LUA_TSTRING ? schema_find(scope, lua_tostring(L, key)) : NULL;
    lua_pushvalue(L, key);
    lua_rawget(L, t);
    if (!f)
      unknown_field(c, scope, sub, key);
    else if (f->type == FIELD_ALIAS)
      check_alias(c, t, f, sub);
    else
      check_value(c, f, keys + 2, sub);
  }
  lua_settop(L, keys - 1);
  check_required(c, t, scope, path);
}

static void begin_plan(Check *c) {
  store_defaults(c);
  schema_optimizer(c, optimizer_info[0].name);
  c->plan->opt.lr = (LrSchedule){.kind = LR_CONSTANT, .max = 3e-4};
  c->plan->schedule = "1f1b";
}

void schema_check_shared(lua_State *L, LangPlan *lp, LangShared *shared, Diags *d) {
  Check c = {.L = L, .lp = lp, .plan = &shared->plan, .arena = d->arena, .d = d};
  c.shared = shared;
  c.only_shared = true;
  begin_plan(&c);
  check_scope(&c, PLAN_INDEX, "plan", "", 1);
}

void schema_check(lua_State *L, LangPlan *lp, Diags *d) {
  Check c = {.L = L, .lp = lp, .plan = &lp->plan, .arena = d->arena, .d = d};
  c.shared = lp->shared;
  if (c.shared)
    *c.plan = c.shared->plan;
  else
    begin_plan(&c);
  check_mark(&c, PLAN_INDEX, "");
  check_scope(&c, PLAN_INDEX, "plan", "", 1);
  strategy_rules(&c);
  loss_rules(&c);
}
