/* cluster.c - plan.cluster: names of GPUs, and what the plan leaves open of their figures
 * from stdlib/clusters, whose files have the form of weft.cluster, and may say which
 * other file they are `like` but for their own figures. */
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
  list =
      arena_printf(d->arena,
                   "%s; of another one give figures: gpu = { name = \"%s\", memory_gib "
                   "= ..., bf16 = ..., ... }",
                   list, name);
  g->suggestion = near && strncasecmp(near, name, SAME) == 0 ? near : list;
  return false;
}

/* Stores the figures of a scope that the plan has left open, from the library's table of
 * the GPU, at `idx`. */
static void read_scope(lua_State *L, Arena *a, const char *scope, int idx, Plan *p) {
  for (const Field *f = schema; f->scope; f++) {
    if (strcmp(f->scope, scope) != 0 || f->type == FIELD_TEXT) continue;
    FieldValue v = field_get(f, p);
    bool open = v.stored == STORED_DOUBLE ? v.real == 0 : v.whole == 0;
    if (open && field_push(L, idx, f->key) == LUA_TNUMBER)
      field_set(a, f, p, lua_tonumber(L, -1));
    lua_settop(L, idx);
  }
}

/* The peak of the GPU at `gpu`, or of that which it is `like`; 0: it has none. */
static double peak_of(lua_State *L, Arena *a, int gpu) {
  int top = lua_gettop(L);
  const char *canon;
  double peak = 0;
  if (field_push(L, gpu, "gpu") == LUA_TTABLE && field_push(L, top + 1, "bf16"))
    peak = lua_tonumber(L, -1);
  lua_settop(L, top);
  if (peak == 0 && field_push(L, gpu, "like") == LUA_TSTRING &&
      push_gpu(L, a, lua_tostring(L, -1), &canon))
    peak = peak_of(L, a, lua_gettop(L));
  lua_settop(L, top);
  return peak;
}

/* What products of the GPU at `gpu` reach was measured beside its peak: of another peak
 * they reach as large a share. */
static void scale_reached(lua_State *L, Arena *a, int gpu, Cluster *c) {
  double peak = peak_of(L, a, gpu);
  if (peak > 0 && c->bf16 > 0) c->reached *= c->bf16 / peak;
}

/* Fills what is left open from the table of a GPU at `gpu`, and then from that of the GPU
 * that it is `like`. */
static void read_figures(lua_State *L, Arena *a, int gpu, Plan *p) {
  Cluster *c = &p->cluster;
  int top = lua_gettop(L);
  bool open = c->reached == 0;
  if (field_push(L, gpu, "gpu") == LUA_TTABLE) {
    read_scope(L, a, "gpu", top + 1, p);
    if (open && c->reached > 0) scale_reached(L, a, gpu, c);
  }
  lua_settop(L, top);
  if (field_push(L, gpu, "network") == LUA_TTABLE)
    read_scope(L, a, "network", top + 1, p);
  lua_settop(L, top);
  field_push(L, gpu, "domain"), field_push(L, gpu, "gpus");
  if (!c->domain) c->domain = (int64_t)lua_tonumber(L, -2);
  if (!c->gpus) c->gpus = (int64_t)lua_tonumber(L, -1);
  lua_settop(L, top);
  const char *canon;
  if (field_push(L, gpu, "like") == LUA_TSTRING &&
      push_gpu(L, a, lua_tostring(L, -1), &canon))
    read_figures(L, a, lua_gettop(L), p);
  lua_settop(L, top);
}

/* Leaves the name that the cluster at `t` gives its GPU, or nil; a table of figures
 * stands for the known GPU that it begins with. */
static void push_name(lua_State *L, int t, bool *alone) {
  *alone = true;
  lua_pushvalue(L, t);
  if (!lua_istable(L, t)) return;
  lua_pop(L, 1);
  if (lua_rawgeti(L, t, 1) == LUA_TSTRING) return;
  lua_pop(L, 1);
  *alone = false;
  if (field_push(L, t, "gpu") != LUA_TTABLE) return;
  lua_rawgeti(L, -1, 1);
  lua_remove(L, -2);
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
      read_figures(L, d->arena, lua_gettop(L), &lp->plan);
      if (!c->gpu) c->gpu = canon;
    }
    bool figures = table && field_push(L, t, "gpu") == LUA_TTABLE;
    if (!c->gpu && figures) c->gpu = "GPU";
    if (c->bf16 > 0 && c->reached > c->bf16)
      diag_error(d, "range", "cluster.gpu.reached",
                 "%.4g flop/s are more than the peak, bf16 = %.4g", c->reached, c->bf16);
    if (!c->gpus)
      diag_error(d, "required", "cluster.gpus",
                 "this field is required where no GPU is named (GPUs of each machine)");
  }
  lua_settop(L, top);
}
