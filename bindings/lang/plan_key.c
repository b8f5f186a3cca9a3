/* plan_key.c - what a plan, or a part of it, comes from, as bytes to compare; and which
 * of it the points of a grid have in common. */
#include "plan_key.h"

#include "key_row.h"

/* Rows of the key whose values lie in Plan or may differ between points of a grid; what
 * the others come to is a number. */
struct KeyRows {
  unsigned what;
  const KeyRow *at; /* ends with one without a field */
  uint64_t others;
};

static const struct KeyRows *rows_of(const LangShared *s, unsigned what) {
  const struct KeyRows *r = s ? s->keys : NULL;
  while (r && r->what && r->what != what) r++;
  return r && r->what ? r : NULL;
}

static void add_rows(lua_State *L, KeyJob *j) {
  const char *scope = NULL; /* the scope whose table is at t */
  const struct KeyRows *rows = j->what ? rows_of(j->lp->shared, j->what) : NULL;
  int t = lua_gettop(L) + 1;
  luaL_checkstack(L, 12, NULL);
  lua_pushnil(L);
  if (j->what) text_add(j->out, j->lp->state->dir); /* relative file names depend on it */
  if (rows) {
    text_addn(j->out, (const char *)&rows->others, sizeof rows->others);
    for (const KeyRow *r = rows->at; r->f; r++) key_add_row(L, t, &scope, r, j);
    return;
  }
  for (const Field *f = schema; f->scope; f++) {
    if (!key_has_row(f, j)) continue;
    KeyRow row = key_row(f, j);
    key_add_row(L, t, &scope, &row, j);
  }
}

static void key_job(lua_State *L, void *ud) {
  KeyJob *j = ud;
  key_begin(L, j);
  int top = lua_gettop(L);
  add_rows(L, j);
  lua_settop(L, top);
  key_surroundings(L, j);
  key_end(L, j);
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

/* What is written is the same at all points where no axis changes its field; what lies in
 * Plan, and rules for tensors do, another field may give, too. */
static bool same_written(const LangShared *s, const KeyRow *r) {
  return r->written && !str_eq(r->f->key, "tp_plan") && lang_unvaried(s, top_of(r->f));
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
  VEC(KeyRow) rows = {0};
  KeyJob key = {.lp = j->lp, .out = &j->text, .what = what};
  const char *scope = NULL;
  key_begin(L, &key);
  int t = lua_gettop(L) + 1;
  luaL_checkstack(L, 12, NULL);
  lua_pushnil(L);
  j->text.n = 0;
  for (const Field *f = schema; f->scope; f++) {
    if (!key_has_row(f, &key)) continue;
    KeyRow varies = key_row(f, &key), same = varies;
    if (same_written(j->s, &varies)) {
      same.placed = varies.written = false;
      key_add_row(L, t, &scope, &same, &key);
    }
    if (varies.placed || varies.written) *VEC_PUSH(a, rows) = varies;
  }
  *VEC_PUSH(a, rows) = (KeyRow){0};
  out.at = rows.at;
  out.others = hash_bytes(0, key.out->s, key.out->n);
  if (key.wrong) j->wrong = key.wrong;
  lua_settop(L, t - 2);
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

weft_status plan_share(LangPlan *lp, int values, const LangShared **out, weft_error *e) {
  ShareJob j = {.lp = lp, .values = values, .d = {.arena = lp->arena}, .e = e};
  if (!arena_try(lp->arena, run_share, &j))
    j.st = err_set(e, WEFT_ENOMEM, "out of memory while reading a plan");
  text_free(&j.text);
  *out = j.st == WEFT_OK ? j.s : NULL;
  return j.st;
}

weft_status plan_key(LangPlan *lp, unsigned what, Text *out, weft_error *e) {
  return run_key(&(KeyJob){.lp = lp, .out = out, .what = what}, e);
}

weft_status plan_key_addressed(LangPlan *lp, bool *yes, weft_error *e) {
  Text key = {0};
  KeyJob j = {.lp = lp, .out = &key, .what = FOR_UNITS | FOR_SCHEDULE | FOR_SHARES};
  weft_status st = run_key(&j, e);
  text_free(&key);
  *yes = j.addressed;
  return st;
}

weft_status plan_key_others(LangPlan *lp, Text *out, weft_error *e) {
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
  key_begin(L, &j->key);
  j->push(L, j->ud);
  key_value(L, lua_gettop(L), &j->key);
  key_surroundings(L, &j->key);
  key_end(L, &j->key);
}

weft_status plan_key_value(LangPlan *lp, void (*push)(lua_State *L, void *ud), void *ud,
                           Text *out, weft_error *e) {
  ValueJob j = {.key = {.lp = lp, .out = out, .whole = true}, .push = push, .ud = ud};
  TRY(state_protect(lp->state, value_job, &j, e));
  return j.key.wrong ? err_set(e, WEFT_EPLAN, "%s", j.key.wrong) : WEFT_OK;
}

weft_status plan_key_text(LangPlan *lp, Text *out, weft_error *e) {
  for (const Field *f = schema; f->scope; f++) {
    if (!schema_tells(f)) continue;
    field_print(f, &lp->plan, out);
    text_add(out, ";");
  }
  return plan_key_others(lp, out, e);
}

/* ---- fields as written ---- */

typedef struct WrittenJob {
  KeyJob key;
  WrittenField *each;
  void *ud;
} WrittenJob;

static void written_job(lua_State *L, void *ud) {
  WrittenJob *j = ud;
  const char *scope = NULL;
  int t = lua_gettop(L) + 1;
  luaL_checkstack(L, 12, NULL);
  lua_pushnil(L);
  for (const Field *f = schema; f->scope && !j->key.wrong; f++, lua_settop(L, t)) {
    if (!key_has_row(f, &j->key)) continue;
    KeyRow row = key_row(f, &j->key);
    key_enter_scope(L, t, &scope, &row);
    key_push_written(L, t, f, row.alias);
    bool has = !lua_isnil(L, -1);
    int value = lua_gettop(L);
    key_begin(L, &j->key);
    lua_insert(L, value);
    j->key.met = value++;
    j->key.out->n = 0;
    /* What is named in a table has rows of its own, beside a function it is the
     * function's. */
    if (has && lua_istable(L, -1) && f->names && !key_is_function(L))
      key_show_list(L, value, &j->key);
    else if (has)
      key_show(L, value, &j->key);
    if (!j->key.out->oom) j->each(j->ud, f, has ? j->key.out->s : NULL);
  }
}

weft_status plan_written(LangPlan *lp, WrittenField *each, void *ud, weft_error *e) {
  Text text = {0};
  WrittenJob j = {.key = {.lp = lp, .out = &text}, .each = each, .ud = ud};
  weft_status st = state_protect(lp->state, written_job, &j, e);
  if (st == WEFT_OK && text.oom) st = err_set(e, WEFT_ENOMEM, "out of memory");
  if (st == WEFT_OK && j.key.wrong) st = err_set(e, WEFT_EPLAN, "%s", j.key.wrong);
  text_free(&text);
  return st;
}
