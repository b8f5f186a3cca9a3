/* api_verify.c - weft_verify: compares a shrunk plan on many ranks with one rank. */
#include "api.h"
#include "vm/base/c_locale.h"
#include "vm/session/verify.h"

#include <stdio.h>

typedef struct VerifyCall {
  const weft_plan *plan;
  Arena *arena;
  Job job;
  JobVerify v;
} VerifyCall;

/* Loads the plan again, because verify changes its model. */
static weft_status load_and_verify(Arena *a, void *ud, weft_error *e) {
  VerifyCall *c = ud;
  const weft_plan *p = c->plan;
  (void)a, (void)e; /* those of the job */
  LangValue same = {.copy = p->job.lp};
  TRY(p->from_value ? job_load_value(&c->job, c->arena, &p->opt, &same)
                    : job_load(&c->job, c->arena, &p->opt, p->path));
  return job_verify(&c->job, &c->v);
}

static void fill(const VerifyCall *c, weft_verify_result *out) {
  const VerifyReport *r = &c->v.report;
  *out = (weft_verify_result){.ranks = c->job.mesh.world,
                              .steps = r->steps,
                              .tensors = r->tensors,
                              .loss = r->loss,
                              .grad_norm = r->grad_norm,
                              .grad = r->grad,
                              .param = r->param,
                              .tolerance = c->v.tolerance};
  snprintf(out->worst, sizeof out->worst, "%s", r->worst);
  if (r->ok) snprintf(out->rounding, sizeof out->rounding, "%s", r->first_bad);
  TextBuf not_covered = textbuf(out->not_covered, sizeof out->not_covered);
  for (int i = 0; i < c->v.shrunk.n; i++)
    textbuf_printf(&not_covered, "%s%s", i ? ", " : "", c->v.shrunk.what[i]);
}

/* 0 is the default; what is below it would be one silently. */
static weft_status check_options(const weft_verify_options *o, weft_error *err) {
  if (o->ranks < 0 || o->ranks > 1024)
    return err_set(err, WEFT_EUSAGE,
                   "%d ranks are not possible: give 1 to 1024, or 0 for 32", o->ranks);
  if (o->steps < 0 || o->steps > 1000000)
    return err_set(err, WEFT_EUSAGE,
                   "%d steps are not possible: give 1 to 1000000, or 0 for 3", o->steps);
  if (!(o->tolerance >= 0 && o->tolerance <= 1e30))
    return err_set(
        err, WEFT_EUSAGE,
        "a tolerance of %g is not possible: give a number above 0, or 0 for that "
        "of the precision",
        o->tolerance);
  return WEFT_OK;
}

weft_status weft_verify(const weft_plan *plan, const weft_verify_options *options,
                        weft_verify_result *out, weft_error *err) {
  IN_C_LOCALE;
  weft_verify_options o;
  err_clear(err);
  TRY(need(out, "the output argument for the result", err));
  *out = (weft_verify_result){0};
  TRY(need(plan, "the plan", err));
  TRY(struct_read(&o, sizeof o, options, "weft_verify_options", err));
  TRY(check_options(&o, err));
  if (!plan->loaded)
    return err_set(err, WEFT_EUSAGE, "the plan was not loaded; its report says why");
  VerifyCall c = {.plan = plan,
                  .arena = arena_new(&plan->alloc),
                  .v = {.ranks = o.ranks,
                        .steps = o.steps,
                        .tolerance = o.tolerance,
                        .stop = api_stop(o.stop)}};
  if (!c.arena) return err_set(err, WEFT_ENOMEM, "out of memory");
  weft_status st = arena_call(c.arena, load_and_verify, &c, &c.job.e);
  fill(&c, out);
  api_end(&c.job, st, err);
  job_free(&c.job);
  arena_free(c.arena);
  return st;
}
