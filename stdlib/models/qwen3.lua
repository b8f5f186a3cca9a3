-- qwen3.lua - Qwen3 (dense): Llama's decoder with an RMSNorm over every head of q and k
-- and a head size of its own.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"

local qwen3 = {
  class = "Qwen3ForCausalLM",
  aliases = {},
  ignored = config.ignored(),
}
qwen3.defaults, qwen3.unwritten = decoder.defaults {
  vocab_size = 151936, intermediate_size = 22016, num_key_value_heads = 32,
  head_dim = 128, max_position_embeddings = 32768, attention_bias = false,
  use_sliding_window = false, sliding_window = 4096, max_window_layers = 28,
  layer_types = false,
}

local rules = {
  { "attention_bias", "boolean" },
  { "use_sliding_window", "switch" }, { "sliding_window", "optional_count" },
  { "max_window_layers", "optional_layers" },
  { "layer_types", "each", { "full_attention", "sliding_attention" } },
}
config.dense(qwen3, rules)

qwen3.head_dim = decoder.head_dim

function qwen3.build(g, c)
  return decoder.build(g, c, {
    qk_norm = "heads", qkv_bias = c.attention_bias, out_bias = c.attention_bias,
    window = decoder.qwen_window,
  })
end

function qwen3.check(c) return decoder.check(qwen3.class, c, rules) end

return qwen3
