-- llama.lua - Llama 1 to 3: grouped-query attention, RoPE with the llama3 scaling, tied
-- or untied embeddings. Keys and parameter names are Hugging Face's.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"

local llama = {
  defaults = decoder.defaults { attention_bias = false, mlp_bias = false },
  aliases = {},
  -- Other architectures read these; Hugging Face's Llama does not.
  ignored = config.ignored {
    "add_cross_attention", "layer_types", "max_window_layers", "sliding_window",
    "tie_encoder_decoder", "use_sliding_window",
  },
}

llama.head_dim = decoder.head_dim

function llama.build(g, c) return decoder.build(g, c, {}) end

function llama.check(c)
  return decoder.check(c, {
    { "attention_bias", "only", { false } },
    { "mlp_bias", "only", { false } },
  })
end

return llama
