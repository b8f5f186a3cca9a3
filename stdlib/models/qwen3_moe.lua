-- qwen3_moe.lua - Qwen3-MoE: Qwen3's decoder with experts in all layers, or in each
-- decoder_sparse_step-th one that is not one of mlp_only_layers.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"
local moe = require "weft.models.moe"

local qwen3_moe = {
  class = "Qwen3MoeForCausalLM",
  peft = moe.peft,
  aliases = { num_local_experts = "num_experts" },
  -- The loss of routers is plan.moe.aux_loss_coef; Hugging Face has none, either, unless
  -- output_router_logits is set.
  ignored = config.ignored { "max_window_layers", "router_aux_loss_coef" },
}
qwen3_moe.defaults, qwen3_moe.unwritten = decoder.defaults {
  vocab_size = 151936, hidden_size = 2048, intermediate_size = 6144,
  num_hidden_layers = 24, num_key_value_heads = 4, max_position_embeddings = 32768,
  attention_bias = false, use_sliding_window = false, sliding_window = 4096,
  num_experts = 128, num_experts_per_tok = 8, moe_intermediate_size = 768,
  norm_topk_prob = false, decoder_sparse_step = 1, mlp_only_layers = false,
  output_router_logits = false,
}

qwen3_moe.head_dim = decoder.head_dim

local function experts(c, layer)
  if not moe.is_sparse(c, layer) then return nil end
  return {
    experts = c.num_experts, topk = c.num_experts_per_tok, width = c.moe_intermediate_size,
    hidden = c.hidden_size, std = c.initializer_range, score = "softmax",
    norm = c.norm_topk_prob,
  }
end

-- That of all layers, if use_sliding_window says so.
local function window(c) return c.use_sliding_window and c.sliding_window or nil end

function qwen3_moe.build(g, c)
  return decoder.build(g, c, {
    qk_norm = "heads", qkv_bias = c.attention_bias, out_bias = c.attention_bias,
    experts = experts, window = window,
  })
end

function qwen3_moe.check(c)
  local problems = decoder.check(qwen3_moe.class, c, {
    { "attention_bias", "boolean" }, { "use_sliding_window", "boolean" },
    { "sliding_window", "optional_count" },
    { "num_experts", "count" }, { "num_experts_per_tok", "count" },
    { "moe_intermediate_size", "count" }, { "norm_topk_prob", "boolean" },
    { "decoder_sparse_step", "count" }, { "output_router_logits", "only", { false } },
  })
  if not config.sound(problems) then return problems end
  moe.check_layers(c, problems)
  moe.check_choices(c, problems, "num_experts")
  return problems
end

return qwen3_moe
