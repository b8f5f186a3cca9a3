-- gpt_oss.lua - gpt-oss: Llama's decoder with a sink for each head, a window in every second
-- layer, experts in all of them, and biases of attention, router and experts. Gates of experts
-- are clamped, and gate and up of an expert are neighbours in one weight.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"
local moe = require "weft.models.moe"

local gpt_oss = {
  class = "GptOssForCausalLM",
  aliases = { num_experts = "num_local_experts" },
  -- The loss of routers is plan.moe.aux_loss_coef; the others repeat what other keys say.
  ignored = config.ignored {
    "experts_per_token", "initial_context_length", "router_aux_loss_coef",
  },
}
gpt_oss.defaults, gpt_oss.unwritten = decoder.defaults {
  vocab_size = 201088, hidden_size = 2880, intermediate_size = 2880, num_hidden_layers = 36,
  num_attention_heads = 64, num_key_value_heads = 8, head_dim = 64,
  max_position_embeddings = 131072, rms_norm_eps = 1e-5, rope_theta = 150000.0,
  rope_parameters = {
    rope_type = "yarn", factor = 32.0, beta_fast = 32.0, beta_slow = 1.0, truncate = false,
    original_max_position_embeddings = 4096,
  },
  attention_bias = true, sliding_window = 128, layer_types = false, num_local_experts = 128,
  num_experts_per_tok = 4, swiglu_alpha = 1.702, swiglu_limit = 7.0,
  output_router_logits = false,
}

local rules = {
  { "attention_bias", "boolean" }, { "sliding_window", "patterned" },
  { "layer_types", "each", { "full_attention", "sliding_attention" } },
  { "num_local_experts", "count" }, { "num_experts_per_tok", "count" },
  { "swiglu_alpha", "positive" }, { "swiglu_limit", "positive" },
  { "output_router_logits", "only", { false } },
}

gpt_oss.head_dim = decoder.head_dim

-- Weights are (expert, in, out), as in its files.
local function expert_mlp(c)
  return function(g, name, o)
    local expert, hidden, zeros = { "expert", o.experts }, { "hidden", o.hidden }, { init = "zeros" }
    local pairs, inner = { "ffn", 2 * o.width, unit = 2 }, { "ffn", o.width }
    local gate_up = g:param(name .. ".gate_up_proj", { expert, hidden, pairs }, { std = o.std })
    local gate_up_bias = g:param(name .. ".gate_up_proj_bias", { expert, pairs }, zeros)
    local down = g:param(name .. ".down_proj", { expert, inner, hidden }, { std = o.std })
    local down_bias = g:param(name .. ".down_proj_bias", { expert, hidden }, zeros)
    return function(rows, offsets)
      local h = g:grouped_linear(rows, gate_up, offsets, { layout = 1 })
      h = g:clamped_swiglu(g:grouped_bias(h, gate_up_bias, offsets),
                           { scale = c.swiglu_alpha, limit = c.swiglu_limit })
      h = g:grouped_linear(h, down, offsets, { layout = 1 })
      return g:grouped_bias(h, down_bias, offsets)
    end
  end
end

local function experts(c)
  return {
    experts = c.num_local_experts, topk = c.num_experts_per_tok, width = c.intermediate_size,
    hidden = c.hidden_size, std = c.initializer_range, score = "softmax", norm = true,
    router = "router", router_bias = true, mlp = expert_mlp(c),
  }
end

local function slides(_, i) return i % 2 == 0 end

function gpt_oss.build(g, c)
  return decoder.build(g, c, {
    qkv_bias = c.attention_bias, out_bias = c.attention_bias, sinks = true,
    window = decoder.window_by_type(slides), experts = experts,
  })
end

function gpt_oss.check(c)
  local problems = decoder.check(gpt_oss.class, c, rules)
  if config.sound(problems) then moe.check_choices(c, problems, "num_local_experts") end
  return problems
end

return gpt_oss
