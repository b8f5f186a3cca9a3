/* stage.c - cuts the units of the model into pipeline stages, by pp_plan. */
#include "vm/compile/build.h"

/* Units before the first layer go to the first stage, those after the last layer to the
 * last one, others to the stage of the layer before them. */
static void by_layers(const Graph *g, const int *count, Stages *st) {
  int s = 0, left = count[0];
  for (int u = 0; u < g->unit.n; u++) {
    if (g->unit.at[u].layer >= 0) {
      while (left == 0 && s + 1 < st->n) left = count[++s];
      left--;
    }
    st->of_unit[u] = s;
  }
  int last_layer = -1;
  for (int u = 0; u < g->unit.n; u++)
    if (g->unit.at[u].layer >= 0) last_layer = u;
  for (int u = last_layer + 1; u < g->unit.n; u++) st->of_unit[u] = st->n - 1;
}

static int unit_named(const Graph *g, const char *name) {
  for (int u = 0; u < g->unit.n; u++)
    if (strcmp(g->unit.at[u].name, name) == 0) return u;
  return -1;
}

/* The unit that entry i of stage s names; -1 if the model has none, which is told. */
static int listed_unit(const CompileInput *in, int s, int i, const char *path, Diags *d) {
  const Graph *g = in->graph;
  const char *name = in->plan->pp.modules[s][i];
  int u = unit_named(g, name);
  if (u >= 0) return u;
  Diag *x = diag_error(d, "stages", path, "the model has no unit \"%s\"", name);
  const char **names = NEW_N(d->arena, const char *, g->unit.n);
  for (int k = 0; k < g->unit.n; k++) names[k] = g->unit.at[k].name;
  const char *near = str_nearest(name, names, g->unit.n);
  if (near) x->suggestion = arena_printf(d->arena, "did you mean \"%s\"?", near);
  return -1;
}

static void out_of_order(const Graph *g, const char *path, int u, int next, Diags *d) {
  const char *name = g->unit.at[u].name;
  if (next < g->unit.n)
    diag_error(d, "stages", path,
               "\"%s\" is out of order or listed twice: \"%s\" is next",
               name, g->unit.at[next].name);
  else
    diag_error(d, "stages", path, "\"%s\" is listed twice", name);
}

/* After a name that is wrong the order is taken up again wherever the list goes on. */
static bool by_modules(const CompileInput *in, Stages *st, Diags *d) {
  const Graph *g = in->graph;
  const PpPlan *pp = &in->plan->pp;
  int next = 0, errors = d->errors;
  if (pp->nmodules != st->n) {
    diag_error(d, "stages", "pp_plan.modules", "%d %s for %d stages", pp->nmodules,
               pp->nmodules == 1 ? "list" : "lists", st->n);
    return false;
  }
  for (int s = 0; s < pp->nmodules; s++)
    for (int i = 0; pp->modules[s][i]; i++) {
      const char *path = arena_printf(d->arena, "pp_plan.modules[%d][%d]", s + 1, i + 1);
      int u = listed_unit(in, s, i, path, d);
      if (u >= 0 && next >= 0 && u != next) out_of_order(g, path, u, next, d);
      if (u >= 0) st->of_unit[u] = s;
      next = u >= 0 ? u + 1 : -1;
    }
  if (d->errors == errors && next < g->unit.n)
    diag_error(d, "stages", "pp_plan.modules", "\"%s\" is in no stage",
               g->unit.at[next].name);
  return d->errors == errors;
}

/* Finds where each stage begins. A stage without units only passes on what it receives;
 * a layout may ask for that, elsewhere it is more likely a mistake. */
static bool find_first(const CompileInput *in, Stages *st, Diags *d) {
  int u = 0, n = in->graph->unit.n;
  const PpPlan *pp = &in->plan->pp;
  const char *path = pp->modules  ? "pp_plan.modules"
                     : pp->layers ? "pp_plan.layers"
                                  : "mesh.pp";
  for (int s = 0; s < st->n; s++) {
    st->first[s] = u;
    while (u < n && st->of_unit[u] == s) u++;
    if (st->first[s] == u && !pp->layout) {
      diag_error(d, "stages", path, "stage %d is empty", s);
      return false;
    }
  }
  st->first[st->n] = n;
  return true;
}

double *unit_costs(const Graph *local, int units, Arena *a) {
  double *cost = NEW_N(a, double, units);
  for (int i = 0; i < local->op.n; i++) {
    const Op *op = &local->op.at[i];
    if (op_info[op->code].cost) cost[op->unit] += op_info[op->code].cost(local, op);
  }
  return cost;
}

static bool by_cost(const CompileInput *in, const double *cost, Stages *st, Diags *d) {
  int units = in->graph->unit.n;
  if (units < st->n) {
    diag_error(d, "stages", "pp_plan.balance", "%d units cannot fill %d stages", units,
               st->n);
    return false;
  }
  stage_balance(in->arena, cost, units, st->n, st->first);
  for (int s = 0; s < st->n; s++)
    for (int u = st->first[s]; u < st->first[s + 1]; u++) st->of_unit[u] = s;
  return true;
}

bool stage(const CompileInput *in, const double *cost, Stages *st, Diags *d) {
  const Graph *g = in->graph;
  const PpPlan *pp = &in->plan->pp;
  const Schedule *sched = in->schedule;
  int layers = 0;
  st->n = sched->ranks * sched->virtual_stages;
  st->first = NEW_N(in->arena, int, st->n + 1);
  st->of_unit = NEW_N(in->arena, int, g->unit.n);
  for (int u = 0; u < g->unit.n; u++) layers += g->unit.at[u].layer >= 0;
  if (pp->by_cost) return by_cost(in, cost, st, d);
  if (pp->modules) {
    if (!by_modules(in, st, d)) return false;
  } else {
    int *count = NEW_N(in->arena, int, st->n);
    if (!stage_layers(pp, sched->ranks, sched->virtual_stages, layers, count, d))
      return false;
    by_layers(g, count, st);
  }
  return find_first(in, st, d);
}

/* ---- what crosses from stage to stage ---- */

static void add_cross(Arena *a, Cross *c, Tid t) {
  for (int i = 0; i < c->n; i++)
    if (c->at[i] == t) return;
  if (c->n % 8 == 0) {
    Tid *more = NEW_N(a, Tid, c->n + 8);
    if (c->n) memcpy(more, c->at, sizeof(Tid) * (size_t)c->n);
    c->at = more;
  }
  c->at[c->n++] = t;
}

void stage_edges(Build *b) {
  const Graph *g = b->sh.g;
  b->fwd = NEW_N(b->arena, Cross, b->st.n);
  b->bwd = NEW_N(b->arena, Cross, b->st.n);
  for (int i = 0; i < g->op.n; i++) {
    const Op *op = &g->op.at[i];
    int to = b->st.of_unit[op->unit];
    for (int k = 0; k < op->nin; k++) {
      const Tensor *t = &g->t.at[op->in[k]];
      if (t->unit < 0) continue;
      int from = b->st.of_unit[t->unit];
      for (int s = from; s < to; s++) add_cross(b->arena, &b->fwd[s], op->in[k]);
      for (int s = to; s < from; s++) add_cross(b->arena, &b->bwd[s], op->in[k]);
    }
  }
}
