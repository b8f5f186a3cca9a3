/* check_plan_calls.c - the functions of a plan that are called later: models, with their
 * configs, and schedules. */
#include <check.h>

#include "bindings/model/model.h"
#include "bindings/schedule/schedule_facts.h"
#include "tests/harness/lang_fixture.h"

static LangTest t;

static void setup(void) { lang_test_begin(&t); }
static void teardown(void) { lang_test_end(&t); }

static const Plan *load(const char *text) { return lang_test_good(&t, text); }

static void expect_report(const char *text, const char *report) {
  lang_test_bad(&t, text, report);
}

/* ---- models ---- */

static int64_t config(const char *key) {
  int64_t v = -1;
  ck_assert_msg(lang_config_int(t.lp, key, &v), "%s", key);
  return v;
}

START_TEST(model_forms) {
  load(HEAD "return weft.plan { model = weft.model { 'gpt2', n_embd = 64, n_head = 4,\n"
            "  n_layer = 2.0, vocab_size = 100 }, batch = { global = 1, seq = 8 } }");
  ck_assert_str_eq(lang_architecture(t.lp), "gpt2");
  ck_assert_int_eq(config("hidden_size"), 64);
  ck_assert_int_eq(config("num_hidden_layers"), 2);
  load(HEAD "return weft.plan { model = weft.model { 'llama-tiny', vocab_size = 99 },\n"
            "  batch = { global = 1, seq = 8 } }");
  ck_assert_int_eq(config("vocab_size"), 99);
  ck_assert_int_eq(config("hidden_size"), 128);
  load(HEAD "return weft.plan { model = weft.model { function() end, width = 5 },\n"
            "  batch = { global = 1, seq = 8 } }");
  ck_assert_ptr_null(lang_architecture(t.lp));
  ck_assert_int_eq(config("width"), 5);
  int64_t v;
  load(HEAD
       "return weft.plan { model = function() end, batch = { global = 1, seq = 8 } }");
  ck_assert(!lang_config_int(t.lp, "width", &v));
}
END_TEST

START_TEST(hugging_face_folder) {
  lang_test_file(
      "config.json",
      "{\"model_type\": \"llama\", \"hidden_size\": 32, \"rope_theta\": 5e5,\n"
      "\"num_attention_heads\": 4, \"head_dim\": null, \"from_the_future\": 1,\n"
      "\"num_hidden_layers\": 3, \"rope_scaling\": null}");
  const char *plan = HEAD "return weft.plan { model = weft.hf { '.', vocab_size = 50 },\n"
                          "  batch = { global = 1, seq = 8 } }";
  load(plan);
  ck_assert_int_eq(config("num_hidden_layers"), 3);
  ck_assert_int_eq(config("vocab_size"), 50);
  ck_assert_str_eq(lang_weights(t.lp), arena_printf(t.arena, "%s/.", scratch_dir));
  load(HEAD "return weft.plan { model = weft.hf { '.', weights = false },\n"
            "  batch = { global = 1, seq = 8 } }");
  ck_assert_ptr_null(lang_weights(t.lp));
  lang_test_file("config.json", "{\"model_type\": \n}");
  ck_assert_int_eq(lang_test_text(&t, plan), WEFT_EPLAN);
  ck_assert(strstr(t.d.list.at[0].summary, "config.json:2:"));
  ck_assert_int_eq(t.d.list.at[0].line, 2);
}
END_TEST

static weft_status built(int64_t B, int64_t T, Graph *g) {
  return lang_build_graph(t.lp, lang_plan(t.lp), B, T, g, &t.d, &t.e);
}

START_TEST(graph_again_with_other_config) {
  load(HEAD GOOD);
  Graph *g = graph_new(t.arena, 2, 16);
  ck_assert_int_eq(built(2, 16, g), WEFT_OK);
  int ops = g->op.n;
  ck_assert_int_gt(ops, 20);
  ck_assert_int_eq(lang_set_config_int(t.lp, "num_hidden_layers", 2, &t.e), WEFT_OK);
  g = graph_new(t.arena, 2, 16);
  ck_assert_int_eq(built(2, 16, g), WEFT_OK);
  ck_assert_int_lt(g->op.n, ops);
}
END_TEST

START_TEST(model_that_never_ends) {
  t.o.instruction_limit = 100000;
  load(HEAD "return weft.plan { model = function(g) while true do pcall(error) end end,\n"
            "  batch = { global = 1, seq = 8 } }");
  Graph *g = graph_new(t.arena, 1, 8);
  ck_assert_int_eq(built(1, 8, g), WEFT_ELIMIT);
}
END_TEST

/* ---- schedules ---- */

static void call_schedule(Schedule *s, weft_status want) {
  Mesh m;
  const Plan *p = lang_plan(t.lp);
  ck_assert(mesh_resolve(&p->mesh, 0, &m, &t.d));
  weft_status st = lang_schedule(t.lp, &m, plan_microbatches(p, &m), s, &t.d, &t.e);
  ck_assert_msg(st == want, "%s%s", lang_test_report(&t, scratch_dir), t.e.text);
}

#define WITH_SCHEDULE(code)                                                              \
  HEAD "local function order(s)\n" code "end\n"                                          \
       "return weft.plan { model = weft.model 'llama-tiny', mesh = { pp = 2 },\n"        \
       "  batch = { global = 4, seq = 16 }, schedule = order }"

START_TEST(named_schedule) {
  static const char want[] = "F0 F1 B0 F2 B1 F3 B2 B3 ";
  Schedule s;
  load(HEAD "return weft.plan { model = weft.model 'llama-tiny', mesh = { pp = 2 },\n"
            "  batch = { global = 4, seq = 16 } }");
  call_schedule(&s, WEFT_OK);
  Text got = {0};
  for (int i = 0; i < s.n[0]; i++)
    text_printf(&got, "%c%d ", "FIWB"[s.list[0][i].kind], s.list[0][i].mb);
  ck_assert_str_eq(got.s, want);
  ck_assert_int_eq(s.list[0][0].line, 0);
  ck_assert_ptr_null(s.file);
  text_free(&got);
}
END_TEST

START_TEST(own_schedule) {
  Schedule s;
  load(WITH_SCHEDULE(
      "  assert(s.ranks == 2 and s.virtual == 1 and s.stages == 2)\n"
      "  assert(s:stage(0) == s.rank)\n"
      "  for mb = 0, s.microbatches - 1 do\n"
      "    s:F(0, mb)\n    s:I(0, mb)\n    s:W(0, mb)\n  end\n"
      "  s:overlap(0, 1, 0, 2)\n  s:unshard(0) s:reshard(0)\n  s:reduce_grad(0)\n"));
  call_schedule(&s, WEFT_OK);
  ck_assert_int_eq(s.ranks, 2);
  ck_assert_int_eq(s.n[1], 16);
  ck_assert_int_eq(s.list[1][0].kind, ACT_F);
  ck_assert_int_eq(s.list[1][0].line, 6);
  ck_assert_int_eq(s.list[1][2].line, 8);
  ck_assert_int_eq(s.list[1][12].kind, ACT_OVERLAP);
  ck_assert_int_eq(s.list[1][12].mb2, 2);
  ck_assert_int_eq(s.list[1][15].mb, -1);
  ck_assert(s.file && strstr(s.file, "plan.lua"));
}
END_TEST

/* A table has one file: what another one emits gets the line that called it. */
START_TEST(lines_of_one_file) {
  Schedule s;
  lang_test_file("both.lua", "return function(s, mb)\n\n\n\n\n\n\n  s:F(0, mb)\n"
                             "  s:B(0, mb)\nend\n");
  load("local both = require 'both'\n" WITH_SCHEDULE(
      "  for mb = 0, s.microbatches - 1 do\n    both(s, mb)\n  end\n"));
  call_schedule(&s, WEFT_OK);
  ck_assert_int_eq(s.n[0], 8);
  ck_assert_int_eq(s.list[0][0].line, 5);
  ck_assert_int_eq(s.list[0][7].line, 5);
  ck_assert(s.file && strstr(s.file, "plan.lua"));
}
END_TEST

static void expect_schedule(const char *text, const char *report) {
  Schedule s;
  load(text);
  call_schedule(&s, WEFT_EPLAN);
  ck_assert_str_eq(lang_test_report(&t, scratch_dir), report);
}

START_TEST(wrong_schedules) {
  expect_schedule(WITH_SCHEDULE("\n  s:f(0, 1)\n"),
                  "plan.lua:4: error: plan.schedule: s has no 'f' (did you mean 'F'?)\n"
                  "1 error\n");
  expect_schedule(WITH_SCHEDULE("  s.F(0, 0)\n"),
                  "plan.lua:3: error: plan.schedule: s comes before a colon: "
                  "s:F(chunk, microbatch)\n1 error\n");
  expect_schedule(
      WITH_SCHEDULE("  s:F(1, 0)\n"),
      "plan.lua:3: error: plan.schedule: chunk 1 does not exist: there are 1, "
      "counted from 0\n1 error\n");
  expect_schedule(WITH_SCHEDULE("  s.rank = 2\n"),
                  "plan.lua:3: error: plan.schedule: s cannot be changed\n1 error\n");
  expect_schedule(
      WITH_SCHEDULE("  while true do s:F(0, 0) end\n"),
      "plan.lua:3: error: plan.schedule: the schedule of rank 0 has more than "
      "128 actions\n1 error\n");
}
END_TEST

START_TEST(schedule_kept_after_the_call) {
  expect_schedule(
      HEAD
      "local kept\n"
      "local function order(s)\n"
      "  if kept then kept:F(0, 0) end\n  kept = s\nend\n"
      "return weft.plan { model = weft.model 'llama-tiny', mesh = { pp = 2 },\n"
      "  batch = { global = 4, seq = 16 }, schedule = { order, placement = 'loop' } }",
      "plan.lua:4: error: plan.schedule: s is used after the schedule function has "
      "ended\n"
      "1 error\n");
}
END_TEST

START_TEST(too_few_microbatches) {
  expect_report(
      HEAD "return weft.plan {\n  model = weft.model 'llama-tiny',\n"
           "  mesh = { pp = 4 },\n  batch = { global = 2, seq = 16 },\n"
           "  schedule = '1F1B',\n}",
      "plan.lua:6: error: plan.schedule: 1f1b needs at least as many microbatches "
      "as pipeline ranks, got 2 for 4 (nearest: 4 microbatches (batch.global = "
      "4))\n1 error\n");
}
END_TEST

Suite *plan_calls_suite(void) {
  const struct {
    const char *name;
    const TTest *tests[24];
  } group[] = {
      {"models",
       {model_forms, hugging_face_folder, graph_again_with_other_config,
        model_that_never_ends}},
      {"schedules",
       {named_schedule, own_schedule, lines_of_one_file, wrong_schedules,
        schedule_kept_after_the_call, too_few_microbatches}},
  };
  Suite *s = suite_create("plan_calls");
  for (int i = 0; i < LEN(group); i++) {
    TCase *c = tcase_create(group[i].name);
    tcase_add_checked_fixture(c, setup, teardown);
    for (int k = 0; group[i].tests[k]; k++) tcase_add_test(c, group[i].tests[k]);
    suite_add_tcase(s, c);
  }
  return s;
}
