/* plan_params.c - plan:match and plan:shards: how the parameters are cut, and which ranks
 * hold what. */
#include <stdio.h>

#include "format.h"
#include "bindings/lang/lang.h"
#include "mesh_methods.h"
#include "plan_object.h"
#include "bindings/script/script.h"
#include "vm/units/shard.h"
#include "vm/exec/exec.h"

/* ---- the parameters ---- */

/* What decides about a parameter: its name, the module that reads it, the rule. */
typedef struct ParamView {
  const CompiledParam *p;
  const char *module;  /* of the last op that reads it, or NULL */
  const TpRule *rule;  /* NULL: replicated */
  const char *pattern; /* its name with * for layers: equal ones are printed together */
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
  /* A tied parameter is read by several modules: the last one, which is not its own. */
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
    v->pattern = with_stars(k->arena, v->p->name);
  }
}

/* Pushes the arena that the views lie in. */
static ParamView *params(lua_State *L, const Job *j) {
  ParamJob k = {.j = j, .arena = script_push_arena(L)};
  if (!arena_try(k.arena, view_params, &k)) luaL_error(L, "not enough memory");
  return k.view;
}

/* ---- as text ---- */

static void add_dims(const CompiledParam *p, Text *t) {
  text_add(t, "(");
  for (int i = 0; i < p->ndim; i++)
    text_printf(t, "%s%lld", i ? ", " : "", (long long)p->dim[i]);
  text_add(t, ")");
}

static const char *style_of(const ParamView *v) {
  return v->rule ? tp_style_name(v->rule->style) : "replicate";
}

static void add_cut(const Job *j, const ParamView *v, Text *t) {
  text_add(t, style_of(v));
  for (int x = 0; x < AX_N; x++)
    if (v->p->place.on[x] >= 0)
      text_printf(t, ", dimension %d cut by %s=%d", v->p->place.on[x] + 1,
                  ax_name((ShardAxis)x), mesh_size(&j->mesh, ax_mesh((ShardAxis)x)));
}

static bool alike(const ParamView *a, const ParamView *b) {
  return strcmp(a->pattern, b->pattern) == 0 && a->p->ndim == b->p->ndim &&
         place_eq(a->p->place, b->p->place) && a->rule == b->rule &&
         memcmp(a->p->dim, b->p->dim, sizeof *a->p->dim * (size_t)a->p->ndim) == 0;
}

/* Parameters that differ in their layer only are one line. */
static void add_groups(const Job *j, ParamView *const *v, int n, Text *t) {
  for (int i = 0; i < n; i++) {
    int count = 0;
    bool before = false;
    for (int k = 0; k < n; k++) {
      if (!alike(v[i], v[k])) continue;
      before |= k < i;
      count++;
    }
    if (before) continue;
    text_printf(t, "%-44s %4d x ", count > 1 ? v[i]->pattern : v[i]->p->name, count);
    add_dims(v[i]->p, t);
    text_add(t, "  ");
    add_cut(j, v[i], t);
    text_add(t, "\n");
  }
}

/* ---- plan:match([pattern]) ---- */

static void push_dims(lua_State *L, const CompiledParam *p) {
  lua_createtable(L, p->ndim, 0);
  for (int i = 0; i < p->ndim; i++) {
    lua_pushinteger(L, p->dim[i]);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "shape");
}

static void push_param(lua_State *L, const Job *j, const ParamView *v) {
  lua_createtable(L, 0, 6);
  set_text(L, "name", v->p->name);
  push_dims(L, v->p);
  set_text(L, "style", style_of(v));
  if (v->rule) set_text(L, "pattern", v->rule->pattern);
  for (int x = AX_N - 1; x >= 0; x--)
    if (v->p->place.on[x] >= 0) set_integer(L, "dim", v->p->place.on[x] + 1);
  set_integer(L, "ways", mesh_size(&j->mesh, place_cuts(v->p->place)));
}

static const char *near_pattern(const Job *j, const ParamView *v, const char *pattern,
                                const char **names) {
  for (int i = 0; i < j->compiled->nparam; i++)
    names[i] = v[i].pattern;
  return value_suggest(pattern, names, j->compiled->nparam);
}

int plan_match(lua_State *L) {
  const Job *j = plan_object_compiled(L);
  const char *pattern = luaL_optstring(L, 2, NULL);
  int n = 0, nparam = j->compiled->nparam;
  ParamView *all = params(L, j);
  ParamView **v = lua_newuserdatauv(L, sizeof *v * (size_t)(nparam + 1), 0);
  for (int i = 0; i < nparam; i++)
    if (!pattern || tp_pattern_matches(pattern, all[i].p->name, all[i].module))
      v[n++] = &all[i];
  Text *t = result_begin(L);
  for (int i = 0; i < n; i++) {
    push_param(L, j, v[i]);
    lua_rawseti(L, -2, i + 1);
  }
  add_groups(j, v, n, t);
  if (!n) {
    const char *near = near_pattern(j, all, pattern ? pattern : "", (const char **)v);
    text_printf(t, "no parameter matches \"%s\"", pattern ? pattern : "");
    if (near) text_printf(t, " (did you mean \"%s\"?)", near);
  }
  result_end(L);
  return 1;
}

/* ---- plan:shards(param) ---- */

static const ParamView *find_param(lua_State *L, const Job *j, const ParamView *all,
                                   const char *name) {
  const ParamView *found = NULL;
  int n = 0, nparam = j->compiled->nparam;
  for (int i = 0; i < nparam; i++)
    if (strcmp(all[i].p->name, name) == 0) return &all[i];
  for (int i = 0; i < nparam; i++)
    if (tp_pattern_matches(name, all[i].p->name, all[i].module) && n++ == 0)
      found = &all[i];
  if (n == 1) return found;
  if (n > 1)
    luaL_error(L, "\"%s\" stands for %d parameters, the first is %s", name, n,
               found->p->name);
  const char **names = lua_newuserdatauv(L, sizeof *names * (size_t)(nparam + 1), 0);
  for (int i = 0; i < nparam; i++)
    names[i] = all[i].p->name;
  const char *near = value_suggest(name, names, nparam);
  if (near)
    luaL_error(L, "there is no parameter \"%s\" (did you mean \"%s\"?)", name, near);
  luaL_error(L, "there is no parameter \"%s\"", name);
  return NULL;
}

static bool holds(const CompiledParam *p, int pp) {
  for (int i = 0; i < p->npp; i++)
    if (p->pp[i] == pp) return true;
  return false;
}

/* The ranks that hold shard number `at` over the axes that cut. */
static int holders(const Job *j, const CompiledParam *p, AxisSet cuts, int at, int *out) {
  int n = 0;
  for (int r = 0; r < j->mesh.world; r++)
    if (holds(p, mesh_coord(&j->mesh, r, AXIS_PP)) && mesh_index(&j->mesh, cuts, r) == at)
      out[n++] = r;
  return n;
}

/* "dimension 1: 0 to 3 of each of 2 parts and 1 of padding", and the fields of that. */
static void add_range(lua_State *L, const PieceDim *c, int dim, Text *t) {
  text_printf(t, " dimension %d: ", dim + 1);
  if (c->valid)
    text_printf(t, "%lld to %lld", (long long)c->first,
                (long long)(c->first + c->valid - 1));
  if (c->parts > 1) text_printf(t, " of each of %lld parts", (long long)c->parts);
  if (c->valid < c->slice)
    text_printf(t, "%s%lld of padding", c->valid ? " and " : "",
                (long long)(c->slice - c->valid));
  set_integer(L, "dim", dim + 1);
  set_integer(L, "first", c->first);
  set_integer(L, "count", c->valid);
  set_integer(L, "parts", c->parts);
  set_integer(L, "padding", c->slice - c->valid);
}

/* Adds one shard to the list on top. */
static void add_shard(lua_State *L, const Job *j, const CompiledParam *p, int at, Text *t,
                      int *ranks) {
  AxisSet cuts = place_cuts(p->place);
  int n = holders(j, p, cuts, at, ranks);
  Piece piece[2];
  state_pieces(j->compiled, ranks[0], STATE_PARAM, (int)(p - j->compiled->param), piece);
  lua_createtable(L, 0, 8);
  text_add(t, cuts ? " " : "  whole");
  for (int x = 0; x < AX_N; x++) {
    if (p->place.on[x] < 0) continue;
    int index = mesh_index(&j->mesh, ax_mesh((ShardAxis)x), ranks[0]);
    text_printf(t, " %s %-3d", ax_name((ShardAxis)x), index);
    set_integer(L, ax_name((ShardAxis)x), index);
  }
  for (int d = 0; d < p->ndim; d++)
    if (place_cuts_dim(p->place, d))
      add_range(L, &piece->dim[d], d, t);
  set_integer(L, "elements", piece->count);
  text_printf(t, "  on %d rank%s: ", n, n > 1 ? "s" : "");
  format_ranks(ranks, n, 8, t);
  text_add(t, "\n");
  MeshObject *m = NULL;
  lua_getfield(L, 1, "mesh");
  m = mesh_object_test(L, -1);
  int gpus = m ? m->gpus : 1;
  lua_pop(L, 1);
  mesh_push_ranks(L, ranks, n, gpus);
  lua_setfield(L, -2, "ranks");
  lua_rawseti(L, -2, at + 1);
}

int plan_shards(lua_State *L) {
  const Job *j = plan_object_compiled(L);
  const char *name = luaL_checkstring(L, 2);
  const ParamView *v = find_param(L, j, params(L, j), name);
  int *ranks = lua_newuserdatauv(L, sizeof(int) * (size_t)j->mesh.world, 0);
  Text *t = result_begin(L);
  text_printf(t, "%s ", v->p->name);
  add_dims(v->p, t);
  text_add(t, ", ");
  add_cut(j, v, t);
  text_printf(t, ", pipeline rank%s ", v->p->npp > 1 ? "s" : "");
  format_ranks(v->p->pp, v->p->npp, 8, t);
  text_add(t, "\n");
  set_text(L, "name", v->p->name);
  set_text(L, "style", style_of(v));
  push_dims(L, v->p);
  int ways = mesh_size(&j->mesh, place_cuts(v->p->place));
  for (int i = 0; i < ways; i++)
    add_shard(L, j, v->p, i, t, ranks);
  result_end(L);
  return 1;
}
