/* plan_params.c - plan:match and plan:shards: how parameters are sharded and which ranks
 * have which shard. */
#include "plan_object.h"
#include "bindings/script/script.h"
#include "vm/shard/shard.h"

/* ---- the parameters ---- */

/* A parameter with the module that reads it and its tp_plan rule. */
typedef struct ParamView {
  const CompiledParam *p;
  const char *module; /* of the last op that reads it, or NULL */
  const TpRule *rule; /* NULL: replicated */
  const char *like;   /* its name with * for layer numbers */
} ParamView;

typedef struct ParamJob {
  const Job *j;
  Arena *arena;
  ParamView *view;
} ParamJob;

static const Param *graph_param_named(const Graph *g, const char *name) {
  for (int i = 0; i < g->param.n; i++)
    if (strcmp(g->param.at[i].name, name) == 0) return &g->param.at[i];
  return NULL;
}

static const char *with_stars(Arena *a, const char *name) {
  const char *dot = strrchr(name, '.');
  return arena_printf(a, "%s%s", tp_as_pattern(a, name), dot ? dot : "");
}

static void view_params(void *ud) {
  ParamJob *k = ud;
  const Job *j = k->j;
  const Compiled *c = j->compiled;
  /* Of a tied parameter, the last module that reads it, not its own. */
  const char **modules = NEW_N(k->arena, const char *, j->graph->t.n + 1);
  for (int i = 0; i < j->graph->forward_ops; i++)
    for (int n = 0; n < j->graph->op.at[i].nin; n++)
      if (j->graph->op.at[i].name)
        modules[j->graph->op.at[i].in[n]] = j->graph->op.at[i].name;
  int *hits = NEW_N(k->arena, int, j->plan.ntp + 1), tie;
  k->view = NEW_N(k->arena, ParamView, c->nparam + 1);
  for (int i = 0; i < c->nparam; i++) {
    ParamView *v = &k->view[i];
    const Param *p = graph_param_named(j->graph, c->param[i].name);
    v->p = &c->param[i];
    v->module = p ? modules[p->tensor] : NULL;
    int rule = tp_match(&j->plan, v->p->name, v->module, hits, &tie);
    v->rule = rule >= 0 ? &j->plan.tp[rule] : NULL;
    v->like = with_stars(k->arena, v->p->name);
  }
}

/* Pushes the arena that the views are in. */
static ParamView *params(lua_State *L, const Job *j) {
  ParamJob k = {.j = j, .arena = script_push_arena(L)};
  if (!arena_try(k.arena, view_params, &k)) luaL_error(L, "not enough memory");
  return k.view;
}

/* ---- values ---- */

static const char *style_of(const ParamView *v) {
  return v->rule ? tp_style_name(v->rule->style) : "replicate";
}

/* Sets field `key` of the table on top to a list of numbers. */
static void set_list(lua_State *L, const char *key, const int64_t *v, int n) {
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_pushinteger(L, v[i]);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, key);
}

/* Pushes a table about a parameter. `cuts`: { axis =, dim =, ways = } for each axis that
 * shards a dimension; `dim` and `ways`: those of the first axis, and of all together. */
static void push_param(lua_State *L, const Job *j, const ParamView *v) {
  int n = 0;
  lua_createtable(L, 0, 9);
  set_text(L, "name", v->p->name);
  set_text(L, "like", v->like);
  set_text(L, "style", style_of(v));
  if (v->rule) set_text(L, "pattern", v->rule->pattern);
  set_list(L, "shape", v->p->dim, v->p->ndim);
  set_integer(L, "ways", mesh_size(&j->mesh, place_cuts(v->p->place)));
  lua_newtable(L);
  for (int d = 0; d < v->p->ndim; d++) {
    AxisSet axes;
    char buf[64];
    for (int x = 0; (axes = place_next_cut(v->p->place, d, &x)) != 0;) {
      lua_createtable(L, 0, 3);
      set_text(L, "axis", axes_name(axes, buf));
      set_integer(L, "dim", d + 1);
      set_integer(L, "ways", mesh_size(&j->mesh, axes));
      lua_rawseti(L, -2, ++n);
      if (n > 1) continue;
      lua_pushinteger(L, d + 1);
      lua_setfield(L, -3, "dim");
    }
  }
  lua_setfield(L, -2, "cuts");
}

/* match([pattern]): a list of parameters. */
int plan_match(lua_State *L) {
  const Job *j = plan_object_compiled(L);
  const char *pattern = luaL_optstring(L, 2, NULL);
  const ParamView *v = params(L, j);
  int n = 0;
  lua_newtable(L);
  for (int i = 0; i < j->compiled->nparam; i++) {
    if (pattern && !tp_pattern_matches(pattern, v[i].p->name, v[i].module)) continue;
    push_param(L, j, &v[i]);
    lua_rawseti(L, -2, ++n);
  }
  return 1;
}

/* ---- shards ---- */

static bool holds(const CompiledParam *p, int pp) {
  for (int i = 0; i < p->npp; i++)
    if (p->pp[i] == pp) return true;
  return false;
}

/* The ranks that have shard number `at` over the sharding axes. */
static int holders(const Job *j, const CompiledParam *p, AxisSet cuts, int at,
                   int64_t *out) {
  int n = 0;
  for (int r = 0; r < j->mesh.world; r++)
    if (holds(p, mesh_coord(&j->mesh, r, AXIS_PP)) && mesh_index(&j->mesh, cuts, r) == at)
      out[n++] = r;
  return n;
}

static void push_range(lua_State *L, const PieceDim *c, int dim) {
  lua_createtable(L, 0, 5);
  set_integer(L, "dim", dim + 1);
  set_integer(L, "first", c->first);
  set_integer(L, "count", c->valid);
  set_integer(L, "parts", c->parts);
  set_integer(L, "padding", c->slice - c->valid);
}

/* The region of this kind in which the parameter is stored as shards on its first pp
 * rank, or NULL. */
static const Region *flat_region(const Job *j, const CompiledParam *p, RegionKind kind) {
  const Regions *s = &j->compiled->prog[p->pp[0]].regions;
  const Region *r =
      regions_find(s, kind, regions_param(s, (int)(p - j->compiled->param)));
  return r && r->flat ? r : NULL;
}

/* Sets `flat` of the table on top: the axes that shard its state, their ranks, and a list
 * of what is sharded. */
static void set_flat(lua_State *L, const Job *j, const CompiledParam *p) {
  static const RegionKind kinds[] = {REGION_WORK, REGION_MASTER, REGION_GRAD,
                                     REGION_STATE1};
  const Region *m = flat_region(j, p, REGION_STATE1);
  char buf[64];
  int n = 0;
  if (!m) return;
  lua_createtable(L, 4, 2);
  set_text(L, "axis", axes_name(m->flat, buf));
  set_integer(L, "ways", m->ways);
  for (int i = 0; i < LEN(kinds); i++) {
    const Region *r = flat_region(j, p, kinds[i]);
    if (!r || r->spread) continue;
    lua_pushstring(L, region_class[r->kind]);
    lua_rawseti(L, -2, ++n);
  }
  lua_setfield(L, -2, "flat");
}

/* Sets `pieces` of the shard on top, which ranks[0 .. n) have: for each piece over the
 * axes of the flat cut, the range of elements and the ranks that store it. */
static void set_pieces(lua_State *L, const Job *j, const CompiledParam *p,
                       const int64_t *ranks, int n, int64_t *out) {
  const Region *m = flat_region(j, p, REGION_STATE1);
  if (!m) return;
  lua_createtable(L, m->ways, 0);
  for (int k = 0; k < m->ways; k++) {
    Piece piece[2] = {0};
    int some = 0;
    for (int i = 0; i < n; i++)
      if (mesh_index(&j->mesh, m->flat, (int)ranks[i]) == k) out[some++] = ranks[i];
    state_pieces(j->compiled, (int)out[0], STATE_OPT1, (int)(p - j->compiled->param),
                 piece);
    lua_createtable(L, 0, 3);
    set_integer(L, "first", piece->from);
    set_integer(L, "count", piece->count);
    set_list(L, "ranks", out, some);
    lua_rawseti(L, -2, k + 1);
  }
  lua_setfield(L, -2, "pieces");
}

/* Pushes one shard: its index on each sharding axis, its ranges, its ranks and their
 * pieces. `out` has room for all ranks, twice. */
static void push_shard(lua_State *L, const Job *j, const CompiledParam *p, int at,
                       int64_t *out) {
  int n = holders(j, p, place_cuts(p->place), at, out), ranges = 0;
  Piece piece[2];
  state_pieces(j->compiled, (int)out[0], STATE_PARAM, (int)(p - j->compiled->param),
               piece);
  lua_createtable(L, 0, 9);
  for (int d = 0; d < p->ndim; d++) {
    AxisSet axes;
    char buf[64];
    for (int x = 0; (axes = place_next_cut(p->place, d, &x)) != 0;)
      set_integer(L, axes_name(axes, buf), mesh_index(&j->mesh, axes, (int)out[0]));
  }
  set_integer(L, "elements", piece_box(&j->mesh, p));
  set_list(L, "ranks", out, n);
  set_pieces(L, j, p, out, n, out + n);
  lua_newtable(L);
  for (int d = 0; d < p->ndim; d++) {
    if (!place_cuts_dim(p->place, d)) continue;
    push_range(L, &piece->dim[d], d);
    lua_rawseti(L, -2, ++ranges);
  }
  lua_setfield(L, -2, "ranges");
}

/* shards(name): the parameter and a list of its shards; nil if there is no such
 * parameter. */
int plan_shards(lua_State *L) {
  const Job *j = plan_object_compiled(L);
  const char *name = luaL_checkstring(L, 2);
  const ParamView *v = params(L, j);
  int64_t *out = lua_newuserdatauv(L, 2 * sizeof *out * (size_t)j->mesh.world, 0);
  int i = 0;
  while (i < j->compiled->nparam && !str_eq(v[i].p->name, name)) i++;
  if (i == j->compiled->nparam) return 0;
  const CompiledParam *p = v[i].p;
  push_param(L, j, &v[i]);
  for (int k = 0; k < p->npp; k++) out[k] = p->pp[k];
  set_list(L, "pp", out, p->npp);
  set_flat(L, j, p);
  for (int at = 0; at < mesh_size(&j->mesh, place_cuts(p->place)); at++) {
    push_shard(L, j, p, at, out);
    lua_rawseti(L, -2, at + 1);
  }
  return 1;
}

/* ---- figures ---- */

static void set_figure(lua_State *L, int at, const char *name, int64_t a, int64_t b) {
  lua_createtable(L, 0, 3);
  set_text(L, "name", name);
  set_integer(L, "from", a);
  set_integer(L, "to", b);
  lua_rawseti(L, -2, at);
}

/* figures(plan, other): values that follow from the fields, for plan:diff; nil if one of
 * the plans does not compile. */
int plan_figures(lua_State *L) {
  char x[96];
  int pp;
  plan_object_self(L);
  plan_object_at(L, 2);
  const Job *a = plan_object_try(L, 1), *b = plan_object_try(L, 2);
  if (!a || !b) return 0;
  lua_createtable(L, 5, 0);
  lua_createtable(L, 0, 3);
  set_text(L, "name", "mesh");
  set_text(L, "from", mesh_text(&a->mesh, x));
  set_text(L, "to", mesh_text(&b->mesh, x));
  lua_rawseti(L, -2, 1);
  set_figure(L, 2, "ranks", a->mesh.world, b->mesh.world);
  set_figure(L, 3, "microbatches", a->microbatches, b->microbatches);
  set_figure(L, 4, "parameters", (int64_t)params_of_model(a->compiled),
             (int64_t)params_of_model(b->compiled));
  set_figure(L, 5, "memory", (int64_t)job_worst_memory(a, &pp),
             (int64_t)job_worst_memory(b, &pp));
  return 1;
}
