/* unknown_field.c - messages for unknown fields: where the field belongs, what it is
 * called here, and the nearest known name. */
#include "schema.h"

static const struct {
  const char *name, *here;
} foreign[] = {
#define FOREIGN(name, here) {#name, here},
#include "foreign_names.def"
};

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
  static const char *const rates[] = {"cosine", "linear", "constant"};
  for (int i = 0; i < LEN(rates); i++)
    if (strcmp(rates[i], scope) == 0) return "optimizer.lr";
  if (strcmp(scope, "precision") == 0 || strcmp(scope, "packed") == 0) return scope;
  return NULL;
}

/* "mesh.tp" for a key that stands in one other place of the plan; several such places
 * are one answer, joined by "or". */
static const char *elsewhere(Arena *a, const char *scope, const char *key) {
  const char *found = NULL;
  for (const Field *f = schema; f->scope; f++) {
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

static const char *here(Arena *a, const char *key) {
  for (int i = 0; i < LEN(foreign); i++)
    if (name_same(foreign[i].name, key))
      return arena_printf(a, "here: %s", foreign[i].here);
  return NULL;
}

static const char *nearest(Arena *a, const char *scope, const char *key) {
  VEC(const char *) own = {0}, all = {0};
  for (const Field *f = schema; f->scope; f++) {
    const char *place = place_of(a, f->scope);
    if (strcmp(f->scope, scope) == 0)
      *VEC_PUSH(a, own) = f->key;
    else if (place)
      *VEC_PUSH(a, all) = f->key;
  }
  const char *near = name_suggest(key, own.at, own.n);
  if (near) return near;
  near = name_suggest(key, all.at, all.n);
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

/* A name that is right, only elsewhere, is surer than one that is nearly right here. */
void unknown_field(Check *c, const char *scope, const char *path, int key) {
  if (lua_type(c->L, key) != LUA_TSTRING) {
    diag_error(c->d, "unknown-field", path, "a list item is not expected here");
    return;
  }
  const char *name = lua_tostring(c->L, key), *s = here(c->arena, name);
  if (!s) s = option_of(c->arena, scope, name);
  if (!s) s = elsewhere(c->arena, scope, name);
  if (!s) s = nearest(c->arena, scope, name);
  diag_error(c->d, "unknown-field", path, "unknown field")->suggestion = s;
}

void not_built(Check *c, const char *path, const char *what) {
  Diag *g = diag_error(c->d, "not-built", path, "%s is not built yet", what);
  for (int i = 0; i < LEN(instead); i++)
    if (strcmp(instead[i].path, path) == 0) g->suggestion = instead[i].text;
}
