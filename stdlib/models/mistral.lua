-- mistral.lua - Mistral: Llama's decoder. In its first version each token sees a window of
-- the last sliding_window tokens; later ones have none.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"

local mistral = {
  class = "MistralForCausalLM",
  aliases = {},
  ignored = config.ignored { "max_window_layers", "use_sliding_window" },
}
mistral.defaults, mistral.unwritten = decoder.defaults {
  intermediate_size = 14336, num_key_value_heads = 8, max_position_embeddings = 131072,
  attention_bias = false, sliding_window = 4096,
}
mistral.unwritten.attention_bias = true

local rules = { { "attention_bias", "only", { false } }, { "sliding_window", "optional_count" } }
config.dense(mistral, rules)

mistral.head_dim = decoder.head_dim

function mistral.build(g, c) 
  return decoder.build(g, c, { window = decoder.same_window })
end

function mistral.check(c) return decoder.check(mistral.class, c, rules) end

return mistral
