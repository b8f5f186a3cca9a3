-- llama.lua - Llama 1 to 3: grouped-query attention, RoPE with the llama3 scaling, tied
-- or untied embeddings. Keys and parameter names are Hugging Face's.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"

local llama = {
  defaults = decoder.defaults { attention_bias = false, mlp_bias = false },
  aliases = {},
  ignored = config.ignored(),
}

function llama.build(g, c) return decoder.build(g, c, {}) end

function llama.check(c)
  return decoder.check(c, {
    { "attention_bias", "only", { false } },
    { "mlp_bias", "only", { false } },
  })
end

return llama
