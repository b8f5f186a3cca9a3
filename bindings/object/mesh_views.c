/* mesh_views.c - mesh:flatten and mesh:slice: the same ranks on other axes. */
#include <stdio.h>

#include "mesh_methods.h"

/* The axes in the list at 2. */
static unsigned axes_list(lua_State *L, const MeshObject *m) {
  unsigned axes = 0;
  int n = (int)lua_rawlen(L, 2);
  if (n == 0) luaL_error(L, "name the axes in a list: mesh:flatten { \"dp\", \"cp\" }");
  for (int i = 1; i <= n; i++) {
    if (lua_rawgeti(L, 2, i) != LUA_TSTRING)
      luaL_error(L, "item %d is %s, not the name of an axis", i, luaL_typename(L, -1));
    unsigned one = mesh_axes_arg(L, m, lua_gettop(L));
    if (one & axes) luaL_error(L, "the axis \"%s\" is named twice", lua_tostring(L, -1));
    axes |= one;
    lua_pop(L, 1);
  }
  return axes;
}

/* "dp_cp" for dense axes, else "ep_shard+ep". */
static void joined_name(const MeshObject *m, unsigned axes, char name[64]) {
  AxisSet set = 0;
  size_t n = 0;
  name[0] = 0;
  for (int a = 0; a < m->naxis; a++) {
    if (!(axes & 1u << a)) continue;
    AxisSet one = axes_parse(m->axis[a].name);
    set = one && set != UINT32_MAX ? set | one : UINT32_MAX;
    n += (size_t)snprintf(name + n, n < 64 ? 64 - n : 0, "%s%s", n ? "+" : "",
                          m->axis[a].name);
  }
  char buf[64];
  if (set != UINT32_MAX) snprintf(name, 64, "%s", axes_name(set, buf));
}

/* The option `name` of the table at 2, beside the list of axes: what stands for them from
 * now on, so nothing else may have that name. */
static void name_option(lua_State *L, const MeshObject *m, unsigned axes, char name[64]) {
  for (lua_pushnil(L); lua_next(L, 2); lua_pop(L, 1)) {
    if (lua_isinteger(L, -2)) continue;
    const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
    if (strcmp(key, "name") != 0)
      luaL_error(L,
                 "there is no option '%s': mesh:flatten { \"dp\", \"cp\", name = \"x\" }",
                 key);
    const char *s = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
    size_t n = strlen(s);
    if (!n || n >= 64 || s[strcspn(s, " +")])
      luaL_error(L, "name must be a text of 1 to 63 characters without blanks and +");
    bool other = strcmp(s, "node") == 0 || strcmp(s, "local_rank") == 0;
    if (other || mesh_view_axes(m, s) & ~axes)
      luaL_error(L, "the name \"%s\" stands for something else already", s);
    snprintf(name, 64, "%s", s);
  }
}

/* Makes `v` the view in which these axes of `m` are one. */
static void merge_axes(const MeshObject *m, MeshObject *v, unsigned axes,
                       const char *name) {
  int merged = -1;
  unsigned slow = 0, all = (1u << m->naxis) - 1;
  for (int a = 0; a < m->naxis; a++) {
    bool in = axes & 1u << a;
    if (!in || merged < 0) mesh_view_axis(v, in ? name : m->axis[a].name, 1);
    if (in && merged < 0) merged = v->naxis - 1;
    if (merged < 0) slow |= 1u << a;
    v->axis[in ? merged : v->naxis - 1].size *= m->axis[a].size;
  }
  for (int i = 0; i < m->n; i++) {
    int at = mesh_flat_coord(m, slow, i);
    at = at * v->axis[merged].size + mesh_flat_coord(m, axes, i);
    for (int a = 0; a < m->naxis; a++)
      if (all & ~slow & ~axes & 1u << a)
        at = at * m->axis[a].size + mesh_view_coord(m, i, a);
    v->rank[at] = m->rank[i];
  }
  mesh_view_index(v);
}

/* mesh:flatten { "dp", "cp" [, name = "x"] }: these axes become one, at the place of the
 * slowest of them; it counts in mesh order. */
int mesh_flatten(lua_State *L) {
  const MeshObject *m = mesh_self(L);
  luaL_argexpected(L, lua_istable(L, 2), 2, "table");
  lua_settop(L, 2);
  unsigned axes = axes_list(L, m);
  char name[64];
  joined_name(m, axes, name);
  name_option(L, m, axes, name);
  merge_axes(m, mesh_view_new(L, m, m->n), axes, name);
  return 1;
}

/* mesh:slice { pp = 1 }: the ranks with these coordinates, on the other axes. */
int mesh_slice(lua_State *L) {
  const MeshObject *m = mesh_self(L);
  luaL_argexpected(L, lua_istable(L, 2), 2, "table");
  lua_settop(L, 2);
  int fixed[AXIS_END], n = m->n, count = 0, dp = -1;
  mesh_check_keys(L, m);
  unsigned both = mesh_split_dp(m);
  if (both) dp = mesh_coord_field(L, "dp", mesh_size(&m->mesh, AXES_DP));
  for (int a = 0; a < m->naxis; a++) {
    fixed[a] = mesh_coord_field(L, m->axis[a].name, m->axis[a].size);
    if (fixed[a] >= 0 || (dp >= 0 && both & 1u << a)) n /= m->axis[a].size;
  }
  MeshObject *v = mesh_view_new(L, m, n);
  for (int a = 0; a < m->naxis; a++)
    if (fixed[a] < 0 && !(dp >= 0 && both & 1u << a))
      mesh_view_axis(v, m->axis[a].name, m->axis[a].size);
  for (int i = 0; i < m->n; i++) {
    bool in = dp < 0 || mesh_flat_coord(m, both, i) == dp;
    for (int a = 0; a < m->naxis && in; a++)
      in = fixed[a] < 0 || mesh_view_coord(m, i, a) == fixed[a];
    if (in && count < n) v->rank[count++] = m->rank[i];
  }
  if (count < n) return luaL_error(L, "dp does not fit dp_replicate and dp_shard");
  mesh_view_index(v);
  return 1;
}
