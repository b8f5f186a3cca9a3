/* check_import_huggingface.c - weft import of settings of Hugging Face's libraries that
 * name no model, DeepSpeed's and Accelerate's, and of config.json, which is nothing else.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/import_files.h"

/* ---- DeepSpeed ---- */

static const char ds[] =
    "{\n\t\"train_batch_size\": 64,\n\t\"train_micro_batch_size_per_gpu\": 2,\n"
    "\t\"gradient_accumulation_steps\": 4,\n"
    "\t\"zero_optimization\": {\n\t\t\"stage\": 3,\n\t\t\"overlap_comm\": true,\n"
    "\t\t\"reduce_bucket_size\": 5e7,\n"
    "\t\t\"stage3_param_persistence_threshold\": \"auto\",\n"
    "\t\t\"offload_optimizer\": {\"device\": \"cpu\", \"pin_memory\": true},\n"
    "\t\t\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"\\/x\"}\n\t},\n"
    "\t\"fp16\": {\"enabled\": true, \"initial_scale_power\": 12, \"loss_scale_window\": "
    "500},\n"
    "\t\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 3e-5, \"betas\": [0.8, "
    "0.999]}},\n"
    "\t\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"warmup_num_steps\": "
    "7,\n"
    "\t\t\"warmup_max_lr\": 1e-4, \"total_num_steps\": 80}}\n}\n";

START_TEST(deepspeed_becomes_a_plan) {
  import_put("ds.json", ds);
  const char *report = import_file("ds.json", "--model llama3.2-1b");
  import_plan_has("world = 8,  -- the batches of all ranks are the step's");
  import_plan_has("global = 64,  -- ds.json:2: train_batch_size");
  import_plan_has("micro = 2,  -- ds.json:3");
  import_plan_has("\"zero\",");
  import_plan_has("stage = 3,  -- ds.json:6");
  import_plan_has("overlap_grad_reduce = true,");
  import_plan_has("reduce_bucket_size = 50000000,");
  import_plan_has(
      "param_persistence_threshold = 20480,  -- \"auto\" is 10 * hidden_size");
  import_plan_has("offload_optimizer = \"cpu\",");
  import_plan_has("offload_param = \"cpu\",");
  import_plan_has("param_dtype = \"f16\",");
  import_plan_has("init_scale = 4096,");
  import_plan_has("growth_interval = 500,");
  import_plan_has("lr = weft.linear {");
  import_plan_has("max = 0.0001,");
  import_plan_has("warmup = 7,");
  import_plan_has("steps = 80,");
  import_plan_has("betas = { 0.8, 0.999 },");
  import_plan_has("clip = 1.0,  -- DeepSpeed's default");
  import_has(report, "offload_param.device = nvme: nothing is offloaded to files");
  import_file("ds.json", "--model llama3.2-1b --world 4 gradient_accumulation_steps=8");
  import_plan_has("world = 4,  -- --world");
  import_fails(1, "ds.json", "--model llama3.2-1b --world 16",
               "ds.json:2: error: 64 is not 2 a rank times 4 accumulated times 16");
  import_fails(1, "ds.json", "", "ds.json: error: the settings name no model");
  import_fails(1, "ds.json", "--model llama3.2-1b zero_optimization.stage=4", "stage 4");
}
END_TEST

/* Ratios and defaults of DeepSpeed's schedules, of its loss scale and of its Adam. */
START_TEST(deepspeed_defaults_are_written_out) {
  import_put("ds.json", "{\"train_batch_size\": 64, \"fp16\": {\"enabled\": true},\n"
                        "\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 1e-4,\n"
                        "\"adam_w_mode\": false}},\n"
                        "\"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\":\n"
                        "{\"total_num_steps\": 10000, \"cos_min_ratio\": 0.1}}}\n");
  const char *report = import_file("ds.json", "--model llama3.2-1b --world 8");
  import_plan_has("max = 0.0001,");
  import_plan_has("min = 1e-05,  -- ds.json:5");
  import_plan_has("warmup = 1000,  -- DeepSpeed's default");
  import_plan_has("growth_interval = 1000,");
  import_plan_has("hysteresis = 2,");
  import_has(report, "adam_w_mode = false -> optimizer");
  import_plan_has("weft.adam {");
  import_put("ds.json",
             "{\"train_batch_size\": 64, \"scheduler\": {\"type\": \"WarmupDecayLR\",\n"
             "\"params\": {\"total_num_steps\": 10000}}}\n");
  import_file("ds.json", "--model llama3.2-1b --world 8");
  import_plan_has("max = 0.001,  -- DeepSpeed's default");
}
END_TEST

/* Ranks of Ulysses share a sequence, and the batch is that of the others. */
START_TEST(sequence_parallel_ranks_exchange_heads) {
  import_put("ds.json", "{\"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": "
                        "1,\n\"data_parallel_size\": 4,\n\"sequence_parallel_size\": "
                        "2,\n\"zero_optimization\": {\"stage\": 3}}\n");
  const char *report = import_file("ds.json", "--model llama3.2-1b");
  import_plan_has("world = 8,  -- ds.json:2: data_parallel_size");
  import_plan_has("cp = 2,  -- ds.json:3: sequence_parallel_size");
  import_plan_has("comm = \"a2a\",  -- DeepSpeed Ulysses");
  import_has(report, "sequence_parallel_size = 2 -> mesh.cp");
  report = import_file("ds.json", "--model llama3.2-1b --world 4");
  import_plan_has("world = 4,  -- --world");
  import_has(report, "data_parallel_size = 4: --world says how many ranks there are");
  import_fails(1, "ds.json", "--model llama3.2-1b --world 5",
               "ds.json:3: error: 5 ranks are no multiple of tp * cp = 2");
}
END_TEST

/* ---- Accelerate ---- */

START_TEST(accelerate_becomes_a_plan) {
  import_put("acc.yaml",
             "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\n"
             "num_processes: 16\nnum_machines: 2\nmixed_precision: bf16\n"
             "main_training_function: main\nfsdp_config:\n"
             "  fsdp_sharding_strategy: HYBRID_SHARD\n  fsdp_offload_params: false\n"
             "  fsdp_activation_checkpointing: true\n  fsdp_use_orig_params: true\n");
  const char *report = import_file("acc.yaml", "--model qwen3-8b");
  import_plan_has("\"fsdp2\",  -- acc.yaml:8");
  import_plan_has("reshard_after_forward = true,");
  import_plan_has("world = 16,  -- acc.yaml:3");
  import_plan_has("dp_replicate = 2,");
  import_plan_has("reduce_dtype = \"bf16\",");
  import_plan_has("recompute = \"full\",");
  import_has(
      report,
      "acc.yaml:11: fsdp_config.fsdp_use_orig_params = true: the units of the model");
  import_file("acc.yaml",
              "--model qwen3-8b fsdp_config.fsdp_sharding_strategy=3 num_machines=1");
  import_plan_has("\"ddp\",");
  import_file("acc.yaml", "--model qwen3-8b distributed_type=DEEPSPEED "
                          "deepspeed_config.zero_stage=2 "
                          "deepspeed_config.offload_optimizer_device=cpu");
  import_plan_has("stage = 2,");
  import_plan_has("offload_optimizer = \"cpu\",");
  import_file("acc.yaml",
              "--model qwen3-8b parallelism_config.parallelism_config_sp_size=4");
  import_plan_has("cp = 4,");
  import_plan_has("comm = \"a2a\",");
  import_fails(1, "acc.yaml",
               "--model qwen3-8b parallelism_config.parallelism_config_tp_size=4 "
               "parallelism_config.parallelism_config_dp_shard_size=2",
               "acc.yaml:3: error: 16 ranks are not the 8 of parallelism_config");
  import_fails(
      1, "acc.yaml",
      "--model qwen3-8b --world 6 parallelism_config.parallelism_config_tp_size=4",
      "error: 6 ranks are no multiple of 4");
  import_fails(1, "acc.yaml", "--model qwen3-8b distributed_type=XLA",
               "XLA: expected FSDP");
  import_fails(1, "acc.yaml", "--model qwen3-8b mixed_precision=fp8",
               "mixed_precision = fp8: expected f32, bf16 or f16; products in fp8 are");
  import_fails(1, "acc.yaml", "--model qwen3-8b fsdp_config.fsdp_sharding_strategy=SOME",
               "expected FULL_SHARD");
}
END_TEST

START_TEST(empty_groups_and_other_machines_say_nothing) {
  import_put("acc.yaml",
             "distributed_type: MULTI_GPU\nnum_processes: 2\nfsdp_config: {}\n"
             "tpu_zone: a\nmpirun_config: {mpirun_ccl: '1'}\n");
  const char *report = import_file("acc.yaml", "--model qwen3-8b");
  import_has(report, "fsdp_config = {}: it is empty");
  import_has(report, "tpu_zone = a: it is for TPUs");
  import_lacks(report, "does not know");
}
END_TEST

/* ---- config.json ---- */

START_TEST(a_folder_with_a_config_becomes_a_plan) {
  process_run(IMPORT_SECONDS, "mkdir m.v2");
  import_put(
      "m.v2/config.json",
      "{\"model_type\": \"qwen2\", \"hidden_size\": 64, \"num_hidden_layers\": 2,\n"
      "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"intermediate_size\": "
      "96,\n"
      "\"vocab_size\": 320, \"torch_dtype\": \"float16\", \"sep_token_id\": null,\n"
      "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 2.0},\n"
      "\"max_position_embeddings\": 512}");
  const char *report = import_file("m.v2", "--world 2");
  import_plan_has("\"qwen2\",  -- config.json:1: model_type");
  import_plan_has("rope_scaling = { factor = 2.0, rope_type = \"yarn\" },");
  import_plan_has("name = \"m.v2\",");
  import_plan_has("precision = \"f16\",");
  import_plan_has("seq = 512,");
  import_has(report, "sep_token_id = null: null is as if it were not given");
  import_put("m.v2/config.json", "{\"model_type\": \"t5\"}");
  import_fails(1, "m.v2", "", "the architecture \"t5\" is not in weft");
}
END_TEST

#define LLAMA                                                                            \
  "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_hidden_layers\": 2,\n"         \
  "\"num_attention_heads\": 4, \"intermediate_size\": 96, \"vocab_size\": 320,\n"

/* Keys that a model does not have are left out, values that it cannot have are refused,
 * each by the line where it is. */
/* Python's json has a word for infinity, which is no text. */
START_TEST(infinity_is_a_number) {
  import_put("config.json",
             "{\"model_type\": \"falcon_h1\", \"vocab_size\": 32, \"hidden_size\": 16, "
             "\"intermediate_size\": 16, \"num_hidden_layers\": 1, "
             "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
             "\"mamba_d_ssm\": 16, \"mamba_n_heads\": 2, \"mamba_d_state\": 4, "
             "\"time_step_limit\": [0.0, Infinity]}");
  import_file("config.json", "");
  import_plan_has("time_step_limit = { 0.0, math.huge },");
}
END_TEST

START_TEST(keys_of_a_config_are_checked) {
  /* null is not the default of the class where that is something. */
  import_put(
      "c.json",
      "{\"model_type\": \"deepseek_v3\", \"hidden_size\": 64, \"num_hidden_layers\": 1,\n"
      "\"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"vocab_size\": 320, "
      "\"q_lora_rank\": null}");
  import_file("c.json", "");
  import_plan_has("q_lora_rank = false,");
  import_put("c.json", LLAMA "\"quantization_config\": {\"bits\": 4},\n\"mine\": 1,\n"
                             "\"a b\": 2,\n\"rope_scaling\": null}");
  const char *report = import_file("c.json", "");
  import_plan_lacks("mine = 1,");
  import_has(
      report,
      "c.json:3: quantization_config.bits = 4: weft's llama has no such key (not in "
      "weft: quantized products and weights; ");
  import_has(report, "c.json:4: mine = 1: weft's llama has no such key");
  import_has(report, "c.json:5: a b = 2: it is no name of a key");
  import_put("ds.json", "{\"train_batch_size\": 8}");
  report = import_file("ds.json", "--model ./c.json --world 2");
  import_put("ds.conf", "{\n\t\"train_batch_size\": 8\n}");
  import_file("ds.conf", "--model ./c.json --world 2");
  import_has(report, "model.mine: weft's llama has no such key");
  import_put("c.json",
             LLAMA "\"rope_scaling\": {\"rope_type\": \"ntk\", \"factor\": 2}}");
  import_fails(1, "c.json", "",
               "c.json:3: error: model.rope_scaling: \"ntk\" is not supported");
  import_put("c.json", LLAMA "\"architectures\": [\"LlamaForSequenceClassification\"]}");
  import_fails(1, "c.json", "",
               "c.json:3: error: model.architectures: "
               "\"LlamaForSequenceClassification\" is not supported (only "
               "\"LlamaForCausalLM\")");
}
END_TEST

/* The loss of routers is a field of the plan: a key of the model that says it is told,
 * from a file and in a plan. */
START_TEST(keys_that_are_said_elsewhere_are_told) {
  import_put(
      "c.json",
      "{\"model_type\": \"mixtral\", \"hidden_size\": 64, \"num_hidden_layers\": 2,\n"
      "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 320,\n"
      "\"intermediate_size\": 96, \"router_aux_loss_coef\": 0.02}\n");
  const char *report = import_file("c.json", "");
  import_plan_lacks("  router_aux_loss_coef = 0.02,");
  import_has(report, "c.json:3: router_aux_loss_coef = 0.02: the loss of routers is "
                     "plan.moe.aux_loss_coef");
  import_put("p.lua",
             "local weft = require \"weft\"\nreturn weft.plan {\n"
             "  model = weft.model { \"mixtral-tiny\", router_aux_loss_coef = 0.02 },\n"
             "  batch = { global = 8, seq = 16 }, data = weft.synthetic {},\n}\n");
  Outcome o = process_run(IMPORT_SECONDS, "$weft check p.lua");
  ck_assert_int_eq(o.code, 0);
  import_has(o.err,
             "p.lua:3: warning: plan.model.router_aux_loss_coef: changes nothing: the "
             "loss of routers is plan.moe.aux_loss_coef");
  import_put("a.yaml", "step_scheduler: {global_batch_size: 8, max_steps: 5}\n"
                       "model: {pretrained_model_name_or_path: Qwen/Qwen3-30B-A3B,\n"
                       "  router_aux_loss_coef: 1.0e-4}\n");
  import_file("a.yaml", "--world 8");
  import_plan_has("aux_loss_coef = 0.0001,  -- a.yaml:3: model.router_aux_loss_coef");
}
END_TEST

/* Tables of rope_parameters for each type of layers, as Transformers writes them. */
START_TEST(tables_within_tables_are_taken_over) {
  import_put(
      "c.json",
      "{\"model_type\": \"olmo3\", \"hidden_size\": 64, \"num_hidden_layers\": 4,\n"
      "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 99,\n"
      "\"intermediate_size\": 128, \"sliding_window\": 8, \"rope_parameters\": {\n"
      "\"full_attention\": {\"rope_type\": \"yarn\", \"factor\": 8.0, \"truncate\": "
      "null,\n"
      "\"rope_theta\": 500000.0, \"original_max_position_embeddings\": 64},\n"
      "\"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 10000.0}}}\n");
  import_file("c.json", "");
  import_plan_has("rope_parameters = { full_attention = { factor = 8.0, ");
  import_plan_has(
      "sliding_attention = { rope_theta = 10000.0, rope_type = \"default\" } },");
}
END_TEST

START_TEST(sequences_are_no_longer_than_positions) {
  import_put("c.json",
             "{\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_layer\": 2, \"n_head\": "
             "4, \"n_positions\": 512, \"vocab_size\": 320}");
  import_file("c.json", "");
  import_plan_has("seq = 512,");
}
END_TEST

#define MISTRAL                                                                          \
  "{\"architectures\": [\"MistralForCausalLM\"], \"model_type\": \"mistral\",\n"         \
  "\"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,\n"         \
  "\"num_key_value_heads\": 2, \"intermediate_size\": 96, \"vocab_size\": 320,\n"        \
  "\"max_position_embeddings\": 4096,\n"

/* Null is not absent: Mistral's class has a window where a file does not name one. */
START_TEST(windows_of_attention_are_kept) {
  process_run(IMPORT_SECONDS, "mkdir m");
  import_put("m/config.json", MISTRAL "\"sliding_window\": null}");
  const char *report = import_file("m", "");
  import_plan_has("\"mistral\",");
  import_plan_has("sliding_window = false,");
  import_lacks(report, "null is as if");
  import_put("m/config.json", MISTRAL "\"sliding_window\": 512}");
  report = import_file("m", "");
  import_plan_has("sliding_window = 512,");
  import_lacks(report, "not expressible");
}
END_TEST

START_TEST(windows_of_other_architectures_are_kept) {
  process_run(IMPORT_SECONDS, "mkdir m");
  import_put("m/config.json",
             "{\"model_type\": \"qwen2\", \"hidden_size\": 64, \"num_hidden_layers\": "
             "2,\n\"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
             "\"intermediate_size\": 96,\n\"vocab_size\": 320, \"sliding_window\": 256,\n"
             "\"use_sliding_window\": true, \"max_window_layers\": 1}");
  const char *report = import_file("m", "");
  import_plan_has("sliding_window = 256,");
  import_plan_has("max_window_layers = 1,");
  import_lacks(report, "not expressible");
  import_put("ds.json", "{\"train_batch_size\": 8}");
  import_file("ds.json", "--model ./m --world 2");
  import_plan_has("use_sliding_window = true,");
}
END_TEST

Suite *import_huggingface_suite(void) {
  Suite *s = suite_create("import_huggingface");
  TCase *t = tcase_create("huggingface");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 120);
  tcase_add_test(t, deepspeed_becomes_a_plan);
  tcase_add_test(t, deepspeed_defaults_are_written_out);
  tcase_add_test(t, sequence_parallel_ranks_exchange_heads);
  tcase_add_test(t, accelerate_becomes_a_plan);
  tcase_add_test(t, empty_groups_and_other_machines_say_nothing);
  tcase_add_test(t, a_folder_with_a_config_becomes_a_plan);
  tcase_add_test(t, keys_of_a_config_are_checked);
  tcase_add_test(t, keys_that_are_said_elsewhere_are_told);
  tcase_add_test(t, tables_within_tables_are_taken_over);
  tcase_add_test(t, infinity_is_a_number);
  tcase_add_test(t, sequences_are_no_longer_than_positions);
  tcase_add_test(t, windows_of_attention_are_kept);
  tcase_add_test(t, windows_of_other_architectures_are_kept);
  suite_add_tcase(s, t);
  return s;
}
