/* check_expect.c - limits that a plan sets: which are kept, what is said of the others,
 * what is wrong with the limits themselves. */
#include <check.h>
#include <jansson.h>
#include <stdio.h>

#include "bindings/api/job.h"
#include "tests/harness/codes.h"
#include "tests/harness/process.h"

enum { SECONDS = 30 };

static void plan(const char *expect) {
  Text t = {0};
  text_printf(&t,
              "local weft = require 'weft'\n"
              "return weft.plan { model = weft.model { 'llama-tiny', num_hidden_layers = "
              "4 },\n"
              "  mesh = { pp = 4, tp = 2, dp = 2 }, schedule = '1f1b',\n"
              "  batch = { global = 16, micro = 2, seq = 32 },\n"
              "  train = { steps = 1 },\n"
              "  expect = {\n%s  },\n}\n",
              expect);
  ck_assert(!t.oom);
  scratch_put("plan.lua", t.s, t.n);
  text_free(&t);
}

static void says(const char *verb, int code, const char *err) {
  Outcome o = process_run(SECONDS, "$weft %s plan.lua", verb);
  ck_assert_msg(o.code == code && str_eq(without_codes(o.err), err), "%s: exit %d\n%s",
                verb, o.code, o.err);
}

/* Everything that can be limited, with the value that it has. A rank
 * of a stage in the middle sends 2 x 32 x 128 f32 in each of 4 microbatches twice. */
START_TEST(values_are_right) {
  plan("    bubble = 0.4286,\n"
       "    bubble_own = weft.between(0.2727, 0.2728),\n"
       "    dp = 2,\n"
       "    microbatches = 4,\n"
       "    p2p_gib = 262144 / 2^30,\n"
       "    peak_in_flight = weft.at_most(4),\n"
       "    ranks = 16,\n"
       "    stages = 4,\n");
  says("check", 0, "");
  Outcome o = process_run(SECONDS, "$weft check plan.lua");
  ck_assert(strstr(o.out, "  expect  all limits are kept\n"));
  says("run --quiet --threads 1", 0, "");
}
END_TEST

/* What weft sim says, and only with a cluster. */
START_TEST(figures_of_the_clock) {
  plan("    step_ms = weft.at_least(1e6), mfu = weft.at_least(0.99)\n");
  says("check", 1,
       "plan.lua:2: error: plan.cluster: the clock needs the machines, with their GPU: "
       "cluster = "
       "\"h100-sxm\", or figures of your own, for expect.step_ms\n1 error\n");
  Outcome o = process_run(SECONDS, "$weft check plan.lua --set cluster=h100-sxm");
  ck_assert_int_eq(o.code, 1);
  ck_assert_ptr_nonnull(strstr(o.err, "plan.expect.step_ms: is "));
  ck_assert_ptr_nonnull(strstr(o.err, "expected at least 1000000 [expect]\n"));
  ck_assert_ptr_nonnull(strstr(o.err, "plan.expect.mfu: is "));
  o = process_run(SECONDS, "$weft sim --json plan.lua --set cluster=h100-sxm");
  json_t *j = json_loads(o.out, 0, NULL);
  double seconds, mfu;
  ck_assert_int_eq(json_unpack(j, "{s:{s:{s:F,s:F}}}", "result", "sim", "seconds",
                               &seconds, "mfu", &mfu),
                   0);
  json_decref(j);
  plan("");
  o = process_run(SECONDS,
                  "$weft check plan.lua --set cluster=h100-sxm --set expect.step_ms=%.9g "
                  "--set expect.mfu=%.9g",
                  seconds * 1e3, mfu);
  ck_assert_msg(o.code == 0, "%s", o.err);
}
END_TEST

/* Memory, parameters and collectives as other reports have them. */
START_TEST(sizes_are_those_of_the_reports) {
  plan("");
  Outcome o = process_run(SECONDS, "$weft check --json plan.lua");
  json_t *j = json_loads(o.out, 0, NULL);
  int64_t memory, parameters;
  ck_assert_int_eq(json_unpack(j, "{s:{s:I,s:I}}", "result", "memory_bytes", &memory,
                               "parameters", &parameters),
                   0);
  json_decref(j);
  plan(arena_printf(scratch_arena,
                    "    peak_gib = weft.between(%lld / 2^30, %lld / 2^30),\n"
                    "    parameters = weft.between(%lld, %lld),\n",
                    (long long)memory, (long long)memory, (long long)parameters,
                    (long long)parameters));
  says("check", 0, "");
  plan(arena_printf(scratch_arena, "    peak_gib = weft.at_most(%lld / 2^30),\n",
                    (long long)memory - 1));
  o = process_run(SECONDS, "$weft check plan.lua");
  ck_assert_int_eq(o.code, 1);
  ck_assert(strstr(o.err, "plan.lua:7: error: plan.expect.peak_gib: is 0.00"));
}
END_TEST

START_TEST(all_failures_are_told_at_once) {
  static const char told[] =
      "plan.lua:7: error: plan.expect.bubble: is 0.428571, expected at most 0.1\n"
      "plan.lua:8: error: plan.expect.stages: is 4, expected at least 8\n"
      "plan.lua:9: error: plan.expect.ranks: is 16, expected 15\n"
      "plan.lua:10: error: plan.expect.bubble_own: is 0.272727, expected 0.3 to 0.4\n"
      "plan.lua:11: error: plan.expect.p2p_gib: is 0.000244141, expected 0.00025 (within "
      "1 %)\n"
      "5 errors\n";
  plan("    bubble = weft.at_most(0.1),\n"
       "    stages = weft.at_least(8),\n"
       "    ranks = 15,\n"
       "    bubble_own = weft.between(0.3, 0.4),\n"
       "    p2p_gib = 0.00025,\n"
       "    dp = 2,\n");
  says("check", 1, told);
  says("run", 1, told);
  says("check --set expect.ranks=16 --set expect.bubble=0.4286 --set expect.stages=4"
       " --set expect.p2p_gib=0.000244 --set expect.bubble_own=0.2725",
       0, "");
}
END_TEST

/* The small plan of verify is not the one that the limits are about. */
START_TEST(verify_has_no_limits) {
  plan("    ranks = 15,\n");
  Outcome o = process_run(60, "$weft verify --steps 1 plan.lua");
  ck_assert_msg(o.code == 0, "%s", o.err);
}
END_TEST

START_TEST(json_has_the_values) {
  plan("    bubble = weft.at_most(0.1),\n");
  Outcome o = process_run(SECONDS, "$weft check --json plan.lua");
  ck_assert_int_eq(o.code, 1);
  ck_assert(strstr(o.out, "\"code\": \"expect\""));
  ck_assert(strstr(o.out, "\"path\": \"expect.bubble\""));
  ck_assert(strstr(o.out, "\"summary\": \"is 0.428571, expected at most 0.1\""));
}
END_TEST

static RankTraffic traffic_of(const char *layers) {
  const char *set[] = {"mesh={tp=2}", layers};
  LangOptions o = {.set = set, .nset = 2};
  Job j;
  weft_status st = job_open(&j, scratch_arena, &o, scratch_path("plan.lua"));
  ck_assert_msg(st == WEFT_OK, "%s", j.e.text);
  RankTraffic t = traffic(j.compiled, scratch_arena)[0];
  job_free(&j);
  return t;
}

/* A layer has two all_reduces in F and two in I, in each of 8 microbatches; nothing goes
 * to other stages where there are none. */
START_TEST(collectives_are_counted) {
  plan("");
  RankTraffic a = traffic_of("model.num_hidden_layers=3");
  RankTraffic b = traffic_of("model.num_hidden_layers=5");
  ck_assert_uint_eq(b.collective - a.collective, 2 * 4 * 8 * (2 * 32 * 128 * 4));
  ck_assert_uint_eq(a.sent + a.received, 0);
}
END_TEST

START_TEST(wrong_limits_are_told) {
  plan("    bubbles = 0.1,\n"
       "    bubble = 'small',\n"
       "    dp = -1,\n"
       "    ranks = weft.between(3, 2),\n"
       "    stages = weft.between(3),\n"
       "    parameters = weft.at_most 'x',\n"
       "    peak_gib = weft.at_least(-3),\n"
       "    p2p_gib = weft.between { low = 1 },\n"
       "    microbatches = weft.cosine { max = 1 },\n");
  static const char range[] = "a number of at least 0, weft.at_most(x), weft.at_least(x) "
                              "or weft.between(x, y)";
  says("check", 1,
       arena_printf(
           scratch_arena,
           "plan.lua:7: error: plan.expect.bubbles: unknown field (did you mean "
           "\"bubble\"?)\n"
           "plan.lua:8: error: plan.expect.bubble: expected %s, got string \"small\"\n"
           "plan.lua:9: error: plan.expect.dp: expected %s, got number -1\n"
           "plan.lua:10: error: plan.expect.ranks: nothing lies between 3 and 2\n"
           "plan.lua:11: error: plan.expect.stages: weft.between takes two numbers, got "
           "number\n"
           "plan.lua:12: error: plan.expect.parameters: weft.at_most takes a number, got "
           "string\n"
           "plan.lua:13: error: plan.expect.peak_gib.low: expected a number of at least "
           "0, got number -3\n"
           "plan.lua:14: error: plan.expect.p2p_gib.high: this field is required (the "
           "largest value)\n"
           "plan.lua:15: error: plan.expect.microbatches: expected %s, got "
           "weft.cosine\n"
           "9 errors\n",
           range, range, range));
}
END_TEST

Suite *expect_suite(void) {
  Suite *s = suite_create("expect");
  TCase *tc = tcase_create("expect");
  tcase_add_checked_fixture(tc, scratch_setup, scratch_teardown);
  tcase_set_timeout(tc, 120);
  tcase_add_test(tc, values_are_right);
  tcase_add_test(tc, figures_of_the_clock);
  tcase_add_test(tc, sizes_are_those_of_the_reports);
  tcase_add_test(tc, all_failures_are_told_at_once);
  tcase_add_test(tc, verify_has_no_limits);
  tcase_add_test(tc, json_has_the_values);
  tcase_add_test(tc, collectives_are_counted);
  tcase_add_test(tc, wrong_limits_are_told);
  suite_add_tcase(s, tc);
  return s;
}
