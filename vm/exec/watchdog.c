/* watchdog.c - notices that no local rank gets anywhere and says what each waits for.
 * A rank that computes is never stuck, however long its kernel takes. */
#include "run_int.h"

#include <stdio.h>

/* What the ranks wait for, as far as there is room. */
static void report(const Run *r, double seconds, char *why, size_t size) {
  size_t n = (size_t)snprintf(why, size, "no progress for %.0f s", seconds);
  int left = r->nworker;
  for (int i = 0; i < r->nworker && n + 160 < size; i++, left--) {
    char name[100];
    RankAt at = rank_at(r->worker[i].r);
    bool waits = at.state == RANK_WAITS;
    if (waits) rank_describe(r->worker[i].r, at.instr, name, sizeof name);
    n += (size_t)snprintf(why + n, size - n, "%s rank %d %s%s", i ? ";" : ":",
                          r->worker[i].rank, waits ? "waits in " : "has finished its",
                          waits ? name : " step");
  }
  if (left > 0) snprintf(why + n, size - n, "; and %d more ranks", left);
}

/* A process that was stopped for a while has not been idle: no look counts for more. */
static const double LOOK_MAX = 1;

double watchdog_patience(const Run *r) {
  const double slow_core = 1e9; /* flop/s */
  double flops = 0;
  if (r->patience_s > 0) return r->patience_s;
  if (!r->kind->processes) return 60;
  if (r->longest_s > 0) return MAX(120, 10 * r->longest_s);
  for (int i = 0; i < r->c->mesh.size[AXIS_PP]; i++)
    flops = MAX(flops, r->c->prog[i].flops);
  return MIN(MAX(120, flops / slow_core), 600);
}

bool watchdog_stuck(Watchdog *w, const Run *r, char *why, size_t n) {
  uint64_t ticks = 0;
  bool waits = false, works = false;
  for (int i = 0; i < r->nworker; i++) {
    RankAt at = rank_at(r->worker[i].r);
    ticks += at.ticks;
    waits |= at.state == RANK_WAITS;
    works |= at.state == RANK_BUSY;
  }
  double now = now_s(), passed = MIN(now - w->seen, LOOK_MAX);
  bool moved = ticks != w->ticks || works || !waits;
  *w = (Watchdog){.ticks = ticks, .seen = now, .idle = moved ? 0 : w->idle + passed};
  if (w->idle < watchdog_patience(r)) return false;
  report(r, w->idle, why, n);
  return true;
}
