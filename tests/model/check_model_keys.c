/* check_model_keys.c - keys that a plan writes on top of a folder's config.json, or of a
 * preset: each counts, by whatever key the file says the same, or is an error. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "bindings/model/model.h"
#include "tests/harness/plan_fixture.h"
#include "tests/harness/process.h"
#include "vm/graph/op_attrs.h"

/* Of a small model, as files have them; `layers` stand in each case. */
static const char sizes[] =
    "\"vocab_size\": 64, \"hidden_size\": 64, \"intermediate_size\": 16, "
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 16, ";
static const char plan_sizes[] =
    "vocab_size = 64, hidden_size = 64, intermediate_size = 16, num_attention_heads = 4, "
    "num_key_value_heads = 2, head_dim = 16, ";

#define FULL    "\"full_attention\""
#define SLIDING "\"sliding_attention\""
#define QWEN5                                                                            \
  "\"model_type\": \"qwen2\", \"num_hidden_layers\": 2, \"rope_parameters\": { "         \
  "\"rope_type\": \"default\", \"rope_theta\": 500000.0 }, \"layer_types\": [" FULL      \
  ", " FULL "], \"use_sliding_window\": false, \"sliding_window\": null"
#define YARN "{ rope_type = 'yarn', factor = 4, original_max_position_embeddings = 8"
#define LONG                                                                             \
  "{ rope_type = 'longrope', original_max_position_embeddings = 8, short_factor = "      \
  "{ 1, 1, 1, 1, 2, 2, 2, 2 }, long_factor = { 1, 1, 2, 2, 3, 3, 4, 4 } }"
#define GEMMA5                                                                           \
  "\"model_type\": \"gemma3_text\", \"num_hidden_layers\": 3, \"sliding_window\": 5, "   \
  "\"layer_types\": [" SLIDING ", " SLIDING ", " FULL "], \"rope_parameters\": { " FULL  \
  ": { \"rope_type\": \"linear\", \"factor\": 8.0, \"rope_theta\": 1000000.0 "           \
  "}, " SLIDING ": { \"rope_type\": \"default\", \"rope_theta\": 10000.0 } }"
#define LAGUNA5                                                                          \
  "\"model_type\": \"laguna\", \"num_hidden_layers\": 2, \"num_experts\": 2, "           \
  "\"num_experts_per_tok\": 1, \"moe_intermediate_size\": 8, "                           \
  "\"shared_expert_intermediate_size\": 8, \"num_attention_heads_per_layer\": [2, 4], "  \
  "\"layer_types\": [" FULL ", " SLIDING                                                 \
  "], \"mlp_layer_types\": [\"dense\", \"sparse\"]"
#define OLMO5                                                                            \
  "\"model_type\": \"olmo3\", \"num_hidden_layers\": 2, \"layer_types\": [" SLIDING      \
  ", " FULL "], \"rope_parameters\": { " FULL                                            \
  ": { \"rope_type\": \"yarn\", \"factor\": "                                            \
  "8.0, \"attention_factor\": 1.5, \"original_max_position_embeddings\": 8, "            \
  "\"rope_theta\": 500000.0 }, " SLIDING                                                 \
  ": { \"rope_type\": \"default\", \"rope_theta\": 500000.0 } }"
#define SMOL5                                                                            \
  "\"model_type\": \"smollm3\", \"num_hidden_layers\": 4, \"no_rope_layers\": [1, 1, "   \
  "1, "                                                                                  \
  "0], \"layer_types\": [" FULL ", " FULL ", " FULL ", " FULL                            \
  "], \"rope_parameters\": { \"rope_type\": \"default\", \"rope_theta\": 2000000.0 }"

#define APERTUS "\"model_type\": \"apertus\", \"num_hidden_layers\": 1"
#define LLAMA3                                                                           \
  "rope_scaling = { rope_type = 'llama3', factor = 8.0, low_freq_factor = 1.0, "         \
  "high_freq_factor = 4.0, original_max_position_embeddings = 8192 }"

#define MIMO                                                                             \
  "\"model_type\": \"mimo_v2_flash\", \"num_hidden_layers\": 2, \"n_routed_experts\": "  \
  "2, \"num_experts_per_tok\": 1, \"moe_intermediate_size\": 8, \"v_head_dim\": 8, "     \
  "\"rope_parameters\": { " FULL                                                         \
  ": { \"rope_theta\": 300.0, \"partial_rotary_factor\": "                               \
  "0.5 }, " SLIDING ": { \"rope_theta\": 30.0, \"partial_rotary_factor\": 0.5 } }"
#define MIMO_PLAN                                                                        \
  "'mimo_v2_flash', num_hidden_layers = 2, n_routed_experts = 2, num_experts_per_tok "   \
  "= 1, moe_intermediate_size = 8, v_head_dim = 8, rope_parameters = { full_attention "  \
  "= { rope_theta = 300, partial_rotary_factor = 0.5 }, sliding_attention = { "          \
  "rope_theta = 30, partial_rotary_factor = 0.5 } }, "

/* Without sizes: 0.334 of a head of 12 are 4 elements. */
#define MIMO_LAYERS                                                                      \
  "\"model_type\": \"mimo_v2_flash\", \"num_hidden_layers\": 2, \"n_routed_experts\": "  \
  "2, \"num_experts_per_tok\": 1, \"moe_intermediate_size\": 8, \"v_head_dim\": 8, "
#define MIMO_BARE                                                                        \
  MIMO_LAYERS "\"rope_parameters\": { " FULL ": { \"rope_theta\": 300.0 }, " SLIDING     \
              ": { \"rope_theta\": 30.0 } }"
#define MIMO_YARN                                                                        \
  MIMO_LAYERS "\"rope_parameters\": { " FULL                                             \
              ": { \"rope_theta\": 300.0, \"rope_type\": \"yarn\", \"factor\": 4.0, "    \
              "\"original_max_position_embeddings\": 8 }, " SLIDING                      \
              ": { \"rope_theta\": 30.0 } }"
#define MIMO_PARTS(full, sliding)                                                        \
  "'mimo_v2_flash', num_hidden_layers = 2, n_routed_experts = 2, num_experts_per_tok "   \
  "= 1, moe_intermediate_size = 8, v_head_dim = 8, head_dim = 12, rope_parameters = { "  \
  "full_attention = { rope_theta = 300, partial_rotary_factor = " full                   \
  " }, sliding_attention = { rope_theta = 30, partial_rotary_factor = " sliding " } }"
#define STEP                                                                             \
  "\"model_type\": \"step3p5\", \"num_hidden_layers\": 2, \"n_routed_experts\": 2, "     \
  "\"num_experts_per_tok\": 1, \"moe_intermediate_size\": 8, \"share_expert_dim\": 8, "  \
  "\"mlp_layer_types\": [\"dense\", \"sparse\"], \"sliding_window\": 8, "                \
  "\"layer_types\": [" FULL ", " SLIDING "]"
#define STEP_PLAN                                                                        \
  "'step3p5', num_hidden_layers = 2, n_routed_experts = 2, num_experts_per_tok = 1, "    \
  "moe_intermediate_size = 8, share_expert_dim = 8, mlp_layer_types = { 'dense', "       \
  "'sparse' }, sliding_window = 8, layer_types = { 'full_attention', "                   \
  "'sliding_attention' }, "
#define HYBRID                                                                           \
  "\"model_type\": \"nemotron_h\", \"hybrid_override_pattern\": \"M*\", "                \
  "\"mamba_num_heads\": 4, \"mamba_head_dim\": 16, \"n_groups\": 2, "                    \
  "\"ssm_state_size\": 8"
#define HYBRID_PLAN                                                                      \
  "'nemotron_h', hybrid_override_pattern = 'M*', mamba_num_heads = 4, mamba_head_dim = " \
  "16, n_groups = 2, ssm_state_size = 8"
#define QWEN_WINDOW                                                                      \
  "\"model_type\": \"qwen2\", \"num_hidden_layers\": 2, \"use_sliding_window\": true, "  \
  "\"sliding_window\": 8, \"layer_types\": [" SLIDING ", " FULL "]"

#define SMOL_WINDOW                                                                      \
  "\"model_type\": \"smollm3\", \"num_hidden_layers\": 2, \"use_sliding_window\": "      \
  "false, "                                                                              \
  "\"sliding_window\": 8, \"layer_types\": [" SLIDING ", " FULL "]"

/* What the file has, what the plan writes, and the whole model without a file. */
static const struct {
  const char *file, *keys, *means;
} cases[] = {
    {QWEN5, "rope_theta = 100", "'qwen2', num_hidden_layers = 2, rope_theta = 100"},
    {QWEN5, "rope_scaling = " YARN " }",
     "'qwen2', num_hidden_layers = 2, rope_theta = 5e5, rope_scaling = " YARN " }"},
    {QWEN5, "rope_scaling = " YARN " }, rope_theta = 100",
     "'qwen2', num_hidden_layers = 2, rope_theta = 100, rope_scaling = " YARN " }"},
    {QWEN5, "rope_parameters = " YARN " }",
     "'qwen2', num_hidden_layers = 2, rope_theta = 5e5, rope_scaling = " YARN " }"},
    {QWEN5, "rope_parameters = " YARN ", rope_theta = 7 }",
     "'qwen2', num_hidden_layers = 2, rope_theta = 7, rope_scaling = " YARN " }"},
    {"\"model_type\": \"qwen2\", \"num_hidden_layers\": 2, \"rope_theta\": 300.0, "
     "\"rope_scaling\": { \"type\": \"linear\", \"factor\": 2.0 }",
     "rope_parameters = { rope_type = 'default', rope_theta = 1e6 }",
     "'qwen2', num_hidden_layers = 2, rope_theta = 1e6"},
    {"\"model_type\": \"qwen2\", \"num_hidden_layers\": 2, \"rope_theta\": 300.0, "
     "\"rope_scaling\": { \"type\": \"linear\", \"factor\": 2.0 }",
     "rope_parameters = { rope_type = 'default' }",
     "'qwen2', num_hidden_layers = 2, rope_theta = 300"},
    {"\"model_type\": \"qwen2\", \"num_hidden_layers\": 2, \"rope_parameters\": { "
     "\"rope_theta\": 300.0, \"rope_type\": \"linear\", \"factor\": 2.0 }",
     "rope_scaling = false", "'qwen2', num_hidden_layers = 2, rope_theta = 300"},
    {QWEN5, "use_sliding_window = true, sliding_window = 4, max_window_layers = 1",
     "'qwen2', num_hidden_layers = 2, rope_theta = 5e5, use_sliding_window = true, "
     "sliding_window = 4, max_window_layers = 1"},
    {QWEN5, "num_hidden_layers = 1",
     "'qwen2', num_hidden_layers = 1, rope_theta = 5e5, layer_types = { "
     "'full_attention' }"},
    {"\"model_type\": \"phi\", \"num_hidden_layers\": 2, \"rope_parameters\": { "
     "\"rope_type\": \"default\", \"rope_theta\": 300.0, \"partial_rotary_factor\": 0.5 "
     "}",
     "partial_rotary_factor = 0.25",
     "'phi', num_hidden_layers = 2, rope_theta = 300, partial_rotary_factor = 0.25"},
    {"\"model_type\": \"phi\", \"num_hidden_layers\": 2, \"rope_parameters\": { "
     "\"rope_type\": \"default\", \"rope_theta\": 300.0, \"partial_rotary_factor\": 0.25 "
     "}",
     "rope_parameters = { rope_type = 'linear', factor = 2.0 }",
     "'phi', num_hidden_layers = 2, rope_theta = 300, partial_rotary_factor = 0.25, "
     "rope_scaling = { rope_type = 'linear', factor = 2.0 }"},
    {"\"model_type\": \"minimax_m2\", \"num_hidden_layers\": 2, \"num_local_experts\": "
     "2, "
     "\"num_experts_per_tok\": 1, \"rotary_dim\": 8, \"rope_parameters\": { "
     "\"rope_type\": \"default\", \"rope_theta\": 300.0, \"partial_rotary_factor\": 0.5 "
     "}",
     "rotary_dim = 4",
     "'minimax_m2', num_hidden_layers = 2, num_local_experts = 2, num_experts_per_tok = "
     "1, rope_theta = 300, partial_rotary_factor = 0.25"},
    {"\"model_type\": \"minimax_m2\", \"num_hidden_layers\": 2, \"num_local_experts\": "
     "2, "
     "\"num_experts_per_tok\": 1, \"rotary_dim\": 8, \"rope_parameters\": { "
     "\"rope_type\": \"default\", \"rope_theta\": 300.0, \"partial_rotary_factor\": 0.5 "
     "}",
     "partial_rotary_factor = 0.25",
     "'minimax_m2', num_hidden_layers = 2, num_local_experts = 2, num_experts_per_tok = "
     "1, rope_theta = 300, partial_rotary_factor = 0.25"},
    {"\"model_type\": \"phi3\", \"num_hidden_layers\": 1, \"rope_theta\": 300.0, "
     "\"original_max_position_embeddings\": 4096",
     "rope_scaling = " LONG,
     "'phi3', num_hidden_layers = 1, rope_theta = 300, original_max_position_embeddings "
     "= 8, rope_scaling = " LONG},
    {GEMMA5, "rope_theta = 100, rope_local_base_freq = 50",
     "'gemma3_text', num_hidden_layers = 3, sliding_window = 5, sliding_window_pattern = "
     "3, rope_theta = 100, rope_local_base_freq = 50, rope_scaling = { rope_type = "
     "'linear', factor = 8.0 }"},
    {GEMMA5, "sliding_window_pattern = 2",
     "'gemma3_text', num_hidden_layers = 3, sliding_window = 5, sliding_window_pattern = "
     "2, rope_scaling = { rope_type = 'linear', factor = 8.0 }"},
    {GEMMA5, "rope_scaling = " YARN " }",
     "'gemma3_text', num_hidden_layers = 3, sliding_window = 5, sliding_window_pattern = "
     "3, rope_scaling = " YARN " }"},
    {GEMMA5, "rope_scaling = false",
     "'gemma3_text', num_hidden_layers = 3, sliding_window = 5, sliding_window_pattern = "
     "3"},
    {GEMMA5, "rope_parameters = { sliding_attention = { rope_theta = 70 } }",
     "'gemma3_text', num_hidden_layers = 3, sliding_window = 5, sliding_window_pattern = "
     "3, rope_local_base_freq = 70, rope_scaling = { rope_type = 'linear', factor = 8.0 "
     "}"},
    {OLMO5, "rope_theta = 100",
     "'olmo3', num_hidden_layers = 2, layer_types = { 'sliding_attention', "
     "'full_attention' }, rope_parameters = { full_attention = { "
     "rope_type = 'yarn', factor = 8.0, original_max_position_embeddings = 8, "
     "attention_factor = 1.5, rope_theta = 100 }, sliding_attention = { "
     "rope_theta = 100 } }"},
    {OLMO5, "rope_scaling = " YARN " }",
     "'olmo3', num_hidden_layers = 2, layer_types = { 'sliding_attention', "
     "'full_attention' }, rope_scaling = " YARN " }"},
    {LAGUNA5, "rope_parameters = { full_attention = { rope_theta = 70 } }",
     "'laguna', num_hidden_layers = 2, num_experts = 2, num_experts_per_tok = 1, "
     "moe_intermediate_size = 8, shared_expert_intermediate_size = 8, "
     "num_attention_heads_per_layer = { 2, 4 }, layer_types = { 'full_attention', "
     "'sliding_attention' }, rope_parameters = { full_attention = { rope_theta = 70, "
     "partial_rotary_factor = 0.5 }, sliding_attention = { rope_theta = 1e4, "
     "partial_rotary_factor = 1.0 } }"},
    {SMOL5, "no_rope_layer_interval = 2",
     "'smollm3', num_hidden_layers = 4, no_rope_layer_interval = 2"},
    {MIMO ", \"sliding_window_size\": 8, \"sliding_window\": 99", "",
     MIMO_PLAN "sliding_window = 9"},
    {MIMO ", \"sliding_window_size\": null, \"sliding_window\": 99, "
          "\"partial_rotary_factor\": 0.334, \"attention_chunk_size\": 128, "
          "\"routed_scaling_factor\": null",
     "", MIMO_PLAN "sliding_window = 99"},
    {MIMO ", \"sliding_window_size\": 8", "sliding_window = 4",
     MIMO_PLAN "sliding_window = 4"},
    {MIMO ", \"sliding_window\": 8", "sliding_window_size = 4",
     MIMO_PLAN "sliding_window = 5"},
    {"\"model_type\": \"falcon_h1\", \"num_hidden_layers\": 1, \"mamba_d_ssm\": null, "
     "\"mamba_expand\": 3, \"mamba_n_heads\": 4",
     "", "'falcon_h1', num_hidden_layers = 1, mamba_d_ssm = 3 * 64, mamba_n_heads = 4"},
    {SMOL_WINDOW, "",
     "'smollm3', num_hidden_layers = 2, use_sliding_window = true, sliding_window = 8, "
     "layer_types = { 'sliding_attention', 'full_attention' }"},
    {SMOL_WINDOW, "use_sliding_window = false",
     "'smollm3', num_hidden_layers = 2, use_sliding_window = false"},
    {APERTUS, "", "'apertus', num_hidden_layers = 1, rope_theta = 12e6, " LLAMA3},
    {APERTUS ", \"rope_theta\": 300.0, \"rope_parameters\": null", "",
     "'apertus', num_hidden_layers = 1, rope_theta = 12e6, " LLAMA3},
    {APERTUS ", \"rope_theta\": 300.0, \"rope_scaling\": { \"rope_type\": \"linear\", "
             "\"factor\": 2.0 }",
     "",
     "'apertus', num_hidden_layers = 1, rope_theta = 300, rope_scaling = { rope_type = "
     "'linear', factor = 2.0 }"},
    {APERTUS, "rope_theta = 300",
     "'apertus', num_hidden_layers = 1, rope_theta = 300, " LLAMA3},
    {"\"model_type\": \"ministral\", \"num_hidden_layers\": 1, \"sliding_window\": null, "
     "\"layer_types\": [" FULL "]",
     "sliding_window = 4", "'ministral', num_hidden_layers = 1, sliding_window = 4"},
    /* 0 is none where Python's "if" says so. */
    {"\"model_type\": \"qwen2\", \"num_hidden_layers\": 1, \"rope_scaling\": { "
     "\"rope_type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 8, "
     "\"beta_fast\": 0, \"beta_slow\": 0, \"mscale\": 0.7, \"mscale_all_dim\": 0 }",
     "", "'qwen2', num_hidden_layers = 1, rope_scaling = " YARN " }"},
    {"\"model_type\": \"qwen2\", \"num_hidden_layers\": 1",
     "rope_scaling = " YARN ", mscale = 0, mscale_all_dim = 0.7 }",
     "'qwen2', num_hidden_layers = 1, rope_scaling = " YARN " }"},
    /* The class of MiMo has a share of its own where nothing scales and no table says
       one. */
    {MIMO_BARE, "head_dim = 12", MIMO_PARTS("0.334", "0.334")},
    {MIMO_BARE ", \"partial_rotary_factor\": 0.5", "head_dim = 12",
     MIMO_PARTS("0.334", "0.334")},
    {MIMO_YARN, "head_dim = 12",
     MIMO_PARTS(
         "1.0, rope_type = 'yarn', factor = 4, original_max_position_embeddings = 8",
         "0.334")},
    {MIMO_YARN ", \"partial_rotary_factor\": 0.5", "head_dim = 12",
     MIMO_PARTS(
         "0.5, rope_type = 'yarn', factor = 4, original_max_position_embeddings = 8",
         "0.334")},
    {MIMO_BARE, "head_dim = 12, partial_rotary_factor = 0.5", MIMO_PARTS("0.5", "0.5")},
    {MIMO_LAYERS "\"head_dim\": 12", "partial_rotary_factor = 0.5",
     "'mimo_v2_flash', num_hidden_layers = 2, n_routed_experts = 2, num_experts_per_tok "
     "= "
     "1, moe_intermediate_size = 8, v_head_dim = 8, head_dim = 12, rope_parameters = { "
     "full_attention = { rope_theta = 5e6, partial_rotary_factor = 0.5 }, "
     "sliding_attention = { rope_theta = 1e4, partial_rotary_factor = 0.5 } }"},
    /* A length beside tables is that of one table, not of each type's. */
    {OLMO5 ", \"original_max_position_embeddings\": 16", "",
     "'olmo3', num_hidden_layers = 2, layer_types = { 'sliding_attention', "
     "'full_attention' }, rope_parameters = { full_attention = { "
     "rope_type = 'yarn', factor = 8.0, original_max_position_embeddings = 8, "
     "attention_factor = 1.5, rope_theta = 5e5 }, sliding_attention = { "
     "rope_theta = 5e5 } }"},
    {OLMO5, "original_max_position_embeddings = 16",
     "'olmo3', num_hidden_layers = 2, layer_types = { 'sliding_attention', "
     "'full_attention' }, rope_parameters = { full_attention = { "
     "rope_type = 'yarn', factor = 8.0, original_max_position_embeddings = 16, "
     "attention_factor = 1.5, rope_theta = 5e5 }, sliding_attention = { "
     "rope_theta = 5e5 } }"},
    {STEP ", \"rope_parameters\": {}, \"rope_theta\": [500.0, 600.0], "
          "\"partial_rotary_factors\": [0.5, 1.0]",
     "",
     STEP_PLAN
     "rope_parameters = { full_attention = { rope_theta = 500, "
     "partial_rotary_factor = 0.5 }, sliding_attention = { rope_theta = 600 } }"},
    {STEP ", \"swiglu_limits\": [null, 7.0]", "", STEP_PLAN "swiglu_limits = { 0, 7 }"},
    {"\"model_type\": \"llama\", \"num_hidden_layers\": 1, \"attention_dropout\": null",
     "", "'llama', num_hidden_layers = 1"},
    {MIMO ", \"attention_value_scale\": null", "",
     MIMO_PLAN "attention_value_scale = false"},
    {HYBRID ", \"mamba_conv_bias\": false", "", HYBRID_PLAN ", use_conv_bias = false"},
    {QWEN_WINDOW, "use_sliding_window = false", "'qwen2', num_hidden_layers = 2"},
    /* Its class does not read the rate of its config. */
    {"\"model_type\": \"ernie4_5\", \"num_hidden_layers\": 1, \"attention_dropout\": 0.1",
     "", "'ernie4_5', num_hidden_layers = 1"},
};

static const char *plan_of(const char *name, const char *model) {
  const char *text = arena_printf(scratch_arena,
                                  "local weft = require 'weft'\n"
                                  "return weft.plan { model = %s, batch = { global = 1, "
                                  "seq = 16 } }\n",
                                  model);
  return scratch_put(name, text, strlen(text));
}

static void add_attr(void *ud, const char *name, double v) {
  text_printf(ud, " %s=%.9g", name, v);
}

/* The text of the model's graph with all numbers of ops; `config` is set to its
 * config.json if it is given. */
static const char *graph_of(const char *plan, Text *config) {
  PlanFixture f;
  Graph *g;
  Text t = {0};
  bool known;
  weft_status st = fixture_open(&f, plan, NULL, NULL);
  ck_assert_msg(st == WEFT_OK && f.d.list.n == 0, "%s", fixture_report(&f));
  st = fixture_graph(&f, 1, 16, &g);
  ck_assert_msg(st == WEFT_OK, "%s", fixture_report(&f));
  graph_dump(g, &t);
  for (int i = 0; i < g->op.n; i++) {
    text_printf(&t, "%d", i);
    attr_each(&g->op.at[i].attr, add_attr, &t);
    text_add(&t, "\n");
  }
  const char *text = arena_str(scratch_arena, t.s);
  text_free(&t);
  if (config) st = lang_hf_config(f.lp, NULL, DT_F32, config, &known, &f.e);
  ck_assert_msg(st == WEFT_OK, "%s", f.e.text);
  fixture_close(&f);
  return text;
}

static const char *first_difference(const char *is, const char *want) {
  while (*is && *is == *want) is++, want++;
  return arena_printf(scratch_arena, "%.60s, and not %.60s", is, want);
}

static const char *folder_of(const char *name, const char *text) {
  Outcome o = process_run(10, "mkdir %s", name);
  ck_assert_int_eq(o.code, 0);
  scratch_put(arena_printf(scratch_arena, "%s/config.json", name), text, strlen(text));
  return scratch_path(name);
}

static const char *folder_plan(const char *name, const char *keys) {
  return plan_of(
      arena_printf(scratch_arena, "%s.lua", name),
      arena_printf(scratch_arena, "weft.hf { '%s', weights = false, %s }", name, keys));
}

/* Keys of a case stand in the place of those of all. */
static const char *sizes_but(const char *file) {
  static const char kv[] = "\"num_key_value_heads\"", head[] = "\"head_dim\"";
  return arena_printf(scratch_arena,
                      "\"vocab_size\": 64, \"hidden_size\": 64, \"intermediate_size\": "
                      "16, \"num_attention_heads\": 4, %s%s",
                      strstr(file, kv) ? "" : "\"num_key_value_heads\": 2, ",
                      strstr(file, head) ? "" : "\"head_dim\": 16, ");
}

START_TEST(a_key_of_the_plan_counts) {
  Text config = {0};
  folder_of("old", arena_printf(scratch_arena, "{ %s%s }", sizes_but(cases[_i].file),
                                cases[_i].file));
  const char *means =
      arena_printf(scratch_arena, "weft.model { %s%s }", plan_sizes, cases[_i].means);
  const char *want = graph_of(plan_of("means.lua", means), NULL);
  const char *is = graph_of(folder_plan("old", cases[_i].keys), &config);
  ck_assert_msg(str_eq(is, want), "%s over { %s }: %s", cases[_i].keys, cases[_i].file,
                first_difference(is, want));
  /* The file that goes out says it, too. */
  folder_of("new", config.s);
  is = graph_of(folder_plan("new", ""), NULL);
  ck_assert_msg(str_eq(is, want), "%s over { %s }: written as %s: %s", cases[_i].keys,
                cases[_i].file, config.s, first_difference(is, want));
  text_free(&config);
}
END_TEST

/* Keys that change nothing because of another key of the file. */
static const struct {
  const char *file, *keys, *says;
} unread[] = {
    {QWEN5, "sliding_window = 4",
     "plan.model.sliding_window: changes nothing: use_sliding_window is false"},
    {QWEN5, "layer_types = { 'full_attention', 'sliding_attention' }",
     "plan.model.layer_types: item 2 has a window, and use_sliding_window is false"},
    {QWEN5, "max_window_layers = 1",
     "plan.model.max_window_layers: changes nothing: use_sliding_window is false"},
    {QWEN5, "use_sliding_window = true",
     "plan.model.use_sliding_window: changes nothing: there is no sliding_window"},
    {QWEN5, "rope_theta = 100, rope_parameters = { rope_theta = 200 }",
     "plan.model.rope_theta: changes nothing: rope_parameters.rope_theta is 200"},
    {LAGUNA5, "rope_theta = 100",
     "plan.model.rope_theta: changes nothing: rope_parameters.sliding_attention."
     "rope_theta is 10000"},
    {LAGUNA5, "num_attention_heads = 6",
     "plan.model.num_attention_heads: changes nothing: num_attention_heads_per_layer"},
    {"\"model_type\": \"falcon_h1\", \"num_hidden_layers\": 1, \"mamba_d_ssm\": 32, "
     "\"mamba_n_heads\": 4",
     "mamba_expand = 3", "plan.model.mamba_expand: changes nothing: mamba_d_ssm"},
    {MIMO,
     "partial_rotary_factor = 0.25, rope_parameters = { full_attention = { "
     "partial_rotary_factor = 0.5 }, sliding_attention = { partial_rotary_factor = "
     "0.5 } }",
     "plan.model.partial_rotary_factor: changes nothing: rope_parameters."
     "sliding_attention.partial_rotary_factor is 0.5"},
    {"\"model_type\": \"gpt_oss\", \"num_hidden_layers\": 1, \"num_local_experts\": 2, "
     "\"num_experts_per_tok\": 1, \"sliding_window\": 8, \"layer_types\": [" FULL "]",
     "sliding_window = 4",
     "plan.model.sliding_window: changes nothing: layer_types has no sliding_attention"},
};

START_TEST(a_key_that_nothing_reads_is_an_error) {
  PlanFixture f;
  folder_of("old", arena_printf(scratch_arena, "{ %s%s }", sizes, unread[_i].file));
  weft_status st = fixture_open(&f, folder_plan("old", unread[_i].keys), NULL, NULL);
  const char *report = fixture_report(&f);
  ck_assert_msg(st == WEFT_EPLAN && f.d.errors == 1 && strstr(report, unread[_i].says),
                "%s: %s", unread[_i].keys, report);
  fixture_close(&f);
}
END_TEST

/* The key that the class reads is the one that is changed where a file goes out. */
START_TEST(a_name_of_weft_is_not_written) {
  Text config = {0};
  folder_of("old", arena_printf(scratch_arena, "{ %s%s }", sizes,
                                "\"model_type\": \"cohere2\", \"num_hidden_layers\": 1, "
                                "\"rms_norm_eps\": 1e-5"));
  graph_of(folder_plan("old", "rms_norm_eps = 1e-3"), &config);
  ck_assert_msg(strstr(config.s, "\"layer_norm_eps\": 0.001") &&
                    strstr(config.s, "\"rms_norm_eps\": 0.00001"),
                "%s", config.s);
  text_free(&config);
}
END_TEST

/* Of a theta that the class of the file reads for some layers alone. */
START_TEST(a_theta_of_some_layers_is_a_warning) {
  PlanFixture f;
  static const char *const theta[] = {"300.0", "500000.0"};
  for (int i = 0; i < LEN(theta); i++) {
    const char *name = arena_printf(scratch_arena, "olmo%d", i);
    folder_of(name, arena_printf(scratch_arena,
                                 "{ %s\"model_type\": \"olmo3\", \"num_hidden_layers\": "
                                 "1, \"rope_theta\": %s }",
                                 sizes, theta[i]));
    ck_assert_int_eq(fixture_open(&f, folder_plan(name, ""), NULL, NULL), WEFT_OK);
    const char *says = strstr(fixture_report(&f), "300.0 is that of all layers here");
    ck_assert_msg((says == NULL) == i, "%s", fixture_report(&f));
    fixture_close(&f);
  }
}
END_TEST

/* A preset, and what an architecture has where nothing is said, count less, too. */
START_TEST(keys_count_more_than_presets) {
  static const char *const pairs[][2] = {
      {"'step-3.5-flash', num_hidden_layers = 4, rope_parameters = { full_attention = { "
       "rope_theta = 7, partial_rotary_factor = 1 } }",
       "'step3p5', num_hidden_layers = 4, rope_parameters = { full_attention = { "
       "rope_theta = 7, partial_rotary_factor = 1 }, sliding_attention = { rope_theta = "
       "1e4 } }, layer_types = { 'full_attention', 'sliding_attention', "
       "'sliding_attention', 'sliding_attention' }, vocab_size = 128896, "
       "num_sliding_attention_heads = 96, sliding_window = 512, "
       "moe_router_scaling_factor = 3.0"},
      {"'ministral3', num_hidden_layers = 1, rope_theta = 10",
       "'ministral3', num_hidden_layers = 1, rope_parameters = { rope_type = 'yarn', "
       "factor = 16, rope_theta = 10, mscale = 1, mscale_all_dim = 1, "
       "original_max_position_embeddings = 16384, llama_4_scaling_beta = 0.1 }"}};
  for (int i = 0; i < LEN(pairs); i++) {
    const char *text[2];
    for (int k = 0; k < 2; k++)
      text[k] = graph_of(
          plan_of("p.lua", arena_printf(scratch_arena, "weft.model { %s }", pairs[i][k])),
          NULL);
    ck_assert_msg(str_eq(text[0], text[1]), "%s: %s", pairs[i][0],
                  first_difference(text[0], text[1]));
  }
}
END_TEST

/* ---- what goes out ---- */

/* Classes take null where nothing is given, and false where that is a switch. */
static const struct {
  const char *file, *keys, *has[3];
} written[] = {
    {"\"model_type\": \"mistral\", \"num_hidden_layers\": 1, \"sliding_window\": 8",
     "sliding_window = false",
     {"\"sliding_window\": null"}},
    {"\"model_type\": \"gemma2\", \"num_hidden_layers\": 1, \"attention_bias\": true, "
     "\"layer_types\": [" FULL "], \"final_logit_softcapping\": 30.0",
     "final_logit_softcapping = false, attn_logit_softcapping = false, "
     "layer_types = false, attention_bias = false",
     {"\"final_logit_softcapping\": null", "\"attn_logit_softcapping\": null",
      "\"attention_bias\": false"}},
    {QWEN5,
     "use_sliding_window = true, sliding_window = 4, max_window_layers = 1",
     {"\"layer_types\": null", "\"use_sliding_window\": true"}},
    {"\"model_type\": \"qwen2\", \"num_hidden_layers\": 1, \"attention_dropout\": 0.1",
     "attention_dropout = false",
     {"\"attention_dropout\": 0.0"}},
    {QWEN5 ", \"tie_word_embeddings\": true",
     "tie_word_embeddings = false",
     {"\"tie_word_embeddings\": false"}},
    {"\"model_type\": \"qwen3_moe\", \"num_hidden_layers\": 1, \"norm_topk_prob\": true, "
     "\"num_experts\": 2, \"num_experts_per_tok\": 1, \"mlp_only_layers\": [0]",
     "norm_topk_prob = false, mlp_only_layers = false, num_key_value_heads = false",
     {"\"norm_topk_prob\": false", "\"mlp_only_layers\": null",
      "\"num_key_value_heads\": 4"}},
    {"\"model_type\": \"falcon_h1\", \"num_hidden_layers\": 1, \"mamba_d_ssm\": 32, "
     "\"mamba_n_heads\": 4, \"mamba_conv_bias\": true",
     "mamba_d_ssm = false, mamba_conv_bias = false",
     {"\"mamba_d_ssm\": null", "\"mamba_conv_bias\": false"}},
};

START_TEST(none_is_null) {
  Text config = {0};
  folder_of("old", arena_printf(scratch_arena, "{ %s%s }", sizes, written[_i].file));
  graph_of(folder_plan("old", written[_i].keys), &config);
  for (int i = 0; i < LEN(written[_i].has) && written[_i].has[i]; i++)
    ck_assert_msg(strstr(config.s, written[_i].has[i]), "%s is not in %s",
                  written[_i].has[i], config.s);
  text_free(&config);
}
END_TEST

static void write_both(const char *name, const char *file, const char *keys,
                       Text *command) {
  Text config = {0};
  folder_of(name, arena_printf(scratch_arena, "{ %s%s }", sizes_but(file), file));
  graph_of(folder_plan(name, keys), &config);
  const char *out = arena_printf(scratch_arena, "%s.out", name);
  folder_of(out, config.s);
  text_printf(command, " %s", out);
  text_free(&config);
}

START_TEST(transformers_takes_them) {
  const char *python = getenv("WEFT_TRANSFORMERS");
  if (!python) {
    puts("skipped: WEFT_TRANSFORMERS names no python with torch and transformers");
    return;
  }
  Text command = {0};
  text_printf(&command, "%s " WEFT_SOURCE_DIR "/tests/oracle/loads.py", python);
  for (int i = 0; i < LEN(written); i++)
    write_both(arena_printf(scratch_arena, "w%d", i), written[i].file, written[i].keys,
               &command);
  for (int i = 0; i < LEN(cases); i++)
    write_both(arena_printf(scratch_arena, "c%d", i), cases[i].file, cases[i].keys,
               &command);
  Outcome o = process_run(200, "%s", command.s);
  ck_assert_msg(o.code == 0, "%s%s", o.out, o.err);
  text_free(&command);
}
END_TEST

Suite *model_keys_suite(void);
Suite *model_keys_suite(void) {
  Suite *s = suite_create("model_keys");
  TCase *t = tcase_create("model_keys");
  tcase_add_checked_fixture(t, scratch_setup, scratch_teardown);
  tcase_add_loop_test(t, a_key_of_the_plan_counts, 0, LEN(cases));
  tcase_add_loop_test(t, a_key_that_nothing_reads_is_an_error, 0, LEN(unread));
  tcase_add_test(t, a_name_of_weft_is_not_written);
  tcase_add_test(t, a_theta_of_some_layers_is_a_warning);
  tcase_add_test(t, keys_count_more_than_presets);
  tcase_add_loop_test(t, none_is_null, 0, LEN(written));
  tcase_set_timeout(t, 240);
  tcase_add_test(t, transformers_takes_them);
  suite_add_tcase(s, t);
  return s;
}
