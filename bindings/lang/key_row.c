/* key_row.c - one field of a plan as bytes of a key; see key_row.h. */
#include "key_row.h"

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
    key_digits(j->out, (int64_t)strlen(v.text));
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

/* Pushes the table that the field `in` has, or the value in its place; NULL: the plan. */
static void push_scope(lua_State *L, const Field *in) {
  if (!in) {
    lua_pushvalue(L, PLAN_INDEX);
    return;
  }
  push_scope(L, schema_parent(in));
  field_push(L, -1, in->key);
  lua_remove(L, -2);
}

/* The next other name of a field, from row g on; NULL: there is none. */
static const Field *next_alias(const Field *g, const Field *f) {
  for (; g->scope; g++)
    if (g->type == FIELD_ALIAS && str_eq(g->scope, f->scope) && str_eq(g->names, f->key))
      return g;
  return NULL;
}

void key_push_written(lua_State *L, int t, const Field *f, const Field *alias) {
  field_push(L, t, f->key);
  for (; alias && lua_isnil(L, -1); alias = next_alias(alias + 1, f)) {
    lua_pop(L, 1);
    field_push(L, t, alias->key);
  }
}

static bool is_scope(const char *name) {
  for (const Field *f = schema; name && f->scope; f++)
    if (str_eq(f->scope, name)) return true;
  return false;
}

/* Whether a function with options of its own may stand where Plan has a name. */
static bool takes_function(const Field *f) {
  return f->type == FIELD_OWN && strstr(f->form, "function");
}

KeyRow key_row(const Field *f, const KeyJob *j) {
  bool placed = j->what && f->stored, written = !placed || takes_function(f);
  return (KeyRow){.f = f,
                  .in = written ? schema_parent(f) : NULL,
                  .alias = written ? next_alias(schema, f) : NULL,
                  .placed = placed,
                  .written = written};
}

/* Appends the value as it was written. A table of a name or builder has rows for its
 * fields but none for its list items, nor for the fields of validation data. */
static void add_written(lua_State *L, int t, const KeyRow *r, KeyJob *j) {
  const Field *f = r->f;
  key_push_written(L, t, f, r->alias);
  int table = lua_gettop(L);
  const char *kind = mark_kind(L, table);
  bool rows = f->type == FIELD_NAMED || f->type == FIELD_BUILT || is_scope(kind);
  if (!rows || !lua_istable(L, table) || str_eq(f->key, "val")) {
    key_value(L, table, j);
    return;
  }
  text_add(j->out, kind ? kind : "");
  for (int i = 1; lua_rawgeti(L, table, i) != LUA_TNIL; i++, lua_settop(L, table)) {
    key_value(L, -1, j);
    text_add(j->out, ",");
  }
}

bool key_has_row(const Field *f, const KeyJob *j) {
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

void key_enter_scope(lua_State *L, int t, const char **scope, const KeyRow *r) {
  const Field *f = r->f;
  if (str_eq(*scope, f->scope)) return;
  push_scope(L, r->in);
  if (is_other(L, f)) lua_pushnil(L);
  lua_replace(L, t);
  lua_settop(L, t);
  *scope = f->scope;
}

bool key_is_function(lua_State *L) {
  bool table = lua_istable(L, -1);
  if (table) lua_rawgeti(L, -1, 1);
  bool yes = lua_isfunction(L, -1);
  if (table) lua_pop(L, 1);
  return yes;
}

/* Appends a function, and what is written beside it; of anything else Plan has it all. */
static void add_function_given(lua_State *L, int t, const KeyRow *r, KeyJob *j) {
  key_push_written(L, t, r->f, r->alias);
  if (key_is_function(L)) key_value(L, lua_gettop(L), j);
}

void key_add_row(lua_State *L, int t, const char **scope, const KeyRow *r, KeyJob *j) {
  const Field *f = r->f;
  text_add(j->out, ";");
  if (r->placed) add_place(f, j);
  if (str_eq(f->key, "tp_plan")) {
    add_rules(f, j);
  } else if (r->written) {
    key_enter_scope(L, t, scope, r);
    f->stored && j->what ? add_function_given(L, t, r, j) : add_written(L, t, r, j);
    lua_settop(L, t);
  }
}
