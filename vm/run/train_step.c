/* train_step.c - one training step: fills the inputs of every rank, runs all ranks and
 * reads back the scalars. If loss or norm is not finite, programs have changed no state;
 * the step is then repeated with a check after each op, so that the error names the op
 * that made the first such value. */
#include "run_int.h"

#include "vm/io/reference/reference_file.h"

#include <math.h>
#include <stdio.h>

typedef struct StepArg {
  const Data *data; /* that the tokens are of; NULL: the caller's own */
  const int32_t *tokens, *labels;
  int64_t step;
  double lr;
  /* in a repetition with checks: what was wrong, "loss is nan"; else NULL */
  const char *wrong;
} StepArg;

/* ---- inputs ---- */

/* Row i of a rank, as a row of the step's global arrays. */
static int64_t global_row(const Run *r, int dp_index, int64_t i) {
  int64_t micro = r->c->micro;
  return i / micro * micro * run_dp(r) + dp_index * micro + i % micro;
}

/* The loss of a row is at its first token; what the reference is for adds up rows. */
static void put_reference(const SeqPiece *piece, float loss, int32_t *to) {
  for (int64_t i = 0; i < piece->run * piece->runs; i++) {
    float x = seq_at(piece, i) == 0 ? loss : 0;
    memcpy(&to[i], &x, sizeof x);
  }
}

/* Fills an input of a rank: its rows of the batch and, with cp, its tokens of each row.
 */
static void fill_input(const Worker *w, const StepRows *s, InputKind k, int32_t *to) {
  const Run *r = w->run;
  const Mesh *m = &r->c->mesh;
  const Packed *packed = &r->plan->packed;
  int dp_index = mesh_index(m, AXES_DP, w->rank);
  SeqPiece piece = seq_piece(r->c->seq, m->size[AXIS_CP], mesh_coord(m, w->rank, AXIS_CP),
                             r->c->zigzag);
  int64_t rows = (int64_t)r->c->microbatches * r->c->micro;
  for (int64_t i = 0; i < rows; i++, to += r->c->tokens) {
    int64_t at = global_row(r, dp_index, i), row = at * r->c->seq;
    const int32_t *tokens = s->tokens + row, *labels = s->labels + row;
    uint32_t first = (uint32_t)(s->sample * r->c->seq + row);
    if (k == IN_SOURCES)
      for (int64_t t = 0; t < r->c->tokens; t++) to[t] = s->source ? s->source[at] : 0;
    else if (k == IN_REFERENCE)
      put_reference(&piece, s->reference[at], to);
    else if (r->c->documents)
      packed_chunks(packed, tokens, labels, r->c->seq, first, &piece, k, to);
    else if (input_places(k))
      packed_further(packed, tokens, labels, r->c->seq, &piece, k, to);
    else if (k == IN_TOKEN_NUMBERS)
      token_numbers(&piece, first, to);
    else if (k == IN_TOKENS)
      seq_take(&piece, tokens, to);
    else if (k == IN_LABELS)
      packed_labels(packed, tokens, labels, &piece, to);
    else
      packed_places(packed, tokens, labels, &piece, k == IN_POSITIONS, to);
  }
}

void step_inputs(Worker *w, const StepRows *s) {
  for (int k = IN_TOKENS; k < IN_SEED; k++) {
    int32_t *to = rank_input(w->r, (InputKind)k);
    if (to) fill_input(w, s, (InputKind)k, to);
  }
}

/* Fills the inputs and scalars of a rank for the step. */
static void fill_step(Worker *w, const StepArg *s) {
  const Run *r = w->run;
  const Optimizer *opt = &r->plan->opt;
  double *scalars = rank_scalars(w->r);
  /* Optimizer steps taken, of which a host that goes back to an early number has one. */
  double t = (double)MAX(s->step + 1 - r->scaler.skipped, 1);
  StepRows rows = {.tokens = s->tokens,
                   .labels = s->labels,
                   .source = s->data ? r->source : NULL,
                   .reference = r->reference,
                   .sample = s->step * r->plan->batch.global};
  step_inputs(w, &rows);
  scalars[SC_LR] = s->lr;
  scalars[SC_BC1] = 1 - pow(opt->beta1, t);
  scalars[SC_BC2] = 1 - pow(opt->beta2, t);
  scalars[SC_SCALE] = r->scaler.scale;
  scalars[SC_STEP] = t;
}

/* Prefixes the error of a failure with the step and, in a repetition, what was wrong. */
static weft_status in_step(const Worker *w, const StepArg *s, const weft_error *why,
                           weft_error *e) {
  const Instr *bad = rank_bad(w->r, NULL);
  char name[256];
  if (bad) rank_describe(w->r, bad, name, sizeof name);
  if (why->code == WEFT_EINTR)
    err_set(e, why->code, "interrupted in step %lld", (long long)s->step);
  else if (bad)
    err_set(e, why->code, "step %lld: %s; first seen on rank %d in %s",
            (long long)s->step, s->wrong, w->rank, name);
  else
    err_set(e, why->code, "step %lld: %.950s", (long long)s->step, why->text);
  e->rank = why->rank;
  return why->code;
}

static weft_status job_step(Worker *w, void *arg, weft_error *e) {
  const StepArg *s = arg;
  fill_step(w, s);
  weft_error why = NO_ERROR;
  bool traced = w->tracer.event != NULL;
  int64_t from = traced ? trace_begin(&w->tracer, s->step) : 0;
  weft_status st = rank_step(w->r, s->wrong != NULL, &w->run->end, &why);
  if (traced) trace_end(&w->tracer, from);
  if (st == WEFT_OK) return WEFT_OK;
  return in_step(w, s, &why, e);
}

/* ---- results ---- */

static const char *value_name(double x) {
  return isnan(x) ? "nan" : x < 0 ? "-inf" : "inf";
}

/* Repeats the step with checks: the error names the rank and the op that made the first
 * value that is not finite. */
static weft_status explain(Run *r, StepArg *s, const StepResult *res, weft_error *e) {
  char wrong[64];
  bool loss = !isfinite(res->loss);
  run_settle(r);
  snprintf(wrong, sizeof wrong, "%s is %s", loss ? "loss" : "the gradient norm",
           value_name(loss ? res->loss : res->grad_norm));
  s->wrong = wrong;
  weft_status st = run_all(r, job_step, s, true, e);
  if (st != WEFT_OK) r->cut = s->step; /* whose gradients it had begun anew */
  TRY(st);
  return err_set(e, WEFT_ERUN, "step %lld: %s; repeated, every op gave finite values",
                 (long long)s->step, wrong);
}

/* Reads the token counts of experts; ranks of etp count the same rows. */
static void read_experts(const Run *r, const double *scalars, StepResult *res) {
  if (!(scalars[SC_ROWS_EXPERTS] > 0)) return;
  res->expert_max = scalars[SC_ROWS_MAX];
  res->expert_mean = scalars[SC_ROWS] / scalars[SC_ROWS_EXPERTS];
  res->dropped = (int64_t)scalars[SC_DROPPED] / r->c->mesh.size[AXIS_ETP];
}

int step_streams(const Run *r, const Data *d) {
  int n = data_sources(d);
  return n <= r->c->sources ? n : 0;
}

void step_sources(const Run *r, int n, SourceLoss *sum) {
  const double *of = rank_scalars(r->worker[0].r) + SC_SOURCES;
  for (int k = 0; k < MIN(n, r->c->sources); k++) {
    sum[k].sum += of[2 * k];
    sum[k].labels += (int64_t)of[2 * k + 1];
  }
}

/* The error for a step without label tokens: names what its first samples are made of. */
static weft_status no_labels(Run *r, const StepArg *s, weft_error *e) {
  enum { SHOWN = 3 };
  char of[800];
  int64_t n = r->plan->batch.global, first = s->step * n;
  run_settle(r);
  TextBuf t = textbuf(of, sizeof of);
  for (int64_t i = 0; s->data && i < MIN(n, (int64_t)SHOWN); i++) {
    textbuf_printf(&t, i ? "; " : ". It has ");
    TRY(data_name(s->data, first + i, &t, e));
  }
  if (s->data && n > SHOWN)
    textbuf_printf(&t, "; and %lld more samples", (long long)n - SHOWN);
  return err_set(e, WEFT_ERUN,
                 "step %lld has no label tokens: every label is ignored (-100)%s",
                 (long long)s->step, of);
}

/* Reads the results from the first rank: the programs reduce scalars over all ranks. */
static weft_status read_result(Run *r, StepArg *s, StepResult *res, weft_error *e) {
  const double *scalars = rank_scalars(r->worker[0].r);
  double tokens = scalars[SC_TOKENS];
  res->tokens = (int64_t)tokens;
  double count = plan_loss_count(r->plan, r->plan->batch.global, tokens);
  res->loss = tokens > 0 ? scalars[SC_LOSS] / count : 0;
  res->grad_norm = scalars[SC_NORM];
  read_experts(r, scalars, res);
  if (!(tokens > 0)) return no_labels(r, s, e);
  res->sources = s->data ? step_streams(r, s->data) : 0;
  step_sources(r, res->sources, res->source);
  res->loss_scale = r->scaler.on ? r->scaler.scale : 0;
  res->skipped = scalars[SC_SKIP] != 0 || !isfinite(res->grad_norm);
  if (!isfinite(res->loss) || (res->skipped && !scaler_can_skip(&r->scaler)))
    return explain(r, s, res, e);
  r->scaled = r->scaler.scale;
  scaler_after(&r->scaler, res->skipped);
  return WEFT_OK;
}

void run_retry(Run *r) { r->scaler.skipped--; }

static double step_lr(const Run *r, int64_t step) {
  LrSchedule lr = lr_resolved(r->plan);
  return lr_at(&lr, step);
}

/* What other processes had done of it by then is not known here. */
static void failed_step(Run *r, int64_t step) {
  r->cut = step;
  r->torn |= r->world.size > r->world.here;
}

static weft_status one_step(Run *r, StepArg *s, StepResult *out, weft_error *e) {
  if (r->dead)
    return err_set(e, WEFT_ERUN, "step %lld: an earlier step has ended this run",
                   (long long)s->step);
  s->lr = step_lr(r, s->step);
  *out = (StepResult){.step = s->step, .lr = s->lr};
  double begin = now_s();
  r->step = s->step;
  weft_status st = run_all(r, job_step, s, true, e);
  out->ms = 1e3 * (now_s() - begin);
  r->longest_s = MAX(r->longest_s, 1e-3 * out->ms);
  if (st != WEFT_OK) failed_step(r, s->step);
  if (st == WEFT_OK) st = read_result(r, s, out, e);
  r->step = -1;
  return st;
}

weft_status run_step_tokens(Run *r, const int32_t *tokens, const int32_t *labels,
                            int64_t step, StepResult *out, weft_error *e) {
  StepArg s = {.tokens = tokens, .labels = labels, .step = step};
  int64_t n = r->plan->batch.global;
  for (int64_t i = 0; r->reference && i < n; i++)
    r->reference[i] = reference_made_up(labels + i * r->c->seq, r->c->seq, r->c->vocab,
                                        r->plan->seed, (uint64_t)(step * n + i));
  return one_step(r, &s, out, e);
}

/* Whether a local rank has this data-parallel index, so that its rows are needed. */
static bool reads(const Run *r, int dp_index) {
  bool found = false;
  for (int i = 0; i < r->nworker && !found; i++)
    found = mesh_index(&r->c->mesh, AXES_DP, r->worker[i].rank) == dp_index;
  return found;
}

static weft_status read_row(Run *r, const Data *d, int64_t sample, int64_t row,
                            weft_error *e) {
  int64_t T = r->c->seq;
  int32_t *tokens = r->tokens + row * T, *labels = r->labels + row * T;
  TRY(data_sample(d, sample, tokens, labels, e));
  if (r->source) r->source[row] = step_streams(r, d) ? data_source(d, sample) : 0;
  if (r->reference) TRY(data_reference(d, sample, tokens, labels, &r->reference[row], e));
  return WEFT_OK;
}

/* No label of the row counts; its documents end where they did. */
static void ignore_labels(Run *r, int64_t row) {
  int64_t T = r->c->seq;
  for (int32_t *l = r->labels + row * T, *end = l + T; l < end; l++)
    if (*l != LABEL_DOCUMENT_END) *l = LABEL_IGNORED;
}

weft_status step_read(Run *r, const Data *d, int64_t first, int64_t n, weft_error *e) {
  int64_t rows = (int64_t)r->c->microbatches * r->c->micro;
  for (int k = 0; k < run_dp(r); k++) {
    if (!reads(r, k)) continue;
    for (int64_t i = 0; i < rows; i++) {
      int64_t row = global_row(r, k, i);
      TRY(read_row(r, d, first + row % n, row, e));
      if (row >= n) ignore_labels(r, row);
    }
  }
  return WEFT_OK;
}

/* Of all samples of the step, for the process that reports; no other needs to know. */
static weft_status count_samples(const Run *r, const Data *d, StepResult *out,
                                 weft_error *e) {
  int64_t n = r->plan->batch.global;
  DataCounts c;
  out->partial = data_is_partial(d);
  if (!out->partial || run_rank(r) != 0) return WEFT_OK;
  for (int64_t i = 0; i < n; i++) {
    TRY(data_counts(d, out->step * n + i, &c, e));
    out->padded += c.padded;
    out->left_out += c.dropped;
  }
  return WEFT_OK;
}

weft_status run_step(Run *r, const Data *d, int64_t step, StepResult *out,
                     weft_error *e) {
  int64_t rows = r->plan->batch.global;
  StepArg s = {.data = d, .tokens = r->tokens, .labels = r->labels, .step = step};
  TRY(step_read(r, d, step * rows, rows, e));
  TRY(one_step(r, &s, out, e));
  return count_samples(r, d, out, e);
}
