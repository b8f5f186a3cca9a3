/* unknown_field.c - messages for unknown fields: where the field belongs, what it is
 * called in weft, and the nearest known name. */
#include "schema.h"

#include <strings.h>

static const struct {
  const char *path, *text;
} instead[] = {
#define INSTEAD(path, text) {path, text},
#include "not_built.def"
};

/* Where the fields of a scope stand in a plan; NULL: in several places or in none. */
static const char *place_of(Arena *a, const char *scope) {
  NameWord w;
  if (strcmp(scope, "plan") == 0) return "";
  for (const Field *f = schema; f->scope; f++) {
    bool later = false, inside = f->type == FIELD_TABLE && str_eq(f->names, scope);
    if (strcmp(f->scope, "plan") != 0) continue;
    if (f->type == FIELD_NAMED || f->type == FIELD_BUILT)
      for (const char *p = f->names; name_next(a, &p, &later, &w);)
        inside |= str_eq(w.canon, scope);
    if (inside) return f->key;
  }
  static const char *const rates[] = {
#define LR(ID, name) #name,
#include "vm/plan/lr.def"
  };
  for (int i = 0; i < LEN(rates); i++)
    if (strcmp(rates[i], scope) == 0) return "optimizer.lr";
  if (strcmp(scope, "precision") == 0 || strcmp(scope, "packed") == 0) return scope;
  return NULL;
}

/* "mesh.tp" for a key that stands in one other place of the plan; several such places
 * are one answer, joined by "or". */
static const char *elsewhere(Arena *a, const char *scope, const char *key) {
  const char *found = NULL;
  bool top = strcmp(scope, "plan") == 0;
  if (!top && name_listed("size format high low labels drop type name", key)) return NULL;
  for (const Field *f = schema; f->scope; f++) {
    if (!top && strcmp(f->scope, "expect") == 0) continue;
    const char *place = strcmp(f->scope, scope) ? place_of(a, f->scope) : NULL;
    if (!place || !name_same(f->key, key)) continue;
    const char *path = arena_printf(a, "%s%s%s", place, *place ? "." : "", f->key);
    if (!found)
      found = path;
    else if (!strstr(found, path))
      found = arena_printf(a, "%s or %s", found, path);
  }
  return found;
}

/* The field of this table whose name differs in '-', '_' and case only. */
static const char *own_form(const char *scope, const char *key) {
  for (const Field *f = schema; f->scope; f++)
    if (strcmp(f->scope, scope) == 0 && name_same(f->key, key)) return f->key;
  return NULL;
}

/* "global, micro, seq": the names of a table, for who gave values without names. */
const char *scope_names(Arena *a, const char *scope, int most) {
  const char *list = "";
  int n = 0;
  for (const Field *f = schema; f->scope; f++) {
    if (strcmp(f->scope, scope) != 0 || f->type == FIELD_ALIAS || f->type == FIELD_NOOP ||
        f->type == FIELD_REFUSED)
      continue;
    if (++n > most) return arena_printf(a, "%s, ...", list);
    list = arena_printf(a, "%s%s%s", list, *list ? ", " : "", f->key);
  }
  return list;
}

/* What has a meaning somewhere is not misspelt: `group` of a schedule, where the plan has
 * `groups`. */
static const char *nearest(Arena *a, const char *scope, const char *key) {
  VEC(const char *) own = {0}, all = {0};
  bool means = false;
  for (const Field *f = schema; f->scope; f++) {
    const char *place = place_of(a, f->scope);
    bool other = f->type == FIELD_ALIAS || f->type == FIELD_NOOP;
    means |= strcmp(f->key, key) == 0;
    if (strcmp(f->scope, scope) == 0 && !other)
      *VEC_PUSH(a, own) = f->key;
    else if (place)
      *VEC_PUSH(a, all) = f->key;
  }
  const char *near = name_suggest(key, own.at, own.n);
  if (!near && strcmp(scope, "plan") != 0) /* data_parallel is not about data */
    near = begins_with_name(a, key, own.at, own.n, 2);
  if (near || means) return near;
  near = str_nearest(key, all.at, all.n);
  return near ? elsewhere(a, scope, near) : NULL;
}

/* What else may stand in the place of this scope and has the field: other strategies. */
static const char *option_of(Arena *a, const char *scope, const char *key) {
  const char *place = place_of(a, scope), *found = NULL;
  for (const Field *f = schema; f->scope; f++) {
    if (strcmp(f->scope, scope) == 0 || !name_same(f->key, key)) continue;
    if (f->type == FIELD_REFUSED || !place || !*place) continue;
    if (!str_eq(place, place_of(a, f->scope))) continue;
    found = found ? arena_printf(a, "%s and \"%s\"", found, f->scope)
                  : arena_printf(a, "an option of \"%s\"", f->scope);
  }
  return found;
}

/* The path of a name as another system would write it: plan.optimizer.max-grad-norm. */
static const char *plain_path(Arena *a, const char *path, const char *name) {
  const char *quoted = strrchr(path, '[');
  if (!quoted || path[strlen(path) - 1] != ']') return arena_printf(a, "plan.%s", path);
  int n = (int)(quoted - path);
  return arena_printf(a, "plan.%.*s%s%s", n, path, n ? "." : "", name);
}

/* NCCL_IB_HCA is nccl.ib_hca. */
static const char *nccl_variable(Arena *a, const char *name) {
  static const char prefix[] = "NCCL_";
  if (strncasecmp(name, prefix, sizeof prefix - 1) != 0) return NULL;
  for (const Field *f = schema; f->scope; f++)
    if (strcmp(f->scope, "nccl") == 0 && name_same(f->key, name + sizeof prefix - 1))
      return arena_printf(a, "weft's name is nccl.%s", f->key);
  return NULL;
}

/* What is known of the name for certain: what another system means by it, or where it
 * stands in a plan. NULL: nothing. */
static const char *known(Check *c, const char *scope, const char *path,
                         const char *name) {
  const ForeignName *f = foreign_find(plain_path(c->arena, path, name));
  if (f) {
    if (f->is == FOREIGN_HERE) *VEC_PUSH(c->arena, c->told) = f->text;
    return foreign_says(c->arena, f);
  }
  const char *s = own_form(scope, name);
  if (!s) s = nccl_variable(c->arena, name);
  if (!s) s = option_of(c->arena, scope, name);
  if (s) return s;
  s = elsewhere(c->arena, scope, name);
  if (s) *VEC_PUSH(c->arena, c->told) = s;
  return s && str_eq(s, name) ? "a field of the plan itself" : s;
}

/* Settings of another system in a table of its own: { distributed = { tp_size = 2 } }.
 * Each has its message, if there is something to say of any of them; how many there is.
 */
static int tell_inside(Check *c, int t, const char *path, int depth, bool report) {
  enum { DEEPEST = 6 };
  lua_State *L = c->L;
  int told = 0, top = lua_gettop(L);
  luaL_checkstack(L, 10, NULL);
  t = lua_absindex(L, t);
  if (depth > DEEPEST || !sorted_keys(L, t)) return 0;
  int keys = lua_gettop(L);
  for (int i = 1; lua_rawgeti(L, keys, i) != LUA_TNIL; i++, lua_settop(L, keys)) {
    if (lua_type(L, -1) != LUA_TSTRING) continue;
    const char *name = lua_tostring(L, -1);
    const char *sub = path_join(c->arena, path, L, keys + 1);
    const ForeignName *f = foreign_find(plain_path(c->arena, sub, name));
    lua_pushvalue(L, keys + 1);
    bool table = lua_rawget(L, t) == LUA_TTABLE;
    int inside = table && (!f || f->is == FOREIGN_HERE)
                     ? tell_inside(c, keys + 2, sub, depth + 1, report)
                     : 0;
    const char *says = inside ? NULL : known(c, "", sub, name);
    told += inside + (says != NULL);
    if (report && !inside)
      diag_error(c->d, "unknown-field", sub, "unknown field")->suggestion = says;
  }
  lua_settop(L, top);
  return told;
}

const char *field_hint(Check *c, const char *scope, const char *path, const char *name) {
  const char *s = known(c, scope, path, name);
  if (!s) s = nearest(c->arena, scope, name);
  if (s) return s;
  const ForeignName *f = foreign_near(c->arena, name);
  return f ? foreign_says(c->arena, f) : NULL;
}

/* A name that is right, only elsewhere, is surer than one that is nearly right here. */
void unknown_field(Check *c, const char *scope, const char *path, int key) {
  if (lua_type(c->L, key) != LUA_TSTRING) {
    const char *names = scope_names(c->arena, scope, 5);
    diag_error(c->d, "unknown-field", path, "a list item is not expected here")
        ->suggestion =
        *names ? arena_printf(c->arena, "values have names: %s", names) : NULL;
    return;
  }
  const char *name = lua_tostring(c->L, key);
  const ForeignName *f = foreign_find(plain_path(c->arena, path, name));
  bool group = lua_istable(c->L, key + 1) &&
               (f ? f->is == FOREIGN_HERE : !elsewhere(c->arena, scope, name));
  if (group && tell_inside(c, key + 1, path, 1, false)) {
    tell_inside(c, key + 1, path, 1, true);
    return;
  }
  diag_error(c->d, "unknown-field", path, "unknown field")->suggestion =
      field_hint(c, scope, path, name);
}

void not_built(Check *c, const char *path, const char *what) {
  Diag *g = diag_error(c->d, "not-built", path, "%s is not built yet", what);
  for (int i = 0; i < LEN(instead); i++)
    if (strcmp(instead[i].path, path) == 0) g->suggestion = instead[i].text;
}
