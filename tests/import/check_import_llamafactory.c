/* check_import_llamafactory.c - weft import of LLaMA-Factory's arguments: what they mean
 * by themselves and together with those of Transformers' trainer, what DeepSpeed's file
 * beside them says, and names that no version takes. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/llamafactory_rows.h"

static const char lora[] =
    "### model\nmodel_name_or_path: Qwen/Qwen2.5-7B-Instruct\n"
    "trust_remote_code: true\n"
    "### method\nstage: sft\ndo_train: true\nfinetuning_type: lora\nlora_rank: 16\n"
    "lora_target: q_proj,v_proj\nlora_dropout: 0.05\nuse_rslora: true\n"
    "additional_target: lm_head\n"
    "### dataset\ndataset: identity,alpaca_en_demo\ntemplate: qwen\ncutoff_len: 512\n"
    "max_samples: 500\nmask_history: true\n"
    "### output\noutput_dir: ./saves/a\nlogging_steps: 5\nsave_steps: 50\nplot_loss: "
    "true\n"
    "### train\nper_device_train_batch_size: 2\ngradient_accumulation_steps: 4\n"
    "learning_rate: 1.0e-4\nnum_train_epochs: 2.0\nlr_scheduler_type: cosine\n"
    "warmup_ratio: 0.1\nbf16: true\nweight_decay: 0.01\nadam_beta2: 0.95\n"
    "neftune_noise_alpha: 5\nresume_from_checkpoint: null\n";

START_TEST(arguments_become_a_plan) {
  import_put("a.yaml", lora);
  const char *report = import("--world 4");
  import_plan_has(
      "model = weft.model {\n    \"qwen2\",  -- a.yaml:2: model_name_or_path");
  import_plan_has("\"ddp\",  -- neither deepspeed nor fsdp");
  import_plan_has("param_dtype = \"bf16\",  -- a.yaml:31: bf16");
  import_plan_has("recompute = \"full\",  -- LLaMA-Factory's default");
  import_plan_has("size = 512,  -- a.yaml:16: cutoff_len");
  import_plan_has("alone = true,");
  import_plan_has("global = 32,");
  import_plan_has("micro = 2,");
  import_plan_has("seq = 512,");
  import_plan_has("rank = 16,  -- a.yaml:8: lora_rank");
  import_plan_has("alpha = 32,  -- LLaMA-Factory's default: twice the rank");
  import_plan_has("targets = { \"q_proj\", \"v_proj\" },");
  import_plan_has("modules_to_save = { \"lm_head\" },");
  import_plan_has("dropout = 0.05,");
  import_plan_has("rslora = true,");
  import_plan_has("lr = weft.cosine {\n      max = 0.0001,");
  import_plan_has("warmup_ratio = 0.1,");
  import_plan_has("betas = { 0.9, 0.95 },");
  import_plan_has("weight_decay = 0.01,");
  import_plan_lacks("decay_vectors"); /* norms and biases do not decay in Transformers */
  import_plan_has("clip = 1.0,  -- Transformers' default");
  /* 91 and at most 500 samples: 296 microbatches on 4 ranks are 74, in groups of 4. */
  import_plan_has("steps = 38,  -- a.yaml:28: num_train_epochs");
  import_plan_has("seed = 42,  -- Transformers' default");
  import_plan_has("neftune_noise_alpha = 5,");
  import_plan_has("dir = \"saves/a\",");
  import_plan_has("every = 50,");
  import_plan_has("keep = 0,  -- Transformers' default: all");
  import_has(report, "a.yaml:17: max_samples = 500 -> train.steps");
  import_has(report, "train_on = \"last\" } reads its rows");
  import_has(report, "a.yaml:34: neftune_noise_alpha = 5 -> train.neftune_noise_alpha");
  import_has(report, "Transformers' has k / warmup, none in the first step");
}
END_TEST

/* Each value of the file is in a list, once. */
START_TEST(nothing_is_dropped) {
  int said = 0;
  import_put("a.yaml", lora);
  Outcome o = process_run(IMPORT_SECONDS, "$weft import a.yaml --json");
  ck_assert_int_eq(o.code, 0);
  for (const char *p = o.out; (p = strstr(p, "\"place\": \"a.yaml:")); p++) said++;
  ck_assert_int_eq(said, 30);
}
END_TEST

/* ---- meanings ---- */

/* Defaults of both systems; a base computes in the type of its files, what learns is f32.
 */
static const Row formats[] = {
    {"template: qwen\n",
     {"lr = weft.linear {\n      max = 5e-05,", "global = 16,",
      "seq = 2048,  -- LLaMA-Factory's default", "rank = 8,  -- LLaMA-Factory's default",
      "targets = \"all-linear\",  -- LLaMA-Factory's default", "param_dtype = \"bf16\","},
     {"the base computes in the type of its files"}},
    {"finetuning_type: full\nwarmup_steps: 20\nwarmup_ratio: 0.5\n",
     {"param_dtype = \"f32\",  -- neither bf16 nor fp16", "warmup = 20,"},
     {"warmup_steps says it"}},
    {"finetuning_type: full\nfp16: true\noptim: sgd\noptim_args: momentum=0.9\n",
     {"param_dtype = \"f16\",", "momentum = 0.9,"},
     {NULL}},
    {"finetuning_type: full\npure_bf16: true\ndisable_gradient_checkpointing: true\n",
     {"master_dtype = \"bf16\",", "grad_dtype = \"bf16\",", "state_dtype = \"bf16\","},
     {"recompute, none"}},
    {"finetuning_type: full\nbf16: true\nfp8: true\nenable_liger_kernel: true\n",
     {"\"fp8\",", "recipe = \"rowwise\",", "loss_chunks = \"auto\","},
     {NULL}},
    {"finetuning_type: full\nbf16: true\nfp8: true\nfp8_backend: te\nuse_galore: true\n"
     "galore_rank: 8\n",
     {"param_dtype = \"bf16\","},
     {"te scales operands by their history", "weft has no such optimizer"}},
    /* A base below factors in f32; Accelerate makes what learns f32. */
    {"finetuning_type: lora\npure_bf16: true\n",
     {"param_dtype = \"bf16\",  -- a.yaml:4: pure_bf16", "rank = 8,", "!master_dtype",
      "!grad_dtype", "!state_dtype"},
     {"as PEFT makes factors f32", "pure_bf16 = true -> precision"}},
    {"finetuning_type: full\npure_bf16: true\nbf16: true\nfsdp: full_shard auto_wrap\n",
     {"param_dtype = \"bf16\",  -- a.yaml:5: bf16", "reduce_dtype = \"bf16\",",
      "!master_dtype", "!state_dtype"},
     {"Accelerate makes what learns under FSDP f32"}},
    {"finetuning_type: full\npure_bf16: true\nfsdp: full_shard auto_wrap\n",
     {"master_dtype = \"bf16\","},
     {NULL}},
    /* DeepSpeed is not told of it: with a stage it has what learns in f32. */
    {"finetuning_type: full\npure_bf16: true\ndeepspeed: ds_z2_config.json\n"
     "enable_liger_kernel: true\n",
     {"param_dtype = \"bf16\",  -- a.yaml:4: pure_bf16", "grad_dtype = \"f32\",",
      "loss_chunks = \"auto\",", "!master_dtype", "!state_dtype"},
     {"of what computes alone, as ZeRO has f32 master weights"}},
    {"finetuning_type: full\npure_bf16: true\ndeepspeed: ds_z0_config.json\n",
     {"master_dtype = \"bf16\",", "grad_dtype = \"bf16\",", "state_dtype = \"bf16\","},
     {NULL}},
    {"finetuning_type: lora\npure_bf16: true\ndeepspeed: ds_z2_config.json\n",
     {"param_dtype = \"bf16\",  -- a.yaml:4: pure_bf16", "!master_dtype", "!state_dtype"},
     {"as PEFT makes factors f32"}},
    {"finetuning_type: full\nbf16: true\noptim: adamw_bnb_8bit\n",
     {"weft.adamw_8bit {"},
     {"Transformers gives these 32 bits"}},
    /* FSDP 1 has parameters of one dimension, FSDP 2 others than Muon knows. */
    {"finetuning_type: full\nbf16: true\nuse_muon: true\nfsdp: full_shard auto_wrap\n"
     "fsdp_config: {version: 1}\nweight_decay: 0.1\noptim: sgd\n",
     {"weft.adamw {", "decay_vectors = true,", "betas = { 0.9, 0.999 },"},
     {"the parameters of FSDP 1 have one", "optim = sgd: use_muon says it"}},
    {"finetuning_type: full\nbf16: true\nuse_muon: true\nfsdp: full_shard\n",
     {"weft.muon {"},
     {"ends with an error at its first step, as FSDP 2 puts"}},
    {"finetuning_type: full\nbf16: true\nuse_muon: true\ndeepspeed: ds_z0_config.json\n",
     {"weft.muon {"},
     {"ends with an error at its first step, as DeepSpeed puts"}},
    {"stage: sft\nbf16: true\nuse_muon: true\nloraplus_lr_ratio: 4\n",
     {"weft.adamw {", "lora_B"},
     {"loraplus_lr_ratio says it"}},
    {"stage: sft\ndataset: identity,alpaca_en_demo\nmix_strategy: interleave_over\n",
     {"weft.adamw {", "!steps ="},
     {"how often samples of a set come", "train.steps"}},
    {"stage: sft\nquantization_bit: 4\nbf16: true\noptim: paged_adamw_8bit\n",
     {"base = \"nf4\",", "weft.adamw_8bit {"},
     {NULL}},
    {"stage: sft\nquantization_bit: 8\noptim: schedule_free_adamw\nadditional_target: "
     "embed_tokens\n",
     {"rank = 8,", "weft.adamw {"},
     {"as NF4 with double quantisation alone", "is not in weft",
      "the table of embeddings is the head's"}},
};

START_TEST(formats_and_optimizers_are_those_of_both) {
  check_rows(formats, LEN(formats));
}
END_TEST

/* Packing and stages; pairs are two sequences. */
static const Row stages[] = {
    {"stage: sft\nneat_packing: true\nlr_scheduler_type: polynomial\n",
     {"size = 2048,  -- a.yaml:4: neat_packing", "min = 1e-07,"},
     {NULL}},
    {"stage: sft\npacking: true\nlr_scheduler_type: constant\nwarmup_ratio: 0.1\n",
     {"too_long = \"truncate\",", "weft.constant {"},
     {"samples of a sequence see those before them there", "constant has no warmup"}},
    {"stage: pt\npacking: true\nlr_scheduler_type: cosine_warmup_with_min_lr\n"
     "lr_scheduler_kwargs: {min_lr_rate: 0.1}\nwarmup_steps: 10\nmax_steps: 100\n",
     {"seq = 2047,", "warmup = 10,", "min_ratio = 0.1,", "!packed =", "!k / warmup"},
     {"packing = true -> batch.seq, a token less", "gives the step before it"}},
    {"stage: pt\npacking: false\nloraplus_lr_ratio: 16.0\nuse_dora: true\nweight_decay: "
     "0.1\n",
     {"alone = true,", "\"layers.*.self_attn.q_proj.lora_B\",",
      "\"layers.*.self_attn.q_proj.lora_magnitude_vector\",", "dora = true,"},
     {"the cross entropy of the next token", "magnitudes of features do not decay"}},
    {"stage: dpo\nper_device_train_batch_size: 1\ndpo_beta: 0.2\nlora_dropout: 0.1\n"
     "dpo_label_smoothing: 0.1\nref_model: b\n",
     {"micro = 2,", "beta = 0.2,  -- a.yaml:5: dpo_beta", "label_smoothing = 0.1,",
      "reference = \"base\","},
     {"drops nothing in stage dpo", "loss.reference_file has what another one gives"}},
    {"stage: dpo\nfinetuning_type: full\npref_loss: ipo\n",
     {"reference = \"copy\",", "local function ipo(g, x, o)"},
     {NULL}},
    {"stage: dpo\npref_loss: hinge\n", {"local function hinge(g, x, o)"}, {NULL}},
    {"stage: orpo\norpo_beta: 0.3\n", {"beta = 0.3,", "gamma = 0,"}, {"a loss of odds"}},
    {"stage: kto\nevaluation_strategy: steps\n",
     {"alone = true,"},
     {"answers that are wanted or not", "there is no evaluation without data for it"}},
};

START_TEST(stages_have_their_losses) { check_rows(stages, LEN(stages)); }
END_TEST

/* ---- DeepSpeed beside ---- */

static const char zero[] =
    "{\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": \"auto\",\n"
    " \"gradient_accumulation_steps\": \"auto\", \"gradient_clipping\": \"auto\",\n"
    " \"zero_allow_untested_optimizer\": true, \"bf16\": {\"enabled\": \"auto\"},\n"
    " \"fp16\": {\"enabled\": \"auto\", \"initial_scale_power\": 16},\n"
    " \"zero_optimization\": {\"stage\": 3, \"overlap_comm\": false,\n"
    "  \"stage3_param_persistence_threshold\": \"auto\"}}\n";

START_TEST(a_file_of_deepspeed_is_read) {
  import_put("z3.json", zero);
  import_put("a.yaml", MODEL "finetuning_type: full\nbf16: true\n"
                             "deepspeed: examples/deepspeed/z3.json\n");
  const char *report = import("--world 4");
  import_plan_has("\"zero\",  -- DeepSpeed");
  import_plan_has("stage = 3,  -- z3.json:5: zero_optimization.stage");
  import_plan_has("param_persistence_threshold = 8960,");
  import_plan_has("param_dtype = \"bf16\",  -- z3.json:3: bf16.enabled");
  import_plan_has("grad_dtype = \"bf16\",");
  import_has(report, "z3.json:3: zero_allow_untested_optimizer = true");
  import_has(report, "z3.json:1: train_batch_size = auto -> batch.global");
  /* What the file says otherwise Transformers refuses. */
  import_put("z3.json", "{\"gradient_clipping\": 0.5, \"zero_optimization\": {}}\n");
  import_fails(
      1, "a.yaml", "",
      "z3.json:1: error: gradient_clipping is 0.5 here and 1.0 by the arguments");
  import_put("z3.json", "[]");
  import_fails(1, "a.yaml", "", "z3.json: is no table of settings");
}
END_TEST

/* Transformers makes no optimizer beside one of the file, and clips nothing. */
START_TEST(an_optimizer_of_deepspeeds_file_steps) {
  import_put("z2.json",
             "{\"zero_optimization\": {\"stage\": 2},\n \"optimizer\": {\"type\": "
             "\"AdamW\", \"params\": {\"lr\": \"auto\",\n  \"betas\": [0.9, "
             "0.95], \"weight_decay\": \"auto\"}}}\n");
  import_put("a.yaml", MODEL
             "bf16: true\noptim: paged_adamw_8bit\nlearning_rate: 2.0e-4\nadam_beta2: "
             "0.95\nweight_decay: 0.1\nmax_grad_norm: 0.3\nloraplus_lr_ratio: 4\n"
             "use_muon: true\ndeepspeed: z2.json\nstage: sft\n");
  const char *report = import("--world 2");
  import_plan_has("optimizer = weft.adamw {");
  import_plan_has("betas = { 0.9, 0.95 },  -- z2.json:3: optimizer.params.betas");
  import_plan_has("max = 0.0002,  -- z2.json:2: optimizer.params.lr");
  import_plan_has("weight_decay = 0.1,  -- z2.json:3: optimizer.params.weight_decay");
  import_plan_has("decay_vectors = true,");
  import_plan_has("clip = 1.0,  -- DeepSpeed's default");
  import_plan_lacks("groups");
  import_has(report, "it does not reach DeepSpeed, whose file has no gradient_clipping");
  import_has(report, "a norm of 1, DeepSpeed's default since 0.19.3");
  import_has(report, "DeepSpeed's file has an optimizer, which steps");
  import_fails(1, "a.yaml", "adam_beta2=0.9", "optimizer.params.betas is ");
  import_put("z2.json",
             "{\"zero_optimization\": {\"stage\": 2}, \"optimizer\": {\"type\": "
             "\"Adam\"}}\n");
  report = import("--world 2");
  import_plan_has("max = 0.001,  -- DeepSpeed's default");
  import_plan_has("weight_decay = 0,  -- DeepSpeed's default");
  import_has(report, "has a rate of its own, 0.001 as it gives none");
}
END_TEST

START_TEST(files_that_are_not_there_are_said) {
  import_put("a.yaml", MODEL "finetuning_type: full\nbf16: true\n"
                             "deepspeed: no/where/ds_z2_offload_config.json\n");
  const char *report = import("--world 2");
  import_plan_has("stage = 2,");
  import_plan_has("offload_optimizer = \"cpu\",");
  import_has(report, "is not there: what LLaMA-Factory ships under this name counts");
  report = import("--world 2 deepspeed=mine.json");
  import_plan_has("\"ddp\",");
  import_has(report, "the file is not there");
  import_put("a.yaml",
             MODEL "finetuning_type: full\n"
                   "deepspeed: {zero_optimization: {stage: 1}, bf16: {enabled: auto}}\n");
  import("--world 2");
  import_plan_has("stage = 1,  -- a.yaml:4: deepspeed.zero_optimization.stage");
  import_put("a.yaml", MODEL "finetuning_type: full\npure_bf16: true\n"
                             "deepspeed: ds_z3_config.json\n");
  import_fails(1, "a.yaml", "", "pure_bf16 beside ZeRO's stage 3");
}
END_TEST

/* ---- errors ---- */

/* All errors of a file are told at once. */
static void check_errors(const char *arguments, int n, const char *const *says) {
  import_put("a.yaml", arena_printf(scratch_arena, "%s", arguments));
  Outcome o = process_run(IMPORT_SECONDS, "$weft import a.yaml");
  ck_assert_msg(o.code == 1, "%d: %s%s", o.code, o.out, o.err);
  for (int i = 0; i < n; i++) import_has(o.err, says[i]);
  import_lacks(o.err, "stdlib");
}

START_TEST(what_cannot_be_is_refused_by_its_argument) {
  static const char *const of_lora[] = {
      "a.yaml:3: error: LLaMA-Factory has no argument \"lora_rnak\" (did you mean "
      "\"lora_rank\"?)",
      "a.yaml:4: error: cutoff_len = { 1 }: expected an integer, at least 2",
      "bf16 = maybe: expected true or false",
      "lr_scheduler_type = fast: expected linear, cosine",
      "optim = best: is no optimizer of Transformers",
      "adam_beta1 = 1.5: expected a number from 0 to below 1",
      "half_shard is none of full_shard",
      "rope_scaling = longrope: expected linear, dynamic, yarn or llama3",
      "a b is no name of a module",
      "save_strategy = some: expected no, steps, epoch or best",
      "learning_rate = { { a = 1 } }: expected a number, at least 0",
      "a.yaml:15: error: gradient_accumulation_steps = -2: expected an integer",
      "a.yaml:16: error: pref_loss = best: expected sigmoid, hinge, ipo, orpo or simpo",
  };
  check_errors(MODEL
               "lora_rnak: 8\ncutoff_len: [1]\nbf16: maybe\nlr_scheduler_type: fast\n"
               "optim: best\nadam_beta1: 1.5\nfsdp: half_shard\nrope_scaling: longrope\n"
               "lora_target: \"a b\"\nsave_strategy: some\nlearning_rate: [{a: 1}]\n"
               "stage: dpo\ngradient_accumulation_steps: -2\npref_loss: best\n",
               LEN(of_lora), of_lora);
  static const char *const of_freeze[] = {
      "expected a number of layers", "fp16 and bf16 are both true",
      "needs min_lr or min_lr_rate", "these arguments train nothing"};
  check_errors("model_name_or_path: Qwen/Qwen2.5-0.5B\nfinetuning_type: freeze\n"
               "freeze_trainable_layers: many\nbf16: true\nfp16: true\n"
               "lr_scheduler_type: cosine_with_min_lr\n",
               LEN(of_freeze), of_freeze);
  static const char *const of_kind[] = {
      "finetuning_type = some: expected lora, full, freeze",
      "stage rm trains a head that scores texts"};
  check_errors(MODEL "finetuning_type: some\nstage: rm\n", LEN(of_kind), of_kind);
  import_put("a.yaml", MODEL "cutoff_len: 8\n");
  import_fails(1, "a.yaml", "stage=ppo", "stage ppo is reinforcement learning");
  import_fails(1, "a.yaml", "learning_rate.a=1",
               "learning_rate: expected a value, not a table");
  import_fails(1, "a.yaml", "deepspeed=x", "expected the name of a JSON file");
  import_fails(1, "a.yaml", "lora_rnk=8", "(did you mean \"lora_rank\"?)");
  import_fails(1, "a.yaml", "model_name_or_path=some/where",
               "give its config.json by --model");
  import_fails(2, "a.yaml", "model_type=llama", "of LLaMA-Factory and of Hugging Face");
}
END_TEST

/* ---- a run ---- */

/* A function of the plan, an adapter and whole samples in sequences of their own. */
START_TEST(an_imported_plan_trains) {
  import_put(
      "config.json",
      "{\"model_type\": \"qwen2\", \"hidden_size\": 64, \"num_hidden_layers\": 2,"
      "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 320,"
      "\"intermediate_size\": 96, \"max_position_embeddings\": 64}\n");
  import_put("a.yaml",
             MODEL "stage: dpo\npref_loss: simpo\ncutoff_len: 32\nmax_steps: 2\n"
                   "per_device_train_batch_size: 1\nsave_strategy: 'no'\n"
                   "learning_rate: 1.0e-3\nbf16: true\n");
  import("--world 2 --model .");
  Outcome o = process_run(IMPORT_SECONDS, "$weft run a.lua --set checkpoint=nil");
  ck_assert_msg(o.code == 0, "%d: %s%s", o.code, o.out, o.err);
  import_has(o.out, "step");
}
END_TEST

Suite *import_llamafactory_suite(void) {
  Suite *s = suite_create("import_llamafactory");
  TCase *t = tcase_create("llamafactory");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 120);
  tcase_add_test(t, arguments_become_a_plan);
  tcase_add_test(t, nothing_is_dropped);
  tcase_add_test(t, formats_and_optimizers_are_those_of_both);
  tcase_add_test(t, stages_have_their_losses);
  tcase_add_test(t, a_file_of_deepspeed_is_read);
  tcase_add_test(t, an_optimizer_of_deepspeeds_file_steps);
  tcase_add_test(t, files_that_are_not_there_are_said);
  tcase_add_test(t, what_cannot_be_is_refused_by_its_argument);
  tcase_add_test(t, an_imported_plan_trains);
  suite_add_tcase(s, t);
  return s;
}
