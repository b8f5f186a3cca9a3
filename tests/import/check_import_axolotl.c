/* check_import_axolotl.c - weft import of axolotl's recipes. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/axolotl_recipe.h"
#include "tests/harness/import_files.h"

#define TINY                                                                             \
  "model_config: {num_hidden_layers: 2, hidden_size: 64, intermediate_size: 128,\n"      \
  "  vocab_size: 128, num_attention_heads: 4, num_key_value_heads: 2}\n"
#define MOE                                                                              \
  "base_model: Qwen/Qwen3-30B-A3B\nsequence_len: 64\nmicro_batch_size: 1\n"              \
  "gradient_accumulation_steps: 1\nlearning_rate: 0.001\n" LORA

static const char *report_of(const char *base, const char *more, const char *arguments) {
  import_put("a.yaml", arena_printf(scratch_arena, "%s%s", base, more));
  return import_file("a.yaml", arguments);
}
static const char *report_with(const char *more) {
  return report_of(RECIPE, more, "--world 4");
}

static void fails(const char *more, const char *says) {
  import_put("a.yaml", arena_printf(scratch_arena, "%s%s", RECIPE, more));
  import_fails(1, "a.yaml", "--world 4", says);
}

/* ---- whole plans ---- */

static const char full[] =
    "val_set_size: 0.05\nsample_packing: true\nattn_implementation: flash_attention_2\n"
    "optimizer: adamw_torch_fused\nlr_scheduler: cosine\nwarmup_ratio: 0.1\n"
    "weight_decay: 0.01\nmax_steps: 200\nbf16: auto\ntf32: true\n"
    "gradient_checkpointing: true\nadam_beta2: 0.95\nadam_epsilon: 1e-6\n"
    "max_grad_norm: 0.5\ncosine_min_lr_ratio: 0.1\nseed: 7\nsave_steps: 50\n"
    "eval_steps: 20\nsave_total_limit: 2\noutput_dir: ./outputs/full\nlogging_steps: 5\n"
    "fsdp_version: 2\nfsdp_config:\n  offload_params: true\n"
    "  reshard_after_forward: true\n  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
    "wandb_project: mine\n";

static const char full_plan[] =
    "  mesh = {\n"
    "    world = 4,  -- --world\n"
    "  },\n\n"
    "  strategy = {\n"
    "    \"fsdp2\",  -- FSDP 2\n"
    "    reshard_after_forward = true,  -- a.yaml:33: fsdp_config.reshard_after_forward\n"
    "    offload_policy = true,  -- a.yaml:32: fsdp_config.offload_params\n"
    "  },\n\n"
    "  precision = {\n"
    "    param_dtype = \"bf16\",  -- a.yaml:17: bf16\n"
    "    master_dtype = \"bf16\",  -- a.yaml:17: bf16\n"
    "    grad_dtype = \"bf16\",  -- a.yaml:17: bf16\n"
    "    reduce_dtype = \"bf16\",  -- Accelerate's FSDP sums gradients in it\n"
    "  },\n"
    "  recompute = \"full\",  -- a.yaml:19: gradient_checkpointing\n\n"
    "  packed = {\n"
    "    eot = 0,  -- assumed: the id of the tokenizer is not in the settings\n"
    "    size = 64,  -- a.yaml:10: sample_packing\n"
    "    labels = \"within\",  -- labels do not cross documents\n"
    "    too_long = \"drop\",  -- axolotl's default\n"
    "  },\n\n"
    "  batch = {\n"
    "    global = 24,  -- a.yaml:7: gradient_accumulation_steps\n"
    "    micro = 2,  -- a.yaml:6: micro_batch_size\n"
    "    seq = 64,  -- a.yaml:5: sequence_len\n"
    "  },\n\n"
    "  optimizer = weft.adamw {\n"
    "    lr = weft.cosine {\n"
    "      max = 2e-05,  -- a.yaml:8: learning_rate\n"
    "      min_ratio = 0.1,  -- a.yaml:23: cosine_min_lr_ratio\n"
    "      warmup = 20,  -- a.yaml:14: warmup_ratio\n"
    "    },\n"
    "    betas = { 0.9, 0.95 },  -- a.yaml:20: adam_beta2\n"
    "    eps = 1e-06,  -- a.yaml:21: adam_epsilon\n"
    "    weight_decay = 0.01,  -- a.yaml:15: weight_decay\n"
    "    clip = 0.5,  -- a.yaml:22: max_grad_norm\n"
    "    state_dtype = \"bf16\",  -- the type of the weights\n"
    "  },\n"
    "  data = weft.synthetic {},  -- made-up tokens\n\n"
    "  train = {\n"
    "    steps = 200,  -- a.yaml:16: max_steps\n"
    "    seed = 7,  -- a.yaml:24: seed\n"
    "    log_every = 5,  -- a.yaml:29: logging_steps\n"
    "  },\n\n"
    "  checkpoint = {\n"
    "    dir = \"outputs/full\",  -- a.yaml:28: output_dir\n"
    "    every = 50,  -- a.yaml:25: save_steps\n"
    "    keep = 2,  -- a.yaml:27: save_total_limit\n"
    "  },\n"
    "}\n";

START_TEST(a_full_fine_tuning_becomes_a_plan) {
  const char *report = report_with(full);
  import_plan_has(full_plan);
  import_has(report, "a.yaml:1: base_model = HuggingFaceTB/SmolLM2-135M -> model");
  import_has(report, "a.yaml:2: model_type = LlamaForCausalLM: the plan's model says it");
  import_has(report, "data = weft.chat { \"mine/talks.jsonl\" }");
  import_has(report, "data.val_fraction = 0.05, and train.eval_every = 20");
  import_has(report, "a.yaml:35: wandb_project = mine: weft run --log");
  import_has(report, "a step of rate 0, and is a step behind");
}
END_TEST

static const char qlora_plan[] =
    "  adapter = {\n"
    "    \"lora\",  -- a.yaml:11: adapter\n"
    "    targets = \"all-linear\",  -- a.yaml:16: lora_target_linear\n"
    "    rank = 8,  -- a.yaml:13: lora_r\n"
    "    alpha = 16.0,  -- a.yaml:14: lora_alpha\n"
    "    dropout = 0.05,  -- a.yaml:15: lora_dropout\n"
    "    base = \"nf4\",  -- a.yaml:12: load_in_4bit\n"
    "  },\n\n"
    "  optimizer = weft.adamw_8bit {\n"
    "    lr = weft.cosine {\n"
    "      max = 2e-05,  -- a.yaml:8: learning_rate\n"
    "      warmup = 0,  -- axolotl's default: 3 % of the steps, at most 100\n"
    "    },\n"
    "    betas = { 0.9, 0.999 },  -- Transformers' default\n"
    "    weight_decay = 0,  -- axolotl's default\n"
    "    clip = 1.0,  -- Transformers' default\n"
    "  },\n";

/* Its numbers are run, from random weights. */
START_TEST(an_adapter_becomes_a_plan_and_trains) {
  report_of(RECIPE,
            TINY "adapter: qlora\nload_in_4bit: true\nlora_r: 8\nlora_alpha: 16.0\n"
                 "lora_dropout: 0.05\nlora_target_linear: true\nmax_steps: 2\n"
                 "optimizer: adamw_bnb_8bit\nlogging_steps: 1\nsave_strategy: no\n",
            "--world 2");
  import_plan_has(qlora_plan);
  import_plan_has("\"ddp\",  -- neither fsdp_config nor deepspeed");
  import_plan_has("alone = true,  -- a conversation a row");
  import_plan_lacks("checkpoint");
  import_plan_lacks("master_dtype");
  Outcome o = process_run(IMPORT_SECONDS, "$weft run a.lua");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  import_has(o.out, "loss");
}
END_TEST

/* ---- meanings ---- */

static const struct Row {
  const char *more, *plan[7];
} rows[] = {
    /* types: weights are loaded in the type that computes */
    {"bf16: false\nfp16: true\n" LORA
     "lora_target_linear: true\nliger_fused_linear_cross_entropy: true\n"
     "lora_rank_pattern: {q_proj: 4}\npeft_use_dora: true\npeft_use_rslora: true\n"
     "lr_scheduler: constant\nwarmup_steps: 9\n",
     {"param_dtype = \"f16\"", "loss_chunks = \"auto\",  -- a.yaml:15",
      "q_proj = 4,  -- a.yaml:16: lora_rank_pattern.q_proj", "rslora = true,",
      "dora = true,", "lr = 2e-05,  -- a.yaml:8"}},
    {"bf16: full\nfsdp: [shard_grad_op, auto_wrap]\noptimizer: lion_32bit\n"
     "lr_scheduler: constant_with_warmup\nwarmup_steps: 9\n",
     {"reshard_after_forward = false,  -- a.yaml:10: fsdp", "reduce_dtype = \"bf16\"",
      "optimizer = weft.lion {", "betas = { 0.9, 0.999 },  -- Transformers' default",
      "lr = weft.constant {"}},
    {"bf16: false\nfsdp_config: {fsdp_sharding_strategy: NO_SHARD,\n"
     "  activation_checkpointing: true}\noptimizer: adafactor\nmax_steps: 10000\n",
     {"param_dtype = \"f32\",  -- a.yaml:9: bf16", "\"ddp\",  -- a.yaml:10",
      "recompute = \"full\",  -- a.yaml:11",
      "relative_step = false,  -- Transformers' Trai", "eps = { 1e-15, 0.001 },",
      "warmup = 100,  -- axolotl's default"}},
    /* ranks */
    {TINY "tensor_parallel_size: 2\nnoisy_embedding_alpha: 5\nbf16: full\n",
     {"global = 12,", "\"zero\",  -- neither fsdp_config nor deepspeed", "stage = 0,",
      "neftune_noise_alpha = 5,", "master_dtype = \"bf16\"", "grad_dtype = \"bf16\""}},
    {TINY "context_parallel_size: 2\nsample_packing: true\noptimizer: sgd\n",
     {"comm = \"allgather\",", "balance = \"none\",", "global = 12,",
      "optimizer = weft.sgd {"}},
    {TINY "sequence_parallel_degree: 2\nexcess_length_strategy: truncate\n"
          "lr_scheduler: linear\nwarmup_steps: 1\n",
     {"comm = \"ring\",", "cp = 2,  -- a.yaml:11: sequence_parallel_degree",
      "too_long = \"truncate\",  -- a.yaml:12", "lr = weft.linear {",
      "warmup = 2,  -- a.yaml:14: warmup_steps"}},
    {"dp_replicate_size: 2\nfsdp_version: 2\nfsdp_config: {offload_params: false}\n"
     "gradient_checkpointing: offload\noptimizer: paged_adamw_8bit\n",
     {"dp_replicate = 2,", "recompute = \"full\",", "optimizer = weft.adamw_8bit {"}},
    {"ddp_bucket_cap_mb: 2\nddp_timeout: 90\noptimizer: muon\nlr_scheduler: polynomial\n",
     {"bucket_bytes = 2097152,", "timeout = 90,",
      "betas = { 0.9, 0.95 },  -- axolotl's, of", "adjust_lr = \"spectral_unclamped\",",
      "nesterov = false,", "min = 1e-07,  -- Transformers' default"}},
    /* groups, rates, checkpoints */
    {"weight_decay: 0.1\nembedding_lr: 1e-5\nmax_steps: 99\nsave_steps: 0.25\n"
     "cosine_min_lr_ratio: 0.1\ncosine_constant_lr_ratio: 0.8\n",
     {"groups = { { \"embed_tokens\", \"lm_head\", lr = 0.5, weight_decay = 0 } },",
      "every = 25,  -- a.yaml:12: save_steps",
      "steps = 79,  -- a.yaml:14: cosine_constant_lr_ratio"}},
    {"weight_decay: 0.1\noptimizer: optimi_adamw\nlr_scheduler: warmup_stable_decay\n"
     "lr_scheduler_kwargs: {num_decay_steps: 3}\n",
     {"groups = { { \"embed_tokens\", \"lm_head\", weight_decay = 0 } },",
      "decay = 3,  -- a.yaml:12", "decay_style = \"cosine\",  -- Transformers' default",
      "warmup_ratio = 0.03,  -- axolotl's default"}},
    /* adapters */
    {LORA "lora_target_modules: [q_proj, self_attn.v_proj, c_attn]\n"
          "peft_autocast_adapter_dtype: false\noptimizer: adamw_torch_4bit\n",
     {"targets = { \"q_proj\", \"self_attn.v_proj\" },  -- a.yaml:12",
      "master_dtype = \"bf16\"", "optimizer = weft.adamw_8bit {"}},
    {"lr_scheduler: cosine_with_min_lr\nlr_scheduler_kwargs: {min_lr: 1e-6}\n"
     "cosine_min_lr_ratio: 0.1\n",
     {"min = 1e-06,  -- a.yaml:10: lr_scheduler_kwargs.min_lr"}},
    {LORA "lora_target_modules: 'model.layers.[\\d]+.(mlp|self_attn).(up|down|q)_proj'\n",
     {"targets = { \"up_proj\", \"down_proj\", \"q_proj\" },"}},
    /* pairs */
    {"rl: dpo\nrl_beta: 0.2\ndpo_label_smoothing: 0.1\n",
     {"global = 48,", "micro = 4,", "beta = 0.2,  -- a.yaml:10", "label_smoothing = 0.1,",
      "too_long = \"truncate\",  -- a pair stays whole", "alone = true,"}},
};

START_TEST(settings_mean_what_axolotl_does) {
  report_with(rows[_i].more);
  for (const char *const *p = rows[_i].plan; *p; p++) import_plan_has(*p);
}
END_TEST

static const struct Row said[] = {
    {"load_in_8bit: true\nlora_model_dir: old\nloraplus_lr_ratio: 16\n" LORA
     "lora_target_linear: true\nchat_template: qwen3\nplugins: [mine.Plugin]\nmy_own: "
     "3\n",
     {"not in 8: more memory", "adapter.from = \"old\"", "both factors have one rate",
      "template = \"qwen3\"", "a.yaml:18: my_own = 3: no setting of axolotl's own"}},
    {"rl: orpo\norpo_alpha: 0.1\noptimizer: came_pytorch\nlr_scheduler: rex\n",
     {"ORPO: the plan trains with the cross entropy",
      "orpo_alpha = 0.1: it belongs to a loss",
      "came_pytorch is not in weft: the plan has AdamW", "the fall of REX"}},
    {"rl: grpo\ntrl: {beta: 0.1}\nunfrozen_parameters: ['^lm_head']\ntrain_on_inputs: "
     "true\n",
     {"GRPO, which learns from rewards", "all parameters learn: freeze",
      "train_on = \"all\""}},
    {"sample_packing: true\nliger_fused_linear_cross_entropy: true\nreinit_weights: "
     "true\n",
     {"axolotl keeps them apart with an attn_implementation alone",
      "as loss_chunks needs gradients in f32",
      "reinit_weights = true: a run begins with"}},
};

START_TEST(what_a_plan_cannot_say_is_said) {
  const char *report = report_with(said[_i].more);
  for (const char *const *p = said[_i].plan; *p; p++) import_has(report, *p);
}
END_TEST

/* PEFT takes linears of experts for their weights, gate and up as one of twice the rank.
 */
START_TEST(adapters_of_experts_are_those_of_peft) {
  report_of(MOE, "lora_target_modules: [q_proj, gate_proj, up_proj, down_proj]\n", "");
  import_plan_has("targets = { \"q_proj\" },");
  import_plan_has(
      "target_parameters = { \"experts.gate_up_proj\", \"experts.down_proj\" },");
  import_plan_has("[\"experts.gate_up_proj\"] = 32,");
  import_plan_has("[\"experts.gate_up_proj\"] = 64,");
  report_of(MOE, "lora_target_linear: true\nexpert_parallel_size: 4\n", "");
  import_plan_has("targets = { \"q_proj\", \"k_proj\", \"v_proj\", \"o_proj\" },");
  import_plan_has("ep = 4,");
  report_of(MOE, "lora_target_parameters: [mlp.experts.down_proj]\n", "");
  import_plan_has("target_parameters = { \"mlp.experts.down_proj\" },");
  import_plan_lacks("targets");
  import_put("a.yaml", MOE "lora_target_modules: [gate_proj]\n");
  import_fails(1, "a.yaml", "", "gate and up of experts are one weight");
}
END_TEST

/* ---- DeepSpeed ---- */

START_TEST(the_file_of_deepspeed_is_read) {
  const char *report = report_with("deepspeed: deepspeed_configs/zero3_bf16.json\n");
  import_plan_has("stage = 3,  -- zero3_bf16.json: zero_optimization.stage");
  import_plan_has("param_persistence_threshold = 5760,");
  import_has(report, "as the file of this name that axolotl ships has it");
  import_put("zero3_bf16.json",
             "{\"zero_optimization\": {\"stage\": 2, \"reduce_bucket_size\": 1000},\n"
             "\"bf16\": {\"enabled\": \"auto\"}, \"gradient_clipping\": \"auto\",\n"
             "\"train_batch_size\": \"auto\", \"optimizer\": {\"type\": \"Lamb\"}}");
  report = report_with("deepspeed: deepspeed_configs/zero3_bf16.json\n");
  import_plan_has("stage = 2,  -- zero3_bf16.json:1: zero_optimization.stage");
  import_plan_has("grad_dtype = \"bf16\",  -- DeepSpeed's default");
  import_has(report, "zero3_bf16.json:2: gradient_clipping = auto");
  import_has(report, "optimizer.type = Lamb: the optimizer of the file");
  import_plan_has("micro = 2,");
  report_with("deepspeed: {zero_optimization: {stage: 1}, bf16: {enabled: true}}\n");
  import_plan_has("stage = 1,  -- a.yaml:9: zero_optimization.stage");
  fails("deepspeed: mine.json\n", "a.yaml:9: error: mine.json: the file is not beside");
}
END_TEST

/* ---- what is wrong ---- */

static const struct Wrong {
  const char *more, *says;
} wrong[] = {
    {"gradient_acumulation_steps: 8\n",
     "a.yaml:9: error: \"gradient_acumulation_steps\" is no setting of axolotl, which "
     "takes "
     "no notice of it (did you mean \"gradient_accumulation_steps\"?)"},
    {"fsdp_config: {ofload_params: true}\n",
     "(did you mean \"fsdp_config.offload_params\"?)"},
    {"fsdp_config: full\n", "fsdp_config: expected names and values below it"},
    {"batch_size: 8\n", "a.yaml:9: error: batch_size and gradient_accumulation_steps"},
    {"optimizer: adamw_tourch\n", "(did you mean adamw_torch?)"},
    {"optimizer: muon\nfsdp: [full_shard]\n",
     "goes neither with DeepSpeed nor with FSDP 1"},
    {"optimizer: [1, 2]\n", "is none of axolotl's optimizers"},
    {"lr_scheduler: fast\n", "a.yaml:9: error: fast: expected constant,"},
    {"adapter: qlora\nlora_r: 8\nlora_alpha: 8\nlora_target_linear: true\n",
     "a.yaml:9: error: adapter: qlora goes with load_in_4bit: true"},
    {"load_in_4bit: true\n", "a.yaml:9: error: load_in_4bit goes with an adapter alone"},
    {LORA, "error: names no linear of the model"},
    {"adapter: lora\nlora_target_linear: true\n", "needs a number above 0"},
    {"warmup_steps: -3\n", "a.yaml:9: error: warmup_steps = -3: expected an integer"},
    {"warmup_steps: 3\nwarmup_ratio: 0.1\n", "exclude each other"},
    {"reward_model: true\n", "a model of rewards has a head of one number"},
    {"rl: ppo\n", "a.yaml:9: error: ppo: expected dpo, ipo,"},
    {"rl: dpo\nsample_packing: true\n", "rows of rl are not packed"},
    {"excess_length_strategy: split\n", "expected drop, truncate or raise"},
    {"save_strategy: often\n", "expected steps, epoch, best or no"},
    {"bf16: sometimes\n", "a.yaml:9: error: bf16 = sometimes: expected true or false"},
    {"tensor_parallel_size: 3\n", "4 ranks are no multiple of 3"},
    {"test_datasets: 5\npretraining_dataset: [{pth: a/b}]\n", "(did you mean \"path\"?)"},
    {"datasets: 5\n", "datasets: expected a list of sets"},
    {"fsdp_version: 3\nfsdp: [full_shard]\n", "FSDP has versions 1 and 2"},
    {"fsdp: [full_shart]\n", "full_shart: expected full_shard"},
};

START_TEST(what_is_wrong_is_an_error) { fails(wrong[_i].more, wrong[_i].says); }
END_TEST

/* The system is known by its keys, and takes no other one's file. */
START_TEST(recipes_are_told_from_other_files) {
  import_put("a.yaml", "model_type: llama\nhidden_size: 64\n");
  import_has(process_run(IMPORT_SECONDS, "$weft import a.yaml").err, "Hugging Face");
  import_put("a.yaml", "base_model: a/b\nmodels: [c]\nmerge_method: ties\n");
  import_fails(2, "a.yaml", "", "is none of the settings that weft import knows");
  import_put("a.yaml", "base_model: a/b\nsequence_len: 64\n");
  import_fails(1, "a.yaml", "", "the sizes of a/b are not in weft's table");
  import_put("a.yaml", "sequence_len: 64\nmicro_batch_size: 1\nlearning_rate: 1\n"
                       "gradient_accumulation_steps: 1\n");
  import_fails(1, "a.yaml", "", "a recipe names its base_model");
  import_file("a.yaml", "--model smollm2-135m");
  import_put("a.yaml", RECIPE "model_type: AutoModelForSequenceClassification\n");
  import_fails(1, "a.yaml", "", "makes another kind of model");
}
END_TEST

/* Each value of the file is in a list, once. */
START_TEST(nothing_is_dropped) {
  int told = 0;
  import_put("a.yaml", arena_printf(scratch_arena, "%s%s", RECIPE, full));
  Outcome o = process_run(IMPORT_SECONDS, "$weft import a.yaml --json");
  ck_assert_int_eq(o.code, 0);
  for (const char *p = o.out; (p = strstr(p, "\"place\": \"a.yaml:")); p++) told++;
  ck_assert_int_eq(told, 33);
}
END_TEST

Suite *import_axolotl_suite(void) {
  Suite *s = suite_create("import_axolotl");
  TCase *t = tcase_create("axolotl");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 120);
  tcase_add_test(t, a_full_fine_tuning_becomes_a_plan);
  tcase_add_test(t, an_adapter_becomes_a_plan_and_trains);
  tcase_add_loop_test(t, settings_mean_what_axolotl_does, 0, LEN(rows));
  tcase_add_loop_test(t, what_a_plan_cannot_say_is_said, 0, LEN(said));
  tcase_add_test(t, adapters_of_experts_are_those_of_peft);
  tcase_add_test(t, the_file_of_deepspeed_is_read);
  tcase_add_loop_test(t, what_is_wrong_is_an_error, 0, LEN(wrong));
  tcase_add_test(t, recipes_are_told_from_other_files);
  tcase_add_test(t, nothing_is_dropped);
  suite_add_tcase(s, t);
  return s;
}
