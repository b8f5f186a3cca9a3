/* check_import_llamafactory_v1.c - weft import of arguments of LLaMA-Factory's v1, which
 * has other names and other defaults. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/import_files.h"

static const char *import(const char *more) { return import_file("a.yaml", more); }

#define MODEL "model: Qwen/Qwen3-0.6B\nmodel_class: llm\ntrain_dataset: data/a.yaml\n"

START_TEST(adapters_have_their_own_defaults) {
  import_put("a.yaml",
             MODEL "peft_config: {name: lora, r: 4, target_modules: all}\n"
                   "dist_config: {name: fsdp2, dcp_path: null}\n"
                   "quant_config: {name: bnb, quantization_bit: 4}\n"
                   "micro_batch_size: 2\nglobal_batch_size: 16\ncutoff_len: 256\n"
                   "max_steps: 10\nenable_activation_checkpointing: false\n");
  const char *report = import("--world 4");
  import_plan_has("rank = 4,  -- a.yaml:4: peft_config.r");
  import_plan_has("alpha = 16,  -- LLaMA-Factory v1's default: lora_alpha");
  import_plan_has("dropout = 0.05,  -- LLaMA-Factory v1's default: lora_dropout");
  import_plan_has("base = \"nf4\",  -- a.yaml:6: quant_config.quantization_bit");
  import_plan_has("\"fsdp2\",");
  import_plan_has("param_dtype = \"bf16\",");
  import_plan_lacks("master_dtype"); /* factors are f32 */
  import_plan_lacks("recompute");
  import_plan_has("global = 16,  -- a.yaml:8: global_batch_size");
  import_plan_has("micro = 2,");
  import_plan_has("lr = weft.constant {\n      max = 0.0001,");
  import_plan_has("weight_decay = 0.01,");
  import_plan_has("decay_vectors = true,");
  import_has(report,
             "a.yaml:11: enable_activation_checkpointing = false -> recompute, none");
  import_has(report, "which training it is, sft or dpo, the command says");
}
END_TEST

START_TEST(all_of_a_model_learns_in_the_type_of_its_files) {
  import_put("a.yaml", MODEL "dist_config: {name: fsdp2, offload_params: true}\n"
                             "cp_size: 2\nmp_replicate_size: 2\nmax_steps: 10\n"
                             "optim_config: {name: muon, wd: 0.2, momentum: 0.9}\n"
                             "pref_beta: 0.3\nbatching_strategy: dynamic_batching\n");
  const char *report = import("--world 8");
  import_plan_has("master_dtype = \"bf16\",  -- weights have the type of their files");
  import_plan_has("state_dtype = \"bf16\",");
  import_plan_has("cp = 2,");
  import_plan_has("comm = \"a2a\",");
  import_plan_has("dp_replicate = 2,");
  import_has(report, "what Muon keeps stays on the device");
  import_plan_has("weft.muon {");
  import_plan_has("momentum = 0.9,");
  import_plan_has("weight_decay = 0.2,  -- a.yaml:8: optim_config.wd");
  import_plan_has("beta = 0.3,  -- a.yaml:9: pref_beta");
  import_has(report, "about as many tokens there");
  import_put("a.yaml", MODEL "peft_config: {name: freeze, freeze_trainable_layers: 1}\n");
  import("--world 2");
  import_plan_has("\"ddp\",");
  import_plan_has("\"layers.26\" },");
}
END_TEST

/* Its trainer of pairs drops, and copies of modules are stepped in their own type. */
START_TEST(pairs_and_copies_are_those_of_v1) {
  import_put("a.yaml", MODEL "peft_config: {name: lora, modules_to_save: [norm]}\n"
                             "pref_loss: sigmoid\nmax_steps: 10\n");
  const char *report = import("--world 2");
  import_plan_has("dropout = 0.05,");
  import_has(report, "what modules_to_save names has f32 master weights");
  import_has(report, "v1 cuts both together to cutoff_len");
  import_has(report, "v1 weighs the mean of each microbatch by its label tokens");
  import_put("z2.json",
             "{\"zero_optimization\": {\"stage\": 2}, \"bf16\": {\"enabled\": true}}\n");
  import_put("a.yaml", MODEL "peft_config: {name: lora, modules_to_save: [norm]}\n"
                             "dist_config: {name: deepspeed, config_file: z2.json}\n"
                             "max_steps: 10\n");
  report = import("--world 2");
  import_lacks(report, "what modules_to_save names");
  import_lacks(report, "v1 cuts both");
}
END_TEST

START_TEST(names_are_those_of_v1) {
  import_put("a.yaml", MODEL "micro_batch_size: 2\nlora_rank: 8\n");
  import_fails(1, "a.yaml", "",
               "a.yaml:5: error: LLaMA-Factory has no argument \"lora_rank\"");
  import_put("a.yaml", MODEL "micro_batch_size: 3\nglobal_batch_size: 16\n");
  import_fails(1, "a.yaml", "--world 2", "16 is no multiple of micro_batch_size = 3");
  import_fails(1, "a.yaml", "model_class=cls", "weft trains causal language models");
  import_fails(1, "a.yaml", "dist_config.name=ddp",
               "expected fsdp2, fsdpturbo or deepspeed");
  import_fails(1, "a.yaml", "optim_config.name=sgd", "has muon, and AdamW without");
  import_fails(1, "a.yaml", "peft_config.export_dir=out",
               "these arguments train nothing");
  import_put("a.yaml", "model_name_or_path: Qwen/Qwen3-0.6B\ndo_train: true\n"
                       "cutoff_len: 8\npeft_config: {name: lora}\n");
  import_fails(1, "a.yaml", "", "LLaMA-Factory has no argument \"peft_config\"");
}
END_TEST

Suite *import_llamafactory_v1_suite(void) {
  Suite *s = suite_create("import_llamafactory_v1");
  TCase *t = tcase_create("v1");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 120);
  tcase_add_test(t, adapters_have_their_own_defaults);
  tcase_add_test(t, all_of_a_model_learns_in_the_type_of_its_files);
  tcase_add_test(t, pairs_and_copies_are_those_of_v1);
  tcase_add_test(t, names_are_those_of_v1);
  suite_add_tcase(s, t);
  return s;
}
