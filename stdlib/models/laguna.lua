-- laguna.lua - Laguna: Qwen3's attention with a gate for each head, or for each element of it, windows and
-- heads of their own number in some layers, a rope of a part of each head for each type of them; sigmoid
-- experts but in the first layer, and beside them an MLP.
local checks = require "weft.models.checks"
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"
local moe = require "weft.models.moe"

local laguna = {
  class = "LagunaForCausalLM",
  aliases = {},
  modules = { shared_experts = { "shared_expert" } }, -- of Transformers in memory, and of files
  -- PEFT 0.21 gives tensors of adapters the names of memory, but turns shared_experts into none at all.
  peft = { names_of_files = true },
  ropes = true, -- each type of layers has one: see rope.of_type
  -- Older files say by these which layers have experts and gates.
  ignored = config.ignored { "router_aux_loss_coef", "mlp_only_layers", "decoder_sparse_step", "gating_types" },
}
laguna.defaults, laguna.unwritten = decoder.defaults {
  vocab_size = 100352, hidden_size = 2048, intermediate_size = 8192, num_hidden_layers = 40,
  num_attention_heads = 48, num_key_value_heads = 8, head_dim = 128,
  max_position_embeddings = 131072, attention_bias = false, sliding_window = 512, layer_types = false,
  gating = true, num_attention_heads_per_layer = false, mlp_layer_types = false, num_experts = 256,
  num_experts_per_tok = 8, moe_intermediate_size = 512, shared_expert_intermediate_size = 512,
  moe_routed_scaling_factor = 1.0, moe_router_logit_softcapping = 0.0,
  moe_apply_router_weight_on_input = false, output_router_logits = false, norm_topk_prob = true,
  swa_attention_sink_enabled = false,
  rope_parameters = {
    full_attention = { rope_type = "default", rope_theta = 500000.0, partial_rotary_factor = 0.5 },
    sliding_attention = { rope_type = "default", rope_theta = 10000.0, partial_rotary_factor = 1.0 },
  },
}

for _, key in ipairs { "norm_topk_prob", "swa_attention_sink_enabled" } do laguna.unwritten[key] = true end

local rules = {
  { "head_dim", "count" }, { "attention_bias", "boolean" }, { "sliding_window", "count" },
  { "layer_types", "each", { "full_attention", "sliding_attention" } },
  { "gating", "only", { true, "per-head", "per-element" } },
  { "num_attention_heads_per_layer", "counts" }, { "mlp_layer_types", "each", { "dense", "sparse" } },
  { "num_experts", "count" }, { "num_experts_per_tok", "count" }, { "moe_intermediate_size", "count" },
  { "shared_expert_intermediate_size", "count" }, { "moe_routed_scaling_factor", "positive" },
  { "moe_router_logit_softcapping", "not_negative" },
  { "moe_apply_router_weight_on_input", "only", { false } }, { "output_router_logits", "only", { false } },
  { "norm_topk_prob", "only", { true } }, { "swa_attention_sink_enabled", "only", { false } },
  { "rope_parameters", "ropes", "partial" },
}

laguna.head_dim = decoder.head_dim

local function heads(c, i)
  return c.num_attention_heads_per_layer and c.num_attention_heads_per_layer[i + 1] or c.num_attention_heads
end

local function experts(c, layer)
  if moe.is_dense(c, layer) then return nil end
  local cap = c.moe_router_logit_softcapping
  return {
    experts = c.num_experts, topk = c.num_experts_per_tok, width = c.moe_intermediate_size,
    hidden = c.hidden_size, std = c.initializer_range, score = "sigmoid",
    bias = "experts.e_score_correction_bias", norm = true, scale = c.moe_routed_scaling_factor,
    cap = cap > 0 and cap or nil, shared = c.shared_expert_intermediate_size, shared_name = "shared_expert",
  }
end

function laguna.build(g, c)
  return decoder.build(g, c, {
    qk_norm = "heads", qkv_bias = c.attention_bias, out_bias = c.attention_bias, heads = heads,
    head_gate = function() return c.gating == "per-element" and "element" or "head" end, gate_kind = "softplus",
    rope_type = function(_, i) return decoder.layer_type(c, i, "full_attention") end,
    window = decoder.window_by_type(function() return false end), experts = experts,
  })
end

function laguna.check(c)
  local problems = decoder.check(laguna.class, c, rules)
  if not config.sound(problems) then return problems end
  moe.check_types(c, problems)
  moe.check_choices(c, problems, "num_experts")
  checks.heads(c, problems, "num_attention_heads_per_layer")
  return problems
end

return laguna
