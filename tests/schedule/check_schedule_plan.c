/* check_schedule_plan.c - the field `schedule` of a plan: names, options, and sizes that
 * a schedule does not have. */
#include <check.h>
#include <stdio.h>

#include "bindings/api/job.h"
#include "bindings/schema/schema.h"
#include "tests/harness/schedule_fixture.h"

static LangTest t;

static void setup(void) { lang_test_begin(&t); }

static void teardown(void) { lang_test_end(&t); }

/* ---- names and options ---- */

static const struct {
  const char *written, *name;
  int virtual_stages;
} names[] = {
    {"GPipe", "gpipe", 1},
    {"AFAB", "gpipe", 1},
    {"1F1B", "1f1b", 1},
    {"TrainSchedule", "1f1b", 1},
    {"Interleaved1F1B", "interleaved_1f1b", 2},
    {"interleaved", "interleaved_1f1b", 2},
    {"dfs", "interleaved_1f1b", 2},
    {"VPP", "interleaved_1f1b", 2},
    {"LoopedBFS", "looped_bfs", 2},
    {"bfs", "looped_bfs", 2},
    {"InterleavedZeroBubble", "zero_bubble", 1},
    {"zero_bubble", "zero_bubble", 1},
    {"ZB-H1", "zero_bubble", 1},
    {"ZB1P", "zero_bubble", 1},
    {"ZB-H2", "zb_h2", 1},
    {"zb2p", "zb_h2", 1},
    {"ZBVZeroBubble", "zbv", 2},
    {"v_schedule", "zbv", 2},
    {"ZB-V", "zbv", 2},
    {"DualPipeV", "dualpipe_v", 2},
    {"V-Half", "v_half", 2},
    {"vmin", "v_min", 2},
    {"Eager1F1B", "eager_1f1b", 1},
};

START_TEST(all_names) {
  for (int i = 0; i < LEN(names); i++) {
    schedule_load(&t, arena_printf(t.arena, "'%s'", names[i].written), 0);
    ck_assert_str_eq(lang_plan(t.lp)->schedule, names[i].name);
    ck_assert_int_eq(plan_virtual(lang_plan(t.lp)), names[i].virtual_stages);
    ck_assert_int_eq(schedule_table(&t, t.arena, 2, 8).virtual_stages,
                     names[i].virtual_stages);
  }
}
END_TEST

/* The report of a plan on line 5 of which stands the schedule. */
static void refused(const char *fields, const char *report) {
  lang_test_bad(&t,
                arena_printf(t.arena,
                             HEAD
                             "return weft.plan {\n"
                             "  model = weft.model { 'llama-tiny', num_hidden_layers = "
                             "64 },\n  batch = { global = 10, seq = 16, micro = 2 },\n"
                             "  %s\n}",
                             fields),
                report);
}

START_TEST(wrong_names_and_options) {
  refused("schedule = 'interleved'",
          "plan.lua:5: error: plan.schedule: unknown value \"interleved\" (did you mean "
          "\"interleaved\"?)\n1 error\n");
  refused("schedule = 'dualpipe'",
          "plan.lua:5: error: plan.schedule: \"dualpipe\" is not built yet (zbv, "
          "dualpipe_v, v_half and v_min are built)\n1 error\n");
  refused("schedule = 7",
          "plan.lua:5: error: plan.schedule: expected a name, a function or "
          "weft.schedule_csv, got number 7\n1 error\n");
  refused(
      "schedule = { 'dfs', gruop = 2 }",
      "plan.lua:5: error: plan.schedule.gruop: unknown field (did you mean \"group\"?)\n"
      "1 error\n");
  refused(
      "schedule = { 'dfs', group = 'two' }",
      "plan.lua:5: error: plan.schedule.group: expected an integer of at least 1, got "
      "string \"two\"\n1 error\n");
  refused("schedule = { 'zbv', group = 2 }",
          "plan.lua:5: error: plan.schedule.group: this schedule has no options\n"
          "1 error\n");
  refused("schedule = { function(s) end, placment = 'v' }",
          "plan.lua:5: error: plan.schedule.placment: unknown field (did you mean "
          "\"placement\"?)\n1 error\n");
  refused(
      "schedule = { function(s) end, placement = 'w' }",
      "plan.lua:5: error: plan.schedule.placement: unknown value \"w\" (one of: loop, v)"
      "\n1 error\n");
}
END_TEST

/* Megatron's name of the option is one of its names. */
START_TEST(options_have_aliases) {
  schedule_load(&t, "{ 'vpp', microbatch_group_size_per_vp_stage = 4 }", 2);
  Schedule s = schedule_table(&t, t.arena, 2, 8);
  const char *with_alias = schedule_text(t.arena, &s, false);
  schedule_load(&t, "{ 'vpp', group = 4 }", 2);
  s = schedule_table(&t, t.arena, 2, 8);
  ck_assert_str_eq(schedule_text(t.arena, &s, false), with_alias);
  schedule_load(&t, "'vpp'", 2);
  s = schedule_table(&t, t.arena, 2, 8);
  ck_assert_str_ne(schedule_text(t.arena, &s, false), with_alias);
}
END_TEST

/* ---- sizes that do not exist ---- */

START_TEST(says_which_sizes_are_near) {
  refused("mesh = { pp = 8 }, schedule = '1f1b'",
          "plan.lua:5: error: plan.schedule: 1f1b needs at least as many microbatches as "
          "pipeline ranks, got 5 for 8 (nearest: 8 microbatches (batch.global = 16))\n"
          "1 error\n");
  refused(
      "mesh = { pp = 2 }, schedule = 'vpp'",
      "plan.lua:5: error: plan.schedule: interleaved_1f1b makes 2 rounds of 2 "
      "microbatches on 2 pipeline ranks, but 5 is not a multiple of 2 (nearest: 4 or 6 "
      "microbatches (batch.global = 8 or 12))\n1 error\n");
  refused(
      "mesh = { pp = 2 }, schedule = 'zb1p', pp_plan = { virtual = 3 }",
      "plan.lua:5: error: plan.schedule: zero_bubble makes 2 rounds of 2 microbatches on "
      "2 pipeline ranks, but 5 is not a multiple of 2 (nearest: 4 or 6 microbatches "
      "(batch.global = 8 or 12))\n1 error\n");
  refused(
      "mesh = { pp = 4 }, schedule = 'dualpipev'",
      "plan.lua:5: error: plan.schedule: dualpipe_v needs at least two microbatches per "
      "pipeline rank, got 5 for 4 (nearest: 8 microbatches (batch.global = 16))\n"
      "1 error\n");
  refused("mesh = { pp = 2 }, schedule = 'gpipe', pp_plan = { virtual = 3 }",
          "plan.lua:5: error: plan.schedule: gpipe has 1 stage per rank, got virtual = 3 "
          "(nearest: pp_plan.virtual = 1)\n1 error\n");
  refused(
      "mesh = { pp = 4 }, schedule = 'dualpipev', pp_plan = { virtual = 4 }",
      "plan.lua:5: error: plan.schedule: dualpipe_v has 2 stages per rank, got virtual "
      "= 4 (nearest: pp_plan.virtual = 2 with 8 microbatches (batch.global = 16))\n"
      "1 error\n");
  refused(
      "mesh = { pp = 4 }, schedule = { 'vpp', group = 3 }",
      "plan.lua:5: error: plan.schedule: interleaved_1f1b needs a group of at least as "
      "many microbatches as pipeline ranks, got 3 for 4 (nearest: mesh.pp = 2)\n"
      "1 error\n");
  refused(
      "mesh = { pp = 2 }, schedule = { 'vpp', group = 4 }",
      "plan.lua:5: error: plan.schedule: interleaved_1f1b cannot cut 5 microbatches into "
      "groups of 4: the last group would have 1, it needs 2 (nearest: 4 or 6 "
      "microbatches (batch.global = 8 or 12))\n1 error\n");
  refused(
      "mesh = { pp = 2 }, pp_plan = { virtual = 3 },\n"
      "  schedule = { function(s) end, placement = 'v' }",
      "plan.lua:6: error: plan.schedule: placement = \"v\" has 2 stages per rank, got "
      "virtual = 3 (nearest: pp_plan.virtual = 2)\n1 error\n");
}
END_TEST

/* What `verify` runs instead of a large plan has sizes that its schedule takes, too. */
START_TEST(smaller_plans_are_legal) {
  static const struct {
    const char *schedule;
    int ranks, small;
  } cases[] = {{"'1f1b'", 4, 6},
               {"'dualpipev'", 4, 8},
               {"'vpp'", 4, 6},
               {"{ 'vpp', group = 12 }", 4, 12},
               {"'zbv'", 4, 6}};
  for (int i = 0; i < LEN(cases); i++) {
    Plan small;
    LangShrunk what;
    Mesh m;
    char pp[16];
    snprintf(pp, sizeof pp, "mesh.pp=%d", cases[i].ranks);
    t.o.set = (const char *const[]){pp};
    t.o.nset = 1;
    schedule_load(&t, cases[i].schedule, 0);
    ck_assert_int_eq(lang_shrink(t.lp, 32, &small, &what, &t.d, &t.e), WEFT_OK);
    ck_assert(mesh_resolve(&small.mesh, 0, &m, &t.d));
    ck_assert_int_eq(plan_microbatches(&small, &m), cases[i].small);
    ck_assert_int_eq(lang_check_mesh(t.lp, &small, &m, &t.d, &t.e), WEFT_OK);
    t.o.nset = 0;
  }
}
END_TEST

/* A function in a V has two chunks without being told. */
START_TEST(own_function_in_a_v) {
  schedule_load(&t,
                "{ function(s)\n"
                "  assert(s.virtual == 2 and s:stage(1) == s.stages - 1 - s.rank)\n"
                "  for mb = 0, s.microbatches - 1 do s:F(0, mb) s:F(1, mb) end\n"
                "  for mb = 0, s.microbatches - 1 do s:B(1, mb) s:B(0, mb) end\n"
                "end, placement = 'V' }",
                0);
  Schedule s = schedule_table(&t, t.arena, 2, 1);
  ck_assert_str_eq(schedule_text(t.arena, &s, false),
                   "0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n");
}
END_TEST

Suite *schedule_plan_suite(void) {
  Suite *s = suite_create("schedule_plan");
  TCase *c = tcase_create("field");
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_add_test(c, all_names);
  tcase_add_test(c, wrong_names_and_options);
  tcase_add_test(c, options_have_aliases);
  tcase_add_test(c, says_which_sizes_are_near);
  tcase_add_test(c, smaller_plans_are_legal);
  tcase_add_test(c, own_function_in_a_v);
  suite_add_tcase(s, c);
  return s;
}
