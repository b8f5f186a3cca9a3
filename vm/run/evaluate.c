/* evaluate.c - the loss on validation data between two steps. Takes the forward-only
 * programs of the same ranks, in the same arenas: they write activations and scalars,
 * which every training step initialises anew, and no parameter or optimizer state. */
#include "run_int.h"
#include "vm/base/plural.h"

#include <math.h>

static weft_status job_evaluate(Worker *w, void *arg, weft_error *e) {
  const bool *again =
      arg; /* check every value, to name the op of the first one that is not finite */
  Run *r = w->run;
  weft_error why = NO_ERROR;
  char part[RUN_PART];
  step_inputs(w, &(StepRows){.tokens = r->tokens,
                             .labels = r->labels,
                             .source = r->source,
                             .reference = r->reference});
  weft_status st = rank_step(w->eval, *again, &r->end, &why);
  if (st == WEFT_OK) return WEFT_OK;
  if (why.code == WEFT_EINTR)
    err_set(e, st, "interrupted in %s", run_part(r, part));
  else
    err_set(e, st, "%s: %.900s", run_part(r, part), why.text);
  e->rank = why.rank;
  return st;
}

/* A batch in which experts overflowed moe.most is run again with checks, which names the
 * expert. */
static weft_status evaluate_batch(Run *r, weft_error *e) {
  bool again = false;
  TRY(run_all(r, job_evaluate, &again, true, e));
  again = r->plan->moe.most > 0 && !isfinite(rank_scalars(r->worker[0].r)[SC_LOSS]);
  if (!again) return WEFT_OK;
  run_settle(r);
  return run_all(r, job_evaluate, &again, true, e);
}

/* The mean cross entropy of labels, which the loss may have more than: losses of routers,
 * of further tokens, z-loss. */
static double mean_entropy(const Run *r, const SourceLoss *of) {
  SourceLoss all = {0};
  for (int k = 0; k < r->c->sources; k++)
    all.sum += of[k].sum, all.labels += of[k].labels;
  return all.labels ? all.sum / (double)all.labels : NAN;
}

static bool measures_steps(const Plan *p) { return p->loss.per != LOSS_PER_TOKENS; }

weft_status evaluation_has_steps(const Plan *p, const Data *d, int64_t rows,
                                 weft_error *e) {
  int64_t there = data_once(d, NULL);
  if (!measures_steps(p) || !there || there >= rows) return WEFT_OK;
  return err_set(
      e, WEFT_ERUN,
      "the validation data have %lld sequence%s%s, a step %lld: a loss that is "
      "divided by sequences or pairs is measured on whole steps",
      (long long)there, plural(there, "s"),
      data_sources(d) ? " before a stream of the blend begins anew" : "",
      (long long)rows);
}

/* Each sample counts at most once. Of a blend that is up to where its first stream has no
 * more: beyond, that one would count again, or others more than their weights say. */
static weft_status all_batches(Run *r, const Data *d, int64_t batches, StepResult *out,
                               weft_error *e) {
  const double *scalars = rank_scalars(r->worker[0].r);
  int64_t rows = run_rows(r), there = data_once(d, NULL), tokens = 0, done = 0;
  bool whole = measures_steps(r->plan);
  char part[RUN_PART];
  weft_status enough = evaluation_has_steps(r->plan, d, rows, e);
  if (enough != WEFT_OK) return run_settle(r), enough;
  double loss = 0;
  out->eval_sources = step_streams(r, d);
  memset(out->eval_source, 0, sizeof out->eval_source);
  for (int64_t i = 0; i < batches && (!there || i * rows < there); i++) {
    int64_t n = there ? MIN(rows, there - i * rows) : rows;
    if (whole && n < rows) break;
    TRY(step_read(r, d, i * rows, n, e));
    TRY(evaluate_batch(r, e));
    loss += scalars[SC_LOSS];
    done += n;
    tokens += (int64_t)scalars[SC_TOKENS];
    step_sources(r, r->c->sources, out->eval_source);
  }
  if (tokens == 0) {
    run_settle(r);
    return err_set(e, WEFT_ERUN, "%s has no label tokens: every label is ignored (-100)",
                   run_part(r, part));
  }
  out->eval_loss = loss / plan_loss_count(r->plan, done, (double)tokens);
  out->eval_entropy = mean_entropy(r, out->eval_source);
  out->eval_tokens = tokens;
  return WEFT_OK;
}

weft_status run_evaluate(Run *r, const Data *d, int64_t batches, StepResult *out,
                         weft_error *e) {
  double begin = now_s();
  if (r->dead) return err_set(e, WEFT_ERUN, "an earlier step has ended this run");
  assert(r->c->eval);
  r->step = out->step;
  r->evaluates = true;
  weft_status st = all_batches(r, d, batches, out, e);
  r->evaluates = false;
  r->step = -1;
  out->eval_ms = 1e3 * (now_s() - begin);
  return st;
}

/* Rows beyond n have no label, and are of no step. */
weft_status run_row_losses(Run *r, const Data *d, int64_t first, int64_t n, double *loss,
                           weft_error *e) {
  const double *sum = rank_scalars(r->worker[0].r) + SC_SOURCES;
  int64_t rows = run_rows(r);
  assert(r->c->eval && r->c->sources == rows && n <= rows);
  r->evaluates = true;
  weft_status st = step_read(r, d, first, n, e);
  for (int64_t i = 0; i < rows; i++) r->source[i] = (int32_t)i;
  if (st == WEFT_OK) st = evaluate_batch(r, e);
  for (int64_t i = 0; i < n; i++) loss[i] = sum[2 * i];
  r->evaluates = false;
  r->step = -1;
  return st;
}
