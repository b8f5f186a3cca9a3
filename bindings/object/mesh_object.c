/* mesh_object.c - weft.mesh { ... }; its methods are in stdlib/objects/mesh.lua. */
#include "mesh_object.h"

#include <lauxlib.h>

#include "bindings/sandbox/length.h"
#include "bindings/schema/schema.h"
#include "bindings/script/api_doc.h"
#include "bindings/script/library.h"
#include "bindings/script/script.h"
#include "result.h"

/* ---- a resolved mesh ---- */

/* parse(name): the shortest name of these axes, and whether they belong to the expert
 * mesh only; nil if no mesh has them. */
static int parse_axes(lua_State *L) {
  char buf[64];
  AxisSet set = axes_parse(luaL_checkstring(L, 1));
  lua_pushstring(L, set ? axes_name(set, buf) : NULL);
  lua_pushboolean(L, axes_expert(set));
  return 2;
}

static void push_members(lua_State *L, AxisSet set) {
  lua_newtable(L);
  for (int a = 0, n = 0; a < AXIS_END; a++)
    if (set & AXIS_BIT(a)) {
      lua_pushstring(L, axis_name((Axis)a));
      lua_rawseti(L, -2, ++n);
    }
}

void mesh_object_open(lua_State *L) {
  lua_newtable(L);
  lua_pushcfunction(L, parse_axes);
  lua_setfield(L, -2, "parse");
  push_members(L, AXIS_BIT(AXIS_END) - AXIS_BIT(AXIS_N) + AXIS_BIT(AXIS_PP));
  lua_setfield(L, -2, "expert");
  lua_newtable(L); /* name -> axes, for names of several axes */
  for (const char *const *name = axes_names(); *name; name++) {
    AxisSet set = axes_parse(*name);
    if (!(set & (set - 1))) continue;
    push_members(L, set);
    lua_setfield(L, -2, *name);
  }
  lua_setfield(L, -2, "views");
  const char *names[64];
  int n = api_doc_names("mesh", names, LEN(names));
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_pushstring(L, names[i]);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "fields");
  library_provide(L, "objects/axes");
}

void mesh_object_push(lua_State *L, const Mesh *m, int gpus) {
  luaL_checkstack(L, 8, "not enough memory");
  library_push(L, "objects/mesh");
  lua_createtable(L, 0, 4);
  set_integer(L, "world", m->world);
  set_integer(L, "gpus", gpus);
  lua_createtable(L, 0, AXIS_END);
  for (int a = 0; a < AXIS_END; a++) set_integer(L, axis_name((Axis)a), m->size[a]);
  lua_setfield(L, -2, "size");
  lua_createtable(L, AXIS_N, 0);
  for (int i = 0; i < AXIS_N; i++) {
    lua_pushstring(L, axis_name((Axis)m->order[i]));
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "order");
  lua_call(L, 1, 1);
}

/* ---- weft.mesh { ... } ---- */

typedef struct Make {
  lua_State *L;
  Plan plan; /* only its mesh is used */
  int64_t gpus;
  Diags d;
  Mesh mesh;
} Make;

static void take_order(Make *k, int idx) {
  lua_State *L = k->L;
  int n = lua_istable(L, idx) ? (int)list_length(L, idx) : 0;
  if (n < 1 || n > AXIS_N) {
    diag_error(&k->d, "type", "order", "expected a list of axes, slowest first");
    return;
  }
  for (int i = 0; i < n; i++) {
    lua_rawgeti(L, idx, i + 1);
    bool text = lua_type(L, -1) == LUA_TSTRING;
    k->plan.mesh.order[i] = arena_str(k->d.arena, text ? lua_tostring(L, -1) : "?");
    lua_pop(L, 1);
  }
}

static bool take_size(Make *k, const char *key, int idx, int64_t *out) {
  int exact;
  *out = lua_tointegerx(k->L, idx, &exact);
  if (lua_type(k->L, idx) == LUA_TNUMBER && exact && *out >= 1 &&
      *out <= 10 * 1000 * 1000)
    return true;
  diag_error(&k->d, "type", key, "expected an integer from 1 to 1e7, got %s",
             value_describe(k->d.arena, k->L, idx));
  return false;
}

/* Reads the field whose key and value are on top. */
static void take_field(Make *k) {
  lua_State *L = k->L;
  const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : NULL;
  const Field *f = key ? schema_find("mesh", key) : NULL;
  if (key && strcmp(key, "gpus") == 0) {
    take_size(k, key, lua_gettop(L), &k->gpus);
  } else if (f && f->stored) {
    int64_t n;
    if (take_size(k, key, lua_gettop(L), &n))
      field_set(k->d.arena, f, &k->plan, (double)n);
  } else if (f) {
    take_order(k, lua_gettop(L));
  } else {
    const char *names[32];
    int n = 0;
    for (f = schema; f->scope && n < LEN(names) - 1; f++)
      if (strcmp(f->scope, "mesh") == 0) names[n++] = f->key;
    names[n++] = "gpus";
    diag_error(&k->d, "unknown-field", key ? key : "list", "a mesh has no such field")
        ->suggestion = key ? name_suggest(key, names, n) : NULL;
  }
}

static void make_job(void *ud) {
  Make *k = ud;
  lua_State *L = k->L;
  int keys = lua_gettop(L);
  for (int i = 1; lua_rawgeti(L, keys, i) != LUA_TNIL; i++, lua_settop(L, keys)) {
    lua_pushvalue(L, -1);
    lua_rawget(L, 1);
    take_field(k);
  }
  lua_settop(L, keys);
  if (!k->d.errors) mesh_resolve(&k->plan.mesh, 0, &k->mesh, &k->d);
}

static void report(const Diags *d, Text *out) {
  for (int i = 0; i < d->list.n; i++) {
    const Diag *g = &d->list.at[i];
    const char *path = strncmp(g->path, "mesh.", 5) == 0 ? g->path + 5 : g->path;
    text_printf(out, "%sweft.mesh: %s%s%s", i ? "\n" : "", path, *path ? ": " : "",
                g->summary);
    if (g->suggestion)
      text_printf(out, strchr(g->suggestion, ' ') ? " (%s)" : " (did you mean \"%s\"?)",
                  g->suggestion);
  }
}

int mesh_object_make(lua_State *L) {
  luaL_argexpected(L, lua_istable(L, 1), 1, "table");
  lua_settop(L, 1);
  Make k = {.L = L, .gpus = GPUS_OF_A_NODE};
  k.d.arena = script_push_arena(L);
  if (!sorted_keys(L, 1)) return luaL_error(L, "weft.mesh: the keys are names");
  if (!arena_try(k.d.arena, make_job, &k)) return luaL_error(L, "not enough memory");
  if (k.d.errors) {
    luaL_where(L, 1);
    report(&k.d, script_push_text(L));
    script_end_text(L);
    lua_concat(L, 2);
    return lua_error(L);
  }
  mesh_object_push(L, &k.mesh, (int)k.gpus);
  return 1;
}
