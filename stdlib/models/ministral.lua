-- ministral.lua - Ministral: Mistral's decoder, of which some layers see a window and the
-- others all tokens.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"

local ministral = {
  class = "MinistralForCausalLM",
  aliases = {},
  ignored = config.ignored(),
}
ministral.defaults, ministral.unwritten = decoder.defaults {
  intermediate_size = 14336, num_key_value_heads = 8, max_position_embeddings = 131072,
  attention_bias = false, sliding_window = 4096, layer_types = false,
}
ministral.unwritten.attention_bias = true

local rules = {
  { "attention_bias", "only", { false } }, { "sliding_window", "optional_count" },
  { "layer_types", "each", { "full_attention", "sliding_attention" } },
}
config.dense(ministral, rules)

ministral.head_dim = decoder.head_dim

function ministral.build(g, c)
  return decoder.build(g, c, { window = decoder.window_by_type(function() return true end) })
end

function ministral.check(c) return decoder.check(ministral.class, c, rules) end

return ministral
