-- llama.lua - Llama 1 to 3: grouped-query attention, RoPE with the llama3 scaling, tied
-- or untied embeddings. Keys and parameter names are Hugging Face's.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"

local llama = {
  class = "LlamaForCausalLM",
  aliases = {},
  -- Of no meaning without a sliding window.
  ignored = config.ignored { "max_window_layers", "use_sliding_window" },
}
llama.defaults, llama.unwritten =
  decoder.defaults { attention_bias = false, mlp_bias = false }

local rules = { { "attention_bias", "boolean" }, { "mlp_bias", "boolean" } }
config.dense(llama, rules)

llama.head_dim = decoder.head_dim

function llama.build(g, c)
  return decoder.build(g, c, {
    qkv_bias = c.attention_bias, out_bias = c.attention_bias, mlp_bias = c.mlp_bias,
  })
end

function llama.check(c) return decoder.check(llama.class, c, rules) end

return llama
