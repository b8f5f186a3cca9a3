/* session.c - opens data and weights of a run and loops over its steps; see session.h. */
#include "session.h"

#include <math.h>

#include "vm/weights/param_gather.h"
#include "vm/weights/snapshot.h"
#include "vm/weights/weights_load.h"
#include "vm/base/plural.h"

weft_status session_fill(Session *s, weft_error *e) {
  run_reset_scaler(s->run); /* a host may begin anew with the run that it has */
  if (s->fill) return s->fill(s->fill_from, s->run, e);
  return s->weights ? run_load(s->run, s->weights, e) : run_init(s->run, e);
}

weft_status session_open(Session *s, const Plan *p, const Compiled *c,
                         const RunOptions *o, weft_error *e) {
  s->eval_every = p->eval_every, s->eval_batches = p->eval_batches;
  s->check_every = p->check_replicas_every;
  s->patience = p->patience, s->min_delta = p->min_delta;
  /* A run that has ended so has, when it is resumed, until it is told to wait longer. */
  s->stopped = s->patience && s->best.step && s->best.since >= s->patience;
  TRY(run_open(p, c, o, &s->run, e));
  return session_fill(s, e);
}

/* Whether the evaluation is due: every eval_every steps, and at the end. `step` is the
 * next step. */
static bool evaluates(const Session *s, int64_t end) {
  return s->val && s->eval_every && (s->step % s->eval_every == 0 || s->step == end);
}

/* Evaluates, and compares with the best loss so far. Every process goes by the loss of
 * the first one: another's may differ in its last bit, and then only some would stop. */
static weft_status evaluate(Session *s, StepResult *r, weft_error *e) {
  BestEval *best = &s->best;
  TRY(run_evaluate(s->run, s->val, s->eval_batches, r, e));
  TRY(run_from_first(s->run, &r->eval_loss, sizeof r->eval_loss, e));
  bool first = best->step == 0 && isfinite(r->eval_loss);
  bool lower = first || r->eval_loss < best->bar - s->min_delta;
  best->since = lower ? 0 : best->since + 1;
  if (lower) best->bar = r->eval_loss;
  if (first || r->eval_loss < best->loss) {
    best->loss = r->eval_loss;
    best->step = s->step;
  }
  s->stopped = s->patience && best->since >= s->patience;
  return WEFT_OK;
}

weft_status session_check_replicas(Session *s, int64_t steps, weft_error *e) {
  bool due = s->check_every && steps % s->check_every == 0;
  return due ? run_check_replicas(s->run, e) : WEFT_OK;
}

weft_status session_train(Session *s, int64_t end, const StopFlag *stop,
                          SessionAfter after, void *ud, weft_error *e) {
  while (s->step < end && !s->stopped) {
    StepResult r;
    if (stop && *stop)
      return err_set(e, WEFT_EINTR, "interrupted after %lld step%s", (long long)s->step,
                     plural(s->step, "s"));
    TRY(run_step(s->run, s->data, s->step, &r, e));
    s->step++;
    TRY(session_check_replicas(s, s->step, e));
    if (evaluates(s, end)) TRY(evaluate(s, &r, e));
    r.best = s->best;
    r.stops = s->stopped;
    TRY(after(ud, &r, e));
    if (!isfinite(r.loss)) {
      run_settle(s->run);
      return err_set(e, WEFT_ERUN, "the loss of step %lld is not finite",
                     (long long)r.step);
    }
  }
  return WEFT_OK;
}

void session_close(Session *s, bool failed) {
  if (failed) run_abandon(s->run);
  run_close(s->run);
  data_close(s->data);
  data_close(s->val);
  st_close(s->weights);
  *s = (Session){0};
}
