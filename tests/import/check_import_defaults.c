/* check_import_defaults.c - what other systems do that no recipe says: their defaults,
 * and what settings change beside what their names say. */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/import_files.h"

/* ---- NeMo AutoModel ---- */

static const char recipe[] =
    "step_scheduler: {global_batch_size: 16, local_batch_size: 2, max_steps: 5}\n"
    "model:\n"
    "  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained\n"
    "  pretrained_model_name_or_path: Qwen/Qwen3-30B-A3B\n"
    "optimizer: {_target_: torch.optim.AdamW, lr: 1.0e-4}\n";

START_TEST(models_of_automodel_balance_their_experts) {
  import_put("a.yaml", recipe);
  import_file("a.yaml", "--world 8");
  import_plan_has(
      "aux_loss_coef = 0.001,  -- router_aux_loss_coef of the model's config");
  import_plan_has("aux_loss_sequences = 2,");
  import_plan_lacks("bias_update_rate");
  import_file("a.yaml", "--world 8 model.router_aux_loss_coef=0.02");
  import_plan_has("aux_loss_coef = 0.02,");
  import_plan_has("aux_loss_sequences = 2,");
  import_file("a.yaml", "--world 8 model.router_aux_loss_coef=0");
  import_plan_has("aux_loss_coef = 0,");
  import_plan_lacks("aux_loss_sequences");
  import_file("a.yaml", "--world 8 model.force_hf=true");
  import_plan_lacks("    aux_loss_coef");
  import_has(import_file("a.yaml", "--world 8 --model laguna-xs-2.1"),
             "AutoModel's counts what its routers choose by scores and a bias");
  /* That of a folder's config is read, too. */
  import_put(
      "config.json",
      "{\"model_type\": \"qwen3_moe\", \"hidden_size\": 64, \"num_hidden_layers\": 2,"
      "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 320,"
      "\"intermediate_size\": 96, \"moe_intermediate_size\": 32, \"num_experts\": 4,"
      "\"num_experts_per_tok\": 2, \"torch_dtype\": \"float32\","
      "\"router_aux_loss_coef\": 0.03}\n");
  import_file("a.yaml", "--world 8 --model .");
  import_plan_has("aux_loss_coef = 0.03,");
  import_plan_lacks("master_dtype");
  /* Transformers' class has no loss unless it is asked for. */
  const char *mixtral = "model.pretrained_model_name_or_path=mistralai/Mixtral-8x7B-v0.1 "
                        "model.router_aux_loss_coef=0.02";
  import_has(import_file("a.yaml", mixtral),
             "train this model without a loss of routers");
  import_plan_lacks("    aux_loss_coef");
}
END_TEST

START_TEST(biases_of_routers_move_in_automodel) {
  import_put("a.yaml", recipe);
  import_file("a.yaml", "--world 8 --model deepseek-v3");
  import_plan_has("bias_update_rate = 0.001,");
  const char *still = "moves it by 0.001 after each step";
  import_has(import_file("a.yaml", "--world 8 --model deepseek-v3 peft.dim=8"), still);
  import_plan_lacks("bias_update_rate");
  import_has(import_file("a.yaml", "--world 8 --model deepseek-v3 "
                                   "distributed.offload_policy.pin_memory=true"),
             still);
  import_file("a.yaml", "--world 8 --model deepseek-v3 model.force_hf=true");
  import_plan_lacks("bias_update_rate");
  import_file("a.yaml", "--world 8 --model zai-org/GLM-4.5-Air");
  import_plan_has("bias_update_rate = 0.001,");
  import_file("a.yaml", "--world 8 --model inclusionAI/Ling-mini-2.0");
  import_plan_lacks("bias_update_rate");
}
END_TEST

START_TEST(parts_of_models_are_said_by_what_the_plan_has) {
  import_put("a.yaml", recipe);
  import_file("a.yaml", "--world 8 model.backend.gate_precision=torch.float32");
  import_plan_has("router_dtype = \"f32\",");
  import_has(import_file("a.yaml", "--world 8 model.backend.gate_precision=float64"),
             "gate_precision = float64: scores of routers are f32");
  const char *report = import_file("a.yaml", "--world 8 --model llama3-8b peft.dim=8 "
                                             "model.num_nextn_predict_layers=1");
  import_has(report, "are not built beside an adapter: the plan has none");
  import_plan_lacks("mtp");
}
END_TEST

/* Without torch_dtype, or with auto, weights have the type of their files. */
START_TEST(weights_of_automodel_are_as_their_files) {
  import_put("a.yaml", recipe);
  for (int named = 0; named < 2; named++) {
    import_file("a.yaml", named ? "--world 8 model.torch_dtype=auto" : "--world 8");
    import_plan_has("master_dtype = \"bf16\",");
    import_plan_has("state_dtype = \"bf16\",");
  }
  import_file("a.yaml", "--world 8 model.torch_dtype=float32");
  import_plan_lacks("master_dtype");
  import_has(import_file("a.yaml", "--world 8 --model gpt2"),
             "the type of GPT-2's files");
  import_plan_lacks("master_dtype");
  import_has(import_file("a.yaml", "--world 8"), "a run begins with random weights");
  import_lacks(
      import_file("a.yaml",
                  "--world 8 "
                  "model._target_=nemo_automodel.NeMoAutoModelForCausalLM.from_config"),
      "a run begins with random weights");
}
END_TEST

START_TEST(optimizers_of_automodel_have_the_rate_of_their_class) {
  import_put("a.yaml", recipe);
  import_file("a.yaml", "--world 8 optimizer.lr=null lr_scheduler.lr_decay_style=cosine");
  import_plan_has("lr = weft.cosine {");
  import_plan_has("max = 0.001,  -- the default of the optimizer's class");
  import_plan_has("min = 1e-05,");
  import_file("a.yaml", "--world 8 optimizer.lr=null");
  import_plan_has("lr = 0.001,  -- the default of the optimizer's class");
}
END_TEST

START_TEST(runs_of_automodel_end_with_their_data) {
  import_put("a.yaml",
             "model: {pretrained_model_name_or_path: meta-llama/Llama-3.1-8B}\n"
             "step_scheduler: {max_steps: 500, num_epochs: 2, local_batch_size: 2}\n"
             "dataset: {seq_length: 64, limit_dataset_samples: 320}\n"
             "optimizer: {_target_: torch.optim.AdamW, lr: 1.0e-4}\n"
             "lr_scheduler: {lr_decay_style: cosine}\n");
  import_file("a.yaml", "--world 8");
  import_plan_has("global = 32,  -- AutoModel's default");
  import_plan_has("steps = 20,  -- a.yaml:2: step_scheduler.num_epochs");
  import_plan_has("warmup = 2,");
  import_file("a.yaml", "--world 8 step_scheduler.max_steps=7");
  import_plan_has("steps = 7,  -- the command line: step_scheduler.max_steps");
  import_has(import_file("a.yaml", "--world 8 dataset.limit_dataset_samples=null"),
             "run ends with the epochs of its data");
  import_plan_has("steps = 500,");
}
END_TEST

/* ---- Accelerate ---- */

static const struct Summed {
  const char *over, *type, *has, *lacks;
} summed[] = {
    {"FSDP", "bf16", "reduce_dtype = \"bf16\",", "grad_dtype"},
    {"FSDP", "fp16", "grad_dtype = \"f16\",", "growth_interval"},
    {"FSDP", "no", "precision = \"f32\",", "reduce_dtype"},
    {"DEEPSPEED", "bf16", "grad_dtype = \"bf16\",", "reduce_dtype"},
    {"DEEPSPEED", "fp16", "growth_interval = 1000,", "reduce_dtype"},
    {"DEEPSPEED", "'no'", "stage = 2,  -- Accelerate's default", "grad_dtype"},
    {"MULTI_GPU", "bf16", "precision = \"bf16\",", "reduce_dtype"},
};

START_TEST(accelerate_sums_gradients_in_its_types) {
  const struct Summed *row = &summed[_i];
  char text[200];
  snprintf(text, sizeof text,
           "distributed_type: %s\nmixed_precision: %s\nnum_processes: 8\n", row->over,
           row->type);
  import_put("a.yaml", text);
  import_file("a.yaml", "--model llama3-8b");
  import_plan_has(row->has);
  import_plan_lacks(row->lacks);
  import_plan_has("betas = { 0.9, 0.999 },  -- assumed");
  import_plan_has("weight_decay = 0,  -- assumed");
}
END_TEST

START_TEST(accelerate_says_how_keys_go_around) {
  import_put("a.yaml", "distributed_type: FSDP\nnum_processes: 8\nparallelism_config:\n"
                       "  parallelism_config_cp_size: 2\n"
                       "  parallelism_config_cp_comm_strategy: alltoall\n");
  import_file("a.yaml", "--model llama3-8b");
  import_plan_has("comm = \"ring\",  -- a.yaml:5");
  import_file("a.yaml", "--model llama3-8b "
                        "parallelism_config.parallelism_config_cp_comm_strategy=null");
  import_plan_has("comm = \"allgather\",  -- Accelerate's default");
}
END_TEST

/* ---- Megatron ---- */

#define ARGUMENTS                                                                        \
  "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --micro-batch-size 1 \\\n"    \
  "--seq-length 64 --train-iters 10 --lr 1e-4 --swiglu --disable-bias-linear \\\n"       \
  "--normalization RMSNorm --position-embedding-type rope --bf16 "

/* Settings that change what is trained: each is in the plan, or said to be missing. */
static const struct Counts {
  const char *more, *plan, *report;
} counts[] = {
    {"--no-rope-freq 2", "no_rope_layers = { 1, 0, 1, 0 },",
     "--no-rope-freq = 2 -> model"},
    {"--no-rope-freq '([0]+[1])*2'", "\"smollm3\",", "-> model"},
    {"--num-experts 4 --moe-layer-freq '([0]*1+[1])*2'", "mlp_only_layers = { 0, 2 },",
     ""},
    {"--num-experts 4 --moe-layer-recompute",
     "recompute = { \"selective\", \"layers.*.mlp\" },", "-> recompute"},
    {"--use-checkpoint-args", "", "take the place of the arguments there"},
    {"--finetune", "", "--finetune = true: a run begins with random weights"},
    {"--fp16-lm-cross-entropy", "", "not expressible (1)"},
    {"--freeze-all-layers", "", "nothing would be left that learns"},
    {"", "global = 8,  -- Megatron's default: one microbatch on each rank", ""},
    {"--pipeline-model-parallel-size 2", "global = 8,",
     "where Megatron's default is one: 4"},
};

START_TEST(what_counts_in_megatron_is_said) {
  const struct Counts *row = &counts[_i];
  char text[800];
  snprintf(text, sizeof text, ARGUMENTS "%s %s\n",
           strstr(row->more, "experts") ? "--qk-layernorm" : "", row->more);
  import_put("a.args", text);
  import_has(import_file("a.args", "--world 8"), row->report);
  import_plan_has(row->plan);
}
END_TEST

START_TEST(models_that_megatron_makes_otherwise_are_refused) {
  import_put("a.args", ARGUMENTS "--no-rope-freq 3\n");
  import_fails(1, "a.args", "", "3: expected a divisor of the 4 layers");
  import_put("a.args", ARGUMENTS "--no-rope-freq 2 --qk-layernorm\n");
  import_fails(1, "a.args", "", "layers without positions are those of weft's smollm3");
  import_put("a.args", ARGUMENTS "--model-provider mamba\n");
  import_fails(1, "a.args", "", "layers of Mamba are not in weft");
}
END_TEST

/* Settings below groups of Megatron-Bridge are the arguments of the same names. */
START_TEST(groups_of_megatron_bridge_are_read) {
  import_put("a.yaml",
             "model: {num_layers: 4, hidden_size: 64, num_attention_heads: 4,\n"
             "  seq_len_interpolation_factor: 4.0, position_embedding_type: rope,\n"
             "  normalization: RMSNorm, gated_linear_unit: true, activation_func: silu,\n"
             "  add_bias_linear: false}\n"
             "train: {train_iters: 10, global_batch_size: 8, micro_batch_size: 1}\n"
             "mixed_precision: {bf16: true, grad_reduce_in_fp32: false}\n"
             "dataset: {sequence_length: 64, eod_mask_loss: true,\n"
             "  packed_sequence_specs: {packed_sequence_size: 64}}\n");
  const char *report = import_file("a.yaml", "--world 8");
  import_plan_has("rope_scaling = { factor = 4.0, rope_type = \"linear\" },");
  import_plan_has("param_dtype = \"bf16\",");
  import_plan_has(
      "grad_dtype = \"bf16\",  -- a.yaml:6: mixed_precision.grad_reduce_in_fp32");
  import_has(report, "dataset.eod_mask_loss = true: labels of other documents count");
  import_has(report,
             "dataset.packed_sequence_specs.packed_sequence_size = 64: see packed");
  /* What is on without its setting is not "as without it" where it is off. */
  import_put("b.yaml",
             "model: {num_layers: 4, hidden_size: 64, num_attention_heads: 4}\n"
             "train: {train_iters: 10, global_batch_size: 8, micro_batch_size: 1}\n"
             "mixed_precision: bf16_mixed\nddp: {grad_reduce_in_fp32: false}\n"
             "optimizer: {decoupled_weight_decay: false, lr: 0.001}\n");
  report = import_file("b.yaml", "--world 8");
  import_has(report, "precision.grad_dtype = \"bf16\" keeps and sums them in bf16");
  import_plan_has("weft.adam {");
}
END_TEST

/* ---- torchtitan ---- */

#define TITAN(training, rates)                                                           \
  "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = "         \
  "1\n" training "[lr_scheduler]\n" rates

/* A warmup is no longer than the run, and halves of steps are rounded as Python does. */
static const struct Rise {
  const char *text, *has;
} rises[] = {
    {TITAN("steps = 100\n", ""), "warmup = 100,  -- torchtitan's default"},
    {TITAN("steps = 100\n", "warmup_steps = 150\n"), "warmup = 100,  -- a.toml:8"},
    {TITAN("steps = 100\n", "total_steps = 400\n"), "warmup = 200,"},
    {TITAN("steps = 100\nwarmup_steps = 150\n", ""), "warmup = 150,  -- a.toml:7"},
    {TITAN("steps = 25\n", "warmup_steps = 2\ndecay_ratio = 0.1\n"), "decay = 2,"},
    {TITAN("steps = 35\n", "warmup_steps = 2\ndecay_ratio = 0.1\n"), "decay = 4,"},
};

START_TEST(rates_of_torchtitan_fit_the_run) {
  import_put("a.toml", rises[_i].text);
  const char *report = import_file("a.toml", "");
  import_plan_has(rises[_i].has);
  import_has(report, "torchtitan's embeddings begin with 1");
}
END_TEST

/* Documents that only attend to themselves are said: of TOML files by their key, of
 * registries by the default of their function. */
START_TEST(masks_of_torchtitan_are_said) {
  static const char config[] = "def one() -> Trainer.Config:\n"
                               "    return Trainer.Config(\n"
                               "        model_spec=model_registry(\"8B\"%s),\n"
                               "        training=TrainingConfig(steps=10),\n"
                               "        parallelism=ParallelismConfig(),\n    )\n";
  char text[400];
  snprintf(text, sizeof text, config, "");
  import_put("llama3_registry.py", text);
  import_has(import_file("llama3_registry.py", "one"),
             "each document attends to itself there");
  snprintf(text, sizeof text, config, ", attn_backend=\"sdpa\"");
  import_put("llama3_registry.py", text);
  import_lacks(import_file("llama3_registry.py", "one"),
               "each document attends to itself there");
  import_put("a.toml", TITAN("steps = 400\n", ""));
  import_has(import_file("a.toml", "model.attn_mask_type=block_causal"),
             "attn_mask_type = block_causal: each document attends to itself there");
}
END_TEST

/* ---- what an error leaves ---- */

/* Without a model there is no translation: nothing false is said of settings that have a
 * place in plans, and what needs no plan is said. */
static const struct Early {
  const char *file, *text, *unseen, *seen;
} early[] = {
    {"a.json",
     "{\"train_batch_size\": 8, \"optimizer\": {\"type\": \"Adam\", \"params\":\n"
     "{\"lr\": 1e-3}}, \"scheduler\": {\"type\": \"WarmupLR\"},\n"
     "\"fp16\": {\"enabled\": true}, \"wandb\": {\"enabled\": true}}",
     "train_batch_size optimizer.type optimizer.params.lr scheduler.type fp16.enabled",
     "wandb.enabled = true: weft run --log"},
    {"a.yaml",
     "distributed: {tp_size: 2}\npeft: {dim: 8}\nwandb: {project: a}\n"
     "quantization: {load_in_4bit: true}\n",
     "distributed.tp_size peft.dim quantization.load_in_4bit", "wandb.project = a: "},
    {"a.toml",
     "[model]\nname = \"llama3\"\nflavor = \"none\"\n[optimizer]\nname = \"AdamW\"\n"
     "lr = 1e-3\n[activation_checkpoint]\nmode = \"full\"\n",
     "optimizer.name optimizer.lr activation_checkpoint.mode", ""},
};

START_TEST(an_error_leaves_settings_unseen) {
  const struct Early *e = &early[_i];
  char names[200];
  import_put(e->file, e->text);
  Outcome o = process_run(IMPORT_SECONDS, "$weft import %s --json", e->file);
  ck_assert_msg(o.code == 1, "%s%s", o.out, o.err);
  json_t *v = json_loads(o.out, 0, NULL), *one;
  size_t i;
  snprintf(names, sizeof names, " %s ", e->unseen);
  json_array_foreach(json_object_get(v, "not_expressible"), i, one) {
    const char *key = json_string_value(json_object_get(one, "key"));
    const char *what = json_string_value(json_object_get(one, "what"));
    char *at = strstr(names, arena_printf(scratch_arena, " %s ", key));
    if (!at) continue;
    import_has(what, "not looked at");
    memset(at + 1, '-', strlen(key));
  }
  ck_assert_msg(strspn(names, " -") == strlen(names), "%s in:\n%s", names, o.out);
  json_decref(v);
  import_has(process_run(IMPORT_SECONDS, "$weft import %s", e->file).err, e->seen);
}
END_TEST

/* ---- DeepSpeed ---- */

static const struct Zero {
  const char *settings, *plan, *report;
} zeros[] = {
    {"", "clip = 1.0,  -- DeepSpeed's default", "DeepSpeed's default since 0.19.3"},
    {", \"gradient_clipping\": 0", "clip = 0,", "-> optimizer.clip"},
    {", \"optimizer\": {\"type\": \"AdamW\"}", "lr = 0.001,  -- DeepSpeed's default", ""},
    {"", "lr = 5e-05,  -- assumed", "the Trainer's default"},
    {", \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"torch_adam\": true}}",
     "weight_decay = 0.01,  -- torch.optim's default", ""},
    {", \"optimizer\": {\"type\": \"adam\", \"params\": {\"adam_w_mode\": false,"
     "\"weight_decay\": 0.1}}",
     "weft.adam {", "optimizer.type = adam -> optimizer"},
    {", \"optimizer\": {\"type\": \"Lion\", \"params\": {\"lr\": 1e-4}}", "weft.lion {",
     "optimizer.type = Lion -> optimizer"},
    {", \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 1e-2, \"momentum\": "
     "0.9}}",
     "momentum = 0.9,", "optimizer.type = SGD -> optimizer"},
    {", \"optimizer\": {\"type\": \"Lamb\"}", "weft.adamw {", "Lamb is not translated"},
    {", \"fp16\": {\"enabled\": true, \"fp16_master_weights_and_grads\": true}",
     "param_dtype = \"f16\",", "true: master weights are f32"},
    /* What pydantic takes for true is, and bf16 has an older name. */
    {", \"bf16\": {\"enabled\": \"true\"}", "param_dtype = \"bf16\",",
     "bf16.enabled = true -> precision"},
    {", \"bfloat16\": {\"enabled\": 1}", "param_dtype = \"bf16\",",
     "bfloat16.enabled = 1 -> precision"},
    {", \"bf16\": {\"enabled\": \"off\"}", "param_dtype = \"f32\",",
     "bf16.enabled = off: precision says it"},
    {", \"torch_autocast\": {\"enabled\": true, \"dtype\": \"bfloat16\"}",
     "param_dtype = \"bf16\",",
     "torch_autocast.dtype = bfloat16 -> precision.param_dtype"},
};

START_TEST(defaults_of_deepspeed_are_its_own) {
  char text[400];
  snprintf(text, sizeof text,
           "{\"train_batch_size\": 8, \"zero_optimization\": {\"stage\": 1}%s}",
           zeros[_i].settings);
  import_put("a.json", text);
  const char *report = import_file("a.json", "--model llama3-8b --world 8");
  import_plan_has(zeros[_i].plan);
  import_has(report, zeros[_i].report);
}
END_TEST

static const struct ZeroGroup {
  const char *group, *plan, *report;
} zero_groups[] = {
    {"true", "stage = 1,", "zero_optimization = true -> strategy.stage"},
    {"false", "stage = 0,", "zero_optimization = false -> strategy.stage"},
    {"{\"stage\": 2, \"overlap_comm\": \"True\"}", "overlap_grad_reduce = true,", ""},
    {"{\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": 0.3}}",
     "offload_optimizer = \"cpu\",",
     "0.3: the part of the optimizer that lies on the host"},
    {"{\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": 1.0}}",
     "offload_optimizer = \"cpu\",",
     "ratio = 1.0: all of the optimizer lies on the host"},
    {"{\"stage\": 2, \"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": 0.3}}",
     "offload_optimizer = \"cpu\",",
     "ratio = 0.3: all of the optimizer lies on the host"},
};

START_TEST(groups_of_deepspeed_have_older_forms) {
  const struct ZeroGroup *row = &zero_groups[_i];
  char text[400];
  snprintf(text, sizeof text, "{\"train_batch_size\": 8, \"zero_optimization\": %s}",
           row->group);
  import_put("a.json", text);
  import_has(import_file("a.json", "--model llama3-8b --world 8"), row->report);
  import_plan_has(row->plan);
}
END_TEST

/* Without a stage gradients of bf16 add up in f32, and travel in bf16 all the same. */
START_TEST(gradients_of_deepspeed_without_a_stage_are_f32) {
  import_put("a.json", "{\"train_batch_size\": 8, \"bf16\": {\"enabled\": true},"
                       " \"zero_optimization\": {\"stage\": 0}}");
  import_file("a.json", "--model llama3-8b --world 8");
  import_plan_has("grad_dtype = \"f32\",  -- DeepSpeed's default without a stage");
  import_plan_has("reduce_dtype = \"bf16\",");
  import_file("a.json", "--model llama3-8b --world 8 zero_optimization.stage=1");
  import_plan_has("grad_dtype = \"bf16\",");
}
END_TEST

START_TEST(switches_of_deepspeed_are_true_or_false) {
  import_put("a.json", "{\"train_batch_size\": 8, \"bf16\": {\"enabled\": \"maybe\"}}");
  import_fails(1, "a.json", "--model llama3-8b",
               "bf16.enabled = maybe: expected true or false");
}
END_TEST

Suite *import_defaults_suite(void) {
  Suite *s = suite_create("import_defaults");
  TCase *t = tcase_create("defaults");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 120);
  tcase_add_test(t, models_of_automodel_balance_their_experts);
  tcase_add_test(t, biases_of_routers_move_in_automodel);
  tcase_add_test(t, parts_of_models_are_said_by_what_the_plan_has);
  tcase_add_test(t, weights_of_automodel_are_as_their_files);
  tcase_add_test(t, optimizers_of_automodel_have_the_rate_of_their_class);
  tcase_add_test(t, runs_of_automodel_end_with_their_data);
  tcase_add_loop_test(t, accelerate_sums_gradients_in_its_types, 0,
                      sizeof summed / sizeof summed[0]);
  tcase_add_test(t, accelerate_says_how_keys_go_around);
  tcase_add_loop_test(t, what_counts_in_megatron_is_said, 0,
                      sizeof counts / sizeof counts[0]);
  tcase_add_test(t, models_that_megatron_makes_otherwise_are_refused);
  tcase_add_test(t, groups_of_megatron_bridge_are_read);
  tcase_add_loop_test(t, rates_of_torchtitan_fit_the_run, 0,
                      sizeof rises / sizeof rises[0]);
  tcase_add_test(t, masks_of_torchtitan_are_said);
  tcase_add_loop_test(t, an_error_leaves_settings_unseen, 0, LEN(early));
  tcase_add_loop_test(t, defaults_of_deepspeed_are_its_own, 0,
                      sizeof zeros / sizeof zeros[0]);
  tcase_add_loop_test(t, groups_of_deepspeed_have_older_forms, 0, LEN(zero_groups));
  tcase_add_test(t, gradients_of_deepspeed_without_a_stage_are_f32);
  tcase_add_test(t, switches_of_deepspeed_are_true_or_false);
  suite_add_tcase(s, t);
  return s;
}
