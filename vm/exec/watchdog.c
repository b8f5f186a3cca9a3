/* watchdog.c - notices that no local rank gets anywhere and says what each waits for.
 * A rank that computes is never stuck, however long its kernel takes. */
#include "run_int.h"

#include <stdio.h>

/* What a rank does, as it is said of one or of several. */
static void doing(const Worker *w, bool several, char *to, size_t size) {
  RankAt at = rank_at(worker_rank(w));
  char name[160];
  if (at.state == RANK_WAITS) {
    rank_describe(worker_rank(w), at.instr, name, sizeof name);
    snprintf(to, size, "%s in %s", several ? "wait" : "waits", name);
  } else {
    snprintf(to, size, "%s",
             several ? "have finished their step" : "has finished its step");
  }
}

static bool does_the_same(const Worker *a, const Worker *b) {
  char x[200], y[200];
  doing(a, true, x, sizeof x);
  doing(b, true, y, sizeof y);
  return strcmp(x, y) == 0;
}

/* The ranks that do what the i-th does, then that; nothing if one before it does so. */
static void report_alike(const Run *r, int i, Text *out) {
  const Worker *w = r->worker;
  char what[200];
  int n = 1;
  for (int k = 0; k < i; k++)
    if (does_the_same(&w[k], &w[i])) return;
  for (int k = i + 1; k < r->nworker; k++)
    n += does_the_same(&w[i], &w[k]);
  text_printf(out, "%s rank%s %d", i ? ";" : ":", n > 1 ? "s" : "", w[i].rank);
  for (int k = i + 1; k < r->nworker; k++)
    if (does_the_same(&w[i], &w[k])) text_printf(out, ", %d", w[k].rank);
  doing(&w[i], n > 1, what, sizeof what);
  text_printf(out, " %s", what);
}

/* What the ranks of this process wait for; of others it knows nothing. */
static void report(const Run *r, double seconds, char *why, size_t size) {
  Text t = {0};
  text_printf(&t, "no progress for %.0f s", seconds);
  for (int i = 0; i < r->nworker; i++)
    report_alike(r, i, &t);
  if (r->kind->processes)
    text_add(&t, "; other ranks that wait say so, one that does not computes or hangs");
  snprintf(why, size, "%s", t.s && !t.oom ? t.s : "no progress");
  text_free(&t);
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
    RankAt at = rank_at(worker_rank(&r->worker[i]));
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
