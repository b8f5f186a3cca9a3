/* check_model_files.c - keys of a config.json of which a class reads one of two, that do
 * not go together, or that are of no use; and keys of plans that nothing reads. */
#include <check.h>
#include <sys/stat.h>

#include "bindings/sandbox/stdlib.h"
#include "tests/harness/plan_fixture.h"
#include "tests/harness/process.h"

#define FULL    "\"full_attention\""
#define SLIDING "\"sliding_attention\""
#define MIMO                                                                             \
  "\"model_type\": \"mimo_v2_flash\", \"num_hidden_layers\": 2, \"n_routed_experts\": "  \
  "2, \"num_experts_per_tok\": 1, \"moe_intermediate_size\": 8, \"v_head_dim\": 8, "     \
  "\"rope_parameters\": { " FULL                                                         \
  ": { \"rope_theta\": 300.0, \"partial_rotary_factor\": "                               \
  "0.5 }, " SLIDING ": { \"rope_theta\": 30.0, \"partial_rotary_factor\": 0.5 } }"
#define STEP                                                                             \
  "\"model_type\": \"step3p5\", \"num_hidden_layers\": 2, \"n_routed_experts\": 2, "     \
  "\"num_experts_per_tok\": 1, \"moe_intermediate_size\": 8, \"share_expert_dim\": 8, "  \
  "\"mlp_layer_types\": [\"dense\", \"sparse\"], \"sliding_window\": 8, "                \
  "\"layer_types\": [" FULL ", " SLIDING "]"
#define HYBRID                                                                           \
  "\"model_type\": \"nemotron_h\", \"hybrid_override_pattern\": \"M*\", "                \
  "\"mamba_num_heads\": 4, \"mamba_head_dim\": 16, \"n_groups\": 2, "                    \
  "\"ssm_state_size\": 8"
#define COHERE "\"model_type\": \"cohere2\", \"num_hidden_layers\": 1"
#define UNREAD(family, key)                                                              \
  "config.json has keys that mean nothing to " family " models here: " key "\n"

/* A plan of a folder with this file; keys of the case stand in the place of those of all.
 */
static const char *plan_of(const char *file) {
  static const char kv[] = "\"num_key_value_heads\"", head[] = "\"head_dim\"";
  static const char plan[] = "local weft = require 'weft'\n"
                             "return weft.plan { model = weft.hf { 'old', weights = "
                             "false }, batch = { global = 1, "
                             "seq = 16 } }\n";
  const char *text = arena_printf(
      scratch_arena,
      "{ \"vocab_size\": 64, \"hidden_size\": 64, \"intermediate_size\": 16, "
      "\"num_attention_heads\": 4, %s%s%s }",
      strstr(file, kv) ? "" : "\"num_key_value_heads\": 2, ",
      strstr(file, head) ? "" : "\"head_dim\": 16, ", file);
  ck_assert_int_eq(mkdir(scratch_path("old"), 0777), 0);
  scratch_put("old/config.json", text, strlen(text));
  return scratch_put("plan.lua", plan, sizeof plan - 1);
}

/* What is said of a file, NULL: nothing. */
static const struct {
  const char *file, *says;
  weft_status st;
} files[] = {
    /* A name that the class does not read, beside the one that it reads, and alone. */
    {COHERE ", \"layer_norm_eps\": 1e-5, \"rms_norm_eps\": 1e-3",
     UNREAD("cohere2", "rms_norm_eps"), WEFT_OK},
    {COHERE ", \"rms_norm_eps\": 1e-3", UNREAD("cohere2", "rms_norm_eps"), WEFT_OK},
    {COHERE ", \"layer_norm_eps\": 1e-3, \"rms_norm_eps\": 1e-3", NULL, WEFT_OK},
    {COHERE ", \"rms_norm_eps\": null", NULL, WEFT_OK},
    {"\"model_type\": \"phi\", \"num_hidden_layers\": 1, \"rms_norm_eps\": 1e-3",
     UNREAD("phi", "rms_norm_eps"), WEFT_OK},
    {"\"model_type\": \"starcoder2\", \"num_hidden_layers\": 1, \"rms_norm_eps\": 1e-3",
     UNREAD("starcoder2", "rms_norm_eps"), WEFT_OK},
    {"\"model_type\": \"nemotron\", \"num_hidden_layers\": 1, \"rms_norm_eps\": 1e-3",
     UNREAD("nemotron", "rms_norm_eps"), WEFT_OK},
    {HYBRID ", \"layer_norm_epsilon\": 1e-5, \"norm_eps\": 1e-3",
     UNREAD("nemotron_h", "norm_eps"), WEFT_OK},
    {HYBRID ", \"layer_norm_epsilon\": 1e-5, \"norm_eps\": 1e-5", NULL, WEFT_OK},
    /* Two names of one key. */
    {HYBRID ", \"mamba_n_groups\": 4",
     "config.json: mamba_n_groups and n_groups are one key, with two values", WEFT_EPLAN},
    {HYBRID ", \"mamba_n_groups\": 2", NULL, WEFT_OK},
    {HYBRID ", \"mamba_n_groups\": null", NULL, WEFT_OK},
    /* Layers with windows, and none that is said. */
    {"\"model_type\": \"qwen2\", \"num_hidden_layers\": 1, \"use_sliding_window\": "
     "false, \"sliding_window\": 4, \"layer_types\": [" SLIDING "]",
     "layer_types: item 1 has a window, and use_sliding_window is false", WEFT_EPLAN},
    {"\"model_type\": \"qwen3\", \"num_hidden_layers\": 1, \"use_sliding_window\": "
     "true, \"sliding_window\": null, \"layer_types\": [" SLIDING "]",
     "layer_types: item 1 has a window, and there is no sliding_window", WEFT_EPLAN},
    {"\"model_type\": \"qwen2_moe\", \"num_hidden_layers\": 1, \"num_experts\": 4, "
     "\"layer_types\": [" SLIDING "]",
     "layer_types: item 1 has a window, and use_sliding_window is false", WEFT_EPLAN},
    {"\"model_type\": \"gemma2\", \"num_hidden_layers\": 1, \"sliding_window\": null, "
     "\"layer_types\": [" SLIDING "]",
     "layer_types: item 1 has a window, and there is no sliding_window", WEFT_EPLAN},
    {"\"model_type\": \"gemma2\", \"num_hidden_layers\": 1, \"sliding_window\": null",
     "sliding_window: layers of this family have windows, unless layer_types",
     WEFT_EPLAN},
    {"\"model_type\": \"gemma2\", \"num_hidden_layers\": 1, \"sliding_window\": null, "
     "\"layer_types\": [" FULL "]",
     NULL, WEFT_OK},
    {"\"model_type\": \"gemma3_text\", \"num_hidden_layers\": 1, \"sliding_window\": "
     "null",
     "sliding_window: layers of this family have windows, unless layer_types",
     WEFT_EPLAN},
    {"\"model_type\": \"gpt_oss\", \"num_hidden_layers\": 1, \"num_local_experts\": 2, "
     "\"num_experts_per_tok\": 1, \"sliding_window\": null",
     "sliding_window: layers of this family have windows, unless layer_types",
     WEFT_EPLAN},
    /* What is of no use at all. */
    {"\"model_type\": \"llama\", \"num_hidden_layers\": 1, \"rope_scaling\": 2.0",
     "rope_scaling: expected a table, got 2", WEFT_EPLAN},
    {"\"model_type\": \"olmo3\", \"num_hidden_layers\": 1, \"rope_scaling\": \"x\"",
     "rope_scaling: expected a table, got x", WEFT_EPLAN},
    {"\"model_type\": \"olmo3\", \"num_hidden_layers\": 1, \"rope_parameters\": { " FULL
     ": 5 }",
     "rope_parameters.full_attention\"]: expected a table, got 5", WEFT_EPLAN},
    {STEP ", \"rope_scaling\": \"x\"", "rope_scaling: expected a table, got x",
     WEFT_EPLAN},
    {STEP ", \"rope_parameters\": { " FULL ": { \"rope_theta\": 500.0 } }",
     "rope_parameters: has no table for sliding_attention, the type of layer 1",
     WEFT_EPLAN},
    {"\"model_type\": \"phi\", \"num_hidden_layers\": 1, \"partial_rotary_factor\": "
     "\"x\"",
     "partial_rotary_factor: expected a number above 0, up to 1, got x", WEFT_EPLAN},
    {MIMO ", \"num_key_value_heads\": null",
     "num_key_value_heads: expected a positive integer", WEFT_EPLAN},
    {MIMO ", \"num_key_value_heads\": 4",
     "num_attention_heads: layer 1 has a window, and so twice num_key_value_heads: 8 do "
     "not divide 4",
     WEFT_EPLAN},
};

START_TEST(a_file_says_one_thing) {
  PlanFixture f;
  const char *file = files[_i].file, *says = files[_i].says;
  weft_status st = fixture_open(&f, plan_of(file), NULL, NULL);
  const char *report = fixture_report(&f);
  ck_assert_msg(st == files[_i].st && f.d.list.n == (says != NULL), "%s: %s", file,
                report);
  ck_assert_msg(!says || strstr(report, says), "%s: %s", file, report);
  fixture_close(&f);
}
END_TEST

/* ---- plans ---- */

static const char unread_by_all[] =
    "changes nothing: models of this family do not read it";

/* Keys that files have and no class reads. */
static const struct {
  const char *model, *key;
} unread[] = {
    {"'llama-tiny', use_sliding_window = true", "use_sliding_window"},
    {"'llama-tiny', max_window_layers = 1", "max_window_layers"},
    {"'mistral', use_sliding_window = true", "use_sliding_window"},
    {"'qwen3-moe-tiny', max_window_layers = 1", "max_window_layers"},
    {"'nemotron_h', rms_norm_eps = 1e-3", "rms_norm_eps"},
    {"'nemotron_h', time_step_limit = { 0, 1 }", "time_step_limit"},
    {"'laguna', decoder_sparse_step = 2", "decoder_sparse_step"},
    {"'gpt2-tiny', n_ctx = 8", "n_ctx"},
};

START_TEST(a_key_that_no_class_reads_is_a_warning) {
  PlanFixture f;
  const char *define[] = {arena_printf(scratch_arena, "preset={ %s }", unread[_i].model),
                          NULL};
  weft_status st = fixture_open(&f, "tests/models/preset.lua", define, NULL);
  const char *report = fixture_report(&f);
  ck_assert_msg(st == WEFT_OK && f.d.list.n == 1, "%s: %s", unread[_i].model, report);
  ck_assert_msg(strstr(report, unread[_i].key) && strstr(report, unread_by_all), "%s",
                report);
  fixture_close(&f);
}
END_TEST

/* Each key of each family with values that no file should have: all are refused by name,
 * or taken. */
START_TEST(no_value_is_an_error_of_the_library) {
  int n;
  PlanFixture f;
  const char *name = stdlib_names(scratch_arena, "tp_plans", &n)[_i];
  const char *define[] = {arena_printf(scratch_arena, "family=%s", name), NULL};
  weft_status st = fixture_open(&f, "tests/models/odd_values.lua", define, NULL);
  ck_assert_msg(st == WEFT_OK, "%s: %s", name, fixture_report(&f));
  fixture_close(&f);
}
END_TEST

static int count_families(void) {
  int n;
  Arena *a = arena_new(NULL);
  stdlib_names(a, "tp_plans", &n);
  arena_free(a);
  return n;
}

Suite *model_files_suite(void);
Suite *model_files_suite(void) {
  Suite *s = suite_create("model_files");
  TCase *t = tcase_create("model_files");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_loop_test(t, a_file_says_one_thing, 0, LEN(files));
  tcase_add_loop_test(t, a_key_that_no_class_reads_is_a_warning, 0, LEN(unread));
  tcase_set_timeout(t, 60);
  tcase_add_loop_test(t, no_value_is_an_error_of_the_library, 0, count_families());
  suite_add_tcase(s, t);
  return s;
}
