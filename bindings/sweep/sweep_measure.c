/* sweep_measure.c - trains the best plans of a sweep for a few steps on virtual ranks of
 * this machine, made small as weft verify does it. What it says is how fast this machine
 * runs the small plan: it shows overhead of schedules, not the speed of a cluster. */
#include <math.h>

#include "bindings/api/job.h"
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
  if (st == WEFT_OK && sum.ms > 0) *rate = sum.tokens / sum.ms * 1e3;
  session_close(&s, false);
  return st;
}

typedef struct Measuring {
  Job job;
  Vary vary;
  int steps;
  const StopFlag *stop;
  double rate;
  weft_status st;
} Measuring;

static void measure_job(void *ud) {
  Measuring *m = ud;
  LangShrunk shrunk;
  m->job.lp = &m->vary.plan;
  m->job.plan = *lang_plan(m->job.lp);
  m->st = job_compile_small(&m->job, RANKS, &shrunk);
  if (m->st == WEFT_OK) m->st = train(&m->job, m->steps, m->stop, &m->rate);
}

weft_status sweep_measure(Sweep *s, int64_t i, int steps, const StopFlag *stop,
                          double *rate, weft_error *e) {
  Judge *j = &s->judge[0];
  int choice[SWEEP_AXES];
  Arena *a = arena_new(NULL);
  if (!a) return err_set(e, WEFT_ENOMEM, "out of memory in a sweep");
  Measuring m = {
      .job = {.arena = a, .d = {.arena = a}}, .steps = steps, .stop = stop, .rate = NAN};
  err_clear(&m.job.e);
  sweep_choice(s, s->todo[i], choice);
  m.st = vary_begin(j->lp, j->values, choice, s->naxis, &m.vary, &m.job.d, &m.job.e);
  if (m.st == WEFT_OK && !arena_try(a, measure_job, &m))
    m.st = err_set(&m.job.e, WEFT_ENOMEM, "out of memory in a sweep");
  vary_end(&m.vary);
  if (m.st == WEFT_EPLAN && m.job.d.errors) report_first(&m.job.d, &m.job.e);
  if (m.st != WEFT_OK) *e = m.job.e;
  text_free(&m.job.dumped);
  arena_free(a);
  *rate = m.rate;
  return m.st;
}
