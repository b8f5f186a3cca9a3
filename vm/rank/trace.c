/* trace.c - the events of one rank, see trace.h. */
#include "trace.h"

#include <time.h>

static int64_t ns_of(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t trace_ns(void) { return ns_of(CLOCK_MONOTONIC); }

int64_t trace_now(const Tracer *t) {
  return !t ? 0 : t->processor ? ns_of(CLOCK_THREAD_CPUTIME_ID) : trace_ns();
}

int64_t trace_begin(Tracer *t, int64_t step) {
  t->step = (int32_t)step;
  t->call = TRACE_MAIN;
  return trace_now(t);
}

void trace_end(Tracer *t, int64_t from) {
  t->call = TRACE_MAIN;
  trace_add(t, TRACE_STEP, 0, from, trace_now(t));
  if (t->full)
    t->n = t->whole;
  else
    t->whole = t->n;
}
