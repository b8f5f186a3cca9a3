-- qwen2.lua - Qwen2 and Qwen2.5: Llama's decoder with biases on q, k and v. Published
-- configurations carry a sliding window of the later layers, switched off.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"

local qwen2 = {
  class = "Qwen2ForCausalLM",
  aliases = {},
  ignored = config.ignored(),
}
qwen2.defaults, qwen2.unwritten = decoder.defaults {
  vocab_size = 151936, intermediate_size = 22016, num_key_value_heads = 32,
  max_position_embeddings = 32768, use_sliding_window = false, sliding_window = 4096,
  max_window_layers = 28, use_mrope = false, layer_types = false, attention_bias = true,
}
-- Hugging Face's class has the biases without being asked.
qwen2.unwritten.attention_bias = true

local rules = {
  { "use_sliding_window", "switch" }, { "sliding_window", "optional_count" },
  { "max_window_layers", "optional_layers" }, { "use_mrope", "only", { false } },
  { "attention_bias", "only", { true } },
  { "layer_types", "each", { "full_attention", "sliding_attention" } },
}
config.dense(qwen2, rules)

qwen2.head_dim = decoder.head_dim

function qwen2.build(g, c) 
  return decoder.build(g, c, { qkv_bias = true, window = decoder.qwen_window })
end

function qwen2.check(c) return decoder.check(qwen2.class, c, rules) end

return qwen2
