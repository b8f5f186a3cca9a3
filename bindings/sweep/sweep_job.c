/* sweep_job.c - the plan of one row as a job of its own, which goes on where the passes
 * of a sweep end: to programs. */
#include "sweep.h"

typedef struct RowJob {
  Job job;
  Vary vary;
  SweepAct *act;
  void *ud;
  weft_status st;
} RowJob;

static void run_row(void *ud) {
  RowJob *r = ud;
  r->job.lp = &r->vary.plan;
  r->job.plan = *lang_plan(r->job.lp);
  r->st = r->act(r->ud, &r->job);
}

weft_status sweep_job(Sweep *s, Judge *j, int64_t i, SweepAct *act, void *ud,
                      PointReason *why, weft_error *e) {
  int choice[SWEEP_AXES];
  Arena *a = arena_new(NULL);
  if (!a) return err_set(e, WEFT_ENOMEM, "out of memory in a sweep");
  RowJob r = {.job = {.arena = a, .d = {.arena = a}}, .act = act, .ud = ud};
  err_clear(&r.job.e);
  sweep_choice(s, s->todo[i], choice);
  r.st =
      vary_begin(j->lp, j->values, NULL, choice, s->naxis, &r.vary, &r.job.d, &r.job.e);
  if (r.st == WEFT_OK && !arena_try(a, run_row, &r))
    r.st = err_set(&r.job.e, WEFT_ENOMEM, "out of memory in a sweep");
  vary_end(&r.vary);
  if (r.st == WEFT_EPLAN) point_reason(&r.job.d, &r.job.e, why);
  if (r.st == WEFT_EPLAN && r.job.d.errors) report_first(&r.job.d, &r.job.e);
  if (r.st != WEFT_OK) *e = r.job.e;
  text_free(&r.job.dumped);
  arena_free(a);
  return r.st;
}
