/* check_explain.c - codes of errors and warnings: check prints them, weft explain says
 * what they mean; and what a plan is told that does not fit, or is no plan. */
#include <check.h>
#include <jansson.h>

#include "tests/harness/process.h"
#include "vm/base/diag.h"

enum { SECONDS = 60 };

static void says(const char *command, int code, const char *want) {
  Outcome o = process_run(SECONDS, "%s", command);
  const char *all = arena_printf(scratch_arena, "%s%s", o.out, o.err);
  ck_assert_msg(o.code == code && strstr(all, want) != NULL, "%s: exit %d, no %s in:\n%s",
                command, o.code, want, all);
}

/* Every code is listed, once and in order, with a text of its own. */
START_TEST(all_codes) {
  int n;
  const DiagCode *code = diag_codes(&n);
  Outcome o = process_run(SECONDS, "$weft explain");
  ck_assert_int_eq(o.code, 0);
  for (int i = 0; i < n; i++) {
    ck_assert_msg(strstr(o.out, code[i].summary) != NULL, "%s", code[i].name);
    ck_assert_msg(i == 0 || strcmp(code[i - 1].name, code[i].name) < 0, "%s",
                  code[i].name);
    ck_assert_int_gt(strlen(code[i].text), 20);
  }
  ck_assert_int_gt(n, 50);
}
END_TEST

START_TEST(one_code) {
  says("$weft explain divisibility", 0,
       "divisibility: one number has to divide another\n\nRanks, heads,");
  says("$weft explain divisible", 2, "there is no code \"divisible\"");
  says("$weft explain unknown-feild", 2, "(did you mean \"unknown-field\"?)");
  says("$weft explain qqqqqqqqq", 2, "weft explain lists them");
}
END_TEST

static void put(const char *name, const char *fields) {
  const char *text = arena_printf(
      scratch_arena,
      "local weft = require 'weft'\nreturn weft.plan { model = weft.model { 'llama-tiny',"
      " num_hidden_layers = 2 },\n%s }\n",
      fields);
  scratch_put(name, text, strlen(text));
}

START_TEST(check_prints_the_code) {
  put("plan.lua", "batch = { gobal = 4, seq = 16 }");
  says("$weft check plan.lua", 1,
       "plan.lua:3: error: plan.batch.gobal: unknown field (did you mean \"global\"?) "
       "[unknown-field]\n");
  Outcome o = process_run(SECONDS, "$weft check plan.lua --json");
  json_t *doc = json_loads(o.out, 0, NULL);
  const json_t *first = json_array_get(json_object_get(doc, "diagnostics"), 0);
  const char *code = json_string_value(json_object_get(first, "code"));
  ck_assert_str_eq(code, "unknown-field");
  ck_assert_str_eq(json_string_value(json_object_get(first, "summary")), "unknown field");
  json_decref(doc);
}
END_TEST

#define LARGE                                                                            \
  "mesh = { dp = 8 }, strategy = { 'fsdp2'%s },\n"                                       \
  "precision = 'f32', batch = { global = "                                               \
  "%d, seq = 1024 },\n"                                                                  \
  "cluster = { gpu = { 'h100-sxm', memory_gib = %g }, gpus = 8, nodes = 1 }"

static void put_large(const char *more, int global, double gib) {
  put("plan.lua", arena_printf(scratch_arena, LARGE, more, global, gib));
}

/* The hint stands where a reduction in each backward makes it fit, and nowhere else. */
START_TEST(gradients_that_wait) {
  enum { STEPS = 16 };
  put_large("", 8 * STEPS, 200);
  Outcome o = process_run(SECONDS, "$weft check plan.lua --json");
  json_t *doc = json_loads(o.out, 0, NULL);
  ck_assert_msg(doc != NULL, "%s%s", o.out, o.err);
  json_int_t waits =
      json_integer_value(json_object_get(json_object_get(doc, "result"), "memory_bytes"));
  json_decref(doc);
  put_large(", defer_fsdp_grad_sync = false", 8 * STEPS, 200);
  o = process_run(SECONDS, "$weft check plan.lua --json");
  doc = json_loads(o.out, 0, NULL);
  const json_t *result = json_object_get(doc, "result");
  json_int_t less = json_integer_value(json_object_get(result, "memory_bytes"));
  ck_assert(json_is_true(json_object_get(result, "fits")));
  json_decref(doc);
  ck_assert_int_lt(less, waits);
  double between = 2 + (double)(waits + less) / 2 / (1 << 30);
  put_large("", 8 * STEPS, between);
  says("$weft check plan.lua", 0, "[gradient-sync]\n");
  says("$weft check plan.lua", 0, ": right, but does not fit its GPUs\n");
  says("$weft check plan.lua", 0, " too much for h100-sxm\n");
  says("$weft check plan.lua --json", 0, "\"fits\": false");
  put_large(", defer_fsdp_grad_sync = false", 8 * STEPS, between);
  o = process_run(SECONDS, "$weft check plan.lua");
  ck_assert_msg(o.code == 0 && !*o.err, "%s", o.err);
  put_large("", 8 * STEPS, 2 + (double)less / (1 << 30) / 2);
  o = process_run(SECONDS, "$weft check plan.lua");
  ck_assert_msg(strstr(o.err, "[memory]") && !strstr(o.err, "gradient-sync"), "%s",
                o.err);
  says("$weft diff plan.lua plan.lua", 0, "plan.lua does not fit its GPUs: ");
}
END_TEST

/* The model is made once more to see whether it would fit, and says nothing then. */
START_TEST(a_plan_prints_once) {
  static const char plan[] =
      "local weft = require 'weft'\n"
      "return weft.plan { model = function(g)\n"
      "    print 'made'\n"
      "    local function w() return g:param('w', { { 'vocab', 64 }, { 'hidden', 1024 } "
      "}) "
      "end\n"
      "    local x = g:unit('a', function() return g:embedding(g:tokens(), w()) end)\n"
      "    return g:unit('b', function() return g:cross_entropy(g:linear(x, w()), "
      "g:labels()) end)\n"
      "  end,\n"
      "  mesh = { dp = 8 }, strategy = { 'fsdp2' },\n"
      "  cluster = { gpu = { 'h100-sxm', memory_gib = 2.0003 }, gpus = 8, nodes = 1 },\n"
      "  batch = { global = 64, micro = 1, seq = 16 } }\n";
  scratch_put("plan.lua", plan, strlen(plan));
  Outcome o = process_run(SECONDS, "$weft check plan.lua");
  ck_assert_msg(strstr(o.err, "[memory]") != NULL, "%s%s", o.out, o.err);
  const char *first = strstr(o.err, "made");
  ck_assert_msg(first && !strstr(first + 1, "made"), "%s", o.err);
}
END_TEST

START_TEST(settings_are_no_plan) {
  static const char yaml[] = "model:\n  hidden: 4\n";
  scratch_put("r.yaml", yaml, strlen(yaml));
  says("$weft check r.yaml", 1, "weft import r.yaml makes one");
  says("$weft diff r.yaml r.yaml", 1, "weft report r.yaml says whether they fit");
  scratch_put("r.lua", yaml, strlen(yaml));
  Outcome o = process_run(SECONDS, "$weft check r.lua");
  ck_assert_msg(!strstr(o.err, "weft import"), "%s", o.err);
}
END_TEST

Suite *explain_suite(void) {
  Suite *s = suite_create("explain");
  TCase *c = tcase_create("explain");
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  tcase_set_timeout(c, 120);
  tcase_add_test(c, all_codes);
  tcase_add_test(c, one_code);
  tcase_add_test(c, check_prints_the_code);
  tcase_add_test(c, gradients_that_wait);
  tcase_add_test(c, settings_are_no_plan);
  tcase_add_test(c, a_plan_prints_once);
  suite_add_tcase(s, c);
  return s;
}
