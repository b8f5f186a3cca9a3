/* rounding.c - one rank against itself from weights that differ in the last bit. What N
 * ranks add up in another order they round as if it came from such weights. */
#include "rounding.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "bindings/api/job.h"
#include "vm/compile/compile.h"
#include "vm/base/rng.h"
#include "vm/session/verify_int.h"
#include "vm/weights/param_gather.h"

typedef struct Step {
  const Compiled *c;
  Run *run;
  Verify data;  /* tokens and labels as weft verify makes them */
  float **grad; /* of the step before, by parameter */
  StepResult was;
} Step;

static weft_status shake(Step *s, Arena *a, weft_error *e) {
  Rng rng = rng_make(1, "rounding");
  uint64_t at = 0;
  for (int i = 0; i < s->c->nparam; i++) {
    int64_t n = param_count(&s->c->param[i]);
    float *p = NEW_N(a, float, n);
    TRY(run_get(s->run, STATE_PARAM, i, p, e));
    for (int64_t k = 0; k < n; k++)
      p[k] = (float)(p[k] * (1 + 0x1p-23 * (2 * rng_uniform(&rng, at++) - 1)));
    TRY(run_set(s->run, STATE_PARAM, i, p, e));
  }
  return WEFT_OK;
}

static double length(const float *a, const float *b, int64_t n) {
  double sum = 0;
  for (int64_t k = 0; k < n; k++) {
    double d = (double)a[k] - (b ? b[k] : 0);
    sum += d * d;
  }
  return sqrt(sum);
}

/* What is next to nothing beside the whole gradient is all rounding, and says nothing of
 * the others. */
static double gradient_differs(const float *was, const float *is, int64_t n, double all) {
  double own = length(was, NULL, n);
  return own > 1e-3 * all ? length(is, was, n) / own : 0;
}

/* Step `at` of a run that begins again; `shakes` before it. */
static weft_status take(Step *s, int at, bool shakes, Arena *a, StepResult *out,
                        weft_error *e) {
  TRY(run_init(s->run, e));
  for (int i = 0; i <= at; i++) {
    make_tokens(&s->data, i);
    if (i == at && shakes) TRY(shake(s, a, e));
    TRY(run_step_tokens(s->run, s->data.tokens, s->data.labels, i, out, e));
  }
  return WEFT_OK;
}

static weft_status compare(Step *s, int at, const char *name, Arena *a, Rounding *out,
                           weft_error *e) {
  StepResult is;
  TRY(take(s, at, true, a, &is, e));
  out->loss = fmax(out->loss, fabs(is.loss - s->was.loss) / fabs(s->was.loss));
  out->grad_norm =
      fmax(out->grad_norm, fabs(is.grad_norm - s->was.grad_norm) / is.grad_norm);
  for (int i = 0; i < s->c->nparam; i++) {
    int64_t n = param_count(&s->c->param[i]);
    float *g = NEW_N(a, float, n);
    TRY(run_get(s->run, STATE_GRAD, i, g, e));
    out->grad = fmax(out->grad, gradient_differs(s->grad[i], g, n, s->was.grad_norm));
    if (name && str_eq(name, s->c->param[i].name))
      out->named = fmax(out->named, gradient_differs(s->grad[i], g, n, 0));
  }
  return WEFT_OK;
}

static weft_status as_it_is(Step *s, int at, Arena *a, weft_error *e) {
  s->grad = NEW_N(a, float *, s->c->nparam);
  TRY(take(s, at, false, a, &s->was, e));
  for (int i = 0; i < s->c->nparam; i++) {
    s->grad[i] = NEW_N(a, float, param_count(&s->c->param[i]));
    TRY(run_get(s->run, STATE_GRAD, i, s->grad[i], e));
  }
  return WEFT_OK;
}

/* The twin with the number formats of `many`. */
static weft_status same_formats(const Job *many, Job *one) {
  TRY(job_twin(many, one));
  Plan *p = &one->plan;
  const Plan *like = &many->plan;
  p->dtype = like->dtype, p->grad = like->grad, p->reduce = like->reduce;
  p->master = like->master, p->opt.state = like->opt.state;
  TRY(job_graph(one));
  CompileInput in = {.plan = p,
                     .mesh = &one->mesh,
                     .graph = one->graph,
                     .schedule = &one->schedule,
                     .arena = one->arena};
  return compile(&in, &one->compiled, &one->d, &one->e);
}

static weft_status alone(Job *many, Arena *a, const char *path, uint64_t data, int steps,
                         VerifyReport *out) {
  Job one, twin;
  TRY(job_load(many, a, &(LangOptions){0}, path));
  many->plan.seed += data;
  TRY(job_mesh(many, 0));
  TRY(job_compile(many));
  TRY(job_twin(many, &twin));
  TRY(same_formats(many, &one));
  return verify(&one.plan, one.compiled, &twin.plan, twin.compiled, steps, 1,
                &(RunOptions){.threads = 1}, out, &many->e);
}

/* What is asked of a plan: one of both. */
typedef struct Task {
  int steps;
  uint64_t data; /* added to the seed */
  VerifyReport *alone;
  Rounding *rounding;
  const char *name;
} Task;

static weft_status each_twice(Job *many, Arena *a, const char *path, const Task *t) {
  Job one;
  Step s = {0};
  TRY(job_load(many, a, &(LangOptions){0}, path));
  TRY(job_mesh(many, 0));
  TRY(job_compile(many));
  weft_status st = job_twin(many, &one);
  s.c = st == WEFT_OK ? one.compiled : NULL;
  if (st == WEFT_OK) {
    int64_t ids = (int64_t)s.c->microbatches * s.c->micro * s.c->seq;
    s.data = (Verify){.plan = &many->plan, .c = s.c, .ids = ids, .vocab = s.c->vocab};
    s.data.tokens = NEW_N(a, int32_t, ids);
    s.data.labels = NEW_N(a, int32_t, ids);
  }
  if (st == WEFT_OK)
    st = run_open(&one.plan, s.c, &(RunOptions){.threads = 1}, &s.run, &one.e);
  for (int at = 0; st == WEFT_OK && at < t->steps; at++) {
    st = as_it_is(&s, at, a, &one.e);
    if (st == WEFT_OK) st = compare(&s, at, t->name, a, t->rounding, &one.e);
  }
  run_close(s.run);
  many->d = one.d;
  many->e = one.e;
  return st;
}

static weft_status with_plan(const char *plan, const Task *t, Text *report) {
  char path[] = "/tmp/weft-plan-XXXXXX.lua";
  int fd = mkstemps(path, 4);
  if (fd < 0 || write(fd, plan, strlen(plan)) < 0) return WEFT_EFILE;
  close(fd);
  Arena *a = arena_new(NULL);
  Job j;
  if (setjmp(*arena_guard(a))) abort();
  weft_status st = t->alone ? alone(&j, a, path, t->data, t->steps, t->alone)
                            : each_twice(&j, a, path, t);
  unlink(path);
  if (st != WEFT_OK) {
    report_text(&j.d, false, report);
    text_printf(report, "%s\n", j.e.text);
  }
  job_free(&j);
  arena_free(a);
  return st;
}

weft_status plan_alone(const char *plan, uint64_t data, int steps, VerifyReport *out,
                       Text *report) {
  *out = (VerifyReport){0};
  return with_plan(plan, &(Task){.steps = steps, .data = data, .alone = out}, report);
}

weft_status plan_rounding(const char *plan, const char *name, int steps, Rounding *out,
                          Text *report) {
  *out = (Rounding){0};
  return with_plan(plan, &(Task){.steps = steps, .rounding = out, .name = name}, report);
}
