-- qwen3.lua - Qwen3 (dense): Llama's decoder with an RMSNorm over every head of q and k
-- and a head size of its own.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"

local qwen3 = {
  defaults = decoder.defaults {
    vocab_size = 151936, intermediate_size = 22016, num_key_value_heads = 32,
    head_dim = 128, max_position_embeddings = 32768, attention_bias = false,
    use_sliding_window = false, layer_types = false,
  },
  aliases = {},
  -- Both say where a sliding window is used; there is none.
  ignored = config.ignored { "sliding_window", "max_window_layers" },
}

function qwen3.build(g, c) return decoder.build(g, c, { qk_norm = true }) end

function qwen3.check(c)
  return decoder.check(c, {
    { "attention_bias", "only", { false } },
    { "use_sliding_window", "only", { false } },
    { "layer_types", "each", { "full_attention" } },
  })
end

return qwen3
