/* job_val.c - the data for validation: opens them, and says before the first step what an
 * evaluation could not be made of, which would end a run after steps that are then lost.
 */
#include "job.h"

#include "vm/base/plural.h"

static const char *val_field(const DataSpec *d) {
  return d->val ? "data.val" : d->val_fraction > 0 ? "data.val_fraction" : "data";
}

/* A wrong plan, in its diagnostics; in the error, too, which is what hosts get. */
static weft_status refuse(Job *j, const char *text) {
  const char *field = val_field(&j->plan.data);
  diag_error(&j->d, "val", field, "%s", text);
  lang_locate(j->lp, &j->d);
  const Diag *g = &j->d.list.at[j->d.list.n - 1];
  return err_file(&j->e, WEFT_EPLAN, g->file ? g->file : "", g->line, "plan.%s: %s",
                  field, text);
}

/* Samples of an evaluation. */
static int64_t samples_of(const Job *j, const Data *val) {
  int64_t once = data_once(val, NULL), step = j->plan.batch.global;
  int64_t n = once ? once : INT64_MAX;
  if (j->plan.loss.per != LOSS_PER_TOKENS) n -= n % step;
  return j->plan.eval_batches < n / step ? step * j->plan.eval_batches : n;
}

static weft_status check_samples(Job *j, const Data *val) {
  weft_error why = NO_ERROR;
  weft_status st = evaluation_has_steps(&j->plan, val, j->plan.batch.global, &why);
  return st == WEFT_OK ? WEFT_OK : refuse(j, why.text);
}

/* Whether a label of the sample counts. */
static weft_status is_learnt(Job *j, const Data *val, int64_t sample, int32_t *ids,
                             bool *yes) {
  int64_t T = j->plan.batch.seq;
  TRY(data_sample(val, sample, ids, ids + T, &j->e));
  for (int64_t i = 0; i < T && !*yes; i++) *yes = ids[T + i] >= 0;
  return WEFT_OK;
}

/* In most data the first sample has labels. `weft eval` finds it out by itself. */
static weft_status check_labels(Job *j, const Data *val) {
  int64_t n = samples_of(j, val);
  size_t bytes = 2 * (size_t)j->plan.batch.seq * sizeof(int32_t);
  bool yes = j->evaluates;
  weft_status st = WEFT_OK;
  int32_t *ids = mem_new(NULL, bytes);
  if (!ids) return err_set(&j->e, WEFT_ENOMEM, "out of memory");
  for (int64_t i = 0; i < n && !yes && st == WEFT_OK; i++)
    st = is_learnt(j, val, i, ids, &yes);
  mem_free(NULL, ids, bytes);
  if (yes || st != WEFT_OK) return st;
  return refuse(j,
                arena_printf(j->arena,
                             "an evaluation has no label tokens: every label of its %lld "
                             "sequence%s is ignored (-100)",
                             (long long)n, plural(n, "s")));
}

/* Warns if a blend has fewer samples for an evaluation than the plan wants, as one of its
 * streams has no more. */
static void warn_of_blend(Job *j, const Data *val) {
  int k = 0, before = j->d.list.n;
  int64_t once = data_once(val, &k), all = data_windows(val);
  double wants = (double)j->plan.eval_batches * (double)j->plan.batch.global;
  if (j->evaluates || once == all || (double)once >= wants) return;
  diag_warn(
      &j->d, "data", j->plan.data.val ? "data.val" : "data",
      "an evaluation takes %lld of %lld samples for validation: %s has no more, and "
      "a blend is measured in the proportions of its weights",
      (long long)once, (long long)all, data_source_name(val, k));
  if (j->d.list.n > before) lang_locate(j->lp, &j->d);
}

static weft_status check_evaluation(Job *j, const Data *val) {
  if (!j->plan.eval_every) return WEFT_OK;
  TRY(check_samples(j, val));
  TRY(check_labels(j, val));
  warn_of_blend(j, val);
  return WEFT_OK;
}

static weft_status open_val(Job *j, const weft_alloc *a, Data **out) {
  TRY(job_sources(j));
  TRY(job_reference(j, &j->e));
  weft_status st = data_open_val(a, &j->plan.data, j->plan.batch.seq, j->compiled->vocab,
                                 j->plan.seed, out, &j->e);
  if (st == WEFT_OK && *out && (st = check_evaluation(j, *out)) != WEFT_OK) {
    data_close(*out);
    *out = NULL;
  }
  return job_of_field(j, st, "data", &j->e);
}

weft_status job_val(Job *j, const weft_alloc *a, Data **out) {
  *out = NULL;
  return j->plan.eval_every ? open_val(j, a, out) : WEFT_OK;
}

weft_status job_check_val(Job *j) {
  Data *val;
  TRY(open_val(j, NULL, &val));
  weft_status st = val ? job_look(j, val) : WEFT_OK;
  data_close(val);
  return st;
}
