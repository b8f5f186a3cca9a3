/* bench.c - the device of programs, and the clock by which it is measured. */
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "calibrate.h"

int bench_cores(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return MAX(CPU_COUNT(&set), 1);
  return MAX((int)sysconf(_SC_NPROCESSORS_ONLN), 1);
}

/* Each rank has cores of its own, or a GPU of its own. */
static weft_status ranks_that_fit(const Bench *b, int *fit, weft_error *e) {
  *fit = MAX(bench_cores() / MAX(b->threads, 1), 1);
  if (b->kind->host) return WEFT_OK;
  return b->device->count ? b->device->count(fit, e) : WEFT_OK;
}

weft_status bench_open(Bench *b, const DeviceKind *kind, int threads, int ranks,
                       weft_error *e) {
  int fit = 1;
  b->kind = kind, b->threads = threads;
  b->processor = kind->host && threads == 1;
  b->device = kind->load(e);
  if (!b->device) return e && e->code ? e->code : WEFT_EUSAGE;
  TRY(ranks_that_fit(b, &fit, e));
  b->ranks = MIN(ranks, fit);
  return WEFT_OK;
}

double bench_now(const Bench *b) {
  struct timespec t;
  if (!b->processor) return now_s();
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}
