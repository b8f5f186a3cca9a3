/* job_rounding.c - whether a difference is rounding: it is no more than a few times what
 * one rank has from itself (vm/session/verify_rounding.h). In 16 bits that is much, so
 * that the same plan in f32 must be the same as one rank, too: what is wrong there by a
 * hundredth is wrong by hundreds of tolerances. */
#include "job_rounding.h"

#include "vm/session/verify_rounding.h"

#include <math.h>
#include <stdio.h>

static bool in_f32(const Plan *p) {
  return p->dtype == DT_F32 && p->grad == DT_F32 && p->reduce == DT_F32 &&
         p->master == DT_F32 && p->opt.state == DT_F32;
}

/* The one-rank job with the number formats of `many`. */
static weft_status same_formats(const Job *many, Job *alone) {
  const Plan *like = &many->plan;
  TRY(job_twin(many, alone));
  Plan *p = &alone->plan;
  p->dtype = like->dtype, p->grad = like->grad, p->reduce = like->reduce;
  p->master = like->master, p->opt.state = like->opt.state;
  return job_compile(alone);
}

static weft_status with_f32(const Job *many, Job *exact) {
  *exact = *many;
  exact->dumped = (Text){0};
  Plan *p = &exact->plan;
  p->dtype = p->grad = p->reduce = p->master = p->opt.state = DT_F32;
  return job_compile(exact);
}

/* Whether the plan in f32 is the same as one rank. */
static weft_status agrees_in_f32(const Job *many, const Job *one, int steps, JobVerify *v,
                                 bool *is, weft_error *e) {
  Job exact;
  JobVerify w = {.stop = v->stop};
  *is = false;
  weft_status st = with_f32(many, &exact);
  if (st == WEFT_EPLAN) return WEFT_OK; /* it cannot be asked */
  if (st == WEFT_OK) {
    w.tolerance = job_tolerance(&exact);
    st = job_compare(&exact, one, steps, true, &w);
  }
  if (st != WEFT_OK) *e = exact.e;
  *is = st == WEFT_OK && w.report.ok;
  return st;
}

static double largest(const VerifyReport *r) {
  return fmax(fmax(r->loss, r->grad_norm), fmax(r->grad, r->param));
}

static double largest_own(const VerifyRounding *own, int nparam) {
  double most = fmax(fmax(own->loss, own->grad_norm), own->param);
  for (int i = 0; i < nparam; i++) most = fmax(most, own->grad[i]);
  return most;
}

static void explained(VerifyReport *r, bool f32, double own) {
  static const char shaken[] = "one rank with weights that differ in the last bit is up "
                               "to %.1e from itself",
                    formats[] = "in f32 both are the same, and one rank with these "
                                "number formats is up to %.1e from f32";
  const VerifyReport was = *r;
  TextBuf t = textbuf(r->first_bad, sizeof r->first_bad);
  textbuf_printf(&t, "%s, which is rounding: ", was.first_bad);
  textbuf_printf(&t, f32 ? shaken : formats, own);
  r->ok = true;
}

/* How far one rank is from itself; *known: it could be run. */
static weft_status measured(Job *many, const Job *one, int steps, const JobVerify *v,
                            VerifyRounding *own, bool *known) {
  bool f32 = in_f32(&many->plan);
  Job alone = *one;
  *known = f32 || same_formats(many, &alone) == WEFT_OK;
  if (!*known) return WEFT_OK;
  weft_status st =
      verify_rounding(&alone.plan, alone.compiled, &one->plan, one->compiled, steps,
                      v->tolerance, f32, &(RunOptions){.stop = v->stop}, own, &many->e);
  *known = st == WEFT_OK;
  if (st != WEFT_ERUN) return st;
  err_clear(&many->e); /* gradients that are not finite */
  return WEFT_OK;
}

/* Explains what v->report found, if rounding does. */
static weft_status explain(Job *many, const Job *one, int steps, JobVerify *v) {
  bool f32 = in_f32(&many->plan), is;
  int n = many->compiled->nparam;
  VerifyRounding own = {.grad = NEW_N(many->arena, double, n)};
  VerifyReport within;
  TRY(measured(many, one, steps, v, &own, &is));
  if (!is) return WEFT_OK;
  TRY(verify_within(&many->plan, many->compiled, &one->plan, one->compiled, steps,
                    v->tolerance, &own, &(RunOptions){.stop = v->stop}, &within,
                    &many->e));
  is = within.ok;
  if (is && !f32) TRY(agrees_in_f32(many, one, steps, v, &is, &many->e));
  if (is) explained(&v->report, f32, largest_own(&own, n));
  return WEFT_OK;
}

weft_status job_compare(Job *many, const Job *one, int steps, bool explains,
                        JobVerify *v) {
  TRY(verify(&many->plan, many->compiled, &one->plan, one->compiled, steps, v->tolerance,
             &(RunOptions){.stop = v->stop}, &v->report, &many->e));
  bool near = largest(&v->report) <= ROUNDS_MOST * v->tolerance;
  if (v->report.ok || !explains || !near || many->plan.fp8.recipe) return WEFT_OK;
  return explain(many, one, steps, v);
}
