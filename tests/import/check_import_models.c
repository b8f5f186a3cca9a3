/* check_import_models.c - models by their public names: what weft import makes
 * of a name has as many parameters as was published, and other names say what
 * the model is. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/import_files.h"

static const struct Public {
  const char *name, *parameters;
} models[] = {
    {"meta-llama/Llama-3.2-3B-Instruct", "3.21 B"},
    {"huggyllama/llama-65b", "65.3 B"},
    {"codellama/CodeLlama-34b-Instruct-hf", "33.7 B"},
    {"lmsys/vicuna-13b-v1.5", "13.0 B"},
    {"01-ai/Yi-6B", "6.06 B"},
    {"01-ai/Yi-1.5-9B-Chat", "8.83 B"},
    {"upstage/SOLAR-10.7B-v1.0", "10.7 B"},
    {"tiiuae/Falcon3-10B-Base", "10.3 B"},
    {"HuggingFaceTB/SmolLM-1.7B", "1.71 B"},
    {"deepseek-ai/deepseek-llm-67b-chat", "67.4 B"},
    {"deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", "1.78 B"},
    {"deepseek-ai/DeepSeek-V3.1", "671 B"},
    {"mistralai/Codestral-22B-v0.1", "22.2 B"},
    {"mistralai/Mistral-Small-24B-Instruct-2501", "23.6 B"},
    {"mistralai/Mistral-Large-Instruct-2407", "123 B"},
    {"Qwen/Qwen1.5-72B-Chat", "72.3 B"},
    {"Qwen/Qwen2-7B-Instruct", "7.62 B"},
    {"Qwen/Qwen2.5-Coder-32B-Instruct", "32.8 B"},
    {"Qwen/Qwen3-Coder-480B-A35B-Instruct", "480 B"},
    {"openai-community/gpt2-xl", "1.56 B"},
    {"distilgpt2", "81.9 M"},
    {"zai-org/glm-4-9b-chat-hf", "9.40 B"},
    {"THUDM/GLM-4-9B-0414", "9.40 B"},
    {"THUDM/GLM-4-32B-0414", "32.6 B"},
    {"inclusionAI/Ling-mini-2.0", "16.3 B"},
    {"inclusionAI/Ling-1T", "1.00 T"},
    {"openbmb/MiniCPM5-1B", "1.08 B"},
    {"openbmb/MiniCPM5-2B", "2.52 B"},
    {"nvidia/Llama-3.1-Minitron-4B-Width-Base", "4.51 B"},
    {"nvidia/Mistral-NeMo-Minitron-8B-Base", "8.41 B"},
    {"utter-project/EuroLLM-9B", "9.15 B"},
    {"Qwen/Qwen1.5-110B-Chat", "111 B"},
    {"mistralai/Mistral-Small-Instruct-2409", "22.2 B"},
    {"ibm-granite/granite-3.1-8b-instruct", "8.17 B"},
    {"openai/gpt-oss-20b", "20.9 B"},
    {"moonshotai/Moonlight-16B-A3B", "16.0 B"},
    {"google/gemma-7b-it", "8.54 B"},
    {"google/gemma-2-27b-it", "27.2 B"},
    {"google/gemma-3-1b-pt", "1.00 B"},
    {"cerebras/Cerebras-GPT-1.3B", "1.32 B"},
    {"teknium/OpenHermes-2.5-Mistral-7B", "7.24 B"},
    {"Qwen/Qwen2.5-14B-Instruct-1M", "14.8 B"},
    {"ibm-granite/granite-3.0-8b-base", "8.17 B"},
    {"microsoft/Phi-4-reasoning-plus", "14.7 B"},
    {"meta-llama/Meta-Llama-3.1-405B-Instruct-FP8", "406 B"},
    {"allenai/Olmo-3.1-32B-Think", "32.2 B"},
    {"CohereForAI/c4ai-command-r7b-12-2024", "8.03 B"},
    {"CohereLabs/c4ai-command-a-03-2025", "111 B"},
    {"Qwen/Qwen1.5-MoE-A2.7B-Chat", "14.3 B"},
    {"Qwen/Qwen2-57B-A14B-Instruct", "57.4 B"},
    {"bigcode/starcoder2-3b", "3.03 B"},
    {"bigcode/starcoder2-7b", "7.17 B"},
    {"bigcode/starcoder2-15b", "16.0 B"},
    {"microsoft/phi-1_5", "1.42 B"},
    {"microsoft/phi-2", "2.78 B"},
    {"tencent/Hy3-preview", "295 B"},
    {"poolside/Laguna-S-2.1", "118 B"},
    {"stepfun-ai/Step-3.5-Flash", "197 B"},
    {"zai-org/GLM-4.7-Flash", "29.9 B"},
    {"mistralai/Ministral-3-3B-Instruct-2512", "3.43 B"},
    {"mistralai/Ministral-3-14B-Base-2512", "13.5 B"},
    {"mistralai/Devstral-Small-2-24B-Instruct-2512", "23.6 B"},
    {"mistralai/Devstral-2-123B-Instruct-2512", "125 B"},
};

static void put_name(const char *name) {
  import_put("a.yaml", arena_printf(scratch_arena,
                                    "recipe: TrainFinetuneRecipeForNextTokenPrediction\n"
                                    "model: {pretrained_model_name_or_path: %s}\n",
                                    name));
}

START_TEST(a_name_has_its_parameters) {
  put_name(models[_i].name);
  import_file("a.yaml", "--world 8");
  Outcome o = process_run(IMPORT_SECONDS, "$weft check a.lua");
  import_has(o.out,
             arena_printf(scratch_arena, ", %s parameters", models[_i].parameters));
}
END_TEST

#define UNSEEN "model: rates of dropout are in its config.json alone"

/* Numbers of a file that those of its neighbours differ in, and what its class drops. */
static const struct {
  const char *name;
  bool unseen; /* its file: what it drops is told to be unknown */
  const char *has[3];
} numbers[] = {
    {"ibm-granite/granite-3.1-2b-instruct", true, {"rope_theta = 5000000.0,"}},
    {"ibm-granite/granite-3.2-2b-instruct", true, {"rope_theta = 5000000.0,"}},
    {"ibm-granite/granite-3.3-2b-instruct", true, {"rope_theta = 10000000.0,"}},
    {"ibm-granite/granite-3.1-8b-instruct",
     false,
     {"rope_theta = 10000000.0,", "attention_dropout = 0.1,"}},
    {"ibm-granite/granite-3.0-2b-instruct",
     false,
     {"rope_theta = 10000.0,", "attention_dropout = 0.1,"}},
    {"ibm-granite/granite-3.3-8b-instruct", false, {"attention_dropout = 0.0,"}},
    {"Qwen/Qwen1.5-4B-Chat", false, {"rope_theta = 5000000.0,"}},
    {"Qwen/Qwen1.5-7B-Chat", false, {"rope_theta = 1000000.0,"}},
    {"Qwen/Qwen2-72B-Instruct", false, {"rms_norm_eps = 1e-06,"}},
    {"Qwen/Qwen2-72B", false, {"rms_norm_eps = 1e-05,"}},
    {"Qwen/Qwen2.5-72B-Instruct", false, {"rms_norm_eps = 1e-06,"}},
    {"Qwen/Qwen2.5-72B", false, {"rms_norm_eps = 1e-05,"}},
    {"bigcode/starcoder2-3b",
     false,
     {"attention_dropout = 0.1,", "residual_dropout = 0.1,", "embedding_dropout = 0.1,"}},
    {"openai-community/gpt2",
     false,
     {"attn_pdrop = 0.1,", "embd_pdrop = 0.1,", "resid_pdrop = 0.1,"}},
    {"distilgpt2",
     false,
     {"attn_pdrop = 0.1,", "embd_pdrop = 0.1,", "resid_pdrop = 0.1,"}},
    {"microsoft/phi-2", false, {"resid_pdrop = 0.1,"}},
    {"cerebras/Cerebras-GPT-111M", true, {NULL}},
    {"ByteDance-Seed/Seed-OSS-36B-Base", true, {NULL}},
};

START_TEST(a_name_has_its_numbers) {
  put_name(numbers[_i].name);
  const char *report = import_file("a.yaml", "--world 8");
  for (int i = 0; i < LEN(numbers[_i].has) && numbers[_i].has[i]; i++)
    import_plan_has(numbers[_i].has[i]);
  (numbers[_i].unseen ? import_has : import_lacks)(report, UNSEEN);
}
END_TEST

static const struct Other {
  const char *name, *is;
} others[] = {
    {"EleutherAI/pythia-12b", "a GPT-NeoX"},
    {"tiiuae/falcon-7b", "a Falcon"},
    {"deepseek-ai/DeepSeek-V2-Lite", "a DeepSeek-V2"},
    {"meta-models/Muse-Glimmer-30B", "a Muse, with images"},
};

#define RECIPE_OF(model, more)                                                           \
  "step_scheduler: {global_batch_size: 8, max_steps: 10}\n"                              \
  "model: {_target_: "                                                                   \
  "nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained, "                            \
  "torch_dtype: bf16, pretrained_model_name_or_path: " model "}\n" more

/* torchao's settings: what is computed is in the plan, what is gathered is
 * said. */
START_TEST(linears_of_torchao_are_in_fp8) {
  import_put("a.yaml", RECIPE_OF("Qwen/Qwen3-8B",
                                 "fp8: {enabled: true, recipe_name: tensorwise, "
                                 "filter_fqns: [lm_head], emulate: false, "
                                 "enable_fsdp_float8_all_gather: true, "
                                 "force_recompute_fp8_weight_in_bwd: true, "
                                 "precompute_float8_dynamic_scale_for_fsdp: true}\n"));
  const char *report = import_file("a.yaml", "");
  import_plan_has("recipe = \"tensorwise\",");
  import_plan_has("exclude = { \"lm_head\" },");
  import_has(report,
             "fp8.enable_fsdp_float8_all_gather = true: weights are gathered in bf16 "
             "and then rounded, with the scale of the whole weight: the same");
  import_lacks(report, "fp8.emulate = false: products");
  import_put("a.yaml", RECIPE_OF("Qwen/Qwen3-8B", "fp8: {enabled: true}\n"));
  (void)import_file("a.yaml", "");
  import_plan_has("exclude = {},"); /* the head, too */
  import_put("a.yaml", RECIPE_OF("Qwen/Qwen3-8B", "fp8: {enabled: true, recipe_name: "
                                                  "rowwise_with_gw_hp}\n"));
  import_has(import_file("a.yaml", ""),
             "products are computed in the type of precision, or");
}
END_TEST

/* Transformer Engine's: its linears, and not the experts. */
START_TEST(linears_of_transformer_engine_are_in_fp8) {
#define BACKEND(experts, recipe)                                                         \
  ", backend: {linear: te, experts: " experts ", te_fp8: {recipe: " recipe "}"           \
  "}"
  import_put("a.yaml", RECIPE_OF("Qwen/Qwen3-30B-A3B" BACKEND("te", "mxfp8"), ""));
  const char *report = import_file("a.yaml", "");
  import_plan_has("recipe = \"mxfp8\",");
  import_plan_has("exclude = {},");
  import_has(report, "te_fp8.recipe = mxfp8: products of experts stay in the type");
  import_put("a.yaml", RECIPE_OF("Qwen/Qwen3-8B" BACKEND("torch", "current"), ""));
  (void)import_file("a.yaml", "");
  import_plan_has("recipe = \"tensorwise\",");
  import_put("a.yaml", RECIPE_OF("Qwen/Qwen3-8B" BACKEND("torch", "block"), ""));
  import_has(import_file("a.yaml", ""),
             "te_fp8.recipe = block: products are computed in the");
#undef BACKEND
}
END_TEST

/* Both Adafactors: PyTorch's, and that of Transformers with the settings of its Trainer.
 */
START_TEST(adafactor_is_adafactor) {
#define OPTIMIZER(more) "optimizer: {_target_: " more "}\n"
  import_put("a.yaml", RECIPE_OF("Qwen/Qwen3-8B",
                                 OPTIMIZER("torch.optim.Adafactor, lr: 0.02, d: 2.0")));
  (void)import_file("a.yaml", "");
  import_plan_has("optimizer = weft.adafactor {");
  import_plan_has("lr = 0.02,");
  import_plan_has("beta2_decay = -0.8,");
  import_plan_has("d = 2.0,");
  import_plan_has("weight_decay = 0,");
  import_put("a.yaml",
             RECIPE_OF("Qwen/Qwen3-8B",
                       OPTIMIZER("transformers.optimization.Adafactor, lr: 1e-3, "
                                 "eps: [1.0e-30, 1.0e-3], scale_parameter: false, "
                                 "relative_step: false")));
  const char *report = import_file("a.yaml", "");
  import_plan_has("eps = { 1e-15, 0.001 },");
  import_plan_has("relative_step = false,");
  import_plan_has("scale_parameter = false,");
  import_has(report, "Transformers adds eps to squares");
  import_put("a.yaml",
             RECIPE_OF("Qwen/Qwen3-8B",
                       OPTIMIZER("transformers.Adafactor, lr: 1e-3, beta1: 0.9, "
                                 "weight_decay: 0.1, warmup_init: true")));
  report = import_file("a.yaml", "");
  import_has(report, "Adafactor has no average of gradients here");
  import_has(report, "the rate begins at what lr says");
  import_has(report, "times the size of each parameter, too");
  /* What Transformers takes, and PyTorch or weft does not. */
  import_put("a.yaml", RECIPE_OF("Qwen/Qwen3-8B",
                                 OPTIMIZER("transformers.Adafactor, lr: 1e-3, "
                                           "clip_threshold: 0.3, eps: [1.0e-40, 0]")));
  report = import_file("a.yaml", "");
  import_plan_has("d = 0.3,");
  import_plan_has("eps = { 1e-20, 0 },");
  import_has(report, "optimizer.clip_threshold = 0.3 -> optimizer.d");
  import_put("a.yaml",
             RECIPE_OF("Qwen/Qwen3-8B", OPTIMIZER("transformers.Adafactor, lr: 1e-3, "
                                                  "eps: [0, 1.0e-3]")));
  report = import_file("a.yaml", "");
  import_plan_has("eps = { 1e-30, 0.001 },");
  import_has(report, "the first is from 1e-30 to 1 here");
  import_put("a.yaml", RECIPE_OF("Qwen/Qwen3-8B",
                                 OPTIMIZER("torch.optim.Adafactor, lr: 0.02, d: 0.3, "
                                           "eps: 1.0e-8")));
  import_fails(1, "a.yaml", "", "optimizer.eps: expected a list of two numbers");
  import_fails(1, "a.yaml", "", "optimizer.d: expected a number from 1 to 1000000");
#undef OPTIMIZER
}
END_TEST

/* dion's Muon: the plan has its coefficients, and the rates of what is no
 * matrix. */
START_TEST(muon_of_dion_is_muon) {
#define MUON(more)                                                                       \
  "optimizer: {_target_: dion.Muon, lr: 5e-4, mu: 0.9, scalar_lr: 1e-4, "                \
  "embed_lr: 1e-4, lm_head_lr: 1e-4, adjust_lr: spectral_norm, scalar_opt: "             \
  "adamw" more "}\n"
  import_put("a.yaml", RECIPE_OF("Qwen/Qwen3-8B", MUON("")));
  const char *report = import_file("a.yaml", "");
  import_plan_has("optimizer = weft.muon {");
  import_plan_has("momentum = 0.9,");
  import_plan_has("nesterov = false,");
  import_plan_has("ns_coefficients = { { 4.0848, -6.8946, 2.927 }, { 3.9505,");
  import_plan_has("adjust_lr = \"spectral_unclamped\",");
  import_plan_has("adamw_lr_ratio = 0.2,");
  import_plan_has("betas = { 0.9, 0.999 },");
  import_plan_has("state_dtype = \"bf16\",");
  import_has(report, "the iteration is in f32");
  import_put("a.yaml", RECIPE_OF("Qwen/Qwen3-8B", MUON(", weight_decay: 0.1")));
  (void)import_file("a.yaml", "");
  import_plan_has("decay_vectors = true,");
  import_plan_has("{ \"lm_head\", lr = 1.0, weight_decay = 0.0 }");
  import_put("a.yaml",
             RECIPE_OF("Qwen/Qwen3-8B",
                       MUON(", weight_decay: 0.1") "lr_scheduler: "
                                                   "{lr_decay_style: cosine}\n"));
  import_has(import_file("a.yaml", ""), "gives all parameters the same rate");
#undef MUON
}
END_TEST

START_TEST(other_names_say_what_they_are) {
  put_name(others[_i].name);
  import_fails(1, "a.yaml", "",
               arena_printf(scratch_arena, "%s is %s; weft has apertus", others[_i].name,
                            others[_i].is));
}
END_TEST

/* Recipes are counted as what they are: one that runs, one that lacks
 * something, one whose model weft does not have, and one of images, which is
 * left out. */
START_TEST(recipes_are_counted) {
#define MODEL(name)                                                                      \
  "\"model\":{\"_target_\":\"nemo_automodel.NeMoAutoModelForCausalLM."                   \
  "from_pretrained\",\"pretrained_model_name_or_path\":\"" name "\"}"
#define RECIPE(name, settings)                                                           \
  "{\"from\":\"" name                                                                    \
  "\",\"settings\":{\"step_scheduler\":{\"global_batch_size\":8}," settings "}}\n"
#define DATA(class)                                                                      \
  ",\"dataset\":{\"_target_\":\"nemo_automodel.components.datasets." class "\"}"
  import_put("recipes.jsonl",
             RECIPE("one", MODEL("Qwen/Qwen3-0.6B") DATA("llm.hellaswag.HellaSwag"))
                 RECIPE("two",
                        MODEL("Qwen/Qwen3-0.6B")
                            DATA("llm.hellaswag.HellaSwag") ",\"fp8\":{\"enabled\":true},"
                                                            "\"qat\":{\"enabled\":true}")
                     RECIPE("three", MODEL("ai21labs/Jamba-v0.1")
                                         DATA("llm.chat_dataset.ChatDataset"))
                         RECIPE("four", MODEL("Qwen/Qwen3-0.6B")
                                            DATA("vlm.datasets.make_rdr_dataset"))
                             RECIPE("five", MODEL("Qwen/Qwen3-0.6B")
                                                DATA("llm.retrieval.Retrieval")));
#undef MODEL
#undef RECIPE
#undef DATA
  Outcome o =
      process_run(IMPORT_SECONDS, "$weft lua " WEFT_SOURCE_DIR
                                  "/tests/import/end_to_end.lua $weft out recipes.jsonl");
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  import_has(o.out, "runs\tqwen3\tone\tquestions and answers\n");
  import_has(o.out, "products of integers\tqwen3\ttwo\tqat.enabled = true");
  import_has(o.out, "the model: Mamba\t-\tthree\t");
  import_has(o.out,
             "the "
             "data\tqwen3\tfive\tnemo_automodel.components.datasets.llm.retrieval");
  import_has(o.out, "    1  images or sound in its data\n");
  import_has(o.out, "4 recipes of text: 1 run, 25.0 %\n"
                    "3 recipes of these with a model of weft: 1 run, 33.3 %\n");
}
END_TEST

Suite *import_models_suite(void) {
  Suite *s = suite_create("import_models");
  TCase *t = tcase_create("models");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 120);
  tcase_add_loop_test(t, a_name_has_its_parameters, 0, LEN(models));
  tcase_add_loop_test(t, a_name_has_its_numbers, 0, LEN(numbers));
  tcase_add_loop_test(t, other_names_say_what_they_are, 0, LEN(others));
  tcase_add_test(t, recipes_are_counted);
  tcase_add_test(t, linears_of_torchao_are_in_fp8);
  tcase_add_test(t, linears_of_transformer_engine_are_in_fp8);
  tcase_add_test(t, adafactor_is_adafactor);
  tcase_add_test(t, muon_of_dion_is_muon);
  suite_add_tcase(s, t);
  return s;
}
