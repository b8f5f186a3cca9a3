/* field_said.c - whether a plan says a field, under its own name or an alias. */
#include "schema.h"

/* Replaces the table on top by its value under this name or an alias of it; *name is what
 * the plan has. False, with nil there: it has none of them. */
static bool push_named(lua_State *L, const char **name) {
  int t = lua_gettop(L);
  bool found = field_push(L, t, *name) != LUA_TNIL;
  for (const Field *f = schema; !found && f->scope; f++) {
    if (f->type != FIELD_ALIAS || strcmp(f->names, *name) != 0) continue;
    lua_settop(L, t);
    found = field_push(L, t, f->key) != LUA_TNIL;
    if (found) *name = f->key;
  }
  lua_replace(L, t);
  return found;
}

const char *field_said(lua_State *L, Arena *a, const char *path) {
  const char *written = "";
  luaL_checkstack(L, 4, NULL);
  lua_pushvalue(L, PLAN_INDEX);
  for (const char *p = path; *p; p += *p == '.') {
    size_t n = strcspn(p, ".");
    const char *name = arena_strn(a, p, n);
    if (!push_named(L, &name)) {
      lua_pop(L, 1);
      return NULL;
    }
    written = arena_printf(a, "%s%s%s", written, *written ? "." : "", name);
    p += n;
  }
  return written;
}
