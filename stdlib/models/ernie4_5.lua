-- ernie4_5.lua - ERNIE 4.5 without experts: Llama's decoder, in which pairs that turn are
-- neighbours, with biases on all linear layers or none.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"

local ernie = {
  class = "Ernie4_5ForCausalLM",
  aliases = {},
  ignored = config.ignored(),
}
-- Hugging Face's class sets the rate of its attention to 0, whatever its config says.
ernie.ignored.attention_dropout = "the class of ernie4_5 drops nothing"
ernie.defaults, ernie.unwritten = decoder.defaults {
  vocab_size = 103424, hidden_size = 1024, intermediate_size = 3072,
  num_hidden_layers = 18, num_attention_heads = 16, num_key_value_heads = 2,
  head_dim = 128, max_position_embeddings = 131072, rms_norm_eps = 1e-5,
  rope_theta = 500000.0, tie_word_embeddings = true, use_bias = false,
}

ernie.defaults.attention_dropout = nil

local rules = { { "use_bias", "boolean" } }
config.dense(ernie, rules)

ernie.head_dim = decoder.head_dim

function ernie.build(g, c)
  return decoder.build(g, c, {
    qkv_bias = c.use_bias, out_bias = c.use_bias, mlp_bias = c.use_bias, interleaved = true,
  })
end

function ernie.check(c) return decoder.check(ernie.class, c, rules) end

return ernie
