/* unfold_layers.c - instantiates folded layers: a unit that was left out shares the code
 * of the unit it equals, with its own parameters in the same positions and its own edges
 * to its neighbours. */
#include "unfold_layers.h"

#include <stdlib.h>

typedef struct Unfold {
  const Fold *f;
  const Units *from;
  Units *u;
  Arena *keep, *scratch;
  int *param;     /* parameter of `from` -> parameter of the whole model */
  int32_t **edge; /* unit of the whole model -> for each of its edges that it makes, its
                     number, else -1 */
  VEC(UnitEdge) edges;
} Unfold;

/* ---- whether the folded units are equal ---- */

static int place_of(const CompiledUnit *x, int32_t edge) {
  int k = 0;
  while (x->edge[k] != edge) k++;
  return k;
}

/* Whether the edges of two units are equal, position by position, and come from units at
 * the same distance. */
static bool same_edges(const Units *u, int x, int y) {
  for (int k = 0; k < u->at[x].code->nedge; k++) {
    const UnitEdge *a = &u->edge[u->at[x].edge[k]], *b = &u->edge[u->at[y].edge[k]];
    if (a->unit - x != b->unit - y || a->dtype != b->dtype || a->ndim != b->ndim ||
        !place_eq(a->place, b->place) ||
        memcmp(a->dim, b->dim, sizeof *a->dim * (size_t)a->ndim) != 0 ||
        place_of(&u->at[a->unit], u->at[x].edge[k]) !=
            place_of(&u->at[b->unit], u->at[y].edge[k]))
      return false;
  }
  return true;
}

/* Whether the unit that stands for those left out has the same code as its neighbours on
 * both sides. If two consecutive equal units get equal inputs, all later ones do. */
static bool settled(const Unfold *w) {
  const Units *u = w->from;
  for (int i = 0; i < w->f->run.n; i++) {
    int x = w->f->like[w->f->run.at[i].left];
    for (int y = x - 1; y <= x + 1; y += 2)
      if (u->at[y].code != u->at[x].code || !same_edges(u, x, y)) return false;
  }
  return true;
}

/* ---- units ---- */

static bool in_run(const Fold *f, int unit) {
  for (int i = 0; i < f->run.n; i++)
    if (unit >= f->run.at[i].first && unit <= f->run.at[i].last) return true;
  return false;
}

/* The edge in position `k` of unit x of the whole model, whichever unit makes it. */
static int32_t edge_at(Unfold *w, int x, int k) {
  const Fold *f = w->f;
  int like = f->like[x];
  int32_t e = w->from->at[like].edge[k];
  int maker = w->from->edge[e].unit, at = place_of(&w->from->at[maker], e), whole;
  if (maker == like)
    whole = x;
  else if (in_run(f, x) && abs(maker - like) == 1)
    whole = x + maker - like;
  else
    whole = f->unit[maker];
  int32_t *known = &w->edge[whole][at];
  if (*known >= 0) return *known;
  int stands = f->like[whole];
  UnitEdge *to = VEC_PUSH(w->keep, w->edges);
  *to = w->from->edge[w->from->at[stands].edge[at]];
  to->unit = whole;
  edge_label(w->keep, to, f->whole->unit.at[whole].name);
  return *known = w->edges.n - 1;
}

/* Parameter `p` of the folded model, as unit x of the whole model has it. */
static int param_at(const Unfold *w, int x, int p) {
  const Fold *f = w->f;
  int own = f->param[p];
  const ParamUse *use = &f->use[own];
  if (f->unit[f->like[x]] == x) return own;
  const Op *op = &f->whole->op.at[f->first_op[x] + use->op];
  return f->whole->t.at[op->in[use->operand]].index;
}

static void make_unit(Unfold *w, int x) {
  const Unit *unit = &w->f->whole->unit.at[x];
  const CompiledUnit *like = &w->from->at[w->f->like[x]];
  int *param = NEW_N(w->keep, int, like->code->nparam);
  int32_t *edge = NEW_N(w->keep, int32_t, like->code->nedge);
  for (int i = 0; i < like->code->nparam; i++) {
    param[i] = param_at(w, x, like->param[i]);
    w->param[param[i]] = like->param[i];
  }
  for (int k = 0; k < like->code->nedge; k++) edge[k] = edge_at(w, x, k);
  w->u->at[x] = (CompiledUnit){.name = arena_str(w->keep, unit->name),
                               .layer = unit->layer,
                               .code = like->code,
                               .param = param,
                               .edge = edge};
}

static void make_params(Unfold *w) {
  const Graph *g = w->f->whole;
  w->u->nparam = g->param.n;
  w->u->param = NEW_N(w->keep, UnitParam, g->param.n);
  for (int i = 0; i < g->param.n; i++) {
    w->u->param[i] = w->from->param[w->param[i]];
    w->u->param[i].name = arena_str(w->keep, g->param.at[i].name);
    w->u->param[i].like = arena_str(w->keep, g->param.at[i].like);
  }
}

bool unfold_layers(const Fold *f, const Units *from, Arena *keep, Arena *scratch,
                   Units *out) {
  Unfold w = {.f = f, .from = from, .u = out, .keep = keep, .scratch = scratch};
  int units = f->whole->unit.n;
  if (!settled(&w)) return false;
  *out = *from;
  out->n = units;
  out->at = NEW_N(keep, CompiledUnit, units);
  out->loss = f->unit[from->loss];
  w.param = NEW_N(scratch, int, f->whole->param.n);
  w.edge = NEW_N(scratch, int32_t *, units);
  for (int x = 0; x < units; x++) {
    size_t n = (size_t)from->at[f->like[x]].code->nedge;
    w.edge[x] = arena_raw(scratch, n * sizeof **w.edge);
    memset(w.edge[x], 0xff, n * sizeof **w.edge);
  }
  for (int x = 0; x < units; x++) make_unit(&w, x);
  make_params(&w);
  out->edge = w.edges.at, out->nedge = w.edges.n;
  return true;
}
