/* mesh_object.c - meshes as Lua objects: weft.mesh { ... }, plan.mesh, the expert mesh,
 * and views that flatten or slice one. A view is a list of ranks with axes of its own. */
#include "mesh_object.h"

#include <stdio.h>

#include "mesh_methods.h"
#include "bindings/lang/schema.h"
#include "bindings/script/script.h"

#define MESH_TYPE "weft.mesh"

MeshObject *mesh_object_test(lua_State *L, int idx) {
  return luaL_testudata(L, idx, MESH_TYPE);
}

static void push_metatable(lua_State *L);

/* Pushes a view of n ranks; its axes and lists are still empty. */
static MeshObject *new_view(lua_State *L, const Mesh *mesh, int gpus, int n) {
  size_t bytes = sizeof(int) * ((size_t)n + (size_t)mesh->world);
  MeshObject *m = lua_newuserdatauv(L, sizeof *m + bytes, 0);
  *m = (MeshObject){.mesh = *mesh, .gpus = gpus, .n = n};
  m->rank = (int *)(m + 1);
  m->index = m->rank + n;
  push_metatable(L);
  lua_setmetatable(L, -2);
  return m;
}

MeshObject *mesh_view_new(lua_State *L, const MeshObject *of, int n) {
  return new_view(L, &of->mesh, of->gpus, n);
}

void mesh_view_axis(MeshObject *m, const char *name, int size) {
  snprintf(m->axis[m->naxis].name, sizeof m->axis[0].name, "%s", name);
  m->axis[m->naxis++].size = size;
}

void mesh_view_index(MeshObject *m) {
  for (int r = 0; r < m->mesh.world; r++)
    m->index[r] = -1;
  for (int i = 0; i < m->n; i++)
    m->index[m->rank[i]] = i;
}

void mesh_object_push(lua_State *L, const Mesh *mesh, int gpus) {
  MeshObject *m = new_view(L, mesh, gpus, mesh->world);
  for (int i = 0; i < AXIS_N; i++)
    mesh_view_axis(m, axis_name((Axis)mesh->order[i]), mesh->size[mesh->order[i]]);
  for (int r = 0; r < mesh->world; r++)
    m->rank[mesh_index(mesh, AXES_ALL, r)] = r;
  mesh_view_index(m);
}

const MeshObject *mesh_push_expert(lua_State *L, const MeshObject *of) {
  const Mesh *mesh = &of->mesh;
  if (of->n < mesh->world)
    luaL_error(L, "a part of a mesh has no expert mesh: slice mesh.expert instead");
  MeshObject *m = new_view(L, mesh, of->gpus, mesh->world);
  mesh_view_axis(m, axis_name(AXIS_PP), mesh->size[AXIS_PP]);
  AxisSet all = AXIS_BIT(AXIS_PP);
  for (int a = AXIS_N; a < AXIS_END; a++) {
    mesh_view_axis(m, axis_name((Axis)a), mesh->size[a]);
    all |= AXIS_BIT(a);
  }
  for (int r = 0; r < mesh->world; r++)
    m->rank[mesh_index(mesh, all, r)] = r;
  mesh_view_index(m);
  return m;
}

/* ---- weft.mesh { ... } ---- */

typedef struct Make {
  lua_State *L;
  MeshSpec spec;
  int64_t gpus;
  Diags d;
  Mesh mesh;
} Make;

static void *spec_field(Make *k, const Field *f) {
  return (char *)&k->spec + (f->at - offsetof(Plan, mesh));
}

static void take_order(Make *k, int idx) {
  lua_State *L = k->L;
  int n = lua_istable(L, idx) ? (int)lua_rawlen(L, idx) : 0;
  if (n < 1 || n > AXIS_N) {
    diag_error(&k->d, "type", "order", "expected a list of axes, slowest first");
    return;
  }
  for (int i = 0; i < n; i++) {
    lua_rawgeti(L, idx, i + 1);
    bool text = lua_type(L, -1) == LUA_TSTRING;
    k->spec.order[i] = arena_str(k->d.arena, text ? lua_tostring(L, -1) : "?");
    lua_pop(L, 1);
  }
}

static void take_size(Make *k, const char *key, int idx, int64_t *out) {
  int exact;
  lua_Integer v = lua_tointegerx(k->L, idx, &exact);
  if (lua_type(k->L, idx) == LUA_TNUMBER && exact && v >= 1 && v <= 10 * 1000 * 1000)
    *out = v;
  else
    diag_error(&k->d, "type", key, "expected an integer from 1 to 1e7, got %s",
               value_describe(k->d.arena, k->L, idx));
}

/* Key and value are on top. */
static void take_field(Make *k) {
  lua_State *L = k->L;
  const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : NULL;
  const Field *f = key ? schema_find("mesh", key) : NULL;
  if (key && strcmp(key, "gpus") == 0) {
    take_size(k, key, lua_gettop(L), &k->gpus);
  } else if (f && f->size) {
    take_size(k, key, lua_gettop(L), spec_field(k, f));
  } else if (f) {
    take_order(k, lua_gettop(L));
  } else {
    const char *names[32];
    int n = 0;
    for (f = schema; f->scope && n < LEN(names) - 1; f++)
      if (strcmp(f->scope, "mesh") == 0) names[n++] = f->key;
    names[n++] = "gpus";
    diag_error(&k->d, "unknown-field", key ? key : "list", "a mesh has no such field")
        ->suggestion = key ? value_suggest(key, names, n) : NULL;
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
  if (!k->d.errors) mesh_resolve(&k->spec, 0, &k->mesh, &k->d);
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

/* ---- the object ---- */

static void push_axes(lua_State *L, const MeshObject *m) {
  lua_createtable(L, m->naxis, 0);
  for (int a = 0; a < m->naxis; a++) {
    lua_pushstring(L, m->axis[a].name);
    lua_rawseti(L, -2, a + 1);
  }
}

/* A field's value; false, with nothing pushed, if it is none. */
static bool push_field(lua_State *L, const MeshObject *m, const char *key) {
  if (strcmp(key, "world") == 0) {
    lua_pushinteger(L, m->n);
  } else if (strcmp(key, "gpus") == 0) {
    lua_pushinteger(L, m->gpus);
  } else if (strcmp(key, "axes") == 0) {
    push_axes(L, m);
  } else if (strcmp(key, "ranks") == 0) {
    mesh_push_ranks(L, m->rank, m->n, m->gpus);
  } else if (strcmp(key, "nodes") == 0) {
    mesh_push_ranks(L, m->rank, m->n, m->gpus);
    lua_getfield(L, -1, "nodes");
  } else if (strcmp(key, "expert") == 0) {
    mesh_push_expert(L, m);
  } else {
    unsigned axes = mesh_view_axes(m, key);
    int size = 1;
    for (int a = 0; a < m->naxis; a++)
      if (axes & 1u << a) size *= m->axis[a].size;
    if (!axes && m->n == m->mesh.world && axes_expert(axes_parse(key)))
      size = mesh_size(&m->mesh, axes_parse(key));
    else if (!axes)
      return false;
    lua_pushinteger(L, size);
  }
  return true;
}

/* Upvalue: the methods. */
static int index_mesh(lua_State *L) {
  const MeshObject *m = luaL_checkudata(L, 1, MESH_TYPE);
  const char *key = luaL_checkstring(L, 2);
  lua_pushvalue(L, 2);
  if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL || push_field(L, m, key)) return 1;
  if (axes_expert(axes_parse(key)))
    return luaL_error(L, "this part of a mesh has no '%s' (slice mesh.expert instead)",
                      key);
  /* The name of an axis that other meshes have. */
  if (axes_parse(key)) return mesh_unknown_axis(L, m, key);
  return script_unknown(L, "mesh");
}

static int assign_mesh(lua_State *L) {
  return luaL_error(L, "a mesh cannot be changed; make another one with weft.mesh");
}

static int length_mesh(lua_State *L) {
  const MeshObject *m = luaL_checkudata(L, 1, MESH_TYPE);
  lua_pushinteger(L, m->n);
  return 1;
}

static int equal_mesh(lua_State *L) {
  const MeshObject *a = mesh_object_test(L, 1), *b = mesh_object_test(L, 2);
  bool same = a && b && a->n == b->n && a->naxis == b->naxis && a->gpus == b->gpus;
  for (int i = 0; same && i < a->naxis; i++)
    same = a->axis[i].size == b->axis[i].size &&
           strcmp(a->axis[i].name, b->axis[i].name) == 0;
  lua_pushboolean(L, same && memcmp(a->rank, b->rank, sizeof(int) * (size_t)a->n) == 0);
  return 1;
}

static int print_mesh(lua_State *L) {
  const MeshObject *m = luaL_checkudata(L, 1, MESH_TYPE);
  int *group = lua_newuserdatauv(L, sizeof(int) * (size_t)m->n, 0);
  mesh_print(m, group, script_push_text(L));
  script_end_text(L);
  return 1;
}

static void push_metatable(lua_State *L) {
  static const luaL_Reg meta[] = {{"__tostring", print_mesh},
                                  {"__newindex", assign_mesh},
                                  {"__len", length_mesh},
                                  {"__eq", equal_mesh},
                                  {NULL, NULL}};
  if (!luaL_newmetatable(L, MESH_TYPE)) return;
  luaL_setfuncs(L, meta, 0);
  lua_newtable(L);
  luaL_setfuncs(L, mesh_methods, 0);
  lua_pushvalue(L, -1);
  lua_setfield(L, -3, "methods");
  lua_pushcclosure(L, index_mesh, 1);
  lua_setfield(L, -2, "__index");
  lua_pushliteral(L, MESH_TYPE);
  lua_setfield(L, -2, "__metatable");
}
