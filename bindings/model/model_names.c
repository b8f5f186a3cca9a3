/* model_names.c - models by name: public ones, whose sizes stdlib/import/sizes has,
 * and what is said of a name that is none. */
#include "model_int.h"

#include "bindings/schema/schema.h"

/* Whether names have the same numbers: Llama 2 is no slip for Llama 3. */
static bool same_numbers(const char *a, const char *b) {
  static const char digits[] = "0123456789";
  for (;;) {
    a += strcspn(a, digits), b += strcspn(b, digits);
    size_t n = strspn(a, digits);
    if (n != strspn(b, digits) || strncmp(a, b, n) != 0) return false;
    if (!n) return true;
    a += n, b += n;
  }
}

const char *near_model(Model *m, const char *name) {
  lua_State *L = m->L;
  int n;
  const char *const *archs = stdlib_names(m->arena, "tp_plans", &n);
  VEC(const char *) names = {0};
  for (int i = 0; i < n; i++) *VEC_PUSH(m->arena, names) = archs[i];
  if (stdlib_push(L, "presets")) {
    for (lua_pushnil(L); state_next(L, -2); lua_pop(L, 1))
      *VEC_PUSH(m->arena, names) = arena_str(m->arena, lua_tostring(L, -2));
    lua_pop(L, 1);
  }
  const char *near = name_suggest(name, names.at, names.n);
  if (near && same_numbers(near, name)) return near;
  return begins_with_name(m->arena, name, names.at, names.n, 6);
}

/* ---- public names ---- */

/* Pushes the results of a function of the table of public models, as many as `n`. */
static void ask_models(lua_State *L, const char *function, const char *name, int n) {
  int top = lua_gettop(L);
  if (!stdlib_push(L, "import/models")) luaL_error(L, "import/models is missing");
  lua_getfield(L, -1, function);
  lua_replace(L, top + 1);
  lua_pushstring(L, name);
  lua_call(L, 1, n);
}

bool push_public(Model *m, const char *name) {
  lua_State *L = m->L;
  int top = lua_gettop(L);
  ask_models(L, "plain", name, 3);
  const char *note = lua_tostring(L, top + 3);
  if (note) diag_warn(m->d, "model", "model", "%s: %s", name, arena_str(m->arena, note));
  bool found = lua_istable(L, top + 1);
  lua_settop(L, found ? top + 1 : top);
  return found;
}

static const char *ask_text(Model *m, const char *function, const char *name, int at) {
  int top = lua_gettop(m->L);
  ask_models(m->L, function, name, at);
  const char *s = lua_tostring(m->L, -1);
  if (s) s = arena_str(m->arena, s);
  lua_settop(m->L, top);
  return s;
}

void unknown_model(Model *m, const char *path, const char *name) {
  int n;
  const char *const *archs = stdlib_names(m->arena, "tp_plans", &n);
  const char *near = near_model(m, name), *list = "";
  for (int i = 0; i < n; i++)
    list = arena_printf(m->arena, "%s%s%s", list, i ? ", " : "", archs[i]);
  const char *kind = m->hf ? NULL : ask_text(m, "plain", name, 2);
  const char *family = m->hf || near ? NULL : ask_text(m, "family", name, 1);
  Diag *g = diag_error(m->d, "unknown-name", path, "there is no model \"%s\"%s%s", name,
                       kind ? ", which is " : "", kind ? kind : "");
  if (near && !kind)
    g->suggestion = near;
  else if (family)
    g->suggestion = arena_printf(m->arena, "of this family: %s", family);
  else if (strchr(name, '/'))
    g->suggestion = "of a folder with a config.json: weft.hf \"DIR\"; presets are in "
                    "docs/models.md";
  else
    g->summary = arena_printf(m->arena, "%s (architectures: %s)", g->summary, list);
}
