/* vary.c - a loaded plan with other values in some fields: the table that the file
 * returned is changed, checked as after loading, and changed back. The file is evaluated
 * once, however many variations there are. */
#include "bindings/schema/schema.h"
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
  p->arch = p->weights = NULL;
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
  weft_error e;
  err_clear(&e);
  v->of->state->arena = v->arena;
  state_protect(v->of->state, restore_job, v, &e);
}

/* ---- keys ---- */

typedef struct KeyJob {
  const LangPlan *lp;
  Text *out;
  /* FOR_UNITS ...; 0: fields without a row in the schema, without addresses */
  unsigned what;
  int nest, inside;  /* depth of tables; of functions */
  const char *wrong; /* why there is no key */
  bool addressed;    /* a value is in it by its address */
} KeyJob;

static void add_value(lua_State *L, int idx, KeyJob *j);

/* Appends digits; numbers are most of a key and printf would take most of the time. */
static void add_digits(Text *out, int64_t v) {
  char buf[20], *p = buf + sizeof buf;
  uint64_t n = v < 0 ? -(uint64_t)v : (uint64_t)v;
  do {
    *--p = (char)('0' + n % 10);
  } while (n /= 10);
  if (v < 0) text_add(out, "-");
  text_addn(out, p, (size_t)(buf + sizeof buf - p));
}

/* 1.0 is written as 1: a field takes either, and a file in between may change one into
 * the other. */
static void add_number(lua_State *L, int idx, Text *out) {
  lua_Integer whole;
  if (lua_isinteger(L, idx))
    add_digits(out, lua_tointeger(L, idx));
  else if (lua_numbertointeger(lua_tonumber(L, idx), &whole) &&
           (lua_Number)whole == lua_tonumber(L, idx))
    add_digits(out, whole);
  else
    text_printf(out, "%a", lua_tonumber(L, idx));
}

static void add_table(lua_State *L, int t, KeyJob *j) {
  enum { DEEPEST = 100 };
  luaL_checkstack(L, 8, "a value is nested too deeply");
  const char *kind = mark_kind(L, t);
  text_add(j->out, kind ? kind : "");
  text_add(j->out, "{");
  /* What a function captures may be anything. */
  bool deep = j->nest == DEEPEST;
  if (deep || !sorted_keys(L, t)) {
    text_add(j->out, "table}");
    if (!j->inside)
      j->wrong = deep ? "a table in the plan is nested too deeply to be compared"
                      : "a table in the plan has keys that cannot be compared";
    return;
  }
  j->nest++;
  int keys = lua_gettop(L);
  for (int i = 1; lua_rawgeti(L, keys, i) != LUA_TNIL; i++, lua_settop(L, keys)) {
    add_value(L, keys + 1, j);
    text_add(j->out, "=");
    lua_pushvalue(L, keys + 1);
    lua_rawget(L, t);
    add_value(L, keys + 2, j);
    text_add(j->out, ",");
  }
  lua_settop(L, keys - 1);
  text_add(j->out, "}");
  j->nest--;
}

static int add_code(lua_State *L, const void *p, size_t n, void *ud) {
  uint64_t *h = ud;
  *h = hash_bytes(*h, p, n);
  return 0;
}

/* Appends a function: the same bytes in every process for the same code and captured
 * values. The table of globals is left out, because it is the same for all plans. */
static void add_function(lua_State *L, int f, KeyJob *j) {
  enum { DEEPEST = 16 };
  uint64_t h = 0;
  const char *known = known_name(L, f);
  if (known || lua_iscfunction(L, f) || j->inside == DEEPEST) {
    text_printf(j->out, "function %s", known ? known : "");
    return;
  }
  luaL_checkstack(L, 8, "a value is nested too deeply");
  lua_pushvalue(L, f);
  lua_dump(L, add_code, &h, true);
  lua_pop(L, 1);
  text_printf(j->out, "function %016llx(", (unsigned long long)h);
  lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
  int globals = lua_gettop(L);
  j->inside++;
  for (int i = 1; lua_getupvalue(L, f, i); i++) {
    if (!lua_rawequal(L, -1, globals)) add_value(L, -1, j);
    text_add(j->out, ",");
    lua_settop(L, globals);
  }
  j->inside--;
  lua_pop(L, 1);
  text_add(j->out, ")");
}

static void add_value(lua_State *L, int idx, KeyJob *j) {
  size_t n;
  const char *s;
  if (j->wrong) return;
  switch (lua_type(L, idx)) {
  case LUA_TTABLE: add_table(L, lua_absindex(L, idx), j); return;
  case LUA_TSTRING:
    s = lua_tolstring(L, idx, &n);
    add_digits(j->out, (int64_t)n);
    text_add(j->out, ":");
    text_addn(j->out, s, n);
    return;
  case LUA_TNUMBER: add_number(L, idx, j->out); return;
  case LUA_TBOOLEAN: text_add(j->out, lua_toboolean(L, idx) ? "true" : "false"); return;
  default: break;
  }
  if (!j->what && lua_isfunction(L, idx)) {
    add_function(L, lua_absindex(L, idx), j);
    return;
  }
  text_add(j->out, luaL_typename(L, idx));
  /* An address identifies a value within this state only. */
  if (!j->what) return;
  text_printf(j->out, " %p@%p", lua_topointer(L, idx), (void *)state_of(L));
  j->addressed = true;
}

/* tp_plan rules that come from the model are one list, whatever their name. */
static void add_rules(const Field *f, KeyJob *j) {
  const Plan *p = &j->lp->plan;
  for (int i = 0; str_eq(f->scope, "plan") && i < p->ntp; i++) {
    const TpRule *t = &p->tp[i];
    text_addn(j->out, t->pattern, strlen(t->pattern) + 1);
    text_addn(j->out, (const char *)&t->style, sizeof t->style);
    text_add(j->out, t->from_default ? "d" : "w");
  }
}

/* The bytes of the value in Plan: field_print would take most of a sweep's time. */
static void add_place(const Field *f, KeyJob *j) {
  FieldValue v = field_get(f, &j->lp->plan);
  switch (v.stored) {
  case STORED_TEXT:
    if (!v.text) break;
    add_digits(j->out, (int64_t)strlen(v.text));
    text_add(j->out, ":");
    text_add(j->out, v.text);
    break;
  case STORED_DOUBLE: text_addn(j->out, (const char *)&v.real, sizeof v.real); break;
  case STORED_RANGE:
    text_add(j->out, v.range.given ? "g" : "-");
    text_addn(j->out, (const char *)&v.range.low, sizeof v.range.low);
    text_addn(j->out, (const char *)&v.range.high, sizeof v.range.high);
    break;
  default: text_addn(j->out, (const char *)&v.whole, sizeof v.whole);
  }
}

/* Pushes the table with the fields of f's scope, or the value in its place. */
static void push_scope(lua_State *L, const Field *f) {
  const Field *in = schema_parent(f);
  if (!in) {
    lua_pushvalue(L, PLAN_INDEX);
    return;
  }
  push_scope(L, in);
  field_push(L, -1, in->key);
  lua_remove(L, -2);
}

/* Pushes the value of a field in the table at t, under its name or an alias. */
static void push_written(lua_State *L, int t, const Field *f) {
  field_push(L, t, f->key);
  for (const Field *g = schema; lua_isnil(L, -1) && g->scope; g++) {
    if (g->type != FIELD_ALIAS || !str_eq(g->scope, f->scope) ||
        !str_eq(g->names, f->key))
      continue;
    lua_pop(L, 1);
    field_push(L, t, g->key);
  }
}

static bool is_scope(const char *name) {
  for (const Field *f = schema; name && f->scope; f++)
    if (str_eq(f->scope, name)) return true;
  return false;
}

/* Appends the value as it was written. A table of a name or builder has rows for its
 * fields but none for its list items, nor for the fields of validation data. */
static void add_written(lua_State *L, int t, const Field *f, KeyJob *j) {
  push_written(L, t, f);
  int table = lua_gettop(L);
  const char *kind = mark_kind(L, table);
  bool rows = f->type == FIELD_NAMED || f->type == FIELD_BUILT || is_scope(kind);
  if (!rows || !lua_istable(L, table) || str_eq(f->key, "val")) {
    add_value(L, table, j);
    return;
  }
  text_add(j->out, kind ? kind : "");
  for (int i = 1; lua_rawgeti(L, table, i) != LUA_TNIL; i++, lua_settop(L, table)) {
    add_value(L, -1, j);
    text_add(j->out, ",");
  }
}

/* Whether a function with options of its own may stand where Plan has a name. */
static bool takes_function(const Field *f) {
  return f->type == FIELD_OWN && strstr(f->form, "function");
}

/* Whether a field belongs in this key: those that influence it; for the key of fields
 * without a row, those that influence nothing else. */
static bool in_key(const Field *f, const KeyJob *j) {
  if (j->what) return schema_influences(f, j->what);
  switch (f->type) {
  case FIELD_TABLE: /* their fields have rows */
  case FIELD_ALIAS:
  case FIELD_NOOP:
  case FIELD_REFUSED: return false;
  case FIELD_OWN: return (!f->stored || takes_function(f)) && !is_scope(f->key);
  default: return !f->stored;
  }
}

/* Whether another builder than the field's made the table on top. */
static bool is_other(lua_State *L, const Field *f) {
  const char *kind = lua_istable(L, -1) ? mark_kind(L, lua_gettop(L)) : NULL;
  return is_scope(kind) && !str_eq(kind, f->scope);
}

/* Rows of the key whose values lie in Plan or may differ between points of a grid; what
 * the others come to is a number. */
struct KeyRows {
  unsigned what;
  const Field **at; /* ends with NULL */
  uint64_t others;
};

static const struct KeyRows *rows_of(const LangShared *s, unsigned what) {
  const struct KeyRows *r = s ? s->keys : NULL;
  while (r && r->what && r->what != what) r++;
  return r && r->what ? r : NULL;
}

/* Replaces the table at t by that of the field's scope. */
static void enter_scope(lua_State *L, int t, const char **scope, const Field *f) {
  if (str_eq(*scope, f->scope)) return;
  push_scope(L, f);
  if (is_other(L, f)) lua_pushnil(L);
  lua_replace(L, t);
  lua_settop(L, t);
  *scope = f->scope;
}

/* Appends a function, and what is written beside it; of anything else Plan has it all. */
static void add_function_given(lua_State *L, int t, const Field *f, KeyJob *j) {
  push_written(L, t, f);
  bool table = lua_istable(L, -1);
  if (table) lua_rawgeti(L, -1, 1);
  bool yes = lua_isfunction(L, -1);
  if (table) lua_pop(L, 1);
  if (yes) add_value(L, lua_gettop(L), j);
}

static void add_row(lua_State *L, int t, const char **scope, const Field *f, KeyJob *j) {
  bool placed = f->stored && (j->what || takes_function(f));
  if (!placed || j->what) text_add(j->out, ";");
  if (j->what && f->stored) add_place(f, j);
  if (str_eq(f->key, "tp_plan")) {
    add_rules(f, j);
  } else if (!placed || takes_function(f)) {
    enter_scope(L, t, scope, f);
    placed ? add_function_given(L, t, f, j) : add_written(L, t, f, j);
    lua_settop(L, t);
  }
}

static void key_job(lua_State *L, void *ud) {
  KeyJob *j = ud;
  const char *scope = NULL; /* the scope whose table is at t */
  const struct KeyRows *rows = j->what ? rows_of(j->lp->shared, j->what) : NULL;
  int t = lua_gettop(L) + 1;
  luaL_checkstack(L, 12, NULL);
  lua_pushnil(L);
  if (j->what) text_add(j->out, j->lp->state->dir); /* relative file names depend on it */
  if (rows) {
    text_addn(j->out, (const char *)&rows->others, sizeof rows->others);
    for (int i = 0; rows->at[i]; i++) add_row(L, t, &scope, rows->at[i], j);
    return;
  }
  for (const Field *f = schema; f->scope; f++)
    if (in_key(f, j)) add_row(L, t, &scope, f, j);
}

static weft_status run_key(KeyJob *j, weft_error *e) {
  TRY(state_protect(j->lp->state, key_job, j, e));
  return j->wrong ? err_set(e, WEFT_EPLAN, "%s", j->wrong) : WEFT_OK;
}
/* ---- what points have in common ---- */

/* The name of the plan's field that a path leads into. */
static const char *top_field(Arena *a, const char *path) {
  if (strncmp(path, "plan.", 5) == 0) path += 5;
  const char *name = arena_strn(a, path, strcspn(path, ".["));
  const Field *f = schema_find("plan", name);
  return f && f->type == FIELD_ALIAS ? f->names : name;
}

static const char *top_of(const Field *f) {
  for (const Field *in = f; in; in = schema_parent(in)) f = in;
  return f->key;
}

/* What is written is the same at all points where no axis changes its field. Rules for
 * tensors lie in Plan: a strategy may give them, too. */
static bool is_same(const LangShared *s, const Field *f) {
  return !f->stored && !str_eq(f->key, "tp_plan") && lang_unvaried(s, top_of(f));
}

typedef struct ShareJob {
  LangPlan *lp;
  LangShared *s;
  int values;
  Diags d;   /* of fields that were checked before */
  Text text; /* of a key */
  const char *wrong;
  weft_error *e;
  weft_status st;
} ShareJob;

static struct KeyRows split_rows(lua_State *L, ShareJob *j, unsigned what) {
  Arena *a = j->lp->arena;
  struct KeyRows out = {.what = what};
  VEC(const Field *) rows = {0};
  KeyJob key = {.lp = j->lp, .out = &j->text, .what = what};
  const char *scope = NULL;
  int t = lua_gettop(L) + 1;
  luaL_checkstack(L, 12, NULL);
  lua_pushnil(L);
  j->text.n = 0;
  for (const Field *f = schema; f->scope; f++) {
    if (!in_key(f, &key)) continue;
    if (is_same(j->s, f))
      add_row(L, t, &scope, f, &key);
    else
      *VEC_PUSH(a, rows) = f;
  }
  *VEC_PUSH(a, rows) = NULL;
  out.at = rows.at;
  out.others = hash_bytes(0, key.out->s, key.out->n);
  if (key.wrong) j->wrong = key.wrong;
  lua_settop(L, t - 1);
  return out;
}

static void find_varied(lua_State *L, ShareJob *j) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, j->values);
  int axes = lua_gettop(L), n = (int)lua_rawlen(L, axes);
  const char **varied = NEW_N(j->lp->arena, const char *, n + 1);
  for (int i = 0; i < n; i++, lua_settop(L, axes)) {
    lua_rawgeti(L, axes, i + 1);
    lua_rawgeti(L, -1, 1);
    const char *path = lua_tostring(L, -1);
    varied[i] = top_field(j->lp->arena, path ? path : "");
  }
  j->s->varied = varied;
  j->s->nvaried = n;
  lua_settop(L, axes - 1);
}

static void share_job(lua_State *L, void *ud) {
  static const unsigned kinds[] = {FOR_GRAPH, FOR_UNITS, FOR_SCHEDULE, FOR_SHARES};
  ShareJob *j = ud;
  struct KeyRows *keys = NEW_N(j->lp->arena, struct KeyRows, LEN(kinds) + 1);
  luaL_checkstack(L, 8, NULL);
  find_varied(L, j);
  for (int i = 0; i < LEN(kinds); i++) keys[i] = split_rows(L, j, kinds[i]);
  j->s->keys = keys;
  schema_check_shared(L, j->lp, j->s, &j->d);
}

static void run_share(void *ud) {
  ShareJob *j = ud;
  LangPlan *lp = j->lp;
  j->s = NEW(lp->arena, LangShared);
  *j->s = (LangShared){.of = lp, .plan = {.file = lp->plan.file}};
  j->st = state_protect(lp->state, share_job, j, j->e);
  if (j->st == WEFT_OK && j->text.oom)
    j->st = err_set(j->e, WEFT_ENOMEM, "out of memory");
  if (j->wrong) j->s = NULL; /* points say what is wrong with it */
}

weft_status vary_share(LangPlan *lp, int values, const LangShared **out, weft_error *e) {
  ShareJob j = {.lp = lp, .values = values, .d = {.arena = lp->arena}, .e = e};
  if (!arena_try(lp->arena, run_share, &j))
    j.st = err_set(e, WEFT_ENOMEM, "out of memory while reading a plan");
  text_free(&j.text);
  *out = j.st == WEFT_OK ? j.s : NULL;
  return j.st;
}

weft_status vary_key(LangPlan *lp, unsigned what, Text *out, weft_error *e) {
  return run_key(&(KeyJob){.lp = lp, .out = out, .what = what}, e);
}

weft_status vary_addressed(LangPlan *lp, bool *yes, weft_error *e) {
  Text key = {0};
  KeyJob j = {.lp = lp, .out = &key, .what = FOR_UNITS | FOR_SCHEDULE | FOR_SHARES};
  weft_status st = run_key(&j, e);
  text_free(&key);
  *yes = j.addressed;
  return st;
}

weft_status vary_others(LangPlan *lp, Text *out, weft_error *e) {
  return run_key(&(KeyJob){.lp = lp, .out = out}, e);
}

typedef struct ValueJob {
  KeyJob key;
  void (*push)(lua_State *L, void *ud);
  void *ud;
} ValueJob;

static void value_job(lua_State *L, void *ud) {
  ValueJob *j = ud;
  luaL_checkstack(L, 12, NULL);
  j->push(L, j->ud);
  add_value(L, lua_gettop(L), &j->key);
}

weft_status vary_value(LangPlan *lp, void (*push)(lua_State *L, void *ud), void *ud,
                       Text *out, weft_error *e) {
  ValueJob j = {.key = {.lp = lp, .out = out}, .push = push, .ud = ud};
  TRY(state_protect(lp->state, value_job, &j, e));
  return j.key.wrong ? err_set(e, WEFT_EPLAN, "%s", j.key.wrong) : WEFT_OK;
}

weft_status vary_text(LangPlan *lp, Text *out, weft_error *e) {
  for (const Field *f = schema; f->scope; f++) {
    if (!schema_tells(f)) continue;
    field_print(f, &lp->plan, out);
    text_add(out, ";");
  }
  return vary_others(lp, out, e);
}
