/* sweep_measure.c - trains the best plans of a sweep for a few steps on virtual ranks of
 * this machine, made small as weft verify does it. What it says is how fast this machine
 * runs the small plan: it shows overhead of schedules, not the speed of a cluster. */
#include <math.h>

#include "sweep.h"
#include "vm/session/session.h"

enum { RANKS = 32 };

typedef struct Rate {
  double ms, tokens;
} Rate;

/* The first step also fills caches. */
static weft_status add_step(void *ud, const StepResult *r, weft_error *e) {
  Rate *sum = ud;
  if (r->step > 0) sum->ms += r->ms, sum->tokens += (double)r->tokens;
  return WEFT_OK;
}

static weft_status train(Job *j, int steps, const StopFlag *stop, double *rate) {
  RunOptions o = {.stop = stop};
  DataSpec spec = {.kind = DATA_SYNTHETIC};
  Session s = {0};
  Rate sum = {0};
  weft_status st = data_open(NULL, &spec, j->plan.batch.seq, j->compiled->vocab,
                             j->plan.seed, &s.data, &j->e);
  if (st == WEFT_OK) st = session_open(&s, &j->plan, j->compiled, &o, &j->e);
  if (st == WEFT_OK) st = session_train(&s, steps + 1, stop, add_step, &sum, &j->e);
  if (st == WEFT_OK) *rate = sum.tokens / sum.ms * 1e3;
  session_close(&s, false);
  return st;
}

typedef struct Measuring {
  int steps;
  const StopFlag *stop;
  double rate;
} Measuring;

static weft_status measure_job(void *ud, Job *j) {
  Measuring *m = ud;
  LangShrunk shrunk;
  TRY(job_compile_small(j, RANKS, &shrunk));
  return train(j, m->steps, m->stop, &m->rate);
}

weft_status sweep_measure(Sweep *s, int64_t i, int steps, const StopFlag *stop,
                          double *rate, weft_error *e) {
  Measuring m = {.steps = steps, .stop = stop, .rate = NAN};
  PointReason why;
  weft_status st = sweep_job(s, &s->judge[0], i, measure_job, &m, &why, e);
  *rate = m.rate;
  return st;
}
