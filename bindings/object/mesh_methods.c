/* mesh_methods.c - what one can ask a mesh object. */
#include "mesh_methods.h"

#include <stdio.h>

#include "bindings/script/api_doc.h"
#include "format.h"
#include "bindings/lang/lang.h"
#include "result.h"
#include "bindings/script/script.h"

/* ---- arguments ---- */

MeshObject *mesh_self(lua_State *L) {
  MeshObject *m = mesh_object_test(L, 1);
  if (!m) luaL_error(L, "the mesh is missing: write mesh:method(...), with a colon");
  return m;
}

/* The rank at `arg` as an index of the view. */
static int index_arg(lua_State *L, const MeshObject *m, int arg) {
  lua_Integer r = luaL_checkinteger(L, arg);
  if (r < 0 || r >= m->mesh.world)
    luaL_error(L, "there is no rank %I: the mesh has %d, counted from 0", r,
               m->mesh.world);
  if (m->index[r] < 0) luaL_error(L, "rank %I is not in this part of the mesh", r);
  return m->index[r];
}

int mesh_unknown_axis(lua_State *L, const MeshObject *m, const char *name) {
  const char *names[AXIS_END + 4];
  int n = 0;
  for (int a = 0; a < m->naxis; a++)
    names[n++] = m->axis[a].name;
  if (mesh_view_axes(m, "dp")) names[n++] = "dp";
  names[n++] = "world";
  names[n++] = "node";
  luaL_Buffer b;
  luaL_buffinit(L, &b);
  for (int i = 0; i < n; i++) {
    luaL_addstring(&b, i ? ", " : "");
    luaL_addstring(&b, names[i]);
  }
  luaL_pushresult(&b);
  /* The name of an axis that another mesh has is no slip of the fingers. */
  const char *all = lua_tostring(L, -1);
  const char *near = axes_parse(name) ? NULL : value_suggest(name, names, n);
  if (near)
    return luaL_error(L, "the mesh has no axis \"%s\" (did you mean \"%s\"?)", name,
                      near);
  return luaL_error(L, "the mesh has no axis \"%s\"; it has %s", name, all);
}

unsigned mesh_axes_arg(lua_State *L, const MeshObject *m, int arg) {
  const char *name = luaL_checkstring(L, arg);
  unsigned axes = mesh_view_axes(m, name);
  if (!axes) mesh_unknown_axis(L, m, name);
  return axes;
}

int *mesh_scratch(lua_State *L, int n) {
  return lua_newuserdatauv(L, sizeof(int) * (size_t)MAX(n, 1), 0);
}

/* ---- results that print themselves ---- */

static int list_tostring(lua_State *L) {
  enum { SHOWN = 64 };
  luaL_checktype(L, 1, LUA_TTABLE);
  int n = (int)lua_rawlen(L, 1), *rank = mesh_scratch(L, n);
  for (int i = 0; i < n; i++) {
    lua_rawgeti(L, 1, i + 1);
    rank[i] = (int)lua_tointeger(L, -1);
    lua_pop(L, 1);
  }
  Text *t = script_push_text(L);
  text_add(t, "{ ");
  format_ranks(rank, n, SHOWN, t);
  text_add(t, " }");
  lua_pushliteral(L, "nodes");
  lua_rawget(L, 1);
  if (lua_isinteger(L, -1)) {
    lua_Integer nodes = lua_tointeger(L, -1);
    text_printf(t, "  -- %lld node%s", (long long)nodes, nodes == 1 ? "" : "s");
  }
  lua_pop(L, 1);
  script_end_text(L);
  return 1;
}

void mesh_push_ranks(lua_State *L, const int *rank, int n, int gpus) {
  luaL_checkstack(L, 6, NULL);
  int *sorted = mesh_scratch(L, n);
  lua_createtable(L, n, 1);
  for (int i = 0; i < n; i++) {
    sorted[i] = rank[i];
    lua_pushinteger(L, rank[i]);
    lua_rawseti(L, -2, i + 1);
  }
  set_integer(L, "nodes", mesh_count_nodes(sorted, n, gpus));
  lua_remove(L, -2);
  if (luaL_newmetatable(L, "weft.ranks")) {
    lua_pushcfunction(L, list_tostring);
    lua_setfield(L, -2, "__tostring");
  }
  lua_setmetatable(L, -2);
}

/* One line for each item. */
static int lines_tostring(lua_State *L) {
  luaL_Buffer b;
  luaL_checktype(L, 1, LUA_TTABLE);
  int n = (int)lua_rawlen(L, 1);
  luaL_buffinit(L, &b);
  for (int i = 1; i <= n; i++) {
    if (i > 1) luaL_addchar(&b, '\n');
    lua_rawgeti(L, 1, i);
    luaL_tolstring(L, -1, NULL);
    lua_remove(L, -2);
    luaL_addvalue(&b);
  }
  luaL_pushresult(&b);
  return 1;
}

/* ---- coordinates ---- */

static const char coord_type[] = "weft.coord";

/* Upvalue: the name of the metatable, which lists what is printed: "weft.coord pp dp tp
 * node". */
static int coord_tostring(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  const char *p = lua_tostring(L, lua_upvalueindex(1)) + strlen(coord_type);
  Text *t = script_push_text(L);
  text_add(t, "{");
  for (bool any = false; *p == ' '; any = true) {
    size_t n = strcspn(++p, " ");
    lua_pushlstring(L, p, n);
    lua_rawget(L, 1);
    text_printf(t, "%s %.*s = %lld", any ? "," : "", (int)n, p,
                (long long)lua_tointeger(L, -1));
    lua_pop(L, 1);
    p += n;
  }
  text_add(t, " }");
  script_end_text(L);
  return 1;
}

/* Gives the table on top the metatable for these names. */
static void set_coord(lua_State *L, const char *names) {
  if (luaL_newmetatable(L, names)) {
    lua_pushstring(L, names);
    lua_pushcclosure(L, coord_tostring, 1);
    lua_setfield(L, -2, "__tostring");
  }
  lua_setmetatable(L, -2);
}

unsigned mesh_split_dp(const MeshObject *m) {
  unsigned dp = mesh_view_axes(m, "dp");
  return dp & (dp - 1) ? dp : 0;
}

int mesh_flat_coord(const MeshObject *m, unsigned axes, int index) {
  int at = 0;
  for (int a = 0; a < m->naxis; a++)
    if (axes & 1u << a) at = at * m->axis[a].size + mesh_view_coord(m, index, a);
  return at;
}

/* mesh:coord(rank): also dp, node and local_rank. Axes of one rank are not printed. */
static int coord(lua_State *L) {
  const MeshObject *m = mesh_self(L);
  int index = index_arg(L, m, 2), rank = m->rank[index];
  unsigned dp = mesh_split_dp(m);
  bool both = dp && m->mesh.size[AXIS_DP_REPLICATE] > 1, any_dp = false;
  char shown[512];
  int n = snprintf(shown, sizeof shown, "%s", coord_type);
  lua_createtable(L, 0, 8);
  for (int a = 0; a < m->naxis; a++) {
    bool merged = dp & 1u << a && !both;
    set_integer(L, m->axis[a].name, mesh_view_coord(m, index, a));
    if (m->axis[a].size == 1 || (merged && any_dp)) continue;
    any_dp |= merged;
    n += snprintf(shown + n, sizeof shown - (size_t)n, " %s",
                  merged ? "dp" : m->axis[a].name);
  }
  if (dp) set_integer(L, "dp", mesh_flat_coord(m, dp, index));
  set_integer(L, "node", rank / m->gpus);
  set_integer(L, "local_rank", rank % m->gpus);
  snprintf(shown + n, sizeof shown - (size_t)n, " node local_rank");
  set_coord(L, shown);
  return 1;
}

int mesh_coord_field(lua_State *L, const char *name, int size) {
  lua_pushstring(L, name);
  int type = lua_rawget(L, 2), exact;
  lua_Integer v = lua_tointegerx(L, -1, &exact);
  lua_pop(L, 1);
  if (type == LUA_TNIL) return -1;
  if (type != LUA_TNUMBER || !exact || v < 0 || v >= size)
    luaL_error(L, "%s must be an integer from 0 to %d", name, size - 1);
  return (int)v;
}

void mesh_check_keys(lua_State *L, const MeshObject *m) {
  for (lua_pushnil(L); lua_next(L, 2); lua_pop(L, 1)) {
    const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : NULL;
    if (!key) luaL_error(L, "a coordinate is written { axis = number, ... }");
    bool own = strcmp(key, "node") == 0 || strcmp(key, "local_rank") == 0;
    unsigned axes = mesh_view_axes(m, key);
    bool known = own || (strcmp(key, "dp") == 0 && axes);
    for (int a = 0; a < m->naxis && !known; a++)
      known = strcmp(key, m->axis[a].name) == 0;
    if (!known) mesh_unknown_axis(L, m, key);
  }
}

/* What the table says beside the axes must fit the rank that they give. */
static void check_same(lua_State *L, const char *key, int size, int rank, int is) {
  int said = mesh_coord_field(L, key, size);
  if (said >= 0 && said != is)
    luaL_error(L, "%s = %d does not fit the other coordinates: rank %d has %s = %d", key,
               said, rank, key, is);
}

/* mesh:rank { pp = 1, dp = 0, tp = 3 }; axes of one rank may be left out. */
static int rank(lua_State *L) {
  const MeshObject *m = mesh_self(L);
  luaL_argexpected(L, lua_istable(L, 2), 2, "table");
  lua_settop(L, 2);
  mesh_check_keys(L, m);
  unsigned dp = mesh_split_dp(m);
  int flat = dp ? mesh_coord_field(L, "dp", INT32_MAX) : -1, index = 0, inner = 1;
  for (int a = m->naxis - 1; a >= 0; a--) {
    int size = m->axis[a].size, at = mesh_coord_field(L, m->axis[a].name, size);
    if (dp & 1u << a && at < 0 && flat >= 0) at = flat % size;
    if (dp & 1u << a && flat >= 0) flat /= size;
    if (at < 0 && size > 1)
      return luaL_error(L, "%s is missing: from 0 to %d", m->axis[a].name, size - 1);
    index += MAX(at, 0) * inner;
    inner *= size;
  }
  int r = m->rank[index], world = m->mesh.world;
  if (dp) check_same(L, "dp", world, r, mesh_flat_coord(m, dp, index));
  check_same(L, "node", world, r, r / m->gpus);
  check_same(L, "local_rank", m->gpus, r, r % m->gpus);
  lua_pushinteger(L, r);
  return 1;
}

/* mesh:node(rank): the node and the rank's number on it. */
static int node(lua_State *L) {
  const MeshObject *m = mesh_self(L);
  int r = m->rank[index_arg(L, m, 2)];
  lua_pushinteger(L, r / m->gpus);
  lua_pushinteger(L, r % m->gpus);
  return 2;
}

/* ---- groups ---- */

/* Ranks of a node in order; returns their number. */
static int node_group(const MeshObject *m, int node, int *out) {
  int n = 0;
  for (int r = node * m->gpus; r < (node + 1) * m->gpus && r < m->mesh.world; r++)
    if (m->index[r] >= 0) out[n++] = r;
  return n;
}

/* The view that has the axes which argument 2 names: the mesh itself, or, where they are
 * axes of its expert mesh, that, which is pushed. */
static const MeshObject *view_arg(lua_State *L, const MeshObject *m, unsigned *axes) {
  const char *name = luaL_checkstring(L, 2);
  if (!mesh_view_axes(m, name) && axes_expert(axes_parse(name)))
    m = mesh_push_expert(L, m);
  *axes = mesh_axes_arg(L, m, 2);
  return m;
}

static bool is_node(lua_State *L, int arg) {
  return strcmp(luaL_checkstring(L, arg), "node") == 0;
}

/* mesh:group(axis, rank) */
static int group(lua_State *L) {
  const MeshObject *m = mesh_self(L);
  int n, *out = mesh_scratch(L, MAX(m->n, m->gpus));
  if (is_node(L, 2)) {
    int index = index_arg(L, m, 3);
    n = node_group(m, m->rank[index] / m->gpus, out);
  } else {
    unsigned axes;
    m = view_arg(L, m, &axes);
    n = mesh_view_group(m, axes, index_arg(L, m, 3), out);
  }
  mesh_push_ranks(L, out, n, m->gpus);
  return 1;
}

/* mesh:groups(axis): every rank is in one of them. */
static int groups(lua_State *L) {
  const MeshObject *m = mesh_self(L);
  bool nodes = is_node(L, 2);
  unsigned axes = 0;
  if (!nodes) m = view_arg(L, m, &axes);
  int *out = mesh_scratch(L, MAX(m->n, m->gpus)), count = 0;
  lua_newtable(L);
  for (int i = 0; nodes && i * m->gpus < m->mesh.world; i++) {
    int n = node_group(m, i, out);
    if (!n) continue;
    mesh_push_ranks(L, out, n, m->gpus);
    lua_rawseti(L, -2, ++count);
  }
  for (int i = 0; !nodes && i < m->n; i++) {
    if (mesh_flat_coord(m, axes, i) != 0) continue;
    mesh_push_ranks(L, out, mesh_view_group(m, axes, i, out), m->gpus);
    lua_rawseti(L, -2, ++count);
  }
  if (luaL_newmetatable(L, "weft.groups")) {
    lua_pushcfunction(L, lines_tostring);
    lua_setfield(L, -2, "__tostring");
  }
  lua_setmetatable(L, -2);
  return 1;
}

static int neighbors_tostring(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  Text *t = script_push_text(L);
  int n = (int)lua_rawlen(L, 1);
  for (int i = 1; i <= n; i++) {
    luaL_argexpected(L, lua_rawgeti(L, 1, i) == LUA_TTABLE, 1, "list of neighbors");
    lua_getfield(L, -1, "axis");
    lua_getfield(L, -2, "prev");
    lua_getfield(L, -3, "next");
    text_printf(t, "%s%-12s prev %lld, next %lld", i > 1 ? "\n" : "", lua_tostring(L, -3),
                (long long)lua_tointeger(L, -2), (long long)lua_tointeger(L, -1));
    lua_pop(L, 4);
  }
  if (!n) text_add(t, "no neighbors: one rank on every axis");
  script_end_text(L);
  return 1;
}

/* mesh:neighbors(rank): for each axis of more than one rank, in a list and by name, the
 * ranks before and after it, around the ring. */
static int neighbors(lua_State *L) {
  const MeshObject *m = mesh_self(L);
  int index = index_arg(L, m, 2), *out = mesh_scratch(L, m->n), count = 0;
  lua_newtable(L);
  for (int a = 0; a < m->naxis; a++) {
    int n = m->axis[a].size, at = mesh_view_coord(m, index, a);
    if (n == 1) continue;
    mesh_view_group(m, 1u << a, index, out);
    lua_createtable(L, 0, 3);
    lua_pushstring(L, mesh_view_name(m, a));
    lua_setfield(L, -2, "axis");
    set_integer(L, "prev", out[(at + n - 1) % n]);
    set_integer(L, "next", out[(at + 1) % n]);
    lua_pushvalue(L, -1);
    lua_setfield(L, -3, m->axis[a].name);
    lua_pushvalue(L, -1);
    lua_setfield(L, -3, mesh_view_name(m, a));
    lua_rawseti(L, -2, ++count);
  }
  if (luaL_newmetatable(L, "weft.neighbors")) {
    lua_pushcfunction(L, neighbors_tostring);
    lua_setfield(L, -2, "__tostring");
  }
  lua_setmetatable(L, -2);
  return 1;
}

/* ---- the object ---- */

const luaL_Reg mesh_methods[] = {
    {"coord", coord},          {"rank", rank},           {"group", group},
    {"groups", groups},        {"neighbors", neighbors}, {"node", node},
    {"flatten", mesh_flatten}, {"slice", mesh_slice},    {NULL, NULL}};
