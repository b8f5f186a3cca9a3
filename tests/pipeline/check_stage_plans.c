/* check_stage_plans.c - pp_plan in plan files: what contradicts itself or the model is
 * told at once with its line, and every way to cut runs with parity on loop and V
 * placement. */
#include <check.h>

#include "bindings/api/job.h"
#include "tests/harness/lang_fixture.h"

static LangTest t;

static void setup(void) { lang_test_begin(&t); }
static void teardown(void) { lang_test_end(&t); }

/* A plan of 8 small layers on 2 pipeline ranks; `rest` are more of its fields. */
static const char *plan_text(const char *pp_plan, const char *rest) {
  return arena_printf(t.arena,
                      "local weft = require 'weft'\n"
                      "return weft.plan {\n"
                      "  model = weft.model { 'llama', hidden_size = 16,\n"
                      "    intermediate_size = 24, num_attention_heads = 2,\n"
                      "    num_key_value_heads = 2, vocab_size = 40,\n"
                      "    num_hidden_layers = 8 },\n"
                      "  mesh = { pp = 2 },\n"
                      "  batch = { global = 4, seq = 8 },\n"
                      "  pp_plan = {\n"
                      "%s },\n"
                      "%s}\n",
                      pp_plan, rest);
}

/* ---- what is refused ---- */

static void refused(const char *pp_plan, const char *report) {
  lang_test_bad(&t, plan_text(pp_plan, ""), report);
}

static void accepted(const char *text, int stages) {
  lang_test_file("plan.lua", text);
  Job j;
  weft_status st = job_load(&j, t.arena, &(LangOptions){0}, scratch_path("plan.lua"));
  if (st == WEFT_OK) st = job_mesh(&j, 0);
  if (st == WEFT_OK) st = job_compile(&j);
  t.d = j.d;
  ck_assert_msg(st == WEFT_OK, "%s%s", text, lang_test_report(&t, scratch_dir));
  ck_assert_int_eq(j.schedule.ranks * j.schedule.virtual_stages, stages);
  job_free(&j);
}

START_TEST(fields_that_contradict) {
  refused("layers = { 4, 4 },\nmodules = { {}, {} },\nbalance = 'cost',\n",
          "plan.lua:11: error: plan.pp_plan.modules: layers and modules both say what a "
          "stage has; give one of them\n"
          "plan.lua:12: error: plan.pp_plan.balance: layers and balance both say what a "
          "stage has; give one of them\n"
          "2 errors\n");
  refused("layers = { 4, 4 },\nlayout = 'Etttt|ttttL',\n",
          "plan.lua:11: error: plan.pp_plan.layout: layers and layout both say what a "
          "stage has; give one of them\n1 error\n");
  refused("layers_per_stage = 4,\nfirst_stage_less_layers = 0,\nlayout = 'Et*4|t*4L',\n",
          "plan.lua:10: error: plan.pp_plan.layers_per_stage: layout and "
          "layers_per_stage both say what a stage has; give one of them\n1 error\n");
  refused("balance = 'cost',\nlast_stage_less_layers = 1,\n",
          "plan.lua:10: error: plan.pp_plan.balance: last_stage_less_layers and balance "
          "both say what a stage has; give one of them\n1 error\n");
}
END_TEST

START_TEST(values_that_are_wrong) {
  refused(
      "layers_per_stage = 0,\nfirst_stage_less_layers = -1,\nbalance = 'coast',\n"
      "layout = 7,\n",
      "plan.lua:10: error: plan.pp_plan.layers_per_stage: expected a positive "
      "integer, got number 0\n"
      "plan.lua:11: error: plan.pp_plan.first_stage_less_layers: expected an integer "
      "of at least 0, got number -1\n"
      "plan.lua:12: error: plan.pp_plan.balance: unknown value \"coast\" (did you mean "
      "\"cost\"?)\n"
      "plan.lua:13: error: plan.pp_plan.layout: expected a string such as "
      "\"Et*3|(tt|)*29,t|L\", got number 7\n"
      "4 errors\n");
  refused("layout = 'Et*4|tmtt|L',\n",
          "plan.lua:10: error: plan.pp_plan.layout: column 8 of \"Et*4|tmtt|L\": m, a "
          "layer for a further token, is behind all t\n1 error\n");
}
END_TEST

START_TEST(sizes_that_do_not_fit) {
  refused("layers = { 4, 2, 2 },\n",
          "plan.lua:10: error: plan.pp_plan.layers: the list has 3 stages, but there are "
          "2 stages (pp = 2 x virtual = 1)\n1 error\n");
  refused("layout = 'Et*3|t*3L',\n",
          "plan.lua:10: error: plan.pp_plan.layout: the stages have 6 layers together, "
          "the model has 8\n1 error\n");
  refused("layout = 'E|t*3|t*5|L',\n",
          "plan.lua:10: error: plan.pp_plan.layout: the layout has 4 stages, but there "
          "are 2 stages (pp = 2 x virtual = 1) (pp_plan.virtual = 2 would fit)\n"
          "1 error\n");
  refused("layers_per_stage = 3,\n",
          "plan.lua:10: error: plan.pp_plan.layers_per_stage: 8 layers, at most 3 each, "
          "make 3 stages, but there are 2 stages (pp = 2 x virtual = 1) "
          "(round_virtual_stages_to_pp_multiple = \"up\" would make 4)\n1 error\n");
  refused("first_stage_less_layers = 10,\n",
          "plan.lua:10: error: plan.pp_plan.first_stage_less_layers: stage 0 would have "
          "-1 layers: with 8 layers in 2 stages (pp = 2 x virtual = 1) a stage has 9 at "
          "most to give\n1 error\n");
}
END_TEST

/* A layer for a further token is one that mtp adds, and each of these is an m. */
START_TEST(layers_for_further_tokens) {
  refused(
      "layout = 'Et*4|t*3mL',\n",
      "plan.lua:10: error: plan.pp_plan.layout: \"Et*4|t*3mL\" has 1 layer for further "
      "tokens (m), and mtp.num_layers is 0\n1 error\n");
  lang_test_bad(&t, plan_text("layout = 'Et*4|t*5L',\n", "mtp = { num_layers = 1 },\n"),
                "plan.lua:10: error: plan.pp_plan.layout: \"Et*4|t*5L\" has 0 layers for "
                "further tokens (m), and mtp.num_layers is 1\n1 error\n");
  accepted(plan_text("layout = 'Et*4|t*4mL',\n", "mtp = { num_layers = 1 },\n"), 2);
  /* they count as layers where the number of stages follows from them, too */
  accepted(plan_text("layers_per_stage = 3,\n"
                     "round_virtual_stages_to_pp_multiple = 'up',\n",
                     "mtp = { num_layers = 2 },\n"),
           4);
}
END_TEST

/* A schedule that is wrong has no number of stages that lists could be held against. */
START_TEST(no_errors_after_a_wrong_schedule) {
  lang_test_bad(&t, plan_text("layers = { 2, 2, 2, 2 },\n", "schedule = 'gpip',\n"),
                "plan.lua:12: error: plan.schedule: unknown value \"gpip\" (did you mean "
                "\"gpipe\"?)\n1 error\n");
}
END_TEST

/* ---- what runs ---- */

/* All forwards, chunk by chunk, then all backwards: right for every placement. */
#define BOTH_WAYS                                                                        \
  "schedule = { function(s)\n"                                                           \
  "  for c = 0, s.virtual - 1 do\n"                                                      \
  "    for mb = 0, s.microbatches - 1 do s:F(c, mb) end\n"                               \
  "  end\n"                                                                              \
  "  for c = s.virtual - 1, 0, -1 do\n"                                                  \
  "    for mb = 0, s.microbatches - 1 do s:B(c, mb) end\n"                               \
  "  end\n"                                                                              \
  "end, placement = '%s' },\n"

/* "pp0 embed_tokens layers.0 | layers.3; pp1 ...": the units of each rank by chunk. */
static const char *units_of_ranks(const Job *j) {
  char *s = arena_str(t.arena, "");
  for (int r = 0; r < j->mesh.size[AXIS_PP]; r++) {
    const Program *p = &j->compiled->prog[r];
    int chunk = -1;
    s = arena_printf(t.arena, "%s%spp%d", s, r ? "; " : "", r);
    for (uint32_t i = 0; i < p->ncall; i++) {
      const Call *c = &p->call[i];
      if (p->body[c->body].phase != PH_F || c->mb != 0) continue;
      if (chunk >= 0 && c->chunk != chunk) s = arena_printf(t.arena, "%s |", s);
      chunk = c->chunk;
      s = arena_printf(t.arena, "%s %s", s, p->unit[c->unit]);
    }
  }
  return s;
}

static void runs(const char *pp_plan, const char *schedule, const char *units) {
  const char *text = plan_text(pp_plan, schedule);
  lang_test_file("plan.lua", text);
  Job j;
  weft_status st = job_load(&j, t.arena, &(LangOptions){0}, scratch_path("plan.lua"));
  t.d = j.d;
  ck_assert_msg(st == WEFT_OK, "%s%s", text, lang_test_report(&t, scratch_dir));
  JobVerify v = {.steps = 1};
  st = job_verify(&j, &v);
  t.d = j.d;
  ck_assert_msg(st == WEFT_OK, "%s%s%s", text, lang_test_report(&t, scratch_dir),
                j.e.text);
  ck_assert_str_eq(units_of_ranks(&j), units);
  job_free(&j);
}

typedef struct Cut {
  const char *pp_plan, *loop, *v;
} Cut;

/* The same four stages: 0 and 2 on rank 0 by loop placement, 0 and 3 by V placement. */
#define STAGE0 "embed_tokens layers.0"
#define STAGE1 "layers.1 layers.2 layers.3"
#define STAGE2 "layers.4 layers.5 layers.6"
#define STAGE3 "layers.7 norm lm_head"
#define LOOP   "pp0 " STAGE0 " | " STAGE2 "; pp1 " STAGE1 " | " STAGE3
#define VEE    "pp0 " STAGE0 " | " STAGE3 "; pp1 " STAGE1 " | " STAGE2

#define EVEN_LOOP                                                                        \
  "pp0 embed_tokens layers.0 layers.1 | layers.4 layers.5; pp1 layers.2 layers.3 | "     \
  "layers.6 layers.7 norm lm_head"
#define EVEN_VEE                                                                         \
  "pp0 embed_tokens layers.0 layers.1 | layers.6 layers.7 norm lm_head; pp1 layers.2 "   \
  "layers.3 | layers.4 layers.5"

static const Cut cuts[] = {
    {"virtual = 2, layers = { 1, 3, 3, 1 }", LOOP, VEE},
    {"virtual = 2, layout = 'Et|(t*3|)*2tL'", LOOP, VEE},
    {"virtual = 2, first_stage_less_layers = 2, last_stage_less_layers = 2", LOOP, VEE},
    {"layers_per_stage = 3, first_stage_less_layers = 2, last_stage_less_layers = 2",
     LOOP, VEE},
    {"virtual = 2, modules = { { 'embed_tokens', 'layers.0' },\n"
     "  { 'layers.1', 'layers.2', 'layers.3' }, { 'layers.4', 'layers.5', 'layers.6' },\n"
     "  { 'layers.7', 'norm', 'lm_head' } }",
     LOOP, VEE},
    {"layers_per_stage = 2", EVEN_LOOP, EVEN_VEE},
    {"virtual = 2, layout = 'E|t*4||t*4L'",
     "pp0 embed_tokens; pp1 layers.0 layers.1 layers.2 layers.3 | layers.4 layers.5 "
     "layers.6 layers.7 norm lm_head",
     "pp0 embed_tokens | layers.4 layers.5 layers.6 layers.7 norm lm_head; pp1 layers.0 "
     "layers.1 layers.2 layers.3"},
    {"virtual = 2, layout = 'Et*8|||L'",
     "pp0 embed_tokens layers.0 layers.1 layers.2 layers.3 layers.4 layers.5 layers.6 "
     "layers.7; pp1 norm lm_head",
     "pp0 embed_tokens layers.0 layers.1 layers.2 layers.3 layers.4 layers.5 layers.6 "
     "layers.7 | norm lm_head; pp1"},
    {"virtual = 2, balance = 'even'", EVEN_LOOP, EVEN_VEE},
    {"virtual = 2, balance = 'cost'", EVEN_LOOP, EVEN_VEE},
};
enum { CUTS = 10 };

START_TEST(cuts_run) {
  ck_assert_int_eq(LEN(cuts), CUTS);
  const Cut *c = &cuts[_i];
  runs(c->pp_plan, arena_printf(t.arena, BOTH_WAYS, "loop"), c->loop);
  runs(c->pp_plan, arena_printf(t.arena, BOTH_WAYS, "v"), c->v);
}
END_TEST

/* Without `virtual` a schedule with one stage per rank takes what makes one. */
START_TEST(one_stage_per_rank) {
  runs("layers_per_stage = 4", "",
       "pp0 embed_tokens layers.0 layers.1 layers.2 layers.3; pp1 layers.4 layers.5 "
       "layers.6 layers.7 norm lm_head");
  runs("layout = 'Et*5|t*3L'", "",
       "pp0 embed_tokens layers.0 layers.1 layers.2 layers.3 layers.4; pp1 layers.5 "
       "layers.6 layers.7 norm lm_head");
  lang_test_bad(&t, plan_text("layers_per_stage = 2,\n", "schedule = '1f1b',\n"),
                "plan.lua:12: error: plan.schedule: 1f1b has 1 stage per rank, got "
                "virtual = 2 (nearest: pp_plan.virtual = 1)\n1 error\n");
}
END_TEST

/* Several stages of a rank are interleaved unless the plan has a schedule. */
START_TEST(several_stages_per_rank) {
  runs("layers_per_stage = 2", "", EVEN_LOOP);
  runs("virtual = 2", "", EVEN_LOOP);
  runs("virtual = 2", "schedule = 'looped_bfs',\n", EVEN_LOOP);
}
END_TEST

/* 8 layers, at most 3 each, are 3 stages, which 2 ranks cannot share. */
START_TEST(rounded_stages) {
#define ROUND(how) "layers_per_stage = 3, round_virtual_stages_to_pp_multiple = '" how "'"
  runs(ROUND("up"), "", EVEN_LOOP);
  runs(ROUND("down"), "",
       "pp0 embed_tokens layers.0 layers.1 layers.2 layers.3; pp1 layers.4 layers.5 "
       "layers.6 layers.7 norm lm_head");
  refused(ROUND("none") ",\n",
          "plan.lua:10: error: plan.pp_plan.layers_per_stage: 8 layers, at most 3 each, "
          "make 3 stages, but there are 2 stages (pp = 2 x virtual = 1) "
          "(round_virtual_stages_to_pp_multiple = \"up\" would make 4)\n1 error\n");
}
END_TEST

/* Schedules of the library want so many stages per rank themselves. */
START_TEST(schedules_of_the_library) {
  runs("layers = { 1, 3, 3, 1 }", "schedule = 'zbv',\n", VEE);
  runs("layout = 'Et|(t*3|)*2tL'", "schedule = 'looped_bfs',\n", LOOP);
  runs("balance = 'cost', virtual = 2",
       "schedule = 'zero_bubble',\noptimizer = weft.adamw { post_validation = true },\n",
       EVEN_LOOP);
  runs("layers_per_stage = 2", "schedule = 'dualpipe_v',\n", EVEN_VEE);
}
END_TEST

/* Only the built model says how many layers a function makes. */
START_TEST(layers_of_a_model_function) {
  const char *set[] = {"pp_plan.layers_per_stage=1"};
  Job j;
  weft_status st = job_open(&j, t.arena, &(LangOptions){.set = set, .nset = 1},
                            WEFT_SOURCE_DIR "/plans/custom_model.lua");
  ck_assert_int_eq(st, WEFT_EPLAN);
  ck_assert_int_eq(j.d.errors, 1);
  ck_assert_str_eq(j.d.list.at[0].file, "--set pp_plan.layers_per_stage=1");
  ck_assert_str_eq(j.d.list.at[0].summary,
                   "4 layers, at most 1 each, make 4 stages, but there are 2 stages "
                   "(pp = 2 x virtual = 1)");
  ck_assert_str_eq(j.d.list.at[0].suggestion, "pp_plan.virtual = 2 would fit");
  job_free(&j);
}
END_TEST

/* What speaks of layers that verify leaves out goes with them, and that is said. */
START_TEST(smaller_plans) {
  static const char *const gone[][2] = {
      {"layout = 'Et*5|t*3L'", "pp_plan.layout"},
      {"layers = { 5, 3 }", "pp_plan.layers"},
      {"layers_per_stage = 4", "pp_plan.layers_per_stage"},
      {"last_stage_less_layers = 2", "pp_plan.last_stage_less_layers"},
      {"balance = 'cost'", NULL},
  };
  for (int i = 0; i < LEN(gone); i++) {
    lang_test_good(&t, plan_text(gone[i][0], ""));
    Plan small;
    LangShrunk what;
    ck_assert_int_eq(lang_shrink(t.lp, 2, &small, &what, &t.d, &t.e), WEFT_OK);
    bool said = false;
    for (int k = 0; k < what.n; k++) said |= str_eq(what.what[k], gone[i][1]);
    ck_assert_int_eq(said, gone[i][1] != NULL);
    ck_assert(!small.pp.layers && !small.pp.layers_per_stage && !small.pp.last_less);
    ck_assert_int_eq(small.pp.by_cost, !gone[i][1]);
  }
}
END_TEST

Suite *stage_plans_suite(void) {
  const TTest *const tests[] = {
      fields_that_contradict,
      values_that_are_wrong,
      sizes_that_do_not_fit,
      layers_for_further_tokens,
      no_errors_after_a_wrong_schedule,
      one_stage_per_rank,
      schedules_of_the_library,
      several_stages_per_rank,
      rounded_stages,
      smaller_plans,
      layers_of_a_model_function,
  };
  Suite *s = suite_create("stage_plans");
  TCase *c = tcase_create("plans");
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_set_timeout(c, 60);
  for (int i = 0; i < LEN(tests); i++) tcase_add_test(c, tests[i]);
  tcase_add_loop_test(c, cuts_run, 0, CUTS);
  suite_add_tcase(s, c);
  return s;
}
