-- qwen2.lua - Qwen2 and Qwen2.5: Llama's decoder with biases on q, k and v. A sliding
-- window, which published configurations carry switched off, is refused.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"

local qwen2 = {
  defaults = decoder.defaults {
    vocab_size = 151936, intermediate_size = 22016, num_key_value_heads = 32,
    max_position_embeddings = 32768, use_sliding_window = false, use_mrope = false,
    layer_types = false,
  },
  aliases = {},
  -- Both say where a sliding window is used; there is none.
  ignored = config.ignored { "sliding_window", "max_window_layers" },
}

function qwen2.build(g, c) return decoder.build(g, c, { qkv_bias = true }) end

function qwen2.check(c)
  return decoder.check(c, {
    { "use_sliding_window", "only", { false } },
    { "use_mrope", "only", { false } },
    { "layer_types", "each", { "full_attention" } },
  })
end

return qwen2
