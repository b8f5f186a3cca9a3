/* check_import_nanotron.c - weft import of nanotron's settings. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/import_files.h"

#define MODEL                                                                            \
  "model:\n  dtype: bfloat16\n  make_vocab_size_divisible_by: 64\n"                      \
  "  init_method: {std: 0.025}\n"                                                        \
  "  model_config: {hidden_size: 256, intermediate_size: 512, num_hidden_layers: 4,\n"   \
  "    num_attention_heads: 8, num_key_value_heads: 4, vocab_size: 1000,\n"              \
  "    is_qwen2_config: true, rms_norm_eps: 1e-05%s}\n"
#define REST                                                                             \
  "parallelism:\n  dp: 2\n  tp: 2\n  pp: 2\n  pp_engine: 1f1b\n"                         \
  "  tp_mode: REDUCE_SCATTER\n  tp_linear_async_communication: true\n"                   \
  "  recompute_layer: true\n"                                                            \
  "tokens: {sequence_length: 128, train_steps: 20, micro_batch_size: 3,\n"               \
  "  batch_accumulation_per_replica: 4, val_check_interval: -1}\n"                       \
  "optimizer:\n  zero_stage: 1\n  weight_decay: 0.01\n  clip_grad: null\n"               \
  "  accumulate_grad_in_fp32: true\n"                                                    \
  "  optimizer_factory: {name: adamW, adam_beta1: 0.9, adam_beta2: 0.98, adam_eps: "     \
  "1e-8}\n"                                                                              \
  "  learning_rate_scheduler:\n    learning_rate: 0.0003\n    lr_warmup_steps: 2\n"      \
  "    lr_decay_steps: 13\n    lr_decay_style: cosine\n    min_decay_lr: 1e-05\n"        \
  "    lr_warmup_style: linear\n    lr_decay_starting_step: null\n"                      \
  "data_stages:\n- {name: one, start_training_step: 1, data: {dataset: null, seed: "     \
  "42}}\n"

static void put_with(const char *model_more, const char *rest) {
  char text[4000];
  int n = snprintf(text, sizeof text, MODEL, model_more);
  snprintf(text + n, sizeof text - (size_t)n, "%s", rest);
  import_put("a.yaml", text);
}

START_TEST(settings_become_a_plan) {
  put_with("", REST);
  const char *report = import_file("a.yaml", "");
  import_plan_has("\"llama\",");         /* without biases its Qwen2 is a Llama */
  import_plan_has("vocab_size = 1024,"); /* a multiple of 64 * tp */
  import_plan_has("rms_norm_eps = 1e-05,");
  import_plan_has("initializer_range = 0.025,");
  import_plan_has("tp = 2,");
  import_plan_has("pp = 2,");
  import_plan_has("dp = 2,");
  import_plan_has("\"zero\",");
  import_plan_has("stage = 1,");
  import_plan_has("sequence_parallel = true,");
  import_plan_has("schedule = \"1f1b\",");
  import_plan_has("recompute = \"full\",");
  import_plan_has("global = 24,");
  import_plan_has("micro = 3,");
  import_plan_has("betas = { 0.9, 0.98 },");
  import_plan_has("steps = 15,"); /* warmup and decay */
  import_plan_has("clip = 0,");
  import_plan_has("weight_decay = 0.01,");
  import_plan_has("decay_vectors = true,");
  import_has(report, "tokens are made up there, too");
  put_with(", attention_bias: true", REST);
  import_file("a.yaml", "parallelism.tp_mode=ALL_REDUCE --world 16");
  import_plan_has("\"qwen2\",");
  import_plan_has("sequence_parallel = false,");
  import_plan_has("global = 48,");
}
END_TEST

/* The rate stays at its maximum until a step, or falls with a root: weft.wsd. */
START_TEST(rates_that_stay_are_wsd) {
  put_with("", REST);
  import_file("a.yaml", "optimizer.learning_rate_scheduler.lr_decay_starting_step=5");
  import_plan_has("lr = weft.wsd {");
  import_plan_has("decay = 13,");
  import_plan_has("decay_style = \"cosine\",");
  import_plan_has("steps = 18,");
  /* Without lr_decay_steps the fall is as long as what is behind the warmup: it goes on
   * behind the run. nanotron fills the number in when it reads its settings
   * (Config.__post_init__), so that the scheduler's own default never comes up. */
  const char *report =
      import_file("a.yaml", "optimizer.learning_rate_scheduler.lr_decay_starting_step=5 "
                            "optimizer.learning_rate_scheduler.lr_decay_steps=null");
  import_plan_has("steps = 23,  -- nanotron's: train_steps - warmup more");
  import_plan_has("decay = 18,");
  import_has(report, "nanotron's with 0");
  import_file("a.yaml", "optimizer.learning_rate_scheduler.lr_decay_steps=null");
  import_plan_has("lr = weft.cosine {");
  import_plan_lacks("warmup more");
  import_file("a.yaml", "optimizer.learning_rate_scheduler.lr_decay_style=1-sqrt");
  import_plan_has("decay_style = \"minus_sqrt\",");
  import_plan_has("steps = 15,");
  import_file("a.yaml", "optimizer.learning_rate_scheduler.lr_warmup_style=constant");
  import_plan_has("lr = weft.wsd {");
  import_plan_lacks("warmup");
  import_fails(1, "a.yaml", "optimizer.learning_rate_scheduler.lr_decay_style=fast",
               "fast: expected linear, cosine or 1-sqrt");
}
END_TEST

/* A list of names that is empty leaves out none, as nanotron's own files have it. */
START_TEST(names_that_do_not_decay_are_said) {
  static const char key[] = "optimizer.weight_decay_exclude_named_params";
  static const struct {
    const char *names, *said;
  } rows[] = {
      {"[]", "= {}: it names none: all parameters decay"},
      {"['.*token_embedding.*']",
       "all parameters decay: groups of the plan say which ones do not"},
  };
  for (int i = 0; i < LEN(rows); i++) {
    char text[3000];
    snprintf(text, sizeof text, "%s%s: %s\n", REST, key, rows[i].names);
    put_with("", text);
    import_has(import_file("a.yaml", ""), rows[i].said);
    import_plan_has("decay_vectors = true,");
  }
}
END_TEST

/* Each value of the file is in a list, once. */
START_TEST(nothing_is_dropped) {
  int said = 0;
  put_with("", REST);
  Outcome o = process_run(IMPORT_SECONDS, "$weft import a.yaml --json");
  ck_assert_int_eq(o.code, 0);
  for (const char *p = o.out; (p = strstr(p, "\"place\": \"a.yaml:")); p++) said++;
  ck_assert_int_eq(said, 39);
}
END_TEST

START_TEST(what_weft_lacks_is_refused_by_its_setting) {
  put_with(", moe_config: {num_experts: 8}", REST);
  import_fails(1, "a.yaml", "", "a.yaml:7: error: layers of nanotron's experts are not");
  put_with(", is_mamba_config: true", REST);
  import_fails(1, "a.yaml", "",
               "a.yaml:7: error: weft has nanotron's llama and qwen2, not mamba");
  put_with("", REST);
  import_fails(1, "a.yaml", "parallelism.pp_engine=zbv", "expected afab or 1f1b");
  import_fails(1, "a.yaml", "parallelism.tp_mode=SHARD",
               "expected ALL_REDUCE or REDUCE_SCATTER");
  import_fails(1, "a.yaml", "optimizer.zero_stage=3", "nanotron has stages 0 and 1");
  import_fails(1, "a.yaml", "tokens.micro_batch_size=some",
               "expected an integer, at least 1");
  put_with(", sliding_window_size: 20, no_rope_layer: 4, _use_doc_masking: true, "
           "flex_attention_mask: sliding_window_document",
           REST);
  const char *report = import_file("a.yaml", "");
  import_has(report,
             "model.model_config.sliding_window_size = 20 -> model.sliding_window");
  import_plan_has("\"mistral\",");
  import_plan_has("sliding_window = 20,");
  import_has(report,
             "model.model_config.no_rope_layer = 4: every layer has positions here");
  import_has(report,
             "each document attends to itself there: packed = { eot = id } says it:");
  import_has(report, "flex_attention_mask = sliding_window_document");
  put_with(", no_rope_layer: 2", REST);
  import_file("a.yaml", "");
  import_plan_has("\"smollm3\",");
  import_plan_has("no_rope_layer_interval = 2,");
  put_with(", attention_bias: true", REST);
  report = import_file("a.yaml", "model.model_config.is_qwen2_config=false");
  import_has(report, "nanotron's Llama has no biases");
  import_plan_has("\"llama\",");
}
END_TEST

Suite *import_nanotron_suite(void) {
  Suite *s = suite_create("import_nanotron");
  TCase *t = tcase_create("nanotron");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_set_timeout(t, 120);
  tcase_add_test(t, settings_become_a_plan);
  tcase_add_test(t, rates_that_stay_are_wsd);
  tcase_add_test(t, names_that_do_not_decay_are_said);
  tcase_add_test(t, nothing_is_dropped);
  tcase_add_test(t, what_weft_lacks_is_refused_by_its_setting);
  suite_add_tcase(s, t);
  return s;
}
