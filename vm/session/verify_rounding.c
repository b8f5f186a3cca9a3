/* verify_rounding.c - tolerances of single numbers, from what rounding makes of them; see
 * verify_rounding.h. */
#include "verify_rounding.h"
#include "verify_int.h"

#include "vm/base/rng.h"
#include "vm/weights/param_gather.h"

#include <math.h>

double tolerance_of(const Verify *v, const double *figure, int param) {
  const VerifyRounding *own = v->own;
  if (!own) return v->tolerance;
  double far = figure == &v->out->grad    ? own->grad[param]
               : figure == &v->out->loss  ? own->loss
               : figure == &v->out->param ? own->param
                                          : own->grad_norm;
  return fmin(ROUNDS_MOST * v->tolerance, fmax(v->tolerance, ROUNDS_AS_FAR * far));
}

void measure(Verify *v, int param, double difference) {
  double *most = &v->measured->grad[param];
  *most = fmax(*most, difference);
}

/* Changes by one unit of the last place at most. What is stored in 4 bits stays. */
weft_status shake_weights(Verify *v, int64_t step, weft_error *e) {
  Rng rng = rng_make(v->plan->seed, "verify.rounding");
  uint64_t at = (uint64_t)step << 40;
  for (int i = 0; i < v->c->nparam; i++) {
    const CompiledParam *p = &v->c->param[i];
    if (p->quant || p->share > 0) continue;
    float *x = v->buf[0];
    TRY(run_get(v->many, STATE_PARAM, i, x, e));
    for (int64_t k = 0; k < param_count(p); k++)
      x[k] = (float)(x[k] * (1 + 0x1p-23 * (2 * rng_uniform(&rng, at++) - 1)));
    TRY(run_set(v->many, STATE_PARAM, i, x, e));
  }
  return WEFT_OK;
}

weft_status verify_rounding(const Plan *plan, const Compiled *alone, const Plan *plan_one,
                            const Compiled *one, int steps, double tolerance, bool shakes,
                            const RunOptions *options, VerifyRounding *out,
                            weft_error *e) {
  VerifyReport r;
  Verify v = {.plan = plan,
              .c = alone,
              .tolerance = tolerance,
              .shakes = shakes,
              .measured = out,
              .out = &r};
  for (int i = 0; i < alone->nparam; i++) out->grad[i] = 0;
  TRY(verify_runs(&v, plan_one, one, steps, options, e));
  out->loss = r.loss, out->grad_norm = r.grad_norm, out->param = r.param;
  return WEFT_OK;
}

weft_status verify_within(const Plan *plan, const Compiled *many, const Plan *plan_one,
                          const Compiled *one, int steps, double tolerance,
                          const VerifyRounding *own, const RunOptions *options,
                          VerifyReport *out, weft_error *e) {
  Verify v = {.plan = plan, .c = many, .tolerance = tolerance, .own = own, .out = out};
  return verify_runs(&v, plan_one, one, steps, options, e);
}
