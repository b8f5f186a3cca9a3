/* second_model.c - see second_model.h. */
#include "second_model.h"

size_t second_prefix(const char *name, size_t n) {
  static const char *const all[] = {REFERENCE_PREFIX, TEACHER_PREFIX};
  for (int i = 0; i < LEN(all); i++) {
    size_t k = strlen(all[i]);
    if (n > k && memcmp(name, all[i], k) == 0) return k;
  }
  return 0;
}

void second_begin(Graph *g, const char *prefix) {
  assert(g->unit.n == 0);
  g->second = NEW(g->arena, SecondModel);
  *g->second = (SecondModel){.prefix = prefix, .open = true};
}

/* The other model opens units of the same names. */
void second_end(Graph *g) {
  g->second->open = false;
  g->second->units = g->unit.n;
  g->unit_names = (Names){0};
}

/* ---- which units ---- */

/* How many layers units [from, to) have. */
static int layers_of(const Graph *g, int from, int to) {
  int n = 0;
  for (int i = from; i < to; i++) n = MAX(n, g->unit.at[i].layer + 1);
  return n;
}

static int find_layer(const Graph *g, int from, int layer) {
  for (int i = from; i < g->unit.n; i++)
    if (g->unit.at[i].layer == layer) return i - from;
  return -1;
}

static int find_named(const Graph *g, int from, const char *name) {
  for (int i = from; i < g->unit.n; i++)
    if (str_eq(g->unit.at[i].name, name)) return i - from;
  return -1;
}

/* The number, among the other model's, of the unit that gets what unit u has: not before
 * `least`, that of what u may read. */
static int unit_for(const Graph *g, int u, int least) {
  int n = g->second->units, all = g->unit.n - n, layer = g->unit.at[u].layer, to;
  int ours = layers_of(g, n, g->unit.n), theirs = layers_of(g, 0, n);
  if (layer >= 0 && ours)
    to = find_layer(g, n, (int)((int64_t)layer * ours / theirs));
  else
    to = find_named(g, n, g->unit.at[u].name);
  if (to < 0) to = least;
  return MIN(MAX(to, least), all - 1);
}

/* ---- ops ---- */

/* In the order of units; in a unit the second model is first. */
static void sort_ops(Graph *g, int units) {
  Op *sorted = arena_copy(g->arena, g->op.at, sizeof *sorted * (size_t)g->op.n);
  int n = 0;
  for (int u = 0; u < units; u++)
    for (int i = 0; i < g->op.n; i++) {
      if (g->op.at[i].unit != u) continue;
      for (int k = 0; k < g->op.at[i].nout; k++) g->t.at[g->op.at[i].out[k]].producer = n;
      sorted[n++] = g->op.at[i];
    }
  memcpy(g->op.at, sorted, sizeof *sorted * (size_t)n);
}

void second_join(Graph *g) {
  int n = g->second->units, all = g->unit.n - n, least = 0;
  if (all == 0) return;
  int *to = NEW_N(g->arena, int, g->unit.n);
  for (int u = 0; u < n; u++) least = to[u] = unit_for(g, u, least);
  for (int u = n; u < g->unit.n; u++) to[u] = u - n;
  for (int i = 0; i < g->op.n; i++) g->op.at[i].unit = to[g->op.at[i].unit];
  for (int i = 0; i < g->t.n; i++)
    if (g->t.at[i].unit >= 0) g->t.at[i].unit = to[g->t.at[i].unit];
  memmove(g->unit.at, g->unit.at + n, sizeof *g->unit.at * (size_t)all);
  g->unit.n = all;
  g->unit_names = (Names){0};
  for (int u = 0; u < all; u++)
    names_add(g->arena, &g->unit_names, g->unit.at[u].name, u);
  sort_ops(g, all);
}
