/* check_import_axolotl_numbers.c - what axolotl does with its recipes beside what they
 * say: numbers of its own optimizers, settings that another one makes of no effect. */
#include <check.h>
#include <string.h>

#include "tests/harness/axolotl_recipe.h"
#include "tests/harness/import_files.h"

static const char *report_of(const char *base, const char *more, const char *arguments) {
  import_put("a.yaml", arena_printf(scratch_arena, "%s%s", base, more));
  return import_file("a.yaml", arguments);
}

#define F32        "all weights are bf16; axolotl has "
#define SAVED      "PEFT leaves them in bf16, in which they are stepped"
#define DORA       LORA "lora_target_linear: true\npeft_use_dora: true\n"
#define MAGNITUDES "magnitudes of features"
#define SAVES                                                                            \
  LORA "lora_target_linear: true\nlora_modules_to_save: [embed_tokens, lm_head]\n"       \
       "model_config: {tie_word_embeddings: false}\n"

/* A recipe, ranks, and what of the plan and of the report there must be; "!": must not.
 */
static const struct Fact {
  const char *more, *arguments, *plan[5], *report[3];
} facts[] = {
    /* Muon of several ranks is another one than that of one. */
    {"optimizer: muon\nweight_decay: 0.1\nadam_beta1: 0.8\n",
     "--world 2",
     {"ns_coefficients = { { 4.0848, -6.8946, 2.927 }, { 3.9505, -6.3029, 2.6377 }, "
      "{ 3.7418, -5.5913, 2.3037 }, { 2.8769, -3.1427, 1.2046 }, { 2.8366, -3.0525, "
      "1.2012 } },",
      "nesterov = false,", "adjust_lr = \"spectral_unclamped\",",
      "betas = { 0.9, 0.95 },",
      "groups = { { \"embed_tokens\", \"lm_head\", weight_decay = 0 } },"},
     {"On one rank axolotl has another Muon", "count together alone", "!leaves them as"}},
    {"optimizer: muon\nweight_decay: 0.1\nembedding_lr: 1e-5\n",
     "--world 1",
     {"adjust_lr = \"match_rms_adamw\",", "betas = { 0.95, 0.95 },", "!ns_coefficients",
      "!groups = {"},
     {"axolotl's Muon leaves them as they are", "makes its own groups, of one rate"}},
    /* Numbers of optimizers that are not Transformers'. */
    {"optimizer: optimi_adamw\nadam_beta2: 0.98\n",
     "",
     {"betas = { 0.9, 0.99 },  -- the optimizer's default", "eps = 1e-06,"},
     {"adam_beta2 = 0.98: adam_beta1 and adam_beta2 count together alone"}},
    {"optimizer: optimi_adamw\nadam_beta1: 0.8\nadam_beta2: 0.98\nadam_epsilon: 1e-7\n",
     "",
     {"betas = { 0.8, 0.98 },  -- a.yaml:10", "eps = 1e-07,  -- a.yaml:12"},
     {NULL}},
    {"optimizer: flash_lion\n", "", {"betas = { 0.9, 0.99 },"}, {NULL}},
    {"optimizer: lion_pytorch\nweight_decay: 0.1\nembedding_lr: 1e-5\n",
     "",
     {"betas = { 0.9, 0.99 },", "decay_vectors = true,", "!groups = {"},
     {"makes its own groups, of one rate"}},
    {"optimizer: adamw_bnb_8bit\n", "", {"weft.adamw_8bit"}, {"nn.Embedding in f32"}},
    {"optimizer: adamw_bnb_8bit\nlora_target_linear: true\n" LORA,
     "",
     {"weft.adamw_8bit"},
     {"!nn.Embedding"}},
    {"optimizer: adamw_bnb_8bit\nlora_target_linear: true\nlora_modules_to_save: "
     "[embed_tokens]\nmodel_config: {tie_word_embeddings: false}\n" LORA,
     "",
     {"modules_to_save = "},
     {"nn.Embedding in f32"}},
    {"optimizer: optimi_adamw\nweight_decay: 0.1\nlora_target_linear: true\n"
     "lora_modules_to_save: [lm_head]\nmodel_config: {tie_word_embeddings: false}\n" LORA,
     "",
     {"!groups = {"},
     {"a head in adapter.modules_to_save decay"}},
    /* A null takes the place of "auto". */
    {"bf16:\n", "", {"param_dtype = \"f32\",  -- a.yaml:9", "!master_dtype"}, {NULL}},
    {"bf16:\nfp16: true\n", "", {"param_dtype = \"f16\",  -- a.yaml:10"}, {NULL}},
    {"ddp_timeout: 0.01\n", "", {"timeout = 0.1,"}, {NULL}}, /* the least that there is */
    /* Rates. */
    {"lr_scheduler: rex\ncosine_min_lr_ratio: 0.2\n", "", {"min_ratio = 0.2,"}, {NULL}},
    {"lr_quadratic_warmup: true\ncosine_min_lr_ratio: 0.2\n",
     "",
     {"!min_ratio"},
     {"with lr_quadratic_warmup the rate falls to 0"}},
    {"max_steps: 100\ncosine_min_lr_ratio: 0\ncosine_constant_lr_ratio: 0.5\n",
     "",
     {"!steps = 50"},
     {"a cosine_min_lr_ratio above 0 alone"}},
    /* Pairs: neither dropout nor noise, and factors in bf16 where they are cast. */
    {"rl: dpo\nlora_target_linear: true\nlora_dropout: 0.1\nneftune_noise_alpha: 5\n"
     "max_steps: 100\nwarmup_ratio: 0.1\n" LORA,
     "",
     {"!    dropout = ", "!    neftune_noise_alpha =", "warmup = 10,", "!master_dtype"},
     {"trl's DPO turns dropout off", "not to that of pairs", "whatever max_steps is"}},
    {"rl: dpo\nadapter: qlora\nload_in_4bit: true\nlora_r: 8\nlora_alpha: 16\n"
     "lora_target_linear: true\npeft_autocast_adapter_dtype: true\n",
     "",
     {"master_dtype = \"bf16\""},
     {"training of pairs casts them"}},
    {"rl: dpo\nadapter: qlora\nload_in_4bit: true\nlora_r: 8\nlora_alpha: 16\n"
     "lora_target_linear: true\nbf16: false\nfp16: true\n",
     "",
     {"param_dtype = \"f16\"", "!master_dtype"},
     {"factors of adapters are f32; training of pairs casts them to bf16 there"}},
    {"rl: dpo\nlora_target_linear: true\nfsdp_version: 2\nfsdp: [full_shard]\n" LORA,
     "",
     {"master_dtype = \"bf16\""},
     {NULL}},
    {"rl: dpo\nlora_target_linear: true\nfsdp_version: 1\nfsdp: [full_shard]\n" LORA,
     "",
     {"!master_dtype"},
     {NULL}},
    {"rl: dpo\nlora_target_linear: true\nmax_steps: 100\nwarmup_steps: 7\n" LORA,
     "",
     {"warmup = 7,"},
     {"!whatever max_steps is"}},
    {"rl: dpo\nlora_target_linear: true\nmax_steps: 20\n" LORA,
     "",
     {"warmup = 0,"},
     {"whatever max_steps is"}},
    /* A warmup that is a part: of the steps that all samples make, if they are fewer. */
    {"max_steps: 1000\n", "", {"warmup = 30,"}, {"where they are fewer than max_steps"}},
    {"max_steps: 1000\nwarmup_ratio: 0.1\nnum_epochs: 2\n",
     "",
     {"warmup = 100,"},
     {"100 steps, a part of max_steps; axolotl takes that part of the steps that all "
      "samples and num_epochs make"}},
    {"max_steps: 1000\nwarmup_steps: 7\n", "", {"warmup = 7,"}, {"!where they are"}},
    {"max_steps: 1000\nwarmup_ratio: 0\n", "", {"warmup = 0,"}, {"!where they are"}},
    {"max_steps: 1000\nstreaming: true\n", "", {"warmup = 30,"}, {"!where they are"}},
    {"lr_scheduler: cosine_warmup_with_min_lr\nlr_scheduler_kwargs: {min_lr: 1e-6}\n"
     "warmup_steps: 5\n",
     "",
     {"min = 1e-06,"},
     {"!the rise begins", "!rises along a line", "the fall is a step behind that of"}},
    /* Steps between checkpoints. */
    {"save_strategy: steps\n",
     "",
     {"every = 500,  -- Transformers' default"},
     {"!saves by epochs"}},
    {"save_strategy: steps\nsave_steps: 0\n",
     "",
     {"every = 500,"},
     {"save_steps = 0: it is off"}},
    {"save_strategy: epoch\n", "", {"every = 0,"}, {"saves by epochs"}},
    {"save_strategy: steps\nsaves_per_epoch: 2\n",
     "",
     {"every = 0,"},
     {"saves by epochs"}},
    {"save_steps: 0.5\n",
     "",
     {"every = 0,"},
     {"!saves by epochs", "which the recipe does not count"}},
    /* Magnitudes are no norms: they decay there. */
    {DORA "weight_decay: 0.1\n", "", {"dora = true,"}, {MAGNITUDES " do not decay"}},
    {DORA, "", {"dora = true,"}, {"!" MAGNITUDES}},
    {DORA "weight_decay: 0.1\noptimizer: lion_pytorch\n",
     "",
     {"decay_vectors = true,"},
     {"!" MAGNITUDES}},
    {DORA "weight_decay: 0.1\noptimizer: muon\n",
     "--world 1",
     {"dora = true,"},
     {"axolotl's Muon leaves them as they are", "!do not decay"}},
    /* trl makes the adapter of pairs, and its factors f32 whatever the recipe says. */
    {"rl: dpo\nlora_target_linear: true\npeft_autocast_adapter_dtype: false\n" LORA,
     "",
     {"!master_dtype", "!grad_dtype", "!state_dtype"},
     {"peft_autocast_adapter_dtype = false: trl makes the adapter"}},
    {"lora_target_linear: true\npeft_autocast_adapter_dtype: false\nfsdp: "
     "[full_shard]\n" LORA,
     "",
     {"!master_dtype"},
     {"FSDP 1 makes factors of adapters f32"}},
    {"rl: dpo\nadapter: qlora\nload_in_4bit: true\nlora_r: 8\nlora_alpha: 16\n"
     "lora_target_linear: true\nbf16: false\n",
     "",
     {"param_dtype = \"f32\"", "!master_dtype"},
     {"factors of adapters are f32; training of pairs casts them to bf16 there"}},
    /* FSDP 1 makes f32 of weights where Accelerate has a mixed precision. */
    {"bf16: full\nfsdp: [full_shard]\n",
     "",
     {"master_dtype = \"bf16\"", "grad_dtype = \"bf16\"", "state_dtype = \"bf16\""},
     {NULL}},
    {"bf16: true\nfsdp: [full_shard]\n",
     "",
     {"!master_dtype", "!grad_dtype", "!state_dtype"},
     {NULL}},
    /* Norms and embeddings are f32 where nothing needs them in another type. */
    {"attn_implementation: sdpa\n",
     "",
     {"master_dtype = \"bf16\""},
     {F32 "embeddings, head and norms"}},
    {"eager_attention: true\n",
     "",
     {"master_dtype = \"bf16\""},
     {F32 "embeddings, head and norms"}},
    {"flash_attention: false\n",
     "",
     {"master_dtype = \"bf16\""},
     {F32 "embeddings, head and norms"}},
    {"flex_attention: true\n", "", {"master_dtype = \"bf16\""}, {"!" F32}},
    {"cut_cross_entropy: true\n", "", {"master_dtype = \"bf16\""}, {"!" F32}},
    {"plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]\n",
     "",
     {"master_dtype = \"bf16\""},
     {"!" F32}},
    {"fsdp: [no_shard]\nfsdp_version: 2\n", "", {"\"ddp\","}, {"!" F32}},
    /* Copies of whole modules beside an adapter are not upcast by PEFT. */
    {SAVES, "", {"!master_dtype"}, {SAVED}},
    {SAVES "fsdp_version: 2\nfsdp: [full_shard]\n", "", {"!master_dtype"}, {SAVED}},
    {SAVES "fsdp: [full_shard]\n", "", {"!master_dtype"}, {"!" SAVED}},
    {SAVES "bf16: false\n", "", {"!master_dtype"}, {"!" SAVED}},
    {SAVES "deepspeed: deepspeed_configs/zero2.json\n", "", {"\"zero\","}, {"!" SAVED}},
    {SAVES "rl: dpo\nfsdp_version: 2\nfsdp: [full_shard]\n",
     "",
     {"master_dtype = \"bf16\""},
     {"!" SAVED}},
    /* DeepSpeed's own clipping where its settings have none. */
    {"max_grad_norm: 0.5\ndeepspeed: {zero_optimization: {stage: 1}}\n",
     "",
     {"clip = 1.0,  -- DeepSpeed's default"},
     {"max_grad_norm = 0.5: DeepSpeed's settings have no gradient_clipping",
      "--set optimizer.clip=0"}},
    {"max_grad_norm: 0.5\ndeepspeed: {zero_optimization: {stage: 1}, gradient_clipping: "
     "auto}\n",
     "",
     {"clip = 0.5,  -- a.yaml:9"},
     {"!no gradient_clipping"}},
};

static void holds(const char *text, const char *part) {
  if (*part == '!')
    ck_assert_msg(!strstr(text, part + 1), "%s\nhas: %s", text, part + 1);
  else
    import_has(text, part);
}

static void is_so(const struct Fact *f, const char *base) {
  const char *report = report_of(base, f->more, f->arguments);
  for (int i = 0; i < 5 && f->plan[i]; i++) {
    if (*f->plan[i] == '!')
      import_plan_lacks(f->plan[i] + 1);
    else
      import_plan_has(f->plan[i]);
  }
  for (int i = 0; i < 3 && f->report[i]; i++) holds(report, f->report[i]);
}

START_TEST(numbers_are_those_that_axolotl_trains_with) { is_so(&facts[_i], RECIPE); }
END_TEST

#define WITHOUT_DATA                                                                     \
  "base_model: HuggingFaceTB/SmolLM2-135M\nsequence_len: 64\nmicro_batch_size: 1\n"      \
  "gradient_accumulation_steps: 1\nlearning_rate: 2e-5\n"
#define PRETRAINING "pretraining_dataset: [{path: a/b, type: pretrain}]\n"
#define PACKS       "sample_packing: true\nattn_implementation: flash_attention_2\n"

/* Texts to continue are cut as axolotl reads them; none is left out. */
static const struct Fact texts[] = {
    {"datasets: [{path: a/b, type: completion}]\nexcess_length_strategy: drop\n",
     "",
     {"alone = true,  -- a text a row",
      "too_long = \"split\",  -- type: completion cuts"},
     {"axolotl takes its first 64", "excess_length_strategy = drop: axolotl cuts texts"}},
    {"datasets: [{path: a/b, type: 'completion:x'}]\n" PACKS,
     "",
     {"!alone = true", "too_long = \"split\","},
     {NULL}},
    {"datasets: [{path: a/b, type: completion}, {path: c/d, type: alpaca}]\n",
     "",
     {"alone = true,  -- a conversation a row", "too_long = \"drop\","},
     {"axolotl cuts texts of type: completion into pieces"}},
    {PRETRAINING PACKS,
     "",
     {"!alone = true", "too_long = \"split\",  -- pretraining_dataset: texts are cut"},
     {"axolotl's have 31 tokens in common", "!there they do"}},
    {PRETRAINING PACKS "pretrain_multipack_attn: false\n",
     "",
     {"labels = \"within\","},
     {"pretrain_multipack_attn = false: no document attends to others of its row"}},
    {PRETRAINING PACKS "pretrain_multipack_attn:\n",
     "",
     {"labels = \"within\","},
     {"no document attends to others of its row; there they do"}},
    {PRETRAINING,
     "",
     {"alone = true,  -- a text a row", "too_long = \"truncate\","},
     {"axolotl takes up to sequence_len - 2 of them", "!one stream"}},
    {PRETRAINING "pretraining_sample_concatenation: true\n",
     "",
     {"!packed ="},
     {"puts as many whole ones into a sequence", "cut from one stream"}},
    {PRETRAINING "sample_packing: true\nflash_attention: false\n",
     "",
     {"!alone = true"},
     {"keeps them apart with an attn_implementation alone"}},
    {PRETRAINING "sample_packing: true\nattn_implementation: fp8\n",
     "",
     {"!alone = true"},
     {"does not keep them apart with attn_implementation: fp8"}},
};

START_TEST(texts_to_continue_are_cut) { is_so(&texts[_i], WITHOUT_DATA); }
END_TEST

/* Experts of Transformers have gate and up as one matrix. */
START_TEST(experts_are_other_matrices_for_muon) {
  const char *report =
      report_of("base_model: Qwen/Qwen3-30B-A3B\nsequence_len: 64\nmicro_batch_size: 1\n"
                "gradient_accumulation_steps: 1\nlearning_rate: 0.001\n",
                "optimizer: muon\n", "");
  import_has(report, "gate and up of an expert are stepped apart");
}
END_TEST

START_TEST(routers_are_f32_with_any_attention) {
  const char *report =
      report_of("base_model: Qwen/Qwen3-30B-A3B\nsequence_len: 64\nmicro_batch_size: 1\n"
                "gradient_accumulation_steps: 1\nlearning_rate: 0.001\n",
                "attn_implementation: flash_attention_2\n", "");
  import_has(report, F32 "routers of the name gate in f32\n");
}
END_TEST

/* The files that axolotl ships begin with a scale of 2^32. */
START_TEST(scales_are_those_of_the_files_that_axolotl_ships) {
  static const char f16[] =
      "bf16: false\nfp16: true\ndeepspeed: deepspeed_configs/zero1.json\n";
  for (int beside = 0; beside < 2; beside++) {
    if (beside)
      import_put(
          "zero1.json",
          "{\"zero_optimization\": {\"stage\": 1, \"overlap_comm\": true},\n"
          "\"bf16\": {\"enabled\": \"auto\"}, \"fp16\": {\"enabled\": \"auto\",\n"
          "\"auto_cast\": false, \"loss_scale\": 0, \"initial_scale_power\": 32,\n"
          "\"loss_scale_window\": 1000, \"hysteresis\": 2, \"min_loss_scale\": 1}}");
    report_of(RECIPE, f16, "");
    import_plan_has("init_scale = 4294967296,");
    import_plan_has("growth_interval = 1000,");
    import_plan_has("hysteresis = 2,");
    import_plan_has("min_scale = 1");
  }
  report_of(RECIPE, "bf16: true\ndeepspeed: deepspeed_configs/zero2.json\n", "");
  import_plan_lacks("init_scale");
}
END_TEST

#define WITHOUT_STEPS                                                                    \
  "base_model: HuggingFaceTB/SmolLM2-135M\nsequence_len: 64\nmicro_batch_size: 2\n"      \
  "learning_rate: 2e-5\nbatch_size: 32\n"

/* gradient_accumulation_steps is 1 by default: null alone leaves it to batch_size. */
START_TEST(a_batch_size_counts_beside_null_alone) {
  const char *report = report_of(WITHOUT_STEPS, "", "--world 4");
  import_plan_has("global = 8,  -- axolotl's default of gradient_accumulation_steps: 1");
  import_has(report, "a.yaml:5: batch_size = 32: gradient_accumulation_steps is 1");
  report_of(WITHOUT_STEPS, "gradient_accumulation_steps:\n", "--world 4");
  import_plan_has("global = 128,  -- a.yaml:5: batch_size");
}
END_TEST

START_TEST(shards_beside_copies_take_all_ranks) {
  const char *both = "dp_replicate_size: 2\ndp_shard_size: 2\nfsdp_version: 2\n"
                     "fsdp: [full_shard]\n";
  report_of(RECIPE, both, "--world 4");
  import_plan_has("dp_replicate = 2,");
  import_fails(1, "a.yaml", "--world 8", "4 ranks are left of 8 by the other sizes");
}
END_TEST

Suite *import_axolotl_numbers_suite(void) {
  Suite *s = suite_create("import_axolotl_numbers");
  TCase *t = tcase_create("axolotl_numbers");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 120);
  tcase_add_loop_test(t, numbers_are_those_that_axolotl_trains_with, 0, LEN(facts));
  tcase_add_loop_test(t, texts_to_continue_are_cut, 0, LEN(texts));
  tcase_add_test(t, experts_are_other_matrices_for_muon);
  tcase_add_test(t, routers_are_f32_with_any_attention);
  tcase_add_test(t, scales_are_those_of_the_files_that_axolotl_ships);
  tcase_add_test(t, a_batch_size_counts_beside_null_alone);
  tcase_add_test(t, shards_beside_copies_take_all_ranks);
  suite_add_tcase(s, t);
  return s;
}
