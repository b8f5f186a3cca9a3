/* gradient_sums.c - see gradient_sums.h. */
#include "gradient_sums.h"

#include <check.h>

#include "vm/base/bf16.h"
#include "vm/weights/param_gather.h"

float rounded_to_bf16(float x) { return bf16_to_f32(bf16_from_f32(x)); }

float *gradients_of_part(Run *r, Toy *t, int rank, int mb) {
  int64_t seq = t->plan.batch.seq, n = t->plan.batch.global * seq;
  int32_t *ids = NEW_N(t->arena, int32_t, 2 * n);
  float *all = NEW_N(t->arena, float, t->compiled->params_total), *to = all;
  StepResult res;
  random_ids(t, 0, ids, ids + n);
  for (int64_t i = 0; i < n && rank >= 0; i++) {
    int64_t row = i / seq;
    bool mine = row % SUM_RANKS == rank && (mb < 0 || row / SUM_RANKS == mb);
    if (!mine) ids[n + i] = -100;
  }
  OK(run_init(r, &trace_err));
  OK(run_step_tokens(r, ids, ids + n, 0, &res, &trace_err));
  for (int i = 0; i < t->compiled->nparam; i++) {
    OK(run_get(r, STATE_GRAD, i, to, &trace_err));
    to += param_count(&t->compiled->param[i]);
  }
  return all;
}

ToyOptions sum_options(int stage, int copies, bool defer) {
  ToyOptions o = meshed(1, 1, SUM_RANKS);
  o.layers = 2, o.vocab = 51, o.replicate = copies;
  o.overlap = stage % 2, o.bucket_bytes = stage < 2 ? 2 << 10 : 0;
  o.strategy.stage = stage, o.strategy.defer_grad_sync = defer;
  return o;
}

void sum_open_one(Toy *one, Run **r) {
  ToyOptions plain = sum_options(0, 1, true);
  open_toy(one, &plain, 1, r);
}

void sum_is(const ToyOptions *o, const float *want) {
  Toy many;
  Run *r;
  open_toy(&many, o, 1, &r);
  const float *got = gradients_of_part(r, &many, -1, -1);
  for (int64_t i = 0; i < (int64_t)many.compiled->params_total; i++)
    ck_assert_msg(got[i] == want[i], "stage %d, %d copies: element %lld: %a, by hand %a",
                  o->strategy.stage, o->replicate, (long long)i, (double)got[i],
                  (double)want[i]);
  run_close(r);
  toy_free(&many);
}

/* ---- whole runs ---- */

ToyOptions sum_on_mesh(const int mesh[4], int i, int stage) {
  ToyOptions o = meshed(mesh[0], mesh[1], mesh[2]);
  o.replicate = mesh[3], o.layers = 2, o.sp = mesh[0] > 1, o.tied = i % 2, o.bias = true;
  o.overlap = i != 1, o.bucket_bytes = i % 2 ? 1 : 4 << 10;
  o.strategy.stage = stage, o.strategy.defer_grad_sync = true;
  o.strategy.overlap_param_gather = true;
  return o;
}

void sum_agrees_with_one_rank(SumPlan *of, int i, double tolerance) {
  ToyOptions o = of(i, i % SUM_STAGES);
  for (int k = 0; k < 2; k++) {
    Pair p;
    o.strategy.defer_grad_sync = k;
    pair_compile(&p, &o);
    pair_verify(&p, 2, tolerance);
    ck_assert_msg(p.report.ok, "%s", p.report.first_bad);
    ck_assert_double_gt(p.report.grad, 1e-5);
    pair_free(&p);
  }
}

void sum_changes_no_bit(SumPlan *of, int i) {
  ToyOptions whole = of(i, 0);
  whole.clip = 0;
  Toy a, b;
  Trace x, y;
  trace(&a, &whole, 1, &x);
  for (int stage = 1; stage < SUM_STAGES; stage++) {
    ToyOptions cut = of(i, stage);
    cut.clip = 0;
    trace(&b, &cut, 1, &y);
    memcpy(y.norm, x.norm, sizeof x.norm);
    same_bits(&x, &y);
    toy_free(&b);
  }
  toy_free(&a);
}
