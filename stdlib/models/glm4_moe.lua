-- glm4_moe.lua - GLM-4.5 and 4.6: grouped-query attention of whose heads a part turns, and
-- DeepSeek-V3's experts but in the first layers.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"
local moe = require "weft.models.moe"

local glm = {
  class = "Glm4MoeForCausalLM",
  peft = moe.peft,
  aliases = {
    num_mtp_layers = "num_nextn_predict_layers", num_local_experts = "n_routed_experts",
  },
  ignored = config.ignored(),
}
glm.defaults, glm.unwritten = decoder.defaults {
  vocab_size = 151552, hidden_size = 4096, intermediate_size = 10944,
  num_hidden_layers = 46, num_attention_heads = 96, num_key_value_heads = 8,
  max_position_embeddings = 131072, rms_norm_eps = 1e-5, attention_bias = false,
  moe_intermediate_size = 1408, num_experts_per_tok = 8, n_shared_experts = 1,
  n_routed_experts = 128, routed_scaling_factor = 1.0, n_group = 1, topk_group = 1,
  first_k_dense_replace = 1, norm_topk_prob = true, use_qk_norm = false,
  partial_rotary_factor = 0.5, num_nextn_predict_layers = 1, output_router_logits = false,
}

local rules = {
  { "attention_bias", "boolean" }, { "use_qk_norm", "boolean" },
  { "partial_rotary_factor", "part" }, { "output_router_logits", "only", { false } },
}
for _, rule in ipairs(moe.deepseek_rules) do rules[#rules + 1] = rule end

glm.head_dim = decoder.head_dim

function glm.build(g, c)
  return decoder.build(g, c, {
    qkv_bias = c.attention_bias, qk_norm = c.use_qk_norm and "heads",
    experts = moe.deepseek,
  })
end

function glm.check(c)
  local problems = decoder.check(glm.class, c, rules)
  if config.sound(problems) then moe.check_deepseek(c, problems) end
  return problems
end

return glm
