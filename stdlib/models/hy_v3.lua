-- hy_v3.lua - Hunyuan 3: Qwen3's attention; experts but in the first layers, chosen by sigmoids and a
-- bias, and beside them one MLP for all tokens.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"
local moe = require "weft.models.moe"

local hy_v3 = {
  class = "HYV3ForCausalLM",
  aliases = { num_local_experts = "num_experts" },
  -- Of Transformers in memory, and of files.
  modules = { shared_experts = { "shared_mlp" }, ["mlp.gate"] = { "mlp.router.gate" } },
  -- How sums of experts are rounded; here they are in the type of activations.
  ignored = config.ignored { "enable_moe_fp32_combine" },
}
hy_v3.defaults, hy_v3.unwritten = decoder.defaults {
  vocab_size = 120832, hidden_size = 4096, intermediate_size = 13312, num_hidden_layers = 80,
  num_attention_heads = 64, num_key_value_heads = 8, head_dim = 128,
  max_position_embeddings = 131072, initializer_range = 0.006, rms_norm_eps = 1e-5,
  rope_theta = 11158840.0, attention_bias = false, mlp_bias = false, num_experts = 192,
  num_experts_per_tok = 8, num_shared_experts = 1, moe_intermediate_size = 1536,
  router_scaling_factor = 2.826, mlp_layer_types = false, output_router_logits = false,
}

local rules = {
  { "attention_bias", "boolean" }, { "mlp_bias", "boolean" }, { "num_experts", "count" },
  { "num_experts_per_tok", "count" }, { "num_shared_experts", "count" },
  { "moe_intermediate_size", "count" }, { "router_scaling_factor", "positive" },
  { "mlp_layer_types", "each", { "dense", "sparse" } }, { "output_router_logits", "only", { false } },
}

hy_v3.head_dim = decoder.head_dim

local function experts(c, layer)
  if moe.is_dense(c, layer) then return nil end
  return {
    experts = c.num_experts, topk = c.num_experts_per_tok, width = c.moe_intermediate_size,
    hidden = c.hidden_size, std = c.initializer_range, score = "sigmoid",
    router = "router.gate", bias = "expert_bias", norm = true, scale = c.router_scaling_factor,
    shared = c.num_shared_experts * c.moe_intermediate_size, shared_name = "shared_mlp",
  }
end

function hy_v3.build(g, c)
  return decoder.build(g, c, {
    qk_norm = "heads", qkv_bias = c.attention_bias, out_bias = c.attention_bias,
    mlp_bias = c.mlp_bias, experts = experts,
  })
end

function hy_v3.check(c)
  local problems = decoder.check(hy_v3.class, c, rules)
  if not config.sound(problems) then return problems end
  moe.check_types(c, problems)
  moe.check_choices(c, problems, "num_experts")
  return problems
end

return hy_v3
