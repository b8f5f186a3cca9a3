/* cluster.c - plan.cluster: names of GPUs, and their figures from stdlib/clusters. */
#include "schema.h"

/* Pushes the table of a GPU by its name or an alias; false, with nothing pushed, if there
 * is none. `*canon` becomes its name, owned by the library. */
static bool push_gpu(lua_State *L, Arena *a, const char *name, const char **canon) {
  int n, top = lua_gettop(L);
  const char *const *files = stdlib_names(a, "clusters", &n);
  for (int i = 0; i < n; i++, lua_settop(L, top)) {
    bool found = str_ieq(files[i], name);
    if (!stdlib_push(L, lua_pushfstring(L, "clusters/%s", files[i]))) continue;
    int gpu = lua_gettop(L);
    field_push(L, gpu, "aliases");
    for (int k = 1; !found && lua_rawgeti(L, gpu + 1, k) != LUA_TNIL; k++) {
      found = str_ieq(lua_tostring(L, -1), name);
      lua_pop(L, 1);
    }
    if (!found) continue;
    lua_settop(L, gpu);
    lua_replace(L, top + 1);
    lua_settop(L, top + 1);
    *canon = files[i];
    return true;
  }
  return false;
}

bool cluster_known(lua_State *L, const char *name, const char *path, Diags *d) {
  const char *canon;
  int n, top = lua_gettop(L);
  bool known = push_gpu(L, d->arena, name, &canon);
  lua_settop(L, top);
  if (known) return true;
  const char *const *files = stdlib_names(d->arena, "clusters", &n);
  Diag *g = diag_error(d, "unknown-name", path, "there is no GPU \"%s\"", name);
  /* b200 is another GPU than h200, however near their names are. */
  enum { SAME = 3 };
  const char *near = name_suggest(name, files, n), *list = "known:";
  for (int i = 0; i < n; i++)
    list = arena_printf(d->arena, "%s%s %s", list, i ? "," : "", files[i]);
  g->suggestion = near && strncasecmp(near, name, SAME) == 0 ? near : list;
  return false;
}

static double figure(lua_State *L, int gpu, const char *key) {
  field_push(L, gpu, key);
  double v = lua_tonumber(L, -1);
  lua_pop(L, 1);
  return v;
}

static void read_figures(lua_State *L, int gpu, Cluster *c) {
  c->memory = figure(L, gpu, "memory");
  c->bf16 = figure(L, gpu, "bf16");
  c->f32 = figure(L, gpu, "f32");
  c->hbm_bandwidth = figure(L, gpu, "hbm_bandwidth");
  c->nvlink_bandwidth = figure(L, gpu, "nvlink_bandwidth");
  c->nvlink_latency = figure(L, gpu, "nvlink_latency");
  c->network_bandwidth = figure(L, gpu, "network_bandwidth");
  c->network_latency = figure(L, gpu, "network_latency");
  c->host_bandwidth = figure(L, gpu, "host_bandwidth");
  if (!c->gpus) c->gpus = (int64_t)figure(L, gpu, "gpus");
}

/* Leaves the name that the cluster at `t` gives its GPU, or nil. */
static void push_name(lua_State *L, int t, bool *alone) {
  *alone = true;
  lua_pushvalue(L, t);
  if (!lua_istable(L, t)) return;
  lua_pop(L, 1);
  if (lua_rawgeti(L, t, 1) == LUA_TSTRING) return;
  lua_pop(L, 1);
  *alone = false;
  field_push(L, t, "gpu");
}

void cluster_resolve(lua_State *L, LangPlan *lp, Diags *d) {
  Cluster *c = &lp->plan.cluster;
  int top = lua_gettop(L), t = top + 1;
  bool alone, table;
  lua_pushliteral(L, "cluster");
  if (lua_rawget(L, PLAN_INDEX) != LUA_TNIL) {
    table = lua_istable(L, t);
    push_name(L, t, &alone);
    const char *name = lua_tostring(L, -1), *canon;
    if (table) {
      field_push(L, t, "nodes");
      field_push(L, t, "gpus");
      c->nodes = (int64_t)lua_tonumber(L, -2);
      c->gpus = (int64_t)lua_tonumber(L, -1);
    }
    if (!c->nodes && !alone) c->nodes = 1;
    if (name && push_gpu(L, d->arena, name, &canon)) {
      read_figures(L, lua_gettop(L), c);
      c->gpu = canon;
    }
    if (!c->gpus)
      diag_error(d, "required", "cluster.gpus",
                 "this field is required where no GPU is named (GPUs of each machine)");
  }
  lua_settop(L, top);
}
