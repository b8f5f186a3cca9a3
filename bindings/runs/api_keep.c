/* api_keep.c - what outlasts a run of weft.h: checkpoints and exports; and evaluations,
 * which say whether it is worth keeping. */
#include "api_run.h"

#include "resume.h"
#include "vm/base/c_locale.h"
#include "vm/ckpt/ckpt_store.h"
#include "vm/weights/run_export.h"

/* ---- calls that take memory of the plan and of the run ---- */

typedef struct KeepCall {
  weft_run *r;
  const char *path;
  weft_status (*fn)(struct KeepCall *c, weft_error *e);
} KeepCall;

/* Running out of either memory ends at the same guard. */
static weft_status call_fn(Arena *a, void *ud, weft_error *e) {
  KeepCall *c = ud;
  memcpy(arena_guard(c->r->kept), arena_guard(a), sizeof(jmp_buf));
  return c->fn(c, e);
}

static weft_status keep_call(weft_run *r, weft_status (*fn)(KeepCall *c, weft_error *e),
                             const char *path, weft_error *e) {
  KeepCall c = {.r = r, .path = path, .fn = fn};
  if (!r->kept) r->kept = arena_new(&r->alloc);
  return arena_call(r->kept ? r->plan->job.arena : NULL, call_fn, &c, e);
}

static void clear_notes(weft_run *r) { text_free(&r->notes); }

void api_note(weft_run *r, const char *text) {
  if (text) text_printf(&r->notes, "%s%s", r->notes.n ? "\n" : "", text);
}

const char *weft_run_notes(const weft_run *r) {
  return r && r->notes.s && !r->notes.oom ? r->notes.s : "";
}

void api_keep_forget(weft_run *r) {
  saver_close(r->saver);
  ckpt_close(r->from);
  export_end(&r->weights);
  r->saver = NULL, r->from = NULL;
  r->s.best = (BestEval){0};
}

void api_keep_end(weft_run *r) {
  api_keep_forget(r);
  if (r->plan_text) mem_free(&r->alloc, r->plan_text, r->plan_bytes + 1);
  text_free(&r->notes);
  arena_free(r->kept);
  r->plan_text = NULL, r->kept = NULL;
}

/* ---- checkpoints ---- */

/* The job as it was when the run was opened, with an error of its own. */
static Job job_of(const weft_run *r) {
  Job j = r->plan->job;
  j.compiled = (Compiled *)r->c;
  j.mesh = r->mesh;
  j.graph = r->graph;
  err_clear(&j.e);
  return j;
}

/* Opens the data for evaluations; the processes then compare which they have. */
static weft_status open_val(weft_run *r, weft_error *e) {
  Job j = job_of(r);
  weft_status st = job_val(&j, &r->alloc, &r->s.val);
  if (st != WEFT_OK && e) *e = j.e;
  JobFacts f = {.arena = r->kept, .val = r->s.val};
  if (st == WEFT_OK) st = job_facts(&j, &f, e);
  st = run_agree(r->s.run, st, e);
  if (st == WEFT_OK) st = run_consensus(r->s.run, f.fact, f.n, e);
  if (st == WEFT_OK) return st;
  data_close(r->s.val);
  r->s.val = NULL;
  return st;
}

/* Whether the run of a checkpoint was given its tokens by a host. */
static bool was_fed(const Ckpt *from) {
  for (int i = 0; from && i < from->m.nfact; i++)
    if (str_eq(from->m.fact[i].what, "data"))
      return str_eq(from->m.fact[i].value, "none");
  return false;
}

static const char *which(const weft_run *r, const Ckpt *from) {
  if (!from) return "no checkpoint";
  return arena_printf(r->kept, "step %lld, %s", (long long)from->m.step, from->m.id);
}

/* What a checkpoint of this run says of it, which goes on from `from`, or from none. */
static weft_status gather_facts(weft_run *r, JobFacts *f, const Ckpt *from,
                                weft_error *e) {
  bool fed = r->own_tokens || was_fed(from);
  TRY(fed || r->s.data ? api_run_length(r, e) : api_run_data(r, e));
  Job j = job_of(r); /* with the steps of its epochs */
  if (j.plan.eval_every && !r->s.val) TRY(open_val(r, e));
  weft_status st = r->s.weights ? WEFT_OK : job_weights(&j, &r->alloc, &r->s.weights, e);
  *f = (JobFacts){.arena = r->kept,
                  .data = fed ? NULL : r->s.data,
                  .val = r->s.val,
                  .weights = r->s.weights,
                  .steps = j.plan.steps,
                  .resumed = which(r, from)};
  if (st == WEFT_OK) st = job_facts(&j, f, e);
  if (st == WEFT_OK) st = resume_facts(&j, f, &r->fact, &r->nfact, e);
  r->told_own = fed;
  return run_agree(r->s.run, st, e);
}

static void say(void *ud, bool warning, const char *text) {
  if (warning) api_note(ud, text);
}

static weft_status beside(void *ud, const char *ckpt, const Dir *in, const char *name,
                          weft_error *e) {
  const weft_run *r = ud;
  return export_ckpt(&r->weights, r->c, ckpt, in, name, e);
}

/* What checkpoints have beside what the run holds: the text of the plan, and files of
 * its model. */
static weft_status read_beside(weft_run *r, weft_error *e) {
  Job j = job_of(r);
  if (!r->plan_text)
    TRY(file_read(&r->alloc, r->plan->path, FILE_CODE_MAX, &r->plan_text, &r->plan_bytes,
                  e));
  export_end(&r->weights);
  if (!j.plan.checkpoint.consolidated) return WEFT_OK;
  return export_files(&r->weights, &j, &(ExportHow){.dtype = DT_ACT}, r->s.weights, e);
}

static weft_status open_saver(KeepCall *c, weft_error *e) {
  weft_run *r = c->r;
  const Plan *p = &r->plan->job.plan;
  JobFacts f;
  char mesh[96];
  TRY(gather_facts(r, &f, r->from, e));
  TRY(run_agree(r->s.run, read_beside(r, e), e));
  SaverOptions o = {.plan = p,
                    .plan_text = r->plan_text,
                    .mesh = arena_str(r->kept, mesh_text(&r->mesh, mesh)),
                    .fact = r->fact,
                    .nfact = r->nfact,
                    .from = r->from,
                    .end = p->steps,
                    .weights = beside,
                    .say = say,
                    .ud = r};
  return saver_open(r->s.run, &o, &r->saver, e);
}

/* The host has begun to give the tokens since the last save: nobody may go on from here
 * with samples of the plan's data. */
static weft_status tell_own(KeepCall *c, weft_error *e) {
  weft_run *r = c->r;
  JobFacts f;
  TRY(gather_facts(r, &f, r->from, e));
  saver_facts(r->saver, r->fact, r->nfact);
  return WEFT_OK;
}

static weft_status has_folder(const weft_run *r, const char *what, weft_error *err) {
  if (r->plan->job.plan.checkpoint.dir) return WEFT_OK;
  return err_set(err, WEFT_EUSAGE, "%s needs a plan with checkpoint = { dir = ... }",
                 what);
}

weft_status weft_run_save(weft_run *r, int64_t step, weft_error *err) {
  IN_C_LOCALE;
  err_clear(err);
  TRY(need(r, "the run", err));
  TRY(has_folder(r, "a save", err));
  TRY(api_run_filled(r, err));
  if (step < 0)
    return err_set(err, WEFT_EUSAGE,
                   "a checkpoint is of the state after 0 steps or more, "
                   "got %lld",
                   (long long)step);
  clear_notes(r);
  if (!r->saver)
    TRY(keep_call(r, open_saver, NULL, err));
  else if (r->own_tokens != r->told_own)
    TRY(keep_call(r, tell_own, NULL, err));
  return saver_now(r->saver, step, &r->s.best, err);
}

static void skip(void *ud, const char *name, const weft_error *why) {
  weft_run *r = ud;
  text_printf(&r->notes,
              "%sthe checkpoint %s is incomplete or damaged and is skipped: %s: %s",
              r->notes.n ? "\n" : "", name, why->file, why->text);
}

static weft_status find(const KeepCall *c, Ckpt **out, weft_error *e) {
  const char *path;
  bool none;
  if (!c->path)
    return store_newest(c->r->kept, c->r->plan->job.plan.checkpoint.dir, skip, c->r, out,
                        e);
  TRY(store_find(c->r->kept, c->path, &path, &none, e));
  return ckpt_open(path, out, e);
}

/* The processes must have found the same one, or none: which, decides what they go on to
 * do together. */
static weft_status fits_all(weft_run *r, const Ckpt *from, weft_error *e) {
  RunFact it = {"checkpoint", which(r, from), FACT_SAME, NULL};
  TRY(run_consensus(r->s.run, &it, 1, e));
  return run_agree(r->s.run, from ? ckpt_fits(from, r->c, CKPT_STATES, e) : WEFT_OK, e);
}

/* Whether this run may go on from it. */
static weft_status check(weft_run *r, const Ckpt *from, BestEval *best, weft_error *e) {
  JobFacts f;
  Text notes = {0};
  char forgotten[200];
  TRY(fits_all(r, from, e));
  TRY(gather_facts(r, &f, from, e));
  TRY(run_consensus(r->s.run, f.fact, f.n, e));
  if (!from) return WEFT_OK;
  weft_status st = resume_check(from, r->fact, r->nfact, &notes, e);
  while (notes.n && notes.s[notes.n - 1] == '\n') notes.s[--notes.n] = 0;
  if (st == WEFT_OK && notes.n) api_note(r, notes.s);
  text_free(&notes);
  TRY(st);
  *best = resume_best(from, r->fact, r->nfact, forgotten);
  if (*forgotten) api_note(r, forgotten);
  return WEFT_OK;
}

static weft_status load_ckpt(void *ud, Run *run, weft_error *e) {
  return ckpt_load(ud, run, CKPT_STATES, e);
}

static weft_status resume(KeepCall *c, weft_error *e) {
  weft_run *r = c->r;
  Ckpt *from = NULL;
  BestEval best = {0};
  weft_status st = run_agree(r->s.run, find(c, &from, e), e);
  if (st == WEFT_OK) st = check(r, from, &best, e);
  if (st == WEFT_OK && from) {
    r->s.fill = load_ckpt, r->s.fill_from = from;
    st = api_run_fill(r, e);
    r->s.fill = NULL, r->s.fill_from = NULL;
  }
  if (st != WEFT_OK) {
    ckpt_close(from);
    return st;
  }
  api_keep_forget(r);
  r->from = from, r->s.best = best;
  r->own_tokens |= was_fed(from);
  return WEFT_OK;
}

weft_status weft_run_resume(weft_run *r, const char *path, int64_t *step,
                            weft_error *err) {
  IN_C_LOCALE;
  err_clear(err);
  TRY(need(r, "the run", err));
  TRY(need(step, "the output argument for the step", err));
  *step = 0;
  TRY(api_run_lives(r, err));
  if (!path) TRY(has_folder(r, "a resume without a path", err));
  clear_notes(r);
  TRY(keep_call(r, resume, path, err));
  if (!r->from) return weft_run_init(r, err); /* there is none yet */
  *step = r->from->m.step;
  return WEFT_OK;
}

/* ---- exports ---- */

static weft_status export_folder(KeepCall *c, weft_error *e) {
  weft_run *r = c->r;
  ExportFolder x;
  Job j = job_of(r);
  weft_status st =
      export_begin(&x, &j, &(ExportHow){.dtype = DT_ACT}, c->path, r->s.weights, e);
  st = run_agree(r->s.run, st, e);
  if (st == WEFT_OK) st = run_export_shares(r->s.run, c->path, e);
  if (st == WEFT_OK) st = run_export(r->s.run, &x.out, e);
  export_end(&x);
  return st;
}

weft_status weft_run_export(weft_run *r, const char *folder, weft_error *err) {
  IN_C_LOCALE;
  err_clear(err);
  TRY(need(r, "the run", err));
  TRY(need(folder, "the folder", err));
  TRY(api_run_filled(r, err));
  clear_notes(r);
  return keep_call(r, export_folder, folder, err);
}

/* ---- evaluations ---- */

static weft_status begin_evaluations(KeepCall *c, weft_error *e) {
  return open_val(c->r, e);
}

weft_status weft_run_evaluate(weft_run *r, int64_t batches, weft_evaluation *out,
                              weft_error *err) {
  IN_C_LOCALE;
  StepResult result = {.step = -1};
  err_clear(err);
  TRY(need(r, "the run", err));
  TRY(need(out, "the output argument for the evaluation", err));
  *out = (weft_evaluation){0};
  const Plan *p = &r->plan->job.plan;
  if (!r->c->eval)
    return err_set(err, WEFT_EUSAGE,
                   "the plan has no evaluations: say data.val and train.eval_every");
  if (batches < 0)
    return err_set(err, WEFT_EUSAGE,
                   "an evaluation takes 1 batch or more, 0: as many as "
                   "the plan says, got %lld",
                   (long long)batches);
  TRY(api_run_filled(r, err));
  if (!r->s.val) TRY(keep_call(r, begin_evaluations, NULL, err));
  TRY(run_evaluate(r->s.run, r->s.val, batches ? batches : p->eval_batches, &result,
                   err));
  *out = (weft_evaluation){.loss = result.eval_loss,
                           .cross_entropy = result.eval_entropy,
                           .tokens = result.eval_tokens,
                           .ms = result.eval_ms};
  return WEFT_OK;
}
