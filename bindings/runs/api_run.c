/* api_run.c - run handles of weft.h: a compiled plan with its data and weights, and its
 * steps. */
#include "api_run.h"

#include "bindings/chat/plan_tokenizer.h"
#include "bindings/lang/report.h"
#include "vm/weights/weights_open.h"
#include "vm/base/c_locale.h"

/* ---- what the processes of a run must have in common ---- */

typedef struct FactsCall {
  const Job *j;
  JobFacts f;
} FactsCall;

static weft_status facts_job(Arena *a, void *ud, weft_error *e) {
  FactsCall *c = ud;
  c->f.arena = a;
  return job_facts(c->j, &c->f, e);
}

/* The list is in an arena of its own, which the caller must free even after an error. */
static weft_status facts(const weft_plan *plan, const Data *data,
                         const SafeTensors *weights, JobFacts *out, weft_error *e) {
  Arena *a = arena_new(&plan->alloc);
  FactsCall c = {.j = &plan->job, .f = {.data = data, .weights = weights}};
  weft_status st = arena_call(a, facts_job, &c, e);
  *out = c.f;
  return st;
}

static weft_status open_sources(Arena *a, void *ud, weft_error *e) {
  Job *j = ud;
  Diags d = {.arena = a};
  if (plan_takes_tokens(j->lp, &d) != WEFT_OK) return report_first(&d, e);
  TRY(job_sources(j));
  return job_reference(j, e);
}

/* Conversations become token files when a run is opened: it needs the plan's Lua state,
 * which the steps of a run do not touch. */
static weft_status make_sources(weft_plan *plan, weft_error *e) {
  Job *j = &plan->job;
  err_clear(&j->e);
  weft_status st = arena_call(j->arena, open_sources, j, &j->e);
  if (st != WEFT_OK && e) *e = j->e;
  return st;
}

/* Opens the data when they are first needed; the processes then compare which data they
 * have. */
weft_status api_run_data(weft_run *r, weft_error *e) {
  const Plan *p = &r->plan->job.plan;
  JobFacts f;
  Data *data;
  weft_status st =
      data_open(&r->alloc, &p->data, p->batch.seq, r->c->vocab, p->seed, &data, e);
  TRY(run_agree(r->s.run, st, e));
  st = run_agree(r->s.run, facts(r->plan, data, NULL, &f, e), e);
  if (st == WEFT_OK) st = run_consensus(r->s.run, f.fact, f.n, e);
  arena_free(f.arena);
  if (st == WEFT_OK) job_epochs(&r->plan->job.plan, data);
  if (st == WEFT_OK)
    r->s.data = data;
  else
    data_close(data);
  return st;
}

/* How long a run of epochs is, its data say: the learning rate of a step and the last
 * checkpoint go by it, whoever gives the tokens. */
weft_status api_run_length(weft_run *r, weft_error *e) {
  if (!(r->plan->job.plan.epochs > 0) || r->s.data) return WEFT_OK;
  return api_run_data(r, e);
}

/* Checkpoints have the text of the plan as it was; a file that is gone is told of by the
 * first of them. */
static void keep_text(weft_run *r) {
  weft_error why = NO_ERROR;
  if (r->plan->job.plan.checkpoint.dir &&
      file_read(&r->alloc, r->plan->path, FILE_CODE_MAX, &r->plan_text, &r->plan_bytes,
                &why) != WEFT_OK)
    r->plan_text = NULL;
}

weft_status weft_run_open(weft_plan *plan, const weft_run_options *options,
                          weft_run **out, weft_error *err) {
  IN_C_LOCALE;
  weft_run_options o;
  err_clear(err);
  TRY(need(out, "the output argument for the run", err));
  *out = NULL;
  TRY(need(plan, "the plan", err));
  TRY(struct_read(&o, sizeof o, options, "weft_run_options", err));
  if (!plan->job.compiled)
    return err_set(err, WEFT_EUSAGE, "the plan is not compiled: call weft_plan_compile");
  TRY(make_sources(plan, err));
  if (o.threads < 0 || o.threads > 4096)
    return err_set(
        err, WEFT_EUSAGE,
        "%d threads per rank are not possible: give 1 to 4096, or 0 to share the cores",
        o.threads);
  if (!(o.patience_s >= 0))
    return err_set(err, WEFT_EUSAGE,
                   "a patience of %g seconds is not possible: give more than 0, or 0 for "
                   "that of weft",
                   o.patience_s);
  const WorldKind *world = o.comm ? world_kind(o.comm, err) : NULL;
  if (o.comm && !world) return WEFT_EUSAGE;
  weft_run *r = mem_new(&plan->alloc, sizeof *r);
  if (!r) return err_set(err, WEFT_ENOMEM, "out of memory");
  *r = (weft_run){.alloc = plan->alloc,
                  .plan = plan,
                  .c = plan->job.compiled,
                  .mesh = plan->job.mesh,
                  .graph = plan->job.graph,
                  .skipped = -1};
  r->notes.alloc = &r->alloc;
  RunOptions run = {.alloc = &r->alloc,
                    .world = world,
                    .threads = o.threads,
                    .stop = api_stop(o.stop),
                    .saves = plan->job.plan.checkpoint.dir != NULL,
                    .patience_s = o.patience_s};
  JobFacts f;
  weft_status st = facts(plan, NULL, NULL, &f, err);
  run.fact = f.fact;
  run.nfact = f.n;
  if (st == WEFT_OK) st = run_open(&plan->job.plan, r->c, &run, &r->s.run, err);
  arena_free(f.arena);
  if (st != WEFT_OK) {
    weft_run_close(r);
    return st;
  }
  keep_text(r);
  const char *why;
  for (int i = 0; (why = run_warning(r->s.run, i)); i++) api_note(r, why);
  *out = r;
  return WEFT_OK;
}

void weft_run_close(weft_run *r) {
  IN_C_LOCALE;
  if (!r) return;
  api_keep_end(r);
  session_close(&r->s, false);
  weft_alloc alloc = r->alloc;
  mem_free(&alloc, r, sizeof *r);
}

int weft_run_rank(const weft_run *r) { return r ? run_rank(r->s.run) : -1; }

/* ---- weights ---- */

/* Ranks that no longer wait for each other take no steps, whatever they are filled with.
 */
weft_status api_run_lives(const weft_run *r, weft_error *err) {
  if (!run_ended(r->s.run)) return WEFT_OK;
  return err_set(
      err, WEFT_ERUN,
      "an earlier step has ended this run: open another one with weft_run_open");
}

/* Every process reads its pieces from its own copy of the files. */
static weft_status agree_on_weights(weft_run *r, const SafeTensors *weights,
                                    weft_error *err) {
  JobFacts f;
  if (run_is_alone(r->s.run)) return WEFT_OK;
  weft_status st = run_agree(r->s.run, facts(r->plan, NULL, weights, &f, err), err);
  if (st == WEFT_OK) st = run_consensus(r->s.run, f.fact, f.n, err);
  arena_free(f.arena);
  return st;
}

/* Files that parameters were read from stay open: an export is like them. */
static weft_status load(weft_run *r, const char *path, const Folders *in,
                        weft_error *err) {
  const Job *j = &r->plan->job;
  Folders of_plan = lang_folders(j->lp);
  SafeTensors *now = NULL;
  weft_status st = weights_open(&r->alloc, path, in, &j->plan, &of_plan, &now, err);
  st = run_agree(r->s.run, st, err);
  if (st == WEFT_OK) st = agree_on_weights(r, now, err);
  if (st != WEFT_OK) {
    st_close(now);
    return st;
  }
  api_keep_forget(r); /* it may be about to write like the files of before */
  st_close(r->s.weights);
  r->s.weights = now;
  return api_run_fill(r, err);
}

/* Parameters that were filled in part are no state to go on from. */
weft_status api_run_fill(weft_run *r, weft_error *err) {
  weft_status st = run_agree(r->s.run, session_fill(&r->s, err), err);
  r->filled = st == WEFT_OK;
  r->skipped = -1;
  return st;
}

weft_status weft_run_load(weft_run *r, const char *path, weft_error *err) {
  IN_C_LOCALE;
  err_clear(err);
  TRY(need(r, "the run", err));
  TRY(need(path, "the path of the weights", err));
  TRY(api_run_lives(r, err));
  return load(r, path, NULL, err);
}

weft_status weft_run_init(weft_run *r, weft_error *err) {
  IN_C_LOCALE;
  err_clear(err);
  TRY(need(r, "the run", err));
  TRY(api_run_lives(r, err));
  const char *weights = lang_weights(r->plan->job.lp);
  Folders in = lang_folders(r->plan->job.lp);
  return load(r, weights, &in, err);
}

/* ---- steps ---- */

static weft_status end_step(weft_run *r, weft_status st, const StepResult *from,
                            weft_step *out, weft_error *err) {
  r->skipped = st == WEFT_OK && from->skipped ? from->step : -1;
  if (st == WEFT_OK) st = session_check_replicas(&r->s, from->step + 1, err);
  *out = (weft_step){.step = from->step,
                     .tokens = from->tokens,
                     .loss = from->loss,
                     .grad_norm = from->grad_norm,
                     .lr = from->lr,
                     .ms = from->ms,
                     .loss_scale = from->loss_scale,
                     .skipped = from->skipped};
  return st;
}

/* What a run has before that is whatever was in its memory. */
weft_status api_run_filled(const weft_run *r, weft_error *err) {
  if (r->filled) return WEFT_OK;
  return err_set(err, WEFT_EUSAGE,
                 "the run has no parameters yet: it needs an init, a load or a resume");
}

static weft_status check_step(const weft_run *r, int64_t step, weft_step *out,
                              weft_error *err) {
  err_clear(err);
  TRY(need(r, "the run", err));
  TRY(need(out, "the output argument for the step", err));
  *out = (weft_step){.step = step};
  if (step < 0)
    return err_set(err, WEFT_EUSAGE, "steps count from 0, got %lld", (long long)step);
  return api_run_filled(r, err);
}

/* A step that was skipped may be taken again, under its number: it then counts as one. */
static void begin_step(weft_run *r, int64_t step) {
  if (r->skipped == step) run_retry(r->s.run);
  r->skipped = -1;
}

weft_status weft_run_steps(weft_run *r, int64_t *out, weft_error *err) {
  IN_C_LOCALE;
  err_clear(err);
  TRY(need(r, "the run", err));
  TRY(need(out, "the output argument for the number of steps", err));
  *out = 0;
  TRY(api_run_length(r, err));
  *out = r->plan->job.plan.steps;
  return WEFT_OK;
}

weft_status weft_run_step(weft_run *r, int64_t step, weft_step *out, weft_error *err) {
  IN_C_LOCALE;
  StepResult result = {.step = step};
  TRY(check_step(r, step, out, err));
  if (!r->s.data) TRY(api_run_data(r, err));
  begin_step(r, step);
  weft_status st = run_step(r->s.run, r->s.data, step, &result, err);
  return end_step(r, st, &result, out, err);
}

/* Kernels do not check ids, so a wrong one must be refused here. */
static bool is_id(const weft_run *r, int32_t id) { return id >= 0 && id < r->c->vocab; }

static weft_status check_tokens(const weft_run *r, const int32_t *id, size_t n,
                                weft_error *err) {
  for (size_t i = 0; i < n; i++)
    if (!is_id(r, id[i]))
      return err_set(err, WEFT_EUSAGE, "tokens[%zu] is %d, the model has ids below %lld",
                     i, id[i], (long long)r->c->vocab);
  return WEFT_OK;
}

static weft_status check_labels(const weft_run *r, const int32_t *id, size_t n,
                                weft_error *err) {
  bool ends = r->plan->job.plan.packed.size > 0;
  for (size_t i = 0; i < n; i++)
    if (!is_id(r, id[i]) && id[i] != LABEL_IGNORED &&
        !(ends && id[i] == LABEL_DOCUMENT_END))
      return err_set(err, WEFT_EUSAGE,
                     "labels[%zu] is %d, the model has ids below %lld; %d: no label%s", i,
                     id[i], (long long)r->c->vocab, LABEL_IGNORED,
                     ends ? "; -101: the end of a document"
                     : id[i] == LABEL_DOCUMENT_END
                         ? "; -101 ends a document where the plan has packed.size"
                         : "");
  return WEFT_OK;
}

/* A host's tokens have no end that epochs could be counted by. */
static weft_status length_of_own(weft_run *r, weft_error *err) {
  weft_error why = NO_ERROR;
  weft_status st = api_run_length(r, &why);
  if (st == WEFT_OK) return WEFT_OK;
  if (st != WEFT_EFILE) {
    if (err) *err = why;
    return st;
  }
  return err_set(err, WEFT_EUSAGE,
                 "train.epochs are of the plan's data, which cannot be read: give "
                 "train.steps for tokens of your own (%s: %s)",
                 why.file, why.text);
}

weft_status weft_run_step_tokens(weft_run *r, const int32_t *tokens,
                                 const int32_t *labels, size_t n, int64_t step,
                                 weft_step *out, weft_error *err) {
  IN_C_LOCALE;
  StepResult result = {.step = step};
  TRY(check_step(r, step, out, err));
  const Batch *b = &r->plan->job.plan.batch;
  if (!tokens || !labels || n != (size_t)(b->global * b->seq))
    return err_set(err, WEFT_EUSAGE, "a step has %lld x %lld tokens and labels, got %zu",
                   (long long)b->global, (long long)b->seq, tokens && labels ? n : 0);
  if (r->plan->job.plan.loss.second == SECOND_FILE)
    return err_set(err, WEFT_EUSAGE,
                   "the plan's loss reads a file of losses of its own data, which the "
                   "host's tokens have none of: say reference = \"copy\"");
  TRY(check_tokens(r, tokens, n, err));
  TRY(check_labels(r, labels, n, err));
  TRY(length_of_own(r, err));
  r->own_tokens = true;
  begin_step(r, step);
  weft_status st = run_step_tokens(r->s.run, tokens, labels, step, &result, err);
  return end_step(r, st, &result, out, err);
}
