/* check_number_formats.c - the types of numbers that strategies and precision name: what
 * a plan comes to, what has no effect, and what contradicts itself. */
#include <check.h>

#include "tests/harness/lang_fixture.h"

static LangTest t;

static void setup(void) { lang_test_begin(&t); }
static void teardown(void) { lang_test_end(&t); }

#define PLAN(fields)                                                                     \
  HEAD "return weft.plan { model = weft.model 'llama-tiny', mesh = { dp = 2 },\n"        \
       "batch = { global = 8, seq = 16 },\n" fields " }"

static const struct {
  const char *fields;
  DType dtype, reduce;
  const char *warning; /* the path of the only one, or NULL */
} right[] = {
    {"precision = 'bf16'", DT_BF16, DT_F32, NULL},
    {"precision = { reduce_dtype = 'bf16' }", DT_F32, DT_BF16, NULL},
    {"mp_policy = { param_dtype = 'bf16', reduce_dtype = 'bfloat16' }", DT_BF16, DT_BF16,
     NULL},
    {"strategy = { 'fsdp2', mp_policy = { param_dtype = 'bf16', reduce_dtype = 'bf16' } "
     "}",
     DT_BF16, DT_BF16, NULL},
    {"strategy = { 'fsdp2', mp_policy = { output_dtype = 'f32' } }", DT_F32, DT_F32,
     "strategy.mp_policy.output_dtype"},
    {"precision = { param_dtype = 'bf16', output_dtype = 'bf16' }", DT_BF16, DT_F32,
     "precision.output_dtype"},
    {"mp_policy = { param_dtype = 'bf16', output_dtype = 'fp32' }", DT_BF16, DT_F32,
     "mp_policy.output_dtype"},
    {"precision = { cast_forward_inputs = true }", DT_F32, DT_F32,
     "precision.cast_forward_inputs"},
    {"precision = { cast_forward_inputs = false }", DT_F32, DT_F32,
     "precision.cast_forward_inputs"},
    {"strategy = { 'fsdp2', autocast_dtype = 'bf16' }", DT_BF16, DT_F32, NULL},
    {"strategy = { 'fsdp2', autocast_dtype = false }", DT_F32, DT_F32, NULL},
    {"precision = 'bf16', strategy = { 'fsdp2', autocast_dtype = 'BFloat16' }", DT_BF16,
     DT_F32, NULL},
    {"precision = { reduce_dtype = 'bf16' }, strategy = { 'fsdp2', autocast_dtype = "
     "'f16' }",
     DT_F16, DT_BF16, NULL},
    {"strategy = { 'megatron_fsdp', grad_reduce_in_fp32 = false }", DT_F32, DT_F32, NULL},
    {"precision = 'bf16', strategy = { 'megatron_fsdp', grad_reduce_in_fp32 = false }",
     DT_BF16, DT_BF16, NULL},
    {"precision = 'bf16', strategy = { 'megatron_fsdp', grad_reduce_in_fp32 = true }",
     DT_BF16, DT_F32, NULL},
    {"precision = { reduce_dtype = 'f32' }, "
     "strategy = { 'megatron_fsdp', grad_reduce_in_fp32 = true }",
     DT_F32, DT_F32, NULL},
    {"strategy = { 'megatron_fsdp', keep_fp8_transpose_cache = false }", DT_F32, DT_F32,
     "strategy.keep_fp8_transpose_cache"},
    {"strategy = { 'ddp' }, precision = { reduce_dtype = 'bf16' }", DT_F32, DT_BF16,
     NULL},
};

START_TEST(what_a_plan_comes_to) {
  for (int i = 0; i < LEN(right); i++) {
    Diags *d = &t.d;
    const Plan *p =
        lang_test_good(&t, arena_printf(t.arena, PLAN("%s"), right[i].fields));
    ck_assert_msg(p->dtype == right[i].dtype, "%s: %s", right[i].fields,
                  dtype_name(p->dtype));
    ck_assert_msg(p->reduce == right[i].reduce, "%s: sums in %s", right[i].fields,
                  dtype_name(p->reduce));
    ck_assert_msg(d->list.n == (right[i].warning != NULL), "%s", right[i].fields);
    if (right[i].warning) ck_assert_str_eq(d->list.at[0].path, right[i].warning);
  }
}
END_TEST

#define AUTOCAST                                                                         \
  "ops compute in one type: this one is bf16, param_dtype is f32 (give "                 \
  "param_dtype alone; precision.master_dtype says what the optimizer steps)\n"

static const struct {
  const char *fields, *report;
} wrong[] = {
    {"precision = 'f32', strategy = { 'fsdp2', autocast_dtype = 'bf16' }",
     "plan.lua:4: error: plan.strategy.autocast_dtype: " AUTOCAST "1 error\n"},
    {"strategy = { 'fsdp2',\nautocast_dtype = 'bf16',\nmp_policy = 'f32' }",
     "plan.lua:5: error: plan.strategy.autocast_dtype: " AUTOCAST "1 error\n"},
    {"mp_policy = { param_dtype = 'f32' },\n"
     "strategy = { 'fsdp2', autocast_dtype = 'bf16' }",
     "plan.lua:5: error: plan.strategy.autocast_dtype: " AUTOCAST "1 error\n"},
    {"strategy = { 'fsdp2', autocast_dtype = true }",
     "plan.lua:4: error: plan.strategy.autocast_dtype: expected the name of a type, got "
     "true\n1 error\n"},
    {"strategy = { 'fsdp2', autocast_dtype = 'fp8' }",
     "plan.lua:4: error: plan.strategy.autocast_dtype: \"fp8\" is not built yet\n"
     "1 error\n"},
    {"precision = { output_dtype = 'bf16' }",
     "plan.lua:4: error: plan.precision.output_dtype: logits have param_dtype = \"f32\", "
     "and the loss is computed from them in f32 (leave it out)\n1 error\n"},
    {"precision = 'f16', strategy = { 'megatron_fsdp', grad_reduce_in_fp32 = false }",
     "plan.lua:4: error: plan.strategy.grad_reduce_in_fp32: asks for sums in param_dtype "
     "= "
     "\"f16\", where they would overflow (leave it out, or give precision.reduce_dtype = "
     "\"bf16\")\n1 error\n"},
    {"precision = { param_dtype = 'bf16', reduce_dtype = 'f32' },\n"
     "strategy = { 'megatron_fsdp', grad_reduce_in_fp32 = false }",
     "plan.lua:5: error: plan.strategy.grad_reduce_in_fp32: asks for sums in bf16, but "
     "precision.reduce_dtype is f32 (give one of them)\n1 error\n"},
    {"strategy = { 'megatron_fsdp', keep_fp8_transpose_cache = true }",
     "plan.lua:4: error: plan.strategy.keep_fp8_transpose_cache: there are no fp8 "
     "weights: "
     "linears round theirs anew (leave it out)\n1 error\n"},
};

START_TEST(what_contradicts_itself) {
  for (int i = 0; i < LEN(wrong); i++) {
    lang_test_end(&t);
    lang_test_begin(&t);
    lang_test_bad(&t, arena_printf(t.arena, PLAN("%s"), wrong[i].fields),
                  wrong[i].report);
  }
}
END_TEST

/* An option of another strategy. */
START_TEST(options_of_others) {
  lang_test_bad(&t, PLAN("strategy = { 'ddp', stage = 1,\nautocast_dtype = 'bf16' }"),
                "plan.lua:4: error: plan.strategy.stage: unknown field (an option of "
                "\"zero\")\nplan.lua:5: error: plan.strategy.autocast_dtype: unknown "
                "field (an option of \"fsdp2\")\n2 errors\n");
}
END_TEST

/* Gathers of Megatron's FSDP start ahead in both directions, or in neither; others say it
 * themselves. */
START_TEST(gathers_that_start_ahead) {
  static const struct {
    const char *strategy;
    int forward, backward;
  } ahead[] = {{"'megatron_fsdp'", 1, 2},
               {"{ 'megatron_fsdp', overlap_param_gather = true }", 1, 2},
               {"{ 'megatron_fsdp', overlap_param_gather = false }", 0, 0},
               {"{ 'zero', stage = 3, overlap_param_gather = false }", 1, 2},
               {"{ 'fsdp2', forward_prefetch_depth = 0 }", 0, 2},
               {"{ 'fsdp2', backward_prefetch_depth = 0 }", 1, 0}};
  for (int i = 0; i < LEN(ahead); i++) {
    const Plan *p = lang_test_good(
        &t, arena_printf(t.arena, PLAN("strategy = %s"), ahead[i].strategy));
    ck_assert_msg(p->strategy.prefetch[0] == ahead[i].forward &&
                      p->strategy.prefetch[1] == ahead[i].backward,
                  "%s: %d, %d", ahead[i].strategy, p->strategy.prefetch[0],
                  p->strategy.prefetch[1]);
  }
}
END_TEST

/* Copies alone are stage 0. */
START_TEST(nothing_is_left_to_cut) {
  static const char plan[] =
      HEAD "return weft.plan { model = weft.model 'llama-tiny',\n"
           "mesh = { dp = 4, dp_replicate = %d }, strategy = { 'zero', stage = %d },\n"
           "batch = { global = 8, seq = 16 } }";
  for (int stage = 0; stage <= 3; stage++)
    for (int copies = 1; copies <= 4; copies *= 2) {
      lang_test_good(&t, arena_printf(t.arena, plan, copies, stage));
      ck_assert_int_eq(t.d.list.n, stage > 0 && copies == 4);
      if (t.d.list.n) ck_assert_str_eq(t.d.list.at[0].path, "mesh.dp_replicate");
    }
}
END_TEST

Suite *number_formats_suite(void);
Suite *number_formats_suite(void) {
  Suite *s = suite_create("number_formats");
  TCase *c = tcase_create("number_formats");
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_add_test(c, what_a_plan_comes_to);
  tcase_add_test(c, what_contradicts_itself);
  tcase_add_test(c, options_of_others);
  tcase_add_test(c, nothing_is_left_to_cut);
  tcase_add_test(c, gathers_that_start_ahead);
  suite_add_tcase(s, c);
  return s;
}
