/* trace.c - the events of one rank, see trace.h. */
#include "trace.h"

#include <time.h>

int64_t trace_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t trace_begin(Tracer *t, int64_t step) {
  t->step = (int32_t)step;
  t->call = TRACE_MAIN;
  return trace_ns();
}

void trace_end(Tracer *t, int64_t from) {
  t->call = TRACE_MAIN;
  trace_add(t, TRACE_STEP, 0, from, trace_ns());
  if (t->full)
    t->n = t->whole;
  else
    t->whole = t->n;
}
