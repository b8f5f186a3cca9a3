/* check_import_llamafactory_learns.c - weft import of LLaMA-Factory's arguments: what
 * learns, at which rates, and how it lies on ranks; and what of a model's linears and
 * experts lora_target names. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/llamafactory_rows.h"

/* What learns, and how it lies on ranks. */
static const Row kinds[] = {
    {"finetuning_type: freeze\nnum_layer_trainable: 1\neval_steps: 5\n",
     {"\"layers.22\" },"},
     {"nothing is evaluated"}},
    {"finetuning_type: freeze\nfreeze_trainable_layers: -1\nfreeze_extra_modules: norm\n"
     "freeze_trainable_modules: mlp\n",
     {"freeze = { \"embed_tokens\", \"layers.0.self_attn.q_proj\",",
      "\"layers.0.self_attn.o_proj\", \"layers.1.self_attn.q_proj\",",
      "\"layers.1.mlp\",", "!input_layernorm"},
     {"freeze; norms of all layers learn, too"}},
    {"finetuning_type: freeze\nfreeze_trainable_layers: -1\n"
     "freeze_trainable_modules: mlp\n",
     {"\"layers.0.self_attn\", \"layers.0.input_layernorm\",", "\"layers.1\","},
     {NULL}},
    {"finetuning_type: oft\noft_block_size: 32\nuse_muon: true\nweight_decay: 0.1\n",
     {"adjust_lr = \"match_rms_adamw\",", "decay_vectors = true,"},
     {"the plan trains all parameters"}},
    {"finetuning_type: full\nbf16: true\nfsdp: full_shard auto_wrap\noptim: adafactor\n",
     {"\"fsdp2\",", "reduce_dtype = \"bf16\",", "scale_parameter = false,"},
     {NULL}},
    {"finetuning_type: full\nfsdp: [shard_grad_op]\noptim: lion_32bit\n"
     "fsdp_config: {fsdp_offload_params: true}\n",
     {"reshard_after_forward = false,", "offload_policy = true,", "weft.lion {"},
     {NULL}},
    /* A third of what is behind the warmup stays. */
    {"cutoff_len: 65536\nrope_scaling: yarn\nlr_scheduler_type: warmup_stable_decay\n"
     "max_steps: 110\nwarmup_steps: 10\n",
     {"factor = 2.0,", "decay = 67,"},
     {NULL}},
    /* Either is its share of the whole, whatever the other one is. */
    {"stage: sft\nlr_scheduler_type: warmup_stable_decay\nmax_steps: 110\nwarmup_steps: "
     "10\n"
     "lr_scheduler_kwargs: {num_stable_steps: 20}\n",
     {"decay = 67,  -- LLaMA-Factory's default", "steps = 97,"},
     {NULL}},
    {"stage: sft\nlr_scheduler_type: warmup_stable_decay\nmax_steps: 110\nwarmup_steps: "
     "10\n"
     "lr_scheduler_kwargs: {num_decay_steps: 20}\n",
     {"decay = 20,", "steps = 63,"},
     {NULL}},
    {"cutoff_len: 1024\nrope_scaling: linear\nlr_scheduler_type: cosine_with_min_lr\n"
     "lr_scheduler_kwargs: {min_lr_rate: 0.1}\n",
     {"seq = 1024,", "min_ratio = 0.1,"},
     {"no more than the 32768"}},
};

START_TEST(what_learns_and_where) { check_rows(kinds, LEN(kinds)); }
END_TEST

/* ---- targets ---- */

/* Of what PEFT takes for weights of experts, gate and up are one of twice the rank. */
#define MOE "model_name_or_path: Qwen/Qwen3-30B-A3B\ndo_train: true\n"
static const Row experts[] = {
    {"lora_target: q_proj,gate_proj,up_proj,down_proj\n",
     {"targets = { \"q_proj\" },",
      "target_parameters = { \"experts.gate_up_proj\", \"experts.down_proj\" },",
      "[\"experts.gate_up_proj\"] = 16,", "[\"experts.gate_up_proj\"] = 32,"},
     {NULL}},
    {"lora_target: down_proj\nlora_rank: 4\n",
     {"!targets =", "target_parameters = { \"experts.down_proj\" },", "!rank_pattern"},
     {NULL}},
    {"lora_target: q_proj,v_proj\nlora_dropout: 0.1\n",
     {"targets = { \"q_proj\", \"v_proj\" },", "!target_parameters", "dropout = 0.1,"},
     {NULL}},
    {"lora_target: q_proj,down_proj\nloraplus_lr_ratio: 16\n",
     {"target_parameters", "!groups ="},
     {"loraplus_lr_ratio = 16: groups of the plan take a factor"}},
};

START_TEST(experts_are_named_as_linears) { check_rows_of(MOE, experts, LEN(experts)); }
END_TEST

/* PEFT takes no notice of a name that it does not find, where it finds another. */
static const Row names[] = {
    {"lora_target: q_proj,c_attn\n",
     {"targets = { \"q_proj\" },"},
     {"without c_attn: the model has no such linear"}},
    {"lora_target: layers.0.self_attn.q_proj\n",
     {"targets = { \"layers.0.self_attn.q_proj\" },"},
     {NULL}},
};

START_TEST(names_that_are_not_there) { check_rows(names, LEN(names)); }
END_TEST

/* The model and lora_target, and what PEFT says of it. */
static const char *const wrong[][2] = {
    {MODEL "lora_target: c_attn\n", "names no linear of the model, which has q_proj, "},
    {MOE "lora_target: gate_proj\n", "(up_proj is missing)"},
    {MOE "lora_target: down_proj\nlora_dropout: 0.1\n", "take no dropout in PEFT"},
    {MOE "lora_target: down_proj\nuse_dora: true\n", "are no DoRA in PEFT"},
};

START_TEST(targets_that_peft_refuses) {
  for (int i = 0; i < LEN(wrong); i++) {
    import_put("a.yaml", wrong[i][0]);
    import_fails(1, "a.yaml", "", wrong[i][1]);
  }
}
END_TEST

Suite *import_llamafactory_learns_suite(void);
Suite *import_llamafactory_learns_suite(void) {
  Suite *s = suite_create("import_llamafactory_learns");
  TCase *t = tcase_create("learns");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 60);
  tcase_add_test(t, what_learns_and_where);
  tcase_add_test(t, experts_are_named_as_linears);
  tcase_add_test(t, names_that_are_not_there);
  tcase_add_test(t, targets_that_peft_refuses);
  suite_add_tcase(s, t);
  return s;
}
