-- minimax_m2.lua - MiniMax-M2: a norm over all heads of q together, and of k, a part of each
-- head turns, and experts in every layer, chosen by sigmoids and a bias.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"
local moe = require "weft.models.moe"

local minimax = {
  class = "MiniMaxM2ForCausalLM",
  aliases = { num_experts = "num_local_experts" },
  -- The loss of routers is plan.moe.aux_loss_coef.
  ignored = config.ignored { "router_aux_loss_coef" },
}
minimax.defaults, minimax.unwritten = decoder.defaults {
  vocab_size = 200064, hidden_size = 3072, intermediate_size = 1536,
  num_hidden_layers = 62, num_attention_heads = 48, num_key_value_heads = 8,
  head_dim = 128, max_position_embeddings = 196608, rope_theta = 5000000.0,
  num_local_experts = 256, num_experts_per_tok = 8, output_router_logits = false,
  router_jitter_noise = 0.0, partial_rotary_factor = false, rotary_dim = false,
  attention_bias = false, use_qk_norm = true, qk_norm_type = "per_layer",
  scoring_func = "sigmoid", use_routing_bias = true, shared_intermediate_size = 0,
}
for _, key in ipairs { "attention_bias", "use_qk_norm", "qk_norm_type", "scoring_func",
                       "use_routing_bias", "shared_intermediate_size", "rotary_dim" } do
  minimax.unwritten[key] = true
end

local rules = {
  { "attention_bias", "only", { false } }, { "partial_rotary_factor", "part" },
  { "rotary_dim", "optional_count" }, { "use_qk_norm", "only", { true } },
  { "qk_norm_type", "only", { "per_layer" } }, { "scoring_func", "only", { "sigmoid" } },
  { "use_routing_bias", "only", { true } }, { "shared_intermediate_size", "only", { 0 } },
  { "num_local_experts", "count" }, { "num_experts_per_tok", "count" },
  { "output_router_logits", "only", { false } }, { "router_jitter_noise", "noise" },
}

minimax.head_dim = decoder.head_dim

local function experts(c)
  return {
    experts = c.num_local_experts, topk = c.num_experts_per_tok, width = c.intermediate_size,
    hidden = c.hidden_size, std = c.initializer_range, score = "sigmoid",
    bias = "e_score_correction_bias", norm = true,
  }
end

function minimax.build(g, c)
  return decoder.build(g, c, { qk_norm = "width", experts = experts })
end

function minimax.check(c)
  local problems = decoder.check(minimax.class, c, rules)
  if not config.sound(problems) then return problems end
  moe.check_choices(c, problems, "num_local_experts")
  local part, d = c.partial_rotary_factor, decoder.head_dim(c)
  if part and c.rotary_dim and math.floor(d * part) ~= c.rotary_dim then
    config.add(problems, "rotary_dim", "%d, but partial_rotary_factor = %g of head_dim = %d is %d", c.rotary_dim, part,
               d, math.floor(d * part))
  end
  return problems
end

return minimax
