/* check_models.c - models of stdlib and the userdata `g` that model functions get: sizes
 * of the presets, what is refused, and where mistakes are reported. */
#include <check.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>

#include "bindings/api/job.h"
#include "bindings/sandbox/stdlib.h"
#include "bindings/model/model.h"
#include "bindings/schedule/schedule_facts.h"
#include "tests/harness/plan_fixture.h"
#include "tests/harness/process.h"
#include "vm/compile/compile.h"
#include "vm/weights/weights_match.h"

/* ---- presets ---- */

/* From the dimensions, by hand: the published sizes. */
static const struct {
  const char *name;
  int64_t params;
} presets[] = {
    {"llama3-8b", 8030261248},
    {"llama3-70b", 70553706496},
    {"llama3-405b", 405853388800},
    {"llama3.2-1b", 1235814400},
    {"qwen2-0.5b", 494032768},
    {"qwen3-8b", 8190735360},
    {"gpt2-124m", 124439808},
    {"mistral-7b", 7241732096},
    {"olmo3-7b", 7298011136},
    {"olmo3-32b", 32233522176},
    {"gpt-oss-20b", 20914757184},
    {"gpt-oss-120b", 116829156672},
    {"moonlight-16b-a3b", 15960110208},
    {"kimi-k2", 1026408232448},
    {"gemma-2b", 2506172416},
    {"gemma-7b", 8537680896},
    {"gemma2-2b", 2614341888},
    {"gemma2-9b", 9241705984},
    {"gemma2-27b", 27227128320},
    {"gemma3-270m", 268098176},
    {"gemma3-1b", 999885952},
    /* public names, with and without their owner */
    {"llama3.1-8b", 8030261248},
    {"meta-llama/Llama-2-7b-hf", 6738415616},
    {"llama2-7b", 6738415616},
    {"Qwen/Qwen2.5-7B", 7615616512},
    {"HuggingFaceTB/SmolLM2-135M", 134515008},
    {"laguna-xs-2.1", 33442617088},
    {"laguna-s-2.1", 117561977600},
    {"step-3.5-flash", 196956130368},
    {"{ 'nemotron_h', hidden_size = 4480, intermediate_size = 15680, "
     "num_attention_heads = 40, mamba_head_dim = 80, hybrid_override_pattern = "
     "'M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-' }",
     8888227328},
    {"{ 'nemotron_h', hidden_size = 2688, num_key_value_heads = 2, mamba_num_heads = 64, "
     "n_routed_experts = 128, num_experts_per_tok = 6, moe_intermediate_size = 1856, "
     "moe_shared_expert_intermediate_size = 3712, hybrid_override_pattern = "
     "'MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME' }",
     31577940288},
    {"{ 'falcon_h1', hidden_size = 3072, intermediate_size = 12288, "
     "num_hidden_layers = 44, num_attention_heads = 12, num_key_value_heads = 2, "
     "head_dim = 128, vocab_size = 130048, mamba_d_ssm = 3072, mamba_n_heads = 24 }",
     7585513568},
};

static int64_t params_of(const Graph *g) {
  int64_t n = 0;
  for (int i = 0; i < g->param.n; i++) n += tensor_count(&g->t.at[g->param.at[i].tensor]);
  return n;
}

START_TEST(preset_sizes) {
  PlanFixture f;
  Graph *g;
  char define[500];
  snprintf(define, sizeof define, "preset=%s", presets[_i].name);
  weft_status st =
      fixture_open(&f, "tests/models/preset.lua", (const char *[]){define, NULL}, NULL);
  ck_assert_msg(st == WEFT_OK, "%s", fixture_report(&f));
  st = fixture_graph(&f, 1, 8, &g);
  ck_assert_msg(st == WEFT_OK, "%s", fixture_report(&f));
  ck_assert_int_eq(params_of(g), presets[_i].params);
  fixture_close(&f);
}
END_TEST

/* Unit names and the tags of a tiny GPT-2, whose packed weight is the odd one. */
START_TEST(gpt2_structure) {
  PlanFixture f;
  Graph *g;
  weft_status st = fixture_open(&f, "tests/models/preset.lua",
                                (const char *[]){"preset=gpt2-tiny", NULL}, NULL);
  ck_assert_msg(st == WEFT_OK, "%s", fixture_report(&f));
  st = fixture_graph(&f, 1, 8, &g);
  ck_assert_msg(st == WEFT_OK, "%s", fixture_report(&f));
  static const char *const units[] = {"wte",      "layers.0", "layers.1", "layers.2",
                                      "layers.3", "ln_f",     "lm_head"};
  ck_assert_int_eq(g->unit.n, LEN(units));
  for (int i = 0; i < g->unit.n; i++) ck_assert_str_eq(g->unit.at[i].name, units[i]);
  ck_assert_int_eq(g->unit.at[2].layer, 1);
  int seen = 0;
  for (int i = 0; i < g->param.n; i++) {
    const Param *p = &g->param.at[i];
    const Tensor *t = &g->t.at[p->tensor];
    ck_assert_str_ne(p->name, "lm_head.weight");
    if (!str_eq(p->name, "transformer.h.2.attn.c_attn.weight")) continue;
    seen++;
    ck_assert_int_eq(t->dim[1].tag, TAG_HEAD);
    ck_assert_int_eq(t->dim[1].parts, 3);
    ck_assert_int_eq(t->dim[1].unit, 16);
    ck_assert_int_eq(t->dim[1].size, 384);
  }
  ck_assert_int_eq(seen, 1);
  fixture_close(&f);
}
END_TEST

/* ---- configurations that would train something else ---- */

static const struct {
  const char *config, *message;
} refused[] = {
    /* another model is no slip */
    {"llama3-7b", "no model \"llama3-7b\" (of this family: llama3-405b, llama3-70b, "
                  "llama3-8b, llama3.2-1b)"},
    {"gemma3-4b",
     "no model \"gemma3-4b\", which is a Gemma 3, with images (of this family: "
     "gemma3-1b, gemma3-270m, gemma3-tiny)"},
    {"gpt2-tinny", "(did you mean \"gpt2-tiny\"?)"},
    {"{ 'llama-tiny', attention_bias = 1 }", "attention_bias"},
    {"{ 'nemotron_h', hybrid_override_pattern = 'MX' }", "layer 1 is none of M (Mamba)"},
    {"{ 'nemotron_h', layers_block_type = { 'mlp', 'rnn' } }", "layer 1 is none of"},
    {"{ 'nemotron_h', num_hidden_layers = 3, hybrid_override_pattern = 'MM' }",
     "num_hidden_layers: 3, but the pattern has 2 layers"},
    {"{ 'nemotron_h', mamba_num_heads = 6, n_groups = 4 }",
     "does not divide mamba_num_heads"},
    {"{ 'nemotron_h', mlp_hidden_act = 'silu' }", "mlp_hidden_act"},
    {"{ 'nemotron_h', tie_word_embeddings = true }", "tie_word_embeddings"},
    {"{ 'falcon_h1', mamba_d_ssm = 1000, mamba_n_heads = 24 }",
     "does not divide mamba_d_ssm"},
    {"{ 'falcon_h1', ssm_multipliers = { 1, 2 } }", "expected 5 numbers"},
    {"{ 'falcon_h1', time_step_limit = { 1, 0 } }",
     "expected the shortest and the longest"},
    {"{ 'llama-tiny', hidden_act = 'gelu' }", "hidden_act"},
    {"{ 'llama-tiny', rope_scaling = { rope_type = 'ntk', factor = 4.0 } }",
     "\"longrope\")"},
    {"{ 'llama-tiny', rope_scaling = { rope_type = 'longrope', factor = 4.0 } }",
     "rope_scaling.short_factor\"]: longrope needs a list of"},
    {"{ 'llama-tiny', num_attention_heads = 16, rope_scaling = { rope_type = 'longrope', "
     "short_factor = { 1, 2, 3, 4 }, long_factor = { 1, 0, 1, 1 } } }",
     "rope_scaling.long_factor\"]: item 2: expected a number above 0, got 0"},
    {"{ 'llama-tiny', num_attention_heads = 12 }", "does not divide hidden_size"},
    {"{ 'llama-tiny', num_key_value_heads = 3 }", "does not divide num_attention_heads"},
    {"{ 'llama-tiny', num_hidden_layers = 0 }", "expected a positive integer"},
    {"{ 'llama-tiny', hiden_size = 64 }", "hidden_size"},
    {"{ 'llama-tiny', weights = false }", "model.weights"},
    {"{ 'qwen2-tiny', use_sliding_window = 1 }", "use_sliding_window"},
    {"{ 'qwen2-tiny', sliding_window = 0 }", "expected a positive integer, got 0"},
    {"{ 'qwen2-tiny', layer_types = { 'chunked_attention' } }",
     "\"chunked_attention\" is not supported (only \"full_attention\", "
     "\"sliding_attention\")"},
    {"{ 'qwen2-tiny', max_window_layers = -1 }", "expected a number of layers, from 0"},
    {"{ 'llama-tiny', is_causal = false }", "is_causal"},
    {"{ 'qwen3-tiny', partial_rotary_factor = 0.5 }", "partial_rotary_factor"},
    {"{ 'gpt2-tiny', is_causal = false }", "is_causal"},
    {"{ 'llama-tiny', pruned_heads = { ['1'] = { 0 } } }", "pruned_heads"},
    {"{ 'llama-tiny', rope_parameters = { rope_type = 'default' }, "
     "rope_scaling = { rope_type = 'ntk', factor = 4.0 } }",
     "rope_scaling.rope_type"},
    {"{ 'llama-tiny', rope_scaling = { rope_type = 'yarn' } }", "rope_scaling.factor"},
    {"{ 'llama-tiny', rope_scaling = { rope_type = 'yarn', factor = 4, beta_fast = -1 } "
     "}",
     "rope_scaling.beta_fast\"]: yarn needs a number above 0"},
    {"{ 'deepseek-v3', num_key_value_heads = 8 }", "8 is not num_attention_heads = 128"},
    {"{ 'deepseek-v3', qk_rope_head_dim = 7 }", "must be even, got 7"},
    {"{ 'deepseek-v3', q_lora_rank = 0 }", "expected a positive integer"},
    {"{ 'deepseek-v3', scoring_func = 'softmax' }", "only \"sigmoid\""},
    {"{ 'deepseek-v3', n_group = 7 }", "7 groups of the same size"},
    {"{ 'mixtral-tiny', num_experts_per_tok = 9 }", "9 choices of num_local_experts = 8"},
    {"{ 'qwen3-moe-tiny', mlp_only_layers = { 4 } }", "none of the 4 layers"},
    {"{ 'qwen3-tiny', use_sliding_window = true, "
     "layer_types = { 'full_attention', 'sliding_attention' } }",
     "plan.model.layer_types: 2 types for num_hidden_layers = 4"},
    {"{ 'gpt2-tiny', scale_attn_by_inverse_layer_idx = true }", "inverse_layer_idx"},
    {"{ 'hy_v3', mlp_layer_types = { 'dense' } }", "1 types for num_hidden_layers = 80"},
    {"{ 'hy_v3', mlp_layer_types = { 'odd' } }", "only \"dense\", \"sparse\""},
    {"{ 'laguna', num_attention_heads_per_layer = { 48 } }",
     "1 numbers for num_hidden_layers = 40"},
    {"{ 'laguna', num_hidden_layers = 2, num_attention_heads_per_layer = { 48, 12 } }",
     "item 2: num_key_value_heads = 8 does not divide 12"},
    {"{ 'laguna', gating = false }", "only true, \"per-head\", \"per-element\""},
    {"{ 'laguna', moe_router_logit_softcapping = -1 }", "expected a number from 0"},
    {"{ 'step-3.5-flash', swiglu_limits = { 7.0 } }",
     "1 limits for num_hidden_layers = 45"},
    {"{ 'step-3.5-flash', num_sliding_attention_heads = 12 }",
     "num_key_value_heads = 8 does not divide 12"},
    {"{ 'step3p5', num_hidden_layers = 1, swiglu_limits_shared = { 0.1 } }",
     "expected 0, for none, or a number from 0.3 on, got 0.1"},
    {"{ 'step3p5', num_hidden_layers = 1, layer_types = { 'sliding_attention' } }",
     "item 1 has a window, and there is no sliding_window"},
    {"{ 'step3p5', rope_theta = { 1e4 } }", "1 numbers for num_hidden_layers = 45"},
    {"{ 'step3p5', moe_layers_enum = 7 }", "expected a list of layers, got 7"},
    {"{ 'step3p5', moe_layers_enum = '3,x' }", "expected a list of layers, got 3,x"},
    {"{ 'qwen2_moe', num_experts_per_tok = 61 }", "61 choices of num_experts = 60"},
    {"{ 'qwen2_moe', use_sliding_window = true, sliding_window = 0 }", "0 tokens"},
    {"{ 'qwen2_moe', sliding_window = -1 }", "expected a positive integer, got -1"},
    {"{ 'qwen2_moe', mlp_only_layers = { 24 } }", "none of the 24 layers"},
    {"{ 'glm4_moe_lite', first_k_dense_replace = 2 }", "first_k_dense_replace"},
    {"{ 'cohere2', use_parallel_block = false }", "use_parallel_block"},
    {"{ 'cohere2', layer_types = { 'full_attention' } }",
     "1 types for num_hidden_layers"},
    {"{ 'starcoder2', hidden_act = 'silu' }", "only \"gelu_pytorch_tanh\""},
    {"{ 'phi', qk_layernorm = true }", "qk_layernorm"},
    {"{ 'ministral3', rope_parameters = { rope_type = 'default' } }",
     "llama_4_scaling_beta\"]: expected a number from 0, got nil"},
    {"{ 'llama-tiny', rope_parameters = { llama_4_scaling_beta = 0.1 } }",
     "llama_4_scaling_beta\"]: unknown key"},
    {"{ 'gpt2-tiny', n_head = 5 }", "does not divide hidden_size"},
    {"{ 'llama-tiny', architectures = { 'LlamaForSequenceClassification' } }",
     "plan.model.architectures: \"LlamaForSequenceClassification\" is not supported "
     "(only "
     "\"LlamaForCausalLM\")"},
    {"{ 'llama-tiny', architectures = { 'LlamaModel' } }", "model.architectures"},
    {"{ 'qwen3-moe-tiny', architectures = { 'Qwen3ForCausalLM' } }",
     "only \"Qwen3MoeForCausalLM\""},
    {"{ 'gpt2-tiny', architectures = { 'GPT2LMHeadModel', 'GPT2DoubleHeadsModel' } }",
     "\"GPT2DoubleHeadsModel\" is not supported"},
    {"{ 'deepseek-v3', auto_map = { AutoConfig = 'c.DeepseekV3Config', "
     "AutoModelForCausalLM = 'modeling.MyModel' } }",
     "model.auto_map"},
    {"{ 'deepseek-v3', qk_head_dim = 64 }",
     "64 is not qk_nope_head_dim + qk_rope_head_dim"},
    {"{ 'deepseek-v3', head_dim = 128 }", "128 is neither qk_rope_head_dim = 64 nor"},
    {"{ 'deepseek-v3', sliding_window = 128 }", "model.sliding_window"},
    {"{ 'llama-tiny', sliding_window = 4096 }", "model.sliding_window"},
    {"{ 'mixtral-tiny', layer_types = { 'sliding_attention' } }", "model.layer_types"},
    {"{ 'mixtral-tiny', attention_bias = true }", "model.attention_bias"},
    {"{ 'llama-tiny', rope_scaling = { rope_type = 'linear' } }",
     "rope_scaling.factor\"]: linear needs a number above 0"},
    {"{ 'llama-tiny', rope_parameters = { partial_rotary_factor = 0.5 } }",
     "partial_rotary_factor\"]: only 1 is supported"},
    {"{ 'glm4', partial_rotary_factor = 1.5 }", "expected a number above 0, up to 1"},
    {"{ 'glm4', head_dim = 10 }", "5 elements of a head of 10 turn"},
    {"{ 'seed_oss', residual_dropout = 1 }", "expected a number from 0 that is below 1"},
    {"{ 'phi3', resid_pdrop = 'some' }", "model.resid_pdrop"},
    {"{ 'smollm3', no_rope_layers = { 0, 1 } }", "2 numbers for 36 layers"},
    {"{ 'smollm3', no_rope_layers = { 0, 2 } }", "expected a list of 0 and 1, got 2"},
    {"{ 'smollm3', num_hidden_layers = 1, layer_types = { 'sliding_attention' } }",
     "item 1 has a window, and there is no sliding_window"},
    {"{ 'mistral', sliding_window = 'all' }", "model.sliding_window"},
    {"{ 'ministral', sliding_window = false, num_hidden_layers = 1, "
     "layer_types = { 'sliding_attention' } }",
     "plan.model.layer_types: item 1 has a window, and there is no sliding_window"},
    {"{ 'olmo3', rope_parameters = { rope_type = 'default' } }",
     "rope_parameters.rope_type\"]: no type of layers"},
    {"{ 'olmo3', rope_parameters = { sliding_attention = { rope_type = 'ntk' } } }",
     "rope_parameters.sliding_attention.rope_type\"]: \"ntk\" is not supported"},
    {"{ 'olmo3', rope_parameters = { full_attention = { rope_type = 'yarn', factor = "
     "2.0, "
     "truncate = false } } }",
     "rope_parameters.full_attention.truncate\"]: only true is supported"},
    {"{ 'gpt-oss-tiny', swiglu_limit = 0 }", "expected a number above 0, got 0"},
    {"{ 'gpt-oss-tiny', num_experts_per_tok = 9 }", "9 choices of num_local_experts = 8"},
    {"{ 'gpt-oss-tiny', hidden_act = 'gelu' }", "model.hidden_act"},
    {"{ 'gpt-oss-tiny', architectures = { 'GptOssForSequenceClassification' } }",
     "only \"GptOssForCausalLM\""},
    {"{ 'nemotron', hidden_act = 'silu' }", "only \"relu2\""},
    {"{ 'nemotron', norm_eps = 0 }", "expected a number above 0, got 0"},
    {"{ 'gemma2-tiny', hidden_activation = 'gelu' }",
     "\"gelu\" is not supported (only \"gelu_pytorch_tanh\")"},
    {"{ 'gemma2-tiny', hidden_act = 'silu' }", "model.hidden_act"},
    {"{ 'gemma2-tiny', final_logit_softcapping = -30 }", "expected a number above 0"},
    {"{ 'gemma2-tiny', query_pre_attn_scalar = 0 }", "expected a number above 0, got 0"},
    {"{ 'gemma3-tiny', attn_logit_softcapping = 50 }", "model.attn_logit_softcapping"},
    {"{ 'gemma3-tiny', use_bidirectional_attention = true }",
     "model.use_bidirectional_attention"},
    {"{ 'gemma3-tiny', rope_parameters = { rope_type = 'default' } }",
     "no type of layers (only a table for each of full_attention, sliding_attention)"},
    {"{ 'gemma3-tiny', architectures = { 'Gemma3ForConditionalGeneration' } }",
     "only \"Gemma3ForCausalLM\""},
    {"{ 'olmo3', layer_types = { 'full_attention' } }",
     "1 types for num_hidden_layers = 32"},
    {"{ 'granite', logits_scaling = 0 }", "model.logits_scaling"},
    {"{ 'minimax_m2', use_qk_norm = false }", "model.use_qk_norm"},
    {"{ 'minimax_m2', head_dim = 16, rotary_dim = 4, partial_rotary_factor = 1.0 }",
     "4, but partial_rotary_factor = 1 of head_dim = 16 is 16"},
    {"{ 'qwen2-tiny', attention_bias = false }", "model.attention_bias"},
    {"{ 'qwen3-tiny', mlp_bias = true }", "model.mlp_bias"},
    {"{ 'llama-tiny', is_encoder_decoder = true }", "model.is_encoder_decoder"},
    {"{ 'llama-tiny', tie_encoder_decoder = true }", "model.tie_encoder_decoder"},
    {"{ 'qwen3-tiny', add_cross_attention = true }", "model.add_cross_attention"},
    {"{ 'gpt2-tiny', add_cross_attention = true }", "model.add_cross_attention"},
    {"{ 'llama-tiny', torchscript = true }", "model.torchscript"},
    {"{ 'llama-tiny', clip_qkv = 8 }", "model.clip_qkv"},
    {"{ 'llama-tiny', logit_scale = 0.0625 }", "model.logit_scale"},
    {"{ 'llama-tiny', attn_logit_softcapping = 50.0 }", "model.attn_logit_softcapping"},
    {"{ 'llama-tiny', num_local_experts = 8 }", "model.num_local_experts"},
};

/* Keys of other architectures, with values that change nothing. */
static const char *const neutral[] = {
    "{ 'llama-tiny', architectures = { 'LlamaForCausalLM' }, logit_scale = 1.0, "
    "sliding_window = false, num_experts = 1, layer_types = { 'full_attention', "
    "'full_attention', 'full_attention', 'full_attention' } }",
    "{ 'qwen2-tiny', use_sliding_window = true, max_window_layers = 2 }",
    "{ 'qwen2-tiny', use_sliding_window = true, max_window_layers = false }",
    "{ 'gpt2-tiny', architectures = { 'GPT2LMHeadModel' }, pretraining_tp = 2 }",
    "{ 'deepseek-v3', qk_head_dim = 192, head_dim = 64, auto_map = { "
    "AutoModel = 'modeling_deepseek.DeepseekV3Model', "
    "AutoModelForCausalLM = 'modeling_deepseek.DeepseekV3ForCausalLM' } }",
    "{ 'qwen2-tiny', attention_bias = true, architectures = { 'Qwen2ForCausalLM' } }",
};

START_TEST(takes_neutral_keys) {
  PlanFixture f;
  char define[400];
  snprintf(define, sizeof define, "preset=%s", neutral[_i]);
  weft_status st =
      fixture_open(&f, "tests/models/preset.lua", (const char *[]){define, NULL}, NULL);
  ck_assert_msg(st == WEFT_OK && f.d.list.n == 0, "%s: %s", neutral[_i],
                fixture_report(&f));
  fixture_close(&f);
}
END_TEST

/* Those of Hugging Face's classes, with which a config is legal. */
START_TEST(architectures_take_their_defaults) {
  int n;
  Arena *a = arena_new(NULL);
  const char *const *names = stdlib_names(a, "tp_plans", &n);
  ck_assert_int_gt(n, 15);
  for (int i = 0; i < n; i++) {
    PlanFixture f;
    char define[64];
    /* 96 heads of 4096 features are what GLM-4.5's class has, and no model. */
    const char *more = str_eq(names[i], "glm4_moe") ? ", head_dim = 128" : "";
    snprintf(define, sizeof define, "preset={ '%s'%s }", names[i], more);
    weft_status st =
        fixture_open(&f, "tests/models/preset.lua", (const char *[]){define, NULL}, NULL);
    ck_assert_msg(st == WEFT_OK && f.d.list.n == 0, "%s: %s", names[i],
                  fixture_report(&f));
    fixture_close(&f);
  }
  arena_free(a);
}
END_TEST

START_TEST(refuses_config) {
  PlanFixture f;
  char define[240];
  snprintf(define, sizeof define, "preset=%s", refused[_i].config);
  weft_status st =
      fixture_open(&f, "tests/models/preset.lua", (const char *[]){define, NULL}, NULL);
  const char *report = fixture_report(&f);
  ck_assert_msg(st == WEFT_EPLAN, "%s: %s", refused[_i].config, report);
  ck_assert_msg(strstr(report, refused[_i].message), "%s: %s", refused[_i].config,
                report);
  fixture_close(&f);
}
END_TEST

/* ---- the userdata g ---- */

/* Line of the comment MARK:name in model_errors.lua, 0 if there is none. */
static int marked_line(const char *name) {
  FILE *in = fopen(WEFT_SOURCE_DIR "/tests/models/model_errors.lua", "r");
  ck_assert_ptr_nonnull(in);
  char line[200], mark[64];
  snprintf(mark, sizeof mark, "MARK:%s\n", name);
  int n = 0, found = 0;
  while (fgets(line, sizeof line, in)) {
    n++;
    if (strstr(line, mark)) found = n;
  }
  fclose(in);
  return found;
}

static weft_status run_case(PlanFixture *f, const char *name, Graph **g) {
  char define[64];
  snprintf(define, sizeof define, "case=%s", name);
  weft_status st = fixture_open(f, "tests/models/model_errors.lua",
                                (const char *[]){define, NULL}, NULL);
  ck_assert_msg(st == WEFT_OK, "%s: %s", name, fixture_report(f));
  return fixture_graph(f, 1, 8, g);
}

static const struct {
  const char *name, *message;
} mistakes[] = {
    {"arity", "g:silu_mul takes 2 tensors, got 1: y = silu(g) * u"},
    {"attribute", "unknown attribute \"epz\" (did you mean \"eps\"?)"},
    {"missing", "g:rmsnorm: attribute \"eps\" is missing"},
    {"method", "g has no \"rmsnrom\" (did you mean \"rmsnorm\"?)"},
    {"tag", "unknown tag \"hiden\" (did you mean hidden)"},
    {"number", "g:param(\"w\"), dimension 2"},
    {"unit_size", "size 10 is not a multiple of unit * parts = 4"},
    {"shape", "linear"},
    {"tied", "embed.weight"},
    {"nested", "layers."},
    {"no_loss", "must return the loss"},
    {"not_scalar", "loss"},
    {"user_error", "my own message"},
};

START_TEST(reports_mistake) {
  PlanFixture f;
  Graph *g;
  weft_status st = run_case(&f, mistakes[_i].name, &g);
  ck_assert_msg(st == WEFT_EPLAN, "%s: %d %s", mistakes[_i].name, st, f.e.text);
  ck_assert_int_eq(f.d.errors, 1);
  const Diag *d = &f.d.list.at[0];
  ck_assert_str_eq(d->path, "model");
  ck_assert_msg(strstr(d->summary, mistakes[_i].message), "%s: \"%s\" is not in \"%s\"",
                mistakes[_i].name, mistakes[_i].message, d->summary);
  ck_assert_ptr_null(strstr(d->summary, ".lua:"));
  int line = marked_line(mistakes[_i].name);
  if (line) {
    ck_assert_int_eq(d->line, line);
    ck_assert_ptr_nonnull(strstr(d->file, "model_errors.lua"));
  }
  fixture_close(&f);
}
END_TEST

START_TEST(builds_and_remembers_lines) {
  PlanFixture f;
  Graph *g;
  ck_assert_int_eq(run_case(&f, "packed", &g), WEFT_OK);
  ck_assert_int_ge(g->loss, 0);
  for (int i = 0; i < g->op.n; i++) ck_assert_int_gt(g->op.at[i].line, 0);
  fixture_close(&f);
}
END_TEST

/* Ops of a library model have no line in the plan. */
START_TEST(library_ops_have_no_line) {
  PlanFixture f;
  Graph *g;
  ck_assert_int_eq(fixture_open(&f, "tests/models/preset.lua",
                                (const char *[]){"preset=llama-tiny", NULL}, NULL),
                   WEFT_OK);
  ck_assert_int_eq(fixture_graph(&f, 1, 8, &g), WEFT_OK);
  for (int i = 0; i < g->op.n; i++) ck_assert_int_eq(g->op.at[i].line, 0);
  fixture_close(&f);
}
END_TEST

/* A tensor that a model function kept is of no use to its next call. */
START_TEST(refuses_stale_tensor) {
  PlanFixture f;
  Graph *g;
  ck_assert_int_eq(run_case(&f, "stale", &g), WEFT_OK);
  ck_assert_int_eq(fixture_graph(&f, 1, 8, &g), WEFT_EPLAN);
  ck_assert_msg(strstr(f.d.list.at[0].summary, "another graph"), "%s",
                f.d.list.at[0].summary);
  ck_assert_int_eq(f.d.list.at[0].line, marked_line("stale"));
  fixture_close(&f);
}
END_TEST

/* ---- out of memory ---- */

/* An allocator that gives up after `left` requests. */
static void *limited(void *ud, void *p, size_t old, size_t n) {
  int *left = ud;
  if (n == 0) {
    free(p);
    return NULL;
  }
  return (*left)-- > 0 ? realloc(p, n) : NULL;
}

/* Builds a model in an arena whose allocator gives up after `n` requests. */
static weft_status build_with(PlanFixture *f, int n) {
  weft_alloc alloc = {limited, &n};
  Arena *volatile a = arena_new(&alloc);
  if (!a) return WEFT_ENOMEM;
  if (setjmp(*arena_guard(a))) {
    arena_free(a);
    return WEFT_ENOMEM;
  }
  Graph *g = graph_new(a, 1, 8);
  weft_status st = lang_build_graph(f->lp, lang_plan(f->lp), 1, 8, g, &f->d, &f->e);
  if (st == WEFT_OK) ck_assert_int_eq(g->param.n, 39);
  arena_free(a);
  return st;
}

/* A failed allocation comes back through Lua as a status, and the plan stays usable. */
START_TEST(survives_out_of_memory) {
  PlanFixture f;
  ck_assert_int_eq(fixture_open(&f, "tests/models/preset.lua",
                                (const char *[]){"preset=llama-tiny", NULL}, NULL),
                   WEFT_OK);
  int n = 0, caught = 0;
  for (weft_status st = WEFT_ENOMEM; st != WEFT_OK; n++) {
    err_clear(&f.e);
    st = build_with(&f, n);
    ck_assert_msg(st == WEFT_OK || st == WEFT_ENOMEM, "%d %s", st, fixture_report(&f));
    caught += f.e.code == WEFT_ENOMEM; /* set by the call into Lua, not by the arena */
    ck_assert_int_lt(n, 1000);
  }
  ck_assert_int_gt(caught, 0);
  ck_assert_int_eq(f.d.errors, 0);
  fixture_close(&f);
}
END_TEST

/* ---- example plans ---- */

/* Loads, builds, compiles and proves the plan; nothing may be wrong with it. */
static void compile_example(const char *file, const char *const *defines) {
  PlanFixture f;
  Graph *g;
  Mesh m;
  Schedule s;
  Compiled *c;
  Proof proof;
  weft_status st = fixture_open(&f, file, defines, NULL);
  ck_assert_msg(st == WEFT_OK && f.d.list.n == 0, "%s", fixture_report(&f));
  const Plan *p = lang_plan(f.lp);
  ck_assert(mesh_resolve(&p->mesh, lang_cluster_ranks(f.lp), &m, &f.d));
  st = fixture_graph(&f, p->batch.micro * mesh_size(&m, AXES_DP), p->batch.seq, &g);
  ck_assert_msg(st == WEFT_OK, "%s", fixture_report(&f));
  st = lang_schedule(f.lp, &m, plan_microbatches(p, &m), &s, &f.d, &f.e);
  ck_assert_msg(st == WEFT_OK, "%s", fixture_report(&f));
  CompileInput in = {.plan = p, .mesh = &m, .graph = g, .schedule = &s, .arena = f.arena};
  st = compile(&in, &c, &f.d, &f.e);
  ck_assert_msg(st == WEFT_OK && f.d.errors == 0, "%s", fixture_report(&f));
  st = prove(c, &proof, &f.e);
  ck_assert_msg(st == WEFT_OK, "%s", fixture_report(&f));
  fixture_close(&f);
}

START_TEST(example_plans_compile) {
  glob_t files;
  ck_assert_int_eq(glob(WEFT_SOURCE_DIR "/plans/*.lua", 0, NULL, &files), 0);
  ck_assert_int_ge((int)files.gl_pathc, 7);
  for (size_t i = 0; i < files.gl_pathc; i++)
    if (!strstr(files.gl_pathv[i], "/plans/sweep_")) /* scripts */
      compile_example(files.gl_pathv[i] + strlen(WEFT_SOURCE_DIR) + 1, NULL);
  globfree(&files);
}
END_TEST

/* A family is an architecture that has a tensor plan: each has a published size that
 * fits. */
START_TEST(each_family_has_a_plan) {
  static const char folder[] = WEFT_SOURCE_DIR "/stdlib/tp_plans/";
  glob_t files;
  ck_assert_int_eq(glob(WEFT_SOURCE_DIR "/stdlib/tp_plans/*.lua", 0, NULL, &files), 0);
  ck_assert_int_ge((int)files.gl_pathc, 30);
  for (size_t i = 0; i < files.gl_pathc; i++) {
    const char *name = files.gl_pathv[i] + strlen(folder);
    char define[64];
    snprintf(define, sizeof define, "family=%.*s", (int)strcspn(name, "."), name);
    compile_example("plans/families.lua", (const char *[]){define, NULL});
  }
  globfree(&files);
}
END_TEST

/* Which tensors of files have a row for each token, as new_tokens makes more of, is known
 * by name: each that says so in a model is found, and no other. */
START_TEST(tensors_of_tokens_are_known_by_name) {
  static const char folder[] = WEFT_SOURCE_DIR "/stdlib/tp_plans/";
  glob_t files;
  ck_assert_int_eq(glob(WEFT_SOURCE_DIR "/stdlib/tp_plans/*.lua", 0, NULL, &files), 0);
  for (size_t i = 0; i < files.gl_pathc; i++) {
    const char *name = files.gl_pathv[i] + strlen(folder);
    PlanFixture f;
    Graph *g;
    int found = 0;
    char define[64];
    snprintf(define, sizeof define, "family=%.*s", (int)strcspn(name, "."), name);
    weft_status st =
        fixture_open(&f, "plans/families.lua", (const char *[]){define, NULL}, NULL);
    ck_assert_msg(st == WEFT_OK, "%s", fixture_report(&f));
    st = fixture_graph(&f, 1, 8, &g);
    ck_assert_msg(st == WEFT_OK, "%s", fixture_report(&f));
    for (int k = 0; k < g->param.n; k++) {
      const Param *p = &g->param.at[k];
      bool is = g->t.at[p->tensor].dim[0].tag == TAG_VOCAB;
      ck_assert_msg(weights_of_tokens(p->name) == is, "%s: %s", name, p->name);
      found += is;
    }
    ck_assert_msg(found > 0, "%s", name);
    fixture_close(&f);
  }
  globfree(&files);
}
END_TEST

/* What verify runs in the place of a family still has experts, heads of which an even
 * number of elements turns, and few layers, though only a pattern says how many. */
START_TEST(smaller_families) {
  static const struct {
    const char *family, *says;
    bool experts;
  } cases[] = {{"step3p5", "num_hidden_layers 45 -> 4", true},
               {"deepseek_v3", "num_hidden_layers 27 -> 2", true},
               {"mimo_v2_flash", "head_dim 192 -> 14", true},
               {"minimax_m2", "rotary_dim 64 -> 8", true},
               {"phi", "num_hidden_layers 32 -> 2", false},
               {"nemotron_h", "num_hidden_layers 56 -> 4", false}};
  for (int i = 0; i < LEN(cases); i++) {
    PlanFixture f;
    Plan small;
    LangShrunk what;
    Graph *g;
    char define[64];
    snprintf(define, sizeof define, "family=%s", cases[i].family);
    weft_status st =
        fixture_open(&f, "plans/families.lua", (const char *[]){define, NULL}, NULL);
    ck_assert_msg(st == WEFT_OK, "%s", fixture_report(&f));
    st = lang_shrink(f.lp, 32, &small, &what, &f.d, &f.e);
    ck_assert_msg(st == WEFT_OK, "%s", fixture_report(&f));
    bool said = false;
    for (int k = 0; k < what.n; k++) said |= str_eq(what.what[k], cases[i].says);
    ck_assert_msg(said, "%s: %s", cases[i].family, cases[i].says);
    st = fixture_graph(&f, 2, 32, &g);
    ck_assert_msg(st == WEFT_OK, "%s", fixture_report(&f));
    int layers = 0, experts = 0;
    for (int k = 0; k < g->op.n; k++) {
      layers = MAX(layers, g->unit.at[g->op.at[k].unit].layer + 1);
      experts += g->op.at[k].code == OP_grouped_linear;
    }
    ck_assert_int_le(layers, 4);
    ck_assert_int_eq(experts > 0, cases[i].experts);
    fixture_close(&f);
  }
}
END_TEST

/* A key of the model says how many layers predict further tokens; the plan adds them. */
START_TEST(further_layers_are_the_plans) {
  static const char text[] =
      "local weft = require 'weft'\n"
      "return weft.plan { model = weft.model { 'deepseek_v3', num_hidden_layers = 2,\n"
      "  hidden_size = 32, intermediate_size = 32, moe_intermediate_size = 16,\n"
      "  num_attention_heads = 4, num_key_value_heads = 4, n_routed_experts = 4,\n"
      "  num_experts_per_tok = 2, n_group = 1, topk_group = 1, q_lora_rank = 8,\n"
      "  kv_lora_rank = 8, qk_nope_head_dim = 8, qk_rope_head_dim = 8, v_head_dim = 8,\n"
      "  vocab_size = 64, num_nextn_predict_layers = 2 }, data = weft.synthetic {},\n"
      "  batch = { global = 1, micro = 1, seq = 8 }, train = { steps = 1 } }\n";
  static const char says[] = "plan.model.num_nextn_predict_layers: the model has ";
  scratch_setup();
  scratch_put("plan.lua", text, sizeof text - 1);
  Outcome o = process_run(60, "$weft check plan.lua");
  ck_assert_msg(o.code == 0 && strstr(o.err, says), "%s%s", o.out, o.err);
  o = process_run(60, "$weft check plan.lua --set mtp.num_layers=1");
  ck_assert_msg(o.code == 0 && strstr(o.err, says), "%s%s", o.out, o.err);
  o = process_run(60, "$weft check plan.lua --set mtp.num_layers=2");
  ck_assert_msg(o.code == 0 && !strstr(o.err, says), "%s%s", o.out, o.err);
  scratch_teardown();
}
END_TEST

Suite *models_suite(void) {
  Suite *s = suite_create("models");
  TCase *t = tcase_create("presets");
  tcase_add_loop_test(t, preset_sizes, 0, LEN(presets));
  tcase_add_test(t, gpt2_structure);
  tcase_add_loop_test(t, refuses_config, 0, LEN(refused));
  tcase_add_test(t, architectures_take_their_defaults);
  tcase_add_loop_test(t, takes_neutral_keys, 0, LEN(neutral));
  tcase_add_test(t, example_plans_compile);
  tcase_add_test(t, each_family_has_a_plan);
  tcase_add_test(t, tensors_of_tokens_are_known_by_name);
  tcase_add_test(t, smaller_families);
  tcase_add_test(t, further_layers_are_the_plans);
  suite_add_tcase(s, t);
  t = tcase_create("graph userdata");
  tcase_add_loop_test(t, reports_mistake, 0, LEN(mistakes));
  tcase_add_test(t, builds_and_remembers_lines);
  tcase_add_test(t, library_ops_have_no_line);
  tcase_add_test(t, refuses_stale_tensor);
  tcase_add_test(t, survives_out_of_memory);
  suite_add_tcase(s, t);
  return s;
}
