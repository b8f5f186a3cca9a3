-- mixtral.lua - Mixtral: Llama's decoder with experts in every layer, of which each token
-- has the best few, by a softmax over those.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"
local moe = require "weft.models.moe"

local mixtral = {
  class = "MixtralForCausalLM",
  aliases = { num_experts = "num_local_experts" },
  -- The loss of routers is plan.moe.aux_loss_coef; Hugging Face has none, either, unless
  -- output_router_logits is set. Its class does not read the other two.
  ignored = config.ignored {
    "max_window_layers", "router_aux_loss_coef", "use_sliding_window",
  },
}
mixtral.defaults, mixtral.unwritten = decoder.defaults {
  intermediate_size = 14336, num_key_value_heads = 8, rms_norm_eps = 1e-5,
  max_position_embeddings = 131072, rope_theta = 1000000.0, num_local_experts = 8,
  num_experts_per_tok = 2, sliding_window = false, router_jitter_noise = 0.0,
  output_router_logits = false, attention_bias = false,
}
mixtral.unwritten.attention_bias = true

mixtral.head_dim = decoder.head_dim

local function experts(c)
  return {
    experts = c.num_local_experts, topk = c.num_experts_per_tok, width = c.intermediate_size,
    hidden = c.hidden_size, std = c.initializer_range, score = "softmax", norm = true,
  }
end

function mixtral.build(g, c) 
  return decoder.build(g, c, { experts = experts, window = decoder.same_window })
end

function mixtral.check(c)
  local problems = decoder.check(mixtral.class, c, {
    { "attention_bias", "only", { false } },
    { "num_local_experts", "count" }, { "num_experts_per_tok", "count" },
    { "sliding_window", "optional_count" }, { "router_jitter_noise", "noise" },
    { "output_router_logits", "only", { false } },
  })
  if config.sound(problems) then moe.check_choices(c, problems, "num_local_experts") end
  return problems
end

return mixtral
