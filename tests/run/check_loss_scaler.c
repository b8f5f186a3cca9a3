/* check_loss_scaler.c - the loss scale of f16: when it shrinks and grows, and that a step
 * which is skipped changes nothing else. */
#include <check.h>
#include <math.h>

#include "tests/harness/run_bits.h"
#include "vm/run/loss_scaler.h"
#include "vm/weights/param_gather.h"

static Scaler make(int64_t interval, int64_t hysteresis) {
  Plan p = {.dtype = DT_F16,
            .loss_scale = {.init = 16,
                           .growth = 2,
                           .backoff = 0.5,
                           .min = 4,
                           .interval = interval,
                           .hysteresis = hysteresis}};
  return scaler_make(&p);
}

/* 'o': overflow, '.': none; the scales after each of them. */
static void follow(Scaler s, const char *steps, const double *scale) {
  for (int i = 0; steps[i]; i++) {
    scaler_after(&s, steps[i] == 'o');
    ck_assert_msg(s.scale == scale[i], "%s[%d]: %g, not %g", steps, i, s.scale, scale[i]);
  }
}

START_TEST(the_scale_follows_overflows) {
  follow(make(2, 1), "...o..", (double[]){16, 32, 32, 16, 16, 32});
  follow(make(3, 1), "..o...", (double[]){16, 16, 8, 8, 8, 16});
  follow(make(9, 1), "ooo", (double[]){8, 4, 4});
  follow(make(2, 2), "oo..oo", (double[]){16, 8, 8, 16, 16, 8});
  follow(make(9, 2), "o.o", (double[]){16, 16, 8});
  Scaler s = make(9, 1);
  ck_assert(scaler_can_skip(&s));
  s.scale = 4;
  ck_assert(!scaler_can_skip(&s));
}
END_TEST

START_TEST(a_scale_stays_finite) {
  Scaler s = make(1, 1);
  for (int i = 0; i < 200; i++) scaler_after(&s, false);
  ck_assert_double_eq(s.scale, 0x1p127);
}
END_TEST

START_TEST(other_types_have_none) {
  Plan p = {.dtype = DT_BF16, .loss_scale = {.init = 16, .interval = 1, .growth = 2}};
  Scaler s = scaler_make(&p);
  scaler_after(&s, false);
  ck_assert(s.scale == 1 && !s.on && !scaler_can_skip(&s));
}
END_TEST

/* ---- in a run ---- */

static void open_f16(Toy *t, bool early, double init, Run **r) {
  ToyOptions o = meshed(2, 2, 1);
  o.dtype = DT_F16, o.sp = true, o.post_validation = early;
  ck_assert_int_eq(toy_compile(t, &o, NULL), WEFT_OK);
  t->plan.loss_scale.init = init;
  OK(run_open(&t->plan, t->compiled, &(RunOptions){.threads = 1}, r, &trace_err));
  OK(run_init(*r, &trace_err));
}

/* Steps on the same tokens until one counts; returns how many did not. */
static int skips(Run *r, Toy *t, int64_t *step, StepResult *res) {
  size_t n = (size_t)(t->plan.batch.global * t->plan.batch.seq);
  int32_t *ids = NEW_N(t->arena, int32_t, 2 * n);
  int k = 0;
  for (random_ids(t, 0, ids, ids + n);; k++) {
    OK(run_step_tokens(r, ids, ids + n, (*step)++, res, &trace_err));
    if (!res->skipped) return k;
  }
}

START_TEST(a_skipped_step_changes_nothing) {
  Toy t;
  Run *r;
  Trace before, after;
  StepResult res;
  open_f16(&t, _i, 0x1p40, &r);
  read_state(r, &t, &before);
  trace_step(r, &t, 0, &res);
  ck_assert(res.skipped && res.loss_scale == 0x1p40);
  read_state(r, &t, &after);
  for (int k = 0; k < 3; k++)
    ck_assert_mem_eq(before.state[k], after.state[k], sizeof(float) * (size_t)before.n);
  trace_step(r, &t, 1, &res);
  ck_assert_double_eq(res.loss_scale, 0x1p39);
  run_close(r);
  toy_free(&t);
}
END_TEST

/* Skipped steps do not count for the optimizer: three that do lead to the same parameters
 * as without an overflow before. */
START_TEST(skipped_steps_do_not_count) {
  Toy t[2];
  Trace x[2];
  double norm[2];
  for (int i = 0; i < 2; i++) {
    Run *r;
    StepResult res;
    int64_t step = 0;
    open_f16(&t[i], false, i ? 0x1p40 : 0x1p16, &r);
    int skipped = skips(r, &t[i], &step, &res);
    for (int k = 0; k < 2; k++) skipped += skips(r, &t[i], &step, &res);
    ck_assert(i ? skipped > 5 : skipped == 0);
    norm[i] = res.grad_norm;
    read_state(r, &t[i], &x[i]);
    run_close(r);
  }
  ck_assert_double_eq_tol(norm[0], norm[1], 1e-2 * norm[0]);
  double diff = 0, all = 0;
  for (int64_t i = 0; i < x[0].n; i++) {
    double a = x[0].state[0][i], b = x[1].state[0][i];
    diff += (a - b) * (a - b);
    all += a * a;
  }
  ck_assert_double_lt(diff, 1e-5 * all);
  toy_free(&t[0]);
  toy_free(&t[1]);
}
END_TEST

/* Gradients are given without the scale. */
START_TEST(gradients_come_without_the_scale) {
  double sum[2] = {0};
  for (int i = 0; i < 2; i++) {
    Toy t;
    Run *r;
    StepResult res;
    open_f16(&t, false, i ? 0x1p8 : 0x1p16, &r);
    trace_step(r, &t, 0, &res);
    ck_assert(!res.skipped);
    for (int p = 0; p < t.compiled->nparam; p++) {
      int64_t n = param_count(&t.compiled->param[p]);
      float *g = NEW_N(t.arena, float, n);
      OK(run_get(r, STATE_GRAD, p, g, &trace_err));
      for (int64_t k = 0; k < n; k++) sum[i] += (double)g[k] * g[k];
    }
    ck_assert_double_eq_tol(sqrt(sum[i]), res.grad_norm, 1e-4 * res.grad_norm);
    run_close(r);
    toy_free(&t);
  }
  ck_assert_double_eq_tol(sum[0], sum[1], 1e-2 * sum[0]);
}
END_TEST

START_TEST(an_overflow_at_the_smallest_scale_is_an_error) {
  Toy t;
  Run *r;
  StepResult res;
  open_f16(&t, false, 0x1p40, &r);
  run_close(r);
  t.plan.loss_scale.min = 0x1p40;
  OK(run_open(&t.plan, t.compiled, &(RunOptions){.threads = 1}, &r, &trace_err));
  OK(run_init(r, &trace_err));
  size_t n = (size_t)(t.plan.batch.global * t.plan.batch.seq);
  int32_t *ids = NEW_N(t.arena, int32_t, 2 * n);
  random_ids(&t, 0, ids, ids + n);
  weft_error e = {.rank = -1};
  ck_assert_int_eq(run_step_tokens(r, ids, ids + n, 0, &res, &e), WEFT_ERUN);
  ck_assert_msg(strstr(e.text, "gradient norm is") != NULL, "%s", e.text);
  run_close(r);
  toy_free(&t);
}
END_TEST

Suite *loss_scaler_suite(void) {
  Suite *s = suite_create("loss_scaler");
  TCase *c = tcase_create("scaler");
  tcase_set_timeout(c, 60);
  tcase_add_test(c, the_scale_follows_overflows);
  tcase_add_test(c, a_scale_stays_finite);
  tcase_add_test(c, other_types_have_none);
  tcase_add_loop_test(c, a_skipped_step_changes_nothing, 0, 2);
  tcase_add_test(c, skipped_steps_do_not_count);
  tcase_add_test(c, gradients_come_without_the_scale);
  tcase_add_test(c, an_overflow_at_the_smallest_scale_is_an_error);
  suite_add_tcase(s, c);
  return s;
}
