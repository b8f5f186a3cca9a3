/* check_import_formats.c - in what gradients, master weights and averages are kept, of
 * each system's settings. */
#include <check.h>

#include "tests/harness/import_files.h"

#define DEEPSPEED(fields) "{\"train_batch_size\": 64, " fields "}\n"

/* Gradients add up in the type of the model with a stage, unless data_types says
 * otherwise. */
START_TEST(deepspeed_adds_up_in_the_type_of_the_model) {
  const char *const at = "--model llama3.2-1b --world 8";
  import_put("ds.json", DEEPSPEED("\"bf16\": {\"enabled\": true},\n"
                                  "\"zero_optimization\": {\"stage\": 1}"));
  import_file("ds.json", at);
  import_plan_has("grad_dtype = \"bf16\",  -- DeepSpeed's default: that of the model");
  import_put("ds.json", DEEPSPEED("\"bf16\": {\"enabled\": true},\n"
                                  "\"data_types\": {\"grad_accum_dtype\": \"fp32\"}"));
  const char *report = import_file("ds.json", at);
  import_plan_has("grad_dtype = \"f32\",  -- ds.json:2");
  import_plan_has("reduce_dtype = \"bf16\",  -- DeepSpeed's default");
  import_has(report, "data_types.grad_accum_dtype = fp32 -> precision.grad_dtype");
  import_put("ds.json", DEEPSPEED("\"fp16\": {\"enabled\": true}"));
  import_file("ds.json", at);
  import_plan_has("grad_dtype = \"f16\",");
  import_put("ds.json", DEEPSPEED("\"bf16\": {\"enabled\": true,\n"
                                  "\"bf16_master_weights_and_grads\": true,\n"
                                  "\"bf16_optimizer_states\": true}"));
  import_file("ds.json", at);
  import_plan_has("master_dtype = \"bf16\",  -- ds.json:2");
  import_plan_has("state_dtype = \"bf16\",  -- ds.json:3");
  import_put("ds.json", DEEPSPEED("\"bf16\": {\"enabled\": true},\n"
                                  "\"data_types\": {\"grad_accum_dtype\": \"fp16\"}"));
  report = import_file("ds.json", at);
  import_has(report, "gradients are f32 or of the type that computes");
}
END_TEST

#define MEGATRON                                                                         \
  "--num-layers 12\n--hidden-size=768\n--num-attention-heads 12 --micro-batch-size 4\n"  \
  "--global-batch-size 32\n--seq-length 1024 --max-position-embeddings 1024\n"

START_TEST(megatron_says_when_they_are_narrow) {
  import_put("a.txt", MEGATRON "--fp16\n");
  import_file("a.txt", "");
  import_plan_has("grad_dtype = \"f16\",");
  import_put("a.txt", MEGATRON "--fp16\n--accumulate-allreduce-grads-in-fp32\n");
  import_file("a.txt", "");
  import_plan_lacks("grad_dtype");
  import_put("a.txt", MEGATRON "--bf16\n--grad-reduce-in-bf16\n");
  const char *report = import_file("a.txt", "");
  import_plan_has("grad_dtype = \"bf16\",  -- a.txt:7: --grad-reduce-in-bf16");
  import_has(report, "--grad-reduce-in-bf16");
  import_put("a.txt", MEGATRON "--bf16\n--use-precision-aware-optimizer\n"
                               "--main-grads-dtype bf16\n");
  import_file("a.txt", "");
  import_plan_has("grad_dtype = \"bf16\",  -- a.txt:8: --main-grads-dtype");
  import_put("a.txt", MEGATRON "--bf16\n");
  import_file("a.txt", "");
  import_plan_lacks("grad_dtype");
}
END_TEST

#define TITAN                                                                            \
  "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[parallelism]\n"                         \
  "data_parallel_shard_degree = 8\n[training]\nlocal_batch_size = 1\nseq_len = 2048\n"

START_TEST(torchtitan_trains_in_bf16) {
  import_put("a.toml", TITAN "dtype = \"bfloat16\"\n");
  const char *report = import_file("a.toml", "");
  import_plan_has("master_dtype = \"bf16\",  -- a.toml:9: training.dtype");
  import_plan_has("grad_dtype = \"bf16\",");
  import_plan_has("reduce_dtype = \"f32\",  -- torchtitan's default");
  import_plan_has("state_dtype = \"bf16\",");
  import_has(report, "training.dtype = bfloat16 -> precision.master_dtype");
  import_put("a.toml", TITAN "dtype = \"float32\"\n");
  import_file("a.toml", "");
  import_plan_lacks("master_dtype");
}
END_TEST

#define AUTOMODEL                                                                        \
  "recipe: TrainFinetuneRecipeForNextTokenPrediction\nmodel:\n"                          \
  "  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained\n"                \
  "  pretrained_model_name_or_path: meta-llama/Llama-3.2-1B\n"

/* The weights' type is that of what torch.optim keeps; an optimizer with master weights
 * has its own. */
START_TEST(automodel_trains_in_the_type_of_the_weights) {
  import_put("a.yaml", AUTOMODEL "  torch_dtype: bf16\noptimizer:\n"
                                 "  _target_: torch.optim.AdamW\n  lr: 1e-5\n");
  import_file("a.yaml", "--world 8");
  import_plan_has("master_dtype = \"bf16\",  -- a.yaml:5: model.torch_dtype");
  import_plan_has("state_dtype = \"bf16\",");
  import_put("a.yaml",
             AUTOMODEL "  torch_dtype: bf16\noptimizer:\n  lr: 1e-5\n"
                       "  _target_: transformer_engine.pytorch.optimizers.FusedAdam\n"
                       "  master_weights: true\n");
  import_file("a.yaml", "--world 8");
  import_plan_lacks("master_dtype");
  import_put("a.yaml", AUTOMODEL "  torch_dtype: float32\noptimizer:\n"
                                 "  _target_: torch.optim.AdamW\n  lr: 1e-5\n");
  import_file("a.yaml", "--world 8");
  import_plan_lacks("master_dtype");
}
END_TEST

Suite *import_formats_suite(void);
Suite *import_formats_suite(void) {
  Suite *s = suite_create("import_formats");
  TCase *c = tcase_create("formats");
  tcase_set_timeout(c, 120);
  tcase_add_checked_fixture(c, scratch_setup, scratch_teardown);
  tcase_add_test(c, deepspeed_adds_up_in_the_type_of_the_model);
  tcase_add_test(c, megatron_says_when_they_are_narrow);
  tcase_add_test(c, torchtitan_trains_in_bf16);
  tcase_add_test(c, automodel_trains_in_the_type_of_the_weights);
  suite_add_tcase(s, c);
  return s;
}
