/* stage_balance.c - cuts the units, in their order, into stages of equal work, exactly,
 * by dynamic programming: the longest stage is as short as possible; of those splits the
 * one whose stages differ least (smallest sum of squares); of those the one with the most
 * work in late stages, because early stages keep more activations. */
#include "stages.h"

/* Work is counted in integers, so that no rounding decides between equal splits. */
enum { WORK_BITS = 52, SQUARE_BITS = 31 };

typedef struct Cutter {
  int units, stages;
  uint64_t *before; /* [units + 1]: work of all earlier units */
  int shift;        /* before >> shift has SQUARE_BITS */
  uint64_t *best;   /* [(stages + 1) * (units + 1)]: of the first u units in s stages */
  int *from;        /* where the last of these stages begins */
} Cutter;

static uint64_t work(const Cutter *c, int from, int to) {
  return c->before[to] - c->before[from];
}

static uint64_t square(const Cutter *c, int from, int to) {
  uint64_t x = (c->before[to] >> c->shift) - (c->before[from] >> c->shift);
  return x * x;
}

/* The best way to cut the first u units into s stages. The last one grows as it begins
 * earlier: the search ends where it alone costs more than the best. Of equal cuts the one
 * whose last stage is longest counts. */
static void cut_last(Cutter *c, int s, int u, bool squares, uint64_t limit) {
  int wide = c->units + 1, from = 0;
  uint64_t best = UINT64_MAX;
  for (int k = u - 1; k >= s - 1; k--) {
    uint64_t before = c->best[(s - 1) * wide + k], own = work(c, k, u);
    uint64_t cost = squares ? square(c, k, u) : own;
    if (own > limit || cost > best) break;
    if (before == UINT64_MAX) continue;
    uint64_t all = squares ? before + cost : MAX(before, cost);
    if (all <= best) best = all, from = k;
  }
  c->best[s * wide + u] = best;
  c->from[s * wide + u] = from;
}

/* Fills the table: with the cost of the longest stage, or, with stages of at most
 * `limit`, with sums of squares. Every stage has a unit. Returns the optimum for all
 * stages and units. */
static uint64_t fill(Cutter *c, bool squares, uint64_t limit) {
  int wide = c->units + 1;
  for (int i = 0; i < (c->stages + 1) * wide; i++) c->best[i] = UINT64_MAX;
  c->best[0] = 0;
  for (int s = 1; s <= c->stages; s++)
    for (int u = s; u <= c->units - (c->stages - s); u++)
      cut_last(c, s, u, squares, limit);
  return c->best[c->stages * wide + c->units];
}

/* Scales costs to integers below 2^WORK_BITS; smaller costs are not scaled. */
static void count_work(Cutter *c, const double *cost) {
  double all = 0, scale = 1;
  for (int u = 0; u < c->units; u++) all += cost[u];
  while (all * scale >= (double)(1ull << WORK_BITS)) scale /= 2;
  for (int u = 0; u < c->units; u++)
    c->before[u + 1] = c->before[u] + (uint64_t)(cost[u] * scale + 0.5);
  while (c->before[c->units] >> c->shift >> SQUARE_BITS) c->shift++;
}

void stage_balance(Arena *a, const double *cost, int units, int stages, int *first) {
  Cutter c = {.units = units, .stages = stages};
  size_t cells = (size_t)(stages + 1) * (size_t)(units + 1);
  c.before = NEW_N(a, uint64_t, units + 1);
  c.best = NEW_N(a, uint64_t, cells);
  c.from = NEW_N(a, int, cells);
  count_work(&c, cost);
  fill(&c, true, fill(&c, false, UINT64_MAX));
  first[stages] = units;
  for (int s = stages; s > 0; s--) first[s - 1] = c.from[s * (units + 1) + first[s]];
}
