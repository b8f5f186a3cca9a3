/* check_parity.c - a fixed sample of random plans against one rank: losses, gradient
 * norms, every gradient and parameter within 1e-5. `./dev fuzz N` runs more. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/generate/random_plan.h"
#include "tests/generate/rounding.h"
#include "tests/harness/scratch.h"
#include "vm/session/verify.h"

enum { SAMPLE = 48, EXPERTS = 24, FIRST = 12 };

static void plan_holds(int i) {
  Text t = {0};
  bool ok = parity_holds(2026, (uint64_t)i, 3, 1e-5, &t);
  ck_assert_msg(ok, "%s", t.s);
  text_free(&t);
}

static void expert_plan_holds(int i) {
  Text t = {0};
  bool ok = experts_hold((uint64_t)i, 3, 1e-5, &t);
  ck_assert_msg(ok, "%s", t.s);
  text_free(&t);
}

START_TEST(plan_agrees_with_one_rank) { plan_holds(_i); }
END_TEST

START_TEST(experts_agree_with_one_rank) { expert_plan_holds(_i); }
END_TEST

/* What check_levels.c runs once more. */
START_TEST(first_plans_agree_with_one_rank) {
  plan_holds(_i);
  if (_i % 2 == 0) expert_plan_holds(_i / 2);
}
END_TEST

/* The styles leave one norm's gradient to W and those of others to I: no reduction finds
 * all of the block written, as I of other microbatches come before W. */
static const char early[] =
    "local weft = require \"weft\"\n"
    "return weft.plan {\n"
    "  model = weft.model { \"qwen3\", num_hidden_layers = 2, hidden_size = 64,\n"
    "    num_attention_heads = 16, num_key_value_heads = 8, intermediate_size = 24,\n"
    "    vocab_size = 53, initializer_range = 0.1, head_dim = 8,\n"
    "    tie_word_embeddings = true },\n"
    "  tp_plan = { [\"layers.*.self_attn.o_proj\"] = \"colwise\",\n"
    "    [\"layers.*.self_attn.v_proj\"] = \"rowwise\",\n"
    "    [\"layers.*.mlp.down_proj\"] = \"colwise_gather_output\",\n"
    "    [\"layers.*.mlp.gate_proj\"] = \"sequence_parallel\",\n"
    "    embed_tokens = \"embedding_rowwise\" },\n"
    "  mesh = { tp = 2, pp = 2, dp = 2 }, schedule = \"zb_h2\",\n"
    "  strategy = { \"zero\", stage = %d, loss_parallel = false },\n"
    "  batch = { global = 6, micro = 1, seq = 16 },\n"
    "  optimizer = weft.adamw { lr = 1e-2, clip = 0.1 },\n"
    "  data = weft.synthetic {}, train = { steps = 3 },\n"
    "}\n";

START_TEST(gradients_of_a_block_are_complete) {
  VerifyReport r;
  Text plan = {0}, why = {0};
  text_printf(&plan, early, _i);
  ck_assert_int_eq(plan_parity(plan.s, 3, 1e-5, &r, &why), WEFT_OK);
  ck_assert_msg(r.ok, "%s", r.first_bad);
  text_free(&plan);
  text_free(&why);
}
END_TEST

/* Plans of Transformers' classes, by the names that modules have there in memory: one may
 * be several of files, or be called otherwise. */
#define ATTENTION(more)                                                                  \
  "['layers.*.self_attn.q_proj'] = 'colwise', ['layers.*.self_attn.k_proj'] = "          \
  "'colwise', ['layers.*.self_attn.v_proj'] = 'colwise', "                               \
  "['layers.*.self_attn.o_proj'] = 'rowwise', " more
#define MLP(name)                                                                        \
  "['layers.*." name ".gate_proj'] = 'colwise', ['layers.*." name ".up_proj'] = "        \
  "'colwise', ['layers.*." name ".down_proj'] = 'rowwise', "
#define PACKED                                                                           \
  "['layers.*.mlp.gate_up_proj'] = 'colwise_gather_output', "                            \
  "['layers.*.mlp.down_proj'] = 'rowwise_split_input'"
#define EXPERTS_PLAN                                                                     \
  "['layers.*.mlp.experts.gate_up_proj'] = 'packed_colwise', "                           \
  "['layers.*.mlp.experts.down_proj'] = 'rowwise', ['layers.*.mlp.experts'] = "          \
  "'moe_tp_experts'"
#define SMALL                                                                            \
  "num_hidden_layers = 2, hidden_size = 32, num_attention_heads = 4, "                   \
  "num_key_value_heads = 2, head_dim = 8, intermediate_size = 24, vocab_size = 64, "     \
  "initializer_range = 0.1"
#define SPARSE                                                                           \
  ", num_experts = 4, num_experts_per_tok = 2, moe_intermediate_size = 16, "             \
  "mlp_layer_types = { 'dense', 'sparse' }"

static const struct {
  const char *model, *tp;
} theirs[] = {
    {"'laguna', " SMALL SPARSE ", shared_expert_intermediate_size = 16",
     ATTENTION("['layers.*.self_attn.g_proj'] = 'colwise', ") MLP("mlp")
         MLP("mlp.shared_experts") EXPERTS_PLAN},
    {"'hy_v3', " SMALL SPARSE,
     ATTENTION("") MLP("mlp") MLP("mlp.shared_experts") EXPERTS_PLAN},
    {"'phi3', num_hidden_layers = 2, hidden_size = 32, num_attention_heads = 4, "
     "num_key_value_heads = 2, intermediate_size = 24, vocab_size = 64, "
     "initializer_range = 0.1",
     "['layers.*.self_attn.qkv_proj'] = 'colwise_gather_output', "
     "['layers.*.self_attn.o_proj'] = 'rowwise_split_input', " PACKED},
    {"'glm4', " SMALL, ATTENTION("") PACKED},
    {"'mimo_v2_flash', " SMALL ", v_head_dim = 4, n_routed_experts = 4, "
     "num_experts_per_tok = 2, moe_intermediate_size = 16, sliding_window = 5, "
     "mlp_layer_types = { 'dense', 'sparse' }",
     ATTENTION("['layers.*.self_attn.sinks'] = 'colwise', ['layers.*.self_attn'] = "
               "'local_params', ") MLP("mlp") EXPERTS_PLAN},
    {"'falcon_h1', " SMALL ", mamba_d_ssm = 32, mamba_n_heads = 4, mamba_d_head = 8, "
     "mamba_n_groups = 1, mamba_d_state = 8",
     "embed_tokens = 'embedding_rowwise', lm_head = 'colwise_gather_output'"},
};

START_TEST(plans_of_transformers_hold) {
  VerifyReport r;
  Text plan = {0}, why = {0};
  text_printf(&plan,
              "local weft = require 'weft'\n"
              "return weft.plan { model = weft.model { %s }, tp_plan = { %s },\n"
              "  mesh = { tp = 2 }, strategy = { 'zero', sequence_parallel = false },\n"
              "  batch = { global = 4, micro = 2, seq = 16 }, data = weft.synthetic {},\n"
              "  optimizer = weft.adamw { lr = 1e-2 }, train = { steps = 2 } }\n",
              theirs[_i].model, theirs[_i].tp);
  weft_status st = plan_parity(plan.s, 2, 1e-5, &r, &why);
  ck_assert_msg(st == WEFT_OK && r.ok, "%s%s", why.s ? why.s : "", plan.s);
  text_free(&plan);
  text_free(&why);
}
END_TEST

/* The sample must reach what it is for. */
START_TEST(sample_is_wide) {
  int tp4 = 0, pp4 = 0, dp3 = 0, sp = 0, odd = 0, chunks = 0, kinds = 0;
  bool seen[SCHEDULES] = {false};
  for (int i = 0; i < SAMPLE; i++) {
    RandomPlan p;
    random_plan(2026, (uint64_t)i, &p);
    tp4 += p.tp == 4, pp4 += p.pp == 4, dp3 += p.dp == 3;
    sp += p.sp && p.tp > 1, odd += p.microbatches % 2, chunks += p.virtual_stages > 1;
    for (int k = 0; k < SCHEDULES; k++)
      seen[k] |= strcmp(p.schedule, schedule_picks[k].name) == 0;
  }
  for (int k = 0; k < SCHEDULES; k++) kinds += seen[k];
  ck_assert_int_eq(kinds, SCHEDULES);
  ck_assert_int_ge(chunks, 16);
  ck_assert_int_ge(tp4, 8);
  ck_assert_int_ge(pp4, 8);
  ck_assert_int_ge(dp3, 8);
  ck_assert_int_ge(sp, 8);
  ck_assert_int_ge(odd, 8);
}
END_TEST

/* ---- ./dev fuzz ---- */

static void state_of(const char *folder, char *to, size_t n) {
  char path[512];
  snprintf(path, sizeof path, "%s/fuzz-5.state", folder);
  FILE *f = fopen(path, "r");
  ck_assert_msg(f != NULL, "no %s", path);
  to[fread(to, 1, n - 1, f)] = 0;
  fclose(f);
}

/* Plans in several calls are those of one; a state of other plans is begun anew. */
START_TEST(fuzz_goes_on) {
  char whole[4000], parts[4000];
  ck_assert_int_eq(fuzz_in(scratch_dir, 4, 5), EXIT_SUCCESS);
  state_of(scratch_dir, whole, sizeof whole);
  ck_assert_msg(strstr(whole, "\nnext 4\n"), "%s", whole);
  scratch_put("fuzz-5.state", "generator 1\nnext 3\n", 19);
  for (int i = 0; i < 2; i++) ck_assert_int_eq(fuzz_in(scratch_dir, 2, 5), EXIT_SUCCESS);
  state_of(scratch_dir, parts, sizeof parts);
  ck_assert_str_eq(whole, parts);
}
END_TEST

static const char by_range[] =
    "local weft = require \"weft\"\n"
    "return weft.plan {\n"
    "  model = weft.model { \"llama\", num_hidden_layers = 4, hidden_size = 64,\n"
    "    num_attention_heads = 4, intermediate_size = 24, vocab_size = 53,\n"
    "    initializer_range = %s },\n"
    "  mesh = { tp = 2 }, batch = { global = 2, micro = 1, seq = 16 },\n"
    "  data = weft.synthetic {}, train = { steps = 3 },\n"
    "}\n";

/* Large weights make large scores, whose last bit decides what attention does: the ranks
 * are farther from one rank than 1e-5, with any data, and rightly so. How far depends on
 * the order of the CPU's sums, so several sizes are tried, and those that come out
 * between the tolerance and ten times it are asked about. */
START_TEST(fuzz_knows_what_rounds) {
  static const char *const range[] = {"0.25", "0.3", "0.35", "0.4"};
  int asked = 0;
  for (int i = 0; i < LEN(range); i++) {
    VerifyReport r;
    Text plan = {0}, why = {0};
    text_printf(&plan, by_range, range[i]);
    ck_assert_int_eq(plan_parity(plan.s, 3, 1e-5, &r, &why), WEFT_OK);
    if (!r.ok && fmax(r.grad, r.grad_norm) < 5e-5) {
      ck_assert_msg(fuzz_only_rounds(plan.s, &r), "%s: %s", range[i], why.s);
      asked++;
    }
    text_free(&plan);
    text_free(&why);
  }
  ck_assert_int_ge(asked, 1);
}
END_TEST

/* Where little is made of a last bit, a difference of 1e-5 is none of rounding. */
START_TEST(rounding_excuses_no_fault) {
  Rounding own;
  Text plan = {0}, why = {0};
  text_printf(&plan, by_range, "0.02");
  ck_assert_msg(plan_rounding(plan.s, NULL, 1, &own, &why) == WEFT_OK, "%s", why.s);
  ck_assert_double_gt(own.grad, 1e-8);
  ck_assert_double_lt(own.grad, 2e-6);
  ck_assert_double_lt(own.loss, 2e-6);
  ck_assert_double_lt(own.grad_norm, 2e-6);
  text_free(&plan);
  text_free(&why);
}
END_TEST

Suite *parity_suite(void) {
  Suite *s = suite_create("parity");
  TCase *tc = tcase_create("plans");
  tcase_set_timeout(tc, 120);
  tcase_add_test(tc, sample_is_wide);
  tcase_add_loop_test(tc, plan_agrees_with_one_rank, FIRST, SAMPLE);
  tcase_add_loop_test(tc, experts_agree_with_one_rank, FIRST / 2, EXPERTS);
  tcase_add_loop_test(tc, gradients_of_a_block_are_complete, 1, 4);
  tcase_add_loop_test(tc, plans_of_transformers_hold, 0, LEN(theirs));
  suite_add_tcase(s, tc);
  tc = tcase_create("fuzz");
  tcase_add_checked_fixture(tc, scratch_setup, scratch_teardown);
  tcase_set_timeout(tc, 120);
  tcase_add_test(tc, fuzz_goes_on);
  tcase_add_test(tc, fuzz_knows_what_rounds);
  tcase_add_test(tc, rounding_excuses_no_fault);
  suite_add_tcase(s, tc);
  tc = tcase_create("sample");
  tcase_set_timeout(tc, 120);
  tcase_add_loop_test(tc, first_plans_agree_with_one_rank, 0, FIRST);
  suite_add_tcase(s, tc);
  return s;
}
