/* schema_values.c - one value of the plan's table against its row of schema.def.
 * field_storage.c puts it into Plan. */
#include <math.h>

#include "schema.h"
#include "vm/plan/optimizer.h"

/* ---- messages ---- */

/* A number in quotes where one without them is wanted. */
static bool quoted_number(lua_State *L, int idx, const char *want) {
  return lua_type(L, idx) == LUA_TSTRING && lua_isnumber(L, idx) &&
         (strstr(want, "number") || strstr(want, "integer"));
}

Diag *check_type(Check *c, const char *path, const char *want, int idx) {
  Diag *g = diag_error(c->d, "type", path, "expected %s, got %s", want,
                       value_describe(c->arena, c->L, idx));
  if (quoted_number(c->L, idx, want))
    g->suggestion =
        arena_printf(c->arena, "write %s without quotes", lua_tostring(c->L, idx));
  return g;
}

/* What was expected instead of the value at idx. */
static const char *want_number(Check *c, double lo, double hi, bool integer, int idx) {
  const char *kind = integer ? "an integer" : "a number";
  if (lua_type(c->L, idx) == LUA_TNUMBER && lua_tonumber(c->L, idx) > hi)
    return arena_printf(c->arena, "%s of at most %.15g", kind, hi);
  if (lo == 1 && hi >= 1e6 && integer) return "a positive integer";
  if (hi >= 1e3) return arena_printf(c->arena, "%s of at least %.15g", kind, lo);
  return arena_printf(c->arena, "%s from %.0f to %.0f", kind, lo, hi);
}

bool check_mark(Check *c, int idx, const char *path) {
  const char *hint, *bad = mark_bad(c->L, idx, &hint);
  if (!bad) return true;
  diag_error(c->d, "builder", path, "%s", bad)->suggestion =
      hint ? arena_str(c->arena, hint) : NULL;
  return false;
}

/* ---- values ---- */

static bool to_number(lua_State *L, int idx, double *v) {
  if (lua_type(L, idx) != LUA_TNUMBER) return false;
  *v = lua_tonumber(L, idx);
  return true;
}

bool check_int(Check *c, int idx, const char *path, double lo, double hi, int64_t *out) {
  double v;
  if (to_number(c->L, idx, &v) && v == floor(v) && v >= lo && v <= hi) {
    *out = (int64_t)v;
    return true;
  }
  check_type(c, path, want_number(c, lo, hi, true, idx), idx);
  return false;
}

/* dp = "none" and -1 are what other systems write for the size that follows from the
 * others.
 */
static bool left_open(Check *c, const Field *f, int idx) {
  if (strcmp(f->scope, "mesh") != 0 || strcmp(f->key, "dp") != 0) return false;
  if (lua_type(c->L, idx) == LUA_TNUMBER) return lua_tonumber(c->L, idx) == -1;
  const char *s = lua_tostring(c->L, idx);
  return s && (name_same(s, "none") || name_same(s, "auto"));
}

static void check_number(Check *c, const Field *f, int idx, const char *path) {
  double v;
  if (left_open(c, f, idx)) return;
  bool ok = to_number(c->L, idx, &v) && v >= f->lo && v <= f->hi;
  if (!ok || (f->type == FIELD_INT && v != floor(v))) {
    check_type(c, path, want_number(c, f->lo, f->hi, f->type == FIELD_INT, idx), idx);
    return;
  }
  field_set(c->arena, f, c->plan, v);
}

static void check_bool(Check *c, const Field *f, int idx, const char *path) {
  if (!lua_isboolean(c->L, idx)) {
    check_type(c, path, "true or false", idx);
  } else {
    field_set(c->arena, f, c->plan, lua_toboolean(c->L, idx));
  }
}

static void check_text(Check *c, const Field *f, int idx, const char *path) {
  if (lua_type(c->L, idx) != LUA_TSTRING) {
    check_type(c, path, "a string", idx);
  } else if (f->stored) {
    field_set_text(f, c->plan, arena_str(c->arena, lua_tostring(c->L, idx)));
  }
}

/* Whether `word` is a name of the list, or an alias. */
static bool has_word(Check *c, const char *names, const char *word) {
  NameWord w;
  bool later = false;
  while (name_next(c->arena, &names, &later, &w))
    if (strncmp(w.s, word, w.n) == 0 && !word[w.n]) return true;
  return false;
}

static void check_name_field(Check *c, const Field *f, int idx, const char *path);

/* { device = "cpu" }, as DeepSpeed writes offloads. The other keys are about its buffers.
 */
static void check_device(Check *c, const Field *f, int idx, const char *path) {
  static const char about[] =
      "device pin_memory buffer_count buffer_size fast_init ratio "
      "max_in_cpu pipeline_read pipeline_write nvme_path";
  for (lua_pushnil(c->L); lua_next(c->L, idx); lua_pop(c->L, 1)) {
    const char *key = lua_type(c->L, -2) == LUA_TSTRING ? lua_tostring(c->L, -2) : "1";
    const char *sub = arena_printf(c->arena, "%s.%s", path, key);
    if (!has_word(c, about, key))
      diag_error(c->d, "unknown-field", sub, "unknown field")->suggestion =
          "leave it out, or give the device alone: \"cpu\" or \"none\"";
    else if (strcmp(key, "device") != 0)
      diag_warn(c->d, "no-effect", sub, "has no effect: transfers need no buffers here");
  }
  if (field_push(c->L, idx, "device") != LUA_TNIL && !lua_istable(c->L, -1))
    check_name_field(c, f, lua_gettop(c->L), arena_printf(c->arena, "%s.device", path));
  else
    check_type(c, path, "\"cpu\", \"none\" or a table with the device", idx);
  lua_pop(c->L, 1);
}

/* true and false are names in some rows, and a table with the device where it is one. */
static void check_name_field(Check *c, const Field *f, int idx, const char *path) {
  const char *s = lua_type(c->L, idx) == LUA_TSTRING ? lua_tostring(c->L, idx) : NULL;
  bool switches = has_word(c, f->names, "true");
  if (switches && lua_isboolean(c->L, idx))
    s = lua_toboolean(c->L, idx) ? "true" : "false";
  if (lua_istable(c->L, idx) && switches && has_word(c, f->names, "cpu")) {
    check_device(c, f, lua_absindex(c->L, idx), path);
    return;
  }
  if (!s) {
    check_type(c, path, switches ? "a name, true or false" : "a name", idx);
    return;
  }
  const char *name = check_name(c, f->names, path, s);
  if (name && f->stored == STORED_TEXT)
    field_set_text(f, c->plan, arena_str(c->arena, name));
  else if (name)
    field_set(c->arena, f, c->plan, field_name_number(f, name));
}

/* 5e8 is written as often as 500000000. */
static bool is_whole(lua_State *L, int idx) {
  double v;
  return to_number(L, idx, &v) && v == floor(v);
}

/* A field of another system that changes nothing here, with a value that it takes there.
 */
static void check_noop(Check *c, const Field *f, int idx, const char *path) {
  bool right = strcmp(f->names, "true or false") == 0 ? lua_isboolean(c->L, idx)
               : strcmp(f->names, "an integer") == 0  ? is_whole(c->L, idx)
               : strcmp(f->names, "a name") == 0      ? lua_type(c->L, idx) == LUA_TSTRING
                                                      : lua_istable(c->L, idx);
  if (!right)
    check_type(c, path, f->names, idx);
  else
    diag_warn(c->d, "no-effect", path, "has no effect: %s", f->doc);
}

/* "weft.text, weft.tokens" */
static const char *builder_list(Check *c, const char *names) {
  NameWord w;
  bool later = false;
  const char *s = "";
  for (const char *p = names; name_next(c->arena, &p, &later, &w);)
    s = arena_printf(c->arena, "%s%sweft.%s", s, *s ? ", " : "", w.canon);
  return s;
}

static void built_kind(Check *c, const char *kind) {
#define SOURCE(ID, name)                                                                 \
  if (strcmp(kind, #name) == 0) c->plan->data.kind = DATA_##ID;
#include "vm/plan/sources.def"
  /* Conversations become token files with masks; what a checkpoint says of the data is
   * the same before and after. */
  if (c->plan->data.kind == DATA_CHAT) c->plan->data.masks = MASKS_REQUIRED;
  if (optimizer_parse(kind) >= 0) schema_optimizer(c, kind);
}

static void check_built(Check *c, const Field *f, int idx, const char *path);

/* Files and weights go together. */
static void check_shares(Check *c, const char *path) {
  enum { MOST = 4096 };
  const DataSpec *d = &c->plan->data;
  path = arena_printf(c->arena, "%s.weights", path);
  if (d->nweights > MOST)
    diag_error(c->d, "range", path, "%d of them; at most %d are possible", d->nweights,
               MOST);
  else if (d->weights && d->nweights != d->nfiles)
    diag_error(
        c->d, "list", path,
        "%d of them for %d names of files; each name, which may be a pattern, has one",
        d->nweights, d->nfiles);
}

/* data.val is checked as data is; what it says then lies apart. */
static void check_val(Check *c, const Field *f, int idx, const char *path) {
  DataSpec train = c->plan->data;
  if (c->validation) {
    diag_error(c->d, "val", path, "is in the data for validation, which has none itself");
    return;
  }
  c->validation = true;
  c->plan->data = (DataSpec){0};
  check_built(c, schema_find("plan", "data"), idx, path);
  c->validation = false;
  if (c->plan->data.val_fraction > 0)
    diag_error(c->d, "val", arena_printf(c->arena, "%s.val_fraction", path),
               "all of these data are for validation");
  train.val = arena_copy(c->arena, &c->plan->data, sizeof train);
  c->plan->data = train;
}

/* data = "my.txt": what reads such a file; NULL: the text is no name of one. */
static const char *reads_file(Check *c, const char *name) {
  if (!name || !strpbrk(name, "./*") || strpbrk(name, "\"\\")) return NULL;
  bool rows = str_ends(name, ".jsonl") || str_ends(name, ".json");
  bool ids = str_ends(name, ".bin") || str_ends(name, ".idx");
  if (!rows)
    return arena_printf(c->arena, "write weft.%s \"%s\"", ids ? "tokens" : "text", name);
  return arena_printf(c->arena,
                      "write weft.chat \"%s\" for conversations; weft tokenize makes "
                      "files for weft.tokens of the \"text\" of rows",
                      name);
}

/* optimizer = "adamw", data = "synthetic" */
static void not_built_by(Check *c, const Field *f, int idx, const char *path) {
  NameWord w;
  bool later = false;
  Diag *g = check_type(c, path, builder_list(c, f->names), idx);
  const char *function = known_name(c->L, idx);
  if (function) g->suggestion = arena_printf(c->arena, "write %s { ... }", function);
  if (strcmp(f->key, "data") == 0 && lua_type(c->L, idx) == LUA_TSTRING)
    g->suggestion = reads_file(c, lua_tostring(c->L, idx));
  for (const char *p = f->names;
       lua_type(c->L, idx) == LUA_TSTRING && name_next(c->arena, &p, &later, &w);)
    if (name_same(w.canon, lua_tostring(c->L, idx)))
      g->suggestion = arena_printf(c->arena, "write weft.%s { ... }", w.canon);
}

/* optimizer = { "adamw", lr = 1e-3 }: its function stands before the table. */
static bool kind_is_item(Check *c, int idx, const char *kind, const char *path) {
  lua_State *L = c->L;
  if (mark_kind(L, idx) || optimizer_parse(kind) < 0) return true;
  lua_rawgeti(L, idx, 1);
  const char *name = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : NULL;
  bool item = name && optimizer_parse(name) >= 0;
  if (item)
    diag_error(c->d, "builder", path, "expected weft.%s { ... }, got a table", name)
        ->suggestion = arena_printf(c->arena, "write weft.%s { ... }", name);
  lua_pop(L, 1);
  return !item;
}

static const char *first_name(Check *c, const char *names) {
  NameWord w;
  bool later = false;
  return name_next(c->arena, &names, &later, &w) ? w.canon : NULL;
}

/* A table without a mark is accepted where only one builder fits, or where the plan has
 * the first one if it says nothing. */
static void check_built(Check *c, const Field *f, int idx, const char *path) {
  if (strcmp(f->key, "val") == 0) {
    check_val(c, f, idx, path);
    return;
  }
  const char *kind = mark_kind(c->L, idx);
  bool one = !strchr(f->names, ' ');
  if (!kind && one && lua_istable(c->L, idx)) kind = f->names;
  if (!kind && f->stored && lua_istable(c->L, idx)) kind = first_name(c, f->names);
  if (strcmp(f->names, "cluster") == 0 && lua_type(c->L, idx) == LUA_TSTRING) {
    cluster_known(c->L, lua_tostring(c->L, idx), path, c->d);
    return;
  }
  NameWord w;
  bool later = false, found = false;
  for (const char *p = f->names; kind && name_next(c->arena, &p, &later, &w);)
    found |= strcmp(w.canon, kind) == 0;
  if (!found) {
    not_built_by(c, f, idx, path);
    return;
  }
  if (!kind_is_item(c, idx, kind, path)) return;
  if (!check_mark(c, idx, path)) return;
  built_kind(c, kind);
  int items = field_items(c, kind, idx, path);
  if (items >= 0) check_scope(c, idx, kind, path, 1 + items);
  if (strcmp(f->key, "data") == 0) check_shares(c, path);
  if (strcmp(f->key, "data") == 0 && c->plan->data.val && c->plan->data.val_fraction > 0)
    diag_error(c->d, "alias", path,
               "val and val_fraction both say what is for validation; give one of them");
}

/* ---- ranges ---- */

static double range_end(Check *c, int idx, const char *key, double missing) {
  field_push(c->L, idx, key);
  double v = lua_type(c->L, -1) == LUA_TNUMBER ? lua_tonumber(c->L, -1) : missing;
  lua_pop(c->L, 1);
  return v;
}

static void check_range(Check *c, const Field *f, int idx, const char *path) {
  static const char *const kinds[] = {"at_most", "at_least", "between"};
  const char *kind = mark_kind(c->L, idx);
  double v;
  if (to_number(c->L, idx, &v) && v >= 0) {
    field_set_range(f, c->plan, (ExpectRange){true, v, v});
    return;
  }
  for (int i = 0; kind && i < LEN(kinds); i++) {
    if (strcmp(kind, kinds[i]) != 0) continue;
    if (!check_mark(c, idx, path)) return;
    check_scope(c, idx, kind, path, 1);
    ExpectRange r = {true, range_end(c, idx, "low", -INFINITY),
                     range_end(c, idx, "high", INFINITY)};
    field_set_range(f, c->plan, r);
    if (r.low > r.high)
      diag_error(c->d, "range", path, "nothing lies between %.15g and %.15g", r.low,
                 r.high);
    return;
  }
  check_type(c, path,
             "a number of at least 0, weft.at_most(x), weft.at_least(x) or "
             "weft.between(x, y)",
             idx);
}

/* ---- all of them ---- */

void check_value(Check *c, const Field *f, int idx, const char *path) {
  switch (f->type) {
  case FIELD_TEXT: check_text(c, f, idx, path); return;
  case FIELD_INT:
  case FIELD_NUM: check_number(c, f, idx, path); return;
  case FIELD_BOOL: check_bool(c, f, idx, path); return;
  case FIELD_NAME: check_name_field(c, f, idx, path); return;
  case FIELD_NAMED: check_named(c, f, idx, path); return;
  case FIELD_BUILT: check_built(c, f, idx, path); return;
  case FIELD_OWN:
    if (f->check) f->check(c, lua_absindex(c->L, idx), path);
    return;
  case FIELD_RANGE: check_range(c, f, idx, path); return;
  case FIELD_ALIAS: return;
  case FIELD_NOOP: check_noop(c, f, idx, path); return;
  case FIELD_REFUSED: /* that it is off, everybody may say */
    if (!lua_isboolean(c->L, idx) || lua_toboolean(c->L, idx))
      diag_error(c->d, "strategy", path, "%s", f->doc);
    return;
  case FIELD_TABLE:
    if (lua_istable(c->L, idx))
      check_scope(c, idx, f->names, path, 1);
    else
      check_type(
          c, path,
          arena_printf(c->arena, "a table { %s }", scope_names(c->arena, f->names, 4)),
          idx);
    return;
  }
}
