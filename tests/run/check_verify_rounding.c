/* check_verify_rounding.c - differences beyond the tolerance that are rounding, in 16
 * bits and where next to nothing is left of a gradient in f32; and that what is wrong by
 * a hundredth is not taken for that. */
#include <check.h>
#include <math.h>

#include "bindings/api/job.h"
#include "tests/harness/one_rank_pair.h"
#include "tests/harness/scratch.h"
#include "vm/session/verify_rounding.h"

static Arena *arena;
static Pair pair;

static void setup(void) {
  scratch_setup();
  arena = arena_new(NULL);
}

static void teardown(void) {
  arena_free(arena);
  scratch_teardown();
}

/* ---- plans ---- */

#define PLAN(model, rest)                                                                \
  "local weft = require 'weft'\nreturn weft.plan { model = weft.model { " model          \
  " }, " rest " data = weft.synthetic {}, train = { steps = 3 } }\n"
#define WIDE "vocab_size = 64, initializer_range = 0.1, max_position_embeddings = 128, "

static const struct {
  const char *plan, *why;
  bool f32;
} rounds[] = {
    {PLAN("'phi3', " WIDE "hidden_size = 16, intermediate_size = 16, "
          "num_hidden_layers = 3, num_attention_heads = 2, num_key_value_heads = 2",
          "mesh = { tp = 2, cp = 2 }, batch = { global = 3, micro = 1, seq = 32 }, "
          "schedule = 'zb_h2', precision = { param_dtype = 'bf16' }, "
          "loss = { 'cross_entropy', per = 'sequences' }, "
          "optimizer = weft.lion { lr = 1e-3 },"),
     "which is rounding: in f32 both are the same, and one rank with these number "
     "formats is up to ",
     false},
    /* D times x is what a norm divides by, to which its size is nothing */
    {PLAN("'falcon_h1', " WIDE "hidden_size = 32, intermediate_size = 16, "
          "num_hidden_layers = 3, num_attention_heads = 8, num_key_value_heads = 2, "
          "head_dim = 4, mamba_d_ssm = 24, mamba_n_heads = 4, mamba_n_groups = 4, "
          "mamba_d_state = 8, mamba_rms_norm = true, tie_word_embeddings = true",
          "mesh = { tp = 4 }, batch = { global = 4, micro = 2, seq = 32 }, "
          "optimizer = weft.adamw { lr = 1e-3 },"),
     "which is rounding: one rank with weights that differ in the last bit is up to ",
     true},
};

static weft_status verified(const char *plan, JobVerify *v, Job *j) {
  scratch_put("plan.lua", plan, strlen(plan));
  LangOptions o = {0};
  ck_assert_int_eq(job_load(j, arena, &o, scratch_path("plan.lua")), WEFT_OK);
  return job_verify(j, v);
}

START_TEST(rounding_is_told) {
  JobVerify v = {.steps = 3};
  Job j;
  weft_status st = verified(rounds[_i].plan, &v, &j);
  ck_assert_msg(st == WEFT_OK && v.report.ok, "%s", j.e.text);
  ck_assert_msg(strstr(v.report.first_bad, rounds[_i].why) != NULL, "\"%s\"",
                v.report.first_bad);
  ck_assert_double_gt(v.report.grad, v.tolerance);
  ck_assert_double_eq(v.tolerance, rounds[_i].f32 ? 1e-5 : 2e-2);
  job_free(&j);
}
END_TEST

/* Hosts and scripts get the words of the verb. */
START_TEST(hosts_are_told) {
  weft_error e;
  weft_plan *plan;
  weft_verify_result r;
  scratch_put("plan.lua", rounds[1].plan, strlen(rounds[1].plan));
  ck_assert_int_eq(weft_plan_load(NULL, scratch_path("plan.lua"), &plan, &e), WEFT_OK);
  ck_assert_msg(weft_verify(plan, NULL, &r, &e) == WEFT_OK, "%s", e.text);
  ck_assert_msg(strstr(r.rounding, rounds[1].why) != NULL, "\"%s\"", r.rounding);
  ck_assert_double_gt(r.grad, r.tolerance);
  weft_plan_free(plan);
}
END_TEST

/* A tolerance that was asked for is that of all numbers. */
START_TEST(a_tolerance_is_kept) {
  JobVerify v = {.steps = 3, .tolerance = rounds[_i].f32 ? 1e-5 : 2e-2};
  Job j;
  ck_assert_int_eq(verified(rounds[_i].plan, &v, &j), WEFT_EPLAN);
  ck_assert(!v.report.ok);
  ck_assert_msg(strstr(j.e.text, "(tolerance ") && !strstr(j.e.text, "rounding"), "%s",
                j.e.text);
  job_free(&j);
}
END_TEST

/* ---- faults ---- */

static void free_pair(void) { pair_free(&pair); }

/* Makes what an op of all programs multiplies by a hundredth too large. */
static void plant(int op) {
  Compiled *c = pair.many.compiled;
  int n = 0;
  for (int i = 0; i < c->mesh.size[AXIS_PP]; i++)
    for (Instr *x = c->prog[i].code; x < c->prog[i].code + c->prog[i].ncode; x++)
      if (x->code == I_KERNEL && x->op == op)
        c->prog[i].attr[x->attr].scale *= 1.01f, n++;
  ck_assert_int_gt(n, 0);
}

static void measure(VerifyRounding *own) {
  weft_error e = {.rank = -1};
  const Toy *one = &pair.one;
  own->grad = NEW_N(one->arena, double, one->compiled->nparam);
  ck_assert_int_eq(verify_rounding(&one->plan, one->compiled, &one->plan, one->compiled,
                                   2, 1e-5, true, NULL, own, &e),
                   WEFT_OK);
}

static void compare(const VerifyRounding *own, double tolerance) {
  weft_error e = {.rank = -1};
  ck_assert_int_eq(verify_within(&pair.many.plan, pair.many.compiled, &pair.one.plan,
                                 pair.one.compiled, 2, tolerance, own, NULL, &pair.report,
                                 &e),
                   WEFT_OK);
}

/* One rank that is shaken is as far from itself as ranks are that add up in another
 * order: a tolerance that no figure keeps is widened enough for each, and not for what is
 * wrong by a hundredth. */
START_TEST(a_hundredth_is_noticed) {
  ToyOptions o = toy_default();
  VerifyRounding own;
  o.tp = 2, o.pp = 2, o.dp = 2, o.layers = 2;
  pair_compile(&pair, &o);
  measure(&own);
  for (int i = 0; i < pair.one.compiled->nparam; i++)
    ck_assert_msg(own.grad[i] > 1e-9 && own.grad[i] < 1e-5, "%s: %g",
                  pair.one.compiled->param[i].name, own.grad[i]);
  compare(&own, 1e-5);
  ck_assert_msg(pair.report.ok, "%s", pair.report.first_bad);
  plant(_i ? OP_attention_dx : OP_attention);
  compare(&own, 1e-5);
  ck_assert(!pair.report.ok);
}
END_TEST

/* However much one rank rounds, what is a hundredth is beyond what may be rounding; and
 * what has no rounding has no other tolerance. */
START_TEST(nothing_is_all_rounding) {
  ToyOptions o = toy_default();
  VerifyRounding own;
  o.tp = 2, o.layers = 2;
  pair_compile(&pair, &o);
  measure(&own);
  own.loss = own.grad_norm = own.param = 1;
  for (int i = 0; i < pair.one.compiled->nparam; i++) own.grad[i] = 1;
  compare(&own, 1e-5);
  ck_assert_msg(pair.report.ok, "%s", pair.report.first_bad);
  if (_i)
    plant(OP_attention_dx);
  else
    pair.many.plan.opt.lr.max *= 1.00005;
  compare(&own, 1e-5);
  ck_assert(!pair.report.ok);
  ck_assert_msg(strstr(pair.report.first_bad, _i ? "gradient of " : "learning rate "),
                "%s", pair.report.first_bad);
}
END_TEST

Suite *verify_rounding_suite(void);
Suite *verify_rounding_suite(void) {
  Suite *s = suite_create("verify_rounding");
  TCase *c = tcase_create("plans");
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_add_loop_test(c, rounding_is_told, 0, LEN(rounds));
  tcase_add_test(c, hosts_are_told);
  tcase_add_loop_test(c, a_tolerance_is_kept, 0, LEN(rounds));
  tcase_set_timeout(c, 120);
  suite_add_tcase(s, c);
  c = tcase_create("faults");
  tcase_add_checked_fixture(c, NULL, free_pair);
  tcase_add_loop_test(c, a_hundredth_is_noticed, 0, 2);
  tcase_add_loop_test(c, nothing_is_all_rounding, 0, 2);
  tcase_set_timeout(c, 60);
  suite_add_tcase(s, c);
  return s;
}
