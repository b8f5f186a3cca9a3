-- qwen2_moe.lua - Qwen2-MoE and Qwen1.5-MoE: Qwen2's attention, experts in all layers or some, and
-- beside them one MLP for all tokens, of which a number for each token says how much counts.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"
local moe = require "weft.models.moe"

local qwen2_moe = {
  class = "Qwen2MoeForCausalLM",
  aliases = {},
  ignored = config.ignored { "router_aux_loss_coef" },
}
qwen2_moe.defaults, qwen2_moe.unwritten = decoder.defaults {
  vocab_size = 151936, hidden_size = 2048, intermediate_size = 5632, num_hidden_layers = 24,
  num_attention_heads = 16, num_key_value_heads = 16, max_position_embeddings = 32768,
  use_sliding_window = false, sliding_window = 4096, max_window_layers = 28, layer_types = false,
  qkv_bias = true, num_experts = 60, num_experts_per_tok = 4, moe_intermediate_size = 1408,
  shared_expert_intermediate_size = 5632, norm_topk_prob = false, decoder_sparse_step = 1,
  mlp_only_layers = false, output_router_logits = false,
}

local rules = {
  { "qkv_bias", "boolean" }, { "use_sliding_window", "switch" },
  { "sliding_window", "count_or_none" }, { "max_window_layers", "optional_layers" },
  { "layer_types", "each", { "full_attention", "sliding_attention" } },
  { "num_experts", "count" }, { "num_experts_per_tok", "count" },
  { "moe_intermediate_size", "count" }, { "shared_expert_intermediate_size", "count" },
  { "norm_topk_prob", "boolean" }, { "decoder_sparse_step", "count" },
  { "output_router_logits", "only", { false } },
}

qwen2_moe.head_dim = decoder.head_dim

local function experts(c, layer)
  if not moe.is_sparse(c, layer) then return nil end
  return {
    experts = c.num_experts, topk = c.num_experts_per_tok, width = c.moe_intermediate_size,
    hidden = c.hidden_size, std = c.initializer_range, score = "softmax",
    norm = c.norm_topk_prob, shared = c.shared_expert_intermediate_size,
    shared_name = "shared_expert", shared_gate = true,
  }
end

-- Every second layer, but for the last ones.
local window = decoder.window_by_type(function(c, i)
  return i % 2 == 0 and i < (c.max_window_layers or 0)
end)

function qwen2_moe.build(g, c)
  return decoder.build(g, c, {
    qkv_bias = c.qkv_bias, experts = experts,
    window = function(...) return c.use_sliding_window and window(...) or nil end,
  })
end

function qwen2_moe.check(c)
  local problems = decoder.check(qwen2_moe.class, c, rules)
  if not config.sound(problems) then return problems end
  if c.use_sliding_window and c.sliding_window == 0 then
    config.add(problems, "sliding_window", "0 tokens, with use_sliding_window = true")
  end
  moe.check_layers(c, problems)
  moe.check_choices(c, problems, "num_experts")
  return problems
end

return qwen2_moe
