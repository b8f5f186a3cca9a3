/* check_learns.c - what weft check says of plans with frozen parameters: bytes of base,
 * adapter, states and activations, and how many it saves. */
#include <check.h>

#include "tests/harness/compiled_job.h"
#include "tests/harness/process.h"

#define MODEL                                                                            \
  "local weft = require 'weft'\nreturn weft.plan { name = 'p',\n"                        \
  "  model = weft.model { 'llama', hidden_size = 64, num_hidden_layers = 2, "            \
  "num_attention_heads = 4, intermediate_size = 128, vocab_size = 256 },\n"              \
  "  batch = { global = 4, micro = 1, seq = 32 }, %s }\n"

static const char *put_plan(const char *fields) {
  const char *text = arena_printf(arena, MODEL, fields);
  return scratch_put("plan.lua", text, strlen(text));
}

static JobLearns learns_of(const char *fields, uint64_t *memory) {
  JobLearns l;
  int pp;
  compiled_job(&job, arena, put_plan(fields), NULL, 0);
  job_learns(&job, &l);
  *memory = job_worst_memory(&job, &pp);
  job_free(&job);
  return l;
}

static const struct {
  const char *around, *frozen; /* of the plan, and what leaves something out */
  uint64_t learning;           /* elements */
} plans[] = {
    {"mesh = { dp = 1 }", "adapter = { 'lora', rank = 4, targets = { 'q_proj' } }",
     2 * 2 * 4 * 64},
    {"mesh = { dp = 2 }, strategy = 'fsdp2', precision = 'bf16'",
     "adapter = { 'lora', rank = 4, targets = { 'q_proj', 'o_proj' } }", 4 * 2 * 4 * 64},
    {"mesh = { pp = 2 }", "freeze = { 'embed_tokens', 'layers' }", 64 + 256 * 64},
    {"mesh = { dp = 2 }, strategy = { 'zero', stage = 1, offload_optimizer = true }",
     "adapter = { 'lora', rank = 4, targets = { 'q_proj' } }, groups = { { 'layers.0', "
     "lr "
     "= 2 } }, loss = { 'cross_entropy', per = 'sequences' }",
     2 * 2 * 4 * 64},
};

/* The difference to a plan that says nothing of what is frozen is what is told. */
START_TEST(saved_is_the_difference) {
  uint64_t own, all;
  const char *around = plans[_i].around;
  JobLearns none = learns_of(around, &all);
  JobLearns l = learns_of(arena_printf(arena, "%s, %s", around, plans[_i].frozen), &own);
  ck_assert_uint_eq(none.parameters, 0);
  ck_assert_uint_eq(l.parameters, plans[_i].learning);
  ck_assert_uint_gt(l.saved, 0);
  ck_assert_msg(own + l.saved <= all + 4096 && own + l.saved + 4096 >= all,
                "%llu and %llu saved, %llu with nothing frozen", (unsigned long long)own,
                (unsigned long long)l.saved, (unsigned long long)all);
  ck_assert_uint_gt(l.states, 0);
  ck_assert_uint_gt(l.activations, 0);
  ck_assert_uint_ge(l.frozen + l.learning, l.learning + 1);
}
END_TEST

/* A copy takes the place of the model without its adapter, which the loss reads. */
START_TEST(with_a_reference) {
  uint64_t own;
  JobLearns l = learns_of("adapter = { 'lora', rank = 4 }, loss = { 'dpo' }, packed = { "
                          "size = 32, alone = true, eot = 3 }, batch = { global = 4, "
                          "micro = 2, seq = 32 }",
                          &own);
  ck_assert_uint_gt(l.saved, 0);
}
END_TEST

START_TEST(check_says_it) {
  put_plan("adapter = { 'lora', rank = 4, targets = { 'q_proj' } }");
  Outcome o = process_run(60, "$weft check plan.lua");
  ck_assert_msg(o.code == 0, "%s", o.err);
  ck_assert_msg(strstr(o.out, "  learns  1.02 k of 116 k parameters, an adapter of rank "
                              "4: base ") &&
                    strstr(o.out, " less than if all of the model learnt\n"),
                "%s", o.out);
  o = process_run(60, "$weft check plan.lua --json");
  ck_assert_msg(strstr(o.out, "\"learns\": {") && strstr(o.out, "\"parameters\": 1024,"),
                "%s", o.out);
  put_plan("freeze = { 'layers.0' }");
  o = process_run(60, "$weft check plan.lua");
  ck_assert_msg(strstr(o.out, " parameters: frozen "), "%s", o.out);
  put_plan("");
  o = process_run(60, "$weft check plan.lua");
  ck_assert_msg(!strstr(o.out, "learns"), "%s", o.out);
}
END_TEST

/* PEFT refuses an adapter of what mixers of Mamba give: it is none of all linears, and
 * named it is warned of. */
START_TEST(mixers_of_mamba) {
  static const char plan[] =
      "local weft = require 'weft'\nreturn weft.plan { name = 'p',\n"
      "  model = weft.model { '%s', hidden_size = 64, num_attention_heads = 4,\n"
      "    num_key_value_heads = 2, intermediate_size = 128, vocab_size = 256, %s },\n"
      "  batch = { global = 4, micro = 1, seq = 32 },\n"
      "  adapter = { 'lora', rank = 4%s } }\n";
  static const struct {
    const char *family, *keys;
  } models[] = {{"nemotron_h", "head_dim = 16, hybrid_override_pattern = 'M*-', "
                               "mamba_num_heads = 4, mamba_head_dim = 16, n_groups = 2, "
                               "ssm_state_size = 16"},
                {"falcon_h1",
                 "num_hidden_layers = 2, mamba_d_ssm = 64, mamba_n_heads = 4, "
                 "mamba_d_state = 16"}};
  for (int i = 0; i < LEN(models); i++)
    for (int named = 0; named < 2; named++) {
      const char *text =
          arena_printf(arena, plan, models[i].family, models[i].keys,
                       named ? ", targets = { 'q_proj', 'out_proj' }" : "");
      const Compiled *c =
          compiled_job(&job, arena, scratch_put("plan.lua", text, strlen(text)), NULL, 0);
      int out = 0, others = 0, warned = 0;
      for (int k = 0; k < c->nparam; k++) {
        bool adapter = strstr(c->param[k].name, "lora") != NULL;
        if (adapter && strstr(c->param[k].name, ".out_proj"))
          out++;
        else
          others += adapter;
      }
      for (int k = 0; k < job.d.list.n; k++)
        warned += str_eq(job.d.list.at[k].path, "plan.adapter.targets[2]") ||
                  str_eq(job.d.list.at[k].path, "adapter.targets[2]");
      ck_assert_int_eq(out > 0, named);
      ck_assert_int_eq(warned, named);
      ck_assert_int_gt(others, 0);
      job_free(&job);
    }
}
END_TEST

/* PEFT takes names of linears for those of experts, where files had experts so. */
START_TEST(taken_for_experts) {
  static const char plan[] =
      "local weft = require 'weft'\nreturn weft.plan { name = 'p',\n"
      "  model = weft.model { '%s', hidden_size = 64, num_attention_heads = 4,\n"
      "    num_hidden_layers = 2, num_key_value_heads = 2, intermediate_size = 128,\n"
      "    moe_intermediate_size = 64, num_experts = 4, num_experts_per_tok = 2,\n"
      "    vocab_size = 256, %s },\n"
      "  batch = { global = 4, micro = 1, seq = 32 },\n"
      "  adapter = { 'lora', rank = 4, %s } }\n";
  static const struct {
    const char *family, *keys, *targets;
    bool warned;
  } models[] = {{"qwen3_moe", "mlp_only_layers = { 0 }", "targets = 'all-linear'", true},
                {"qwen3_moe", "mlp_only_layers = { 0 }", "targets = { 'up_proj' }", true},
                {"qwen3_moe", "mlp_only_layers = { 0 }", "targets = { 'q_proj' }", false},
                {"qwen3_moe", "", "targets = 'all-linear'", false},
                {"qwen2_moe", "shared_expert_intermediate_size = 64",
                 "targets = 'all-linear'", false}};
  for (int i = 0; i < LEN(models); i++) {
    const char *text =
        arena_printf(arena, plan, models[i].family, models[i].keys, models[i].targets);
    int warned = 0;
    (void)compiled_job(&job, arena, scratch_put("plan.lua", text, strlen(text)), NULL, 0);
    for (int k = 0; k < job.d.list.n; k++)
      warned += strstr(job.d.list.at[k].summary, "takes model.layers.0.mlp.") != NULL;
    ck_assert_int_eq(warned, models[i].warned);
    job_free(&job);
  }
}
END_TEST

Suite *learns_suite(void);
Suite *learns_suite(void) {
  Suite *s = suite_create("learns");
  TCase *t = tcase_create("learns");
  tcase_add_checked_fixture(t, job_setup, job_teardown);
  tcase_set_timeout(t, 100);
  tcase_add_loop_test(t, saved_is_the_difference, 0, LEN(plans));
  tcase_add_test(t, mixers_of_mamba);
  tcase_add_test(t, taken_for_experts);
  tcase_add_test(t, with_a_reference);
  tcase_add_test(t, check_says_it);
  suite_add_tcase(s, t);
  return s;
}
