/* stages.c - cuts the units of the model into pipeline stages, by pp_plan. */
#include "stages.h"
#include "vm/base/plural.h"

typedef struct Cutter {
  const Units *u;
  const PpPlan *pp;
  Arena *a;
  Stages *st;
  Diags *d;
} Cutter;

/* Units before the first layer go to the first stage, those after the last layer to the
 * last one, others to the stage of the layer before them. */
static void by_layers(const Units *g, const int *count, Stages *st) {
  int s = 0, left = count[0];
  for (int u = 0; u < g->n; u++) {
    if (g->at[u].layer >= 0) {
      while (left == 0 && s + 1 < st->n) left = count[++s];
      left--;
    }
    st->of_unit[u] = s;
  }
  int last_layer = -1;
  for (int u = 0; u < g->n; u++)
    if (g->at[u].layer >= 0) last_layer = u;
  for (int u = last_layer + 1; u < g->n; u++) st->of_unit[u] = st->n - 1;
}

static int unit_named(const Units *g, const char *name) {
  for (int u = 0; u < g->n; u++)
    if (strcmp(g->at[u].name, name) == 0) return u;
  return -1;
}

/* The unit that entry i of stage s names; -1 and a diagnostic if the model has none. */
static int listed_unit(const Cutter *c, int s, int i, const char *path) {
  const Units *g = c->u;
  Diags *d = c->d;
  const char *name = c->pp->modules[s][i];
  int u = unit_named(g, name);
  if (u >= 0) return u;
  Diag *x = diag_error(d, "stages", path, "the model has no unit \"%s\"", name);
  const char **names = NEW_N(d->arena, const char *, g->n);
  for (int k = 0; k < g->n; k++) names[k] = g->at[k].name;
  const char *near = str_nearest(name, names, g->n);
  if (near) x->suggestion = arena_printf(d->arena, "did you mean \"%s\"?", near);
  return -1;
}

static void out_of_order(const Units *g, const char *path, int u, int next, Diags *d) {
  const char *name = g->at[u].name;
  if (next < g->n)
    diag_error(d, "stages", path,
               "\"%s\" is out of order or listed twice: \"%s\" is next", name,
               g->at[next].name);
  else
    diag_error(d, "stages", path, "\"%s\" is listed twice", name);
}

/* After a wrong name the check of the order restarts at the next entry. */
static bool by_modules(const Cutter *c) {
  const Units *g = c->u;
  const PpPlan *pp = c->pp;
  Stages *st = c->st;
  Diags *d = c->d;
  int next = 0, errors = d->errors;
  if (pp->nmodules != st->n) {
    diag_error(d, "stages", "pp_plan.modules", "%d list%s for %d stage%s", pp->nmodules,
               plural(pp->nmodules, "s"), st->n, plural(st->n, "s"));
    return false;
  }
  for (int s = 0; s < pp->nmodules; s++)
    for (int i = 0; pp->modules[s][i]; i++) {
      const char *path = arena_printf(d->arena, "pp_plan.modules[%d][%d]", s + 1, i + 1);
      int u = listed_unit(c, s, i, path);
      if (u >= 0 && next >= 0 && u != next) out_of_order(g, path, u, next, d);
      if (u >= 0) st->of_unit[u] = s;
      next = u >= 0 ? u + 1 : -1;
    }
  if (d->errors == errors && next < g->n)
    diag_error(d, "stages", "pp_plan.modules", "\"%s\" is in no stage", g->at[next].name);
  return d->errors == errors;
}

/* Finds the first unit of each stage. A stage without units only forwards what it
 * receives: a layout may ask for one, elsewhere it is an error. */
static bool find_first(const Cutter *c) {
  int u = 0, n = c->u->n;
  const PpPlan *pp = c->pp;
  Stages *st = c->st;
  const char *path = pp->modules  ? "pp_plan.modules"
                     : pp->layers ? "pp_plan.layers"
                                  : "mesh.pp";
  for (int s = 0; s < st->n; s++) {
    st->first[s] = u;
    while (u < n && st->of_unit[u] == s) u++;
    if (st->first[s] == u && !pp->layout) {
      diag_error(c->d, "stages", path, "stage %d is empty", s);
      return false;
    }
  }
  st->first[st->n] = n;
  return true;
}

static bool by_cost(Cutter *c) {
  int units = c->u->n;
  Stages *st = c->st;
  if (units < st->n) {
    diag_error(c->d, "stages", "pp_plan.balance", "%d units cannot fill %d stages", units,
               st->n);
    return false;
  }
  double *cost = NEW_N(c->a, double, units);
  for (int u = 0; u < units; u++) cost[u] = c->u->at[u].code->cost;
  stage_balance(c->a, cost, units, st->n, st->first);
  for (int s = 0; s < st->n; s++)
    for (int u = st->first[s]; u < st->first[s + 1]; u++) st->of_unit[u] = s;
  return true;
}

static bool cut(Cutter *c) {
  const Units *u = c->u;
  Stages *st = c->st;
  int layers = 0;
  for (int i = 0; i < u->n; i++) layers += u->at[i].layer >= 0;
  if (c->pp->by_cost) return by_cost(c);
  if (c->pp->modules) {
    if (!by_modules(c)) return false;
  } else {
    int *count = NEW_N(c->a, int, st->n);
    if (!stage_layers(c->pp, st->ranks, st->chunks, layers, count, c->d)) return false;
    by_layers(u, count, st);
  }
  return find_first(c);
}

/* ---- ranks of stages ---- */

static void place_stages(Cutter *c, const Schedule *shape) {
  Stages *st = c->st;
  st->rank = NEW_N(c->a, int, st->n);
  st->chunk = NEW_N(c->a, int, st->n);
  st->at = NEW_N(c->a, int, st->n);
  for (int s = 0; s < st->n; s++) {
    schedule_where(shape, s, &st->rank[s], &st->chunk[s]);
    st->at[st->rank[s] * st->chunks + st->chunk[s]] = s;
  }
}

/* ---- tensors between stages ---- */

static void add_cross(Arena *a, Cross *c, int32_t edge) {
  for (int i = 0; i < c->n; i++)
    if (c->at[i] == edge) return;
  if (c->n % 8 == 0) {
    int32_t *more = NEW_N(a, int32_t, c->n + 8);
    if (c->n) memcpy(more, c->at, sizeof *more * (size_t)c->n);
    c->at = more;
  }
  c->at[c->n++] = edge;
}

static void add_reads(Cutter *c, int u, Phase ph) {
  Stages *st = c->st;
  const CompiledUnit *x = &c->u->at[u];
  int to = st->of_unit[u];
  for (int i = 0; i < x->code->read[ph].n; i++) {
    int32_t edge = x->edge[x->code->read[ph].edge[i]];
    int from = st->of_unit[c->u->edge[edge].unit];
    for (int s = from; s < to; s++) add_cross(c->a, &st->fwd[s], edge);
    for (int s = to; s < from; s++) add_cross(c->a, &st->bwd[s], edge);
  }
}

/* In the order in which bodies run, so what is needed first is sent first. */
static void find_crossings(Cutter *c) {
  Stages *st = c->st;
  st->fwd = NEW_N(c->a, Cross, st->n);
  st->bwd = NEW_N(c->a, Cross, st->n);
  for (int u = 0; u < c->u->n; u++) add_reads(c, u, PH_F);
  for (Phase ph = PH_I; ph <= PH_W; ph++)
    for (int u = c->u->n - 1; u >= 0; u--) add_reads(c, u, ph);
}

const Cross *entering(const Stages *st, int stage, bool forward) {
  if (forward) return stage > 0 ? &st->fwd[stage - 1] : NULL;
  return stage + 1 < st->n ? &st->bwd[stage] : NULL;
}

/* ---- ranks of parameters ---- */

/* `first`: room for one rank, which is all that most parameters have. */
static void add_holder(Arena *a, Holders *h, int *first, int rank) {
  if (h->npp == 0) {
    *first = rank;
    *h = (Holders){first, 1};
    return;
  }
  for (int i = 0; i < h->npp; i++)
    if (h->pp[i] == rank) return;
  int *more = NEW_N(a, int, h->npp + 1), i = h->npp++;
  for (; i > 0 && h->pp[i - 1] > rank; i--) more[i] = h->pp[i - 1];
  more[i] = rank;
  if (i) memcpy(more, h->pp, sizeof(int) * (size_t)i);
  h->pp = more;
}

static void find_holders(Cutter *c) {
  int *first = NEW_N(c->a, int, c->u->nparam);
  c->st->holders = NEW_N(c->a, Holders, c->u->nparam);
  for (int u = 0; u < c->u->n; u++)
    for (int k = 0; k < c->u->at[u].code->nparam; k++) {
      int param = c->u->at[u].param[k];
      add_holder(c->a, &c->st->holders[param], &first[param], unit_rank(c->st, u));
    }
}

bool stages(const Units *u, const PpPlan *pp, const Schedule *shape, Arena *a, Stages *st,
            Diags *d) {
  Cutter c = {.u = u, .pp = pp, .a = a, .st = st, .d = d};
  *st = (Stages){.u = u, .ranks = shape->ranks, .chunks = shape->virtual_stages};
  st->n = st->ranks * st->chunks;
  st->first = NEW_N(a, int, st->n + 1);
  st->of_unit = NEW_N(a, int, u->n);
  if (!cut(&c)) return false;
  place_stages(&c, shape);
  find_crossings(&c);
  find_holders(&c);
  return true;
}
