-- olmo2.lua - OLMo 2: the norms of a layer come behind attention and MLP instead of before
-- them, and one over all heads of q together, and of k.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"

local olmo2 = {
  class = "Olmo2ForCausalLM",
  aliases = {},
  ignored = config.ignored(),
}
olmo2.defaults, olmo2.unwritten = decoder.defaults {
  vocab_size = 50304, rms_norm_eps = 1e-5, attention_bias = false,
}

local rules = { { "attention_bias", "boolean" } }
config.dense(olmo2, rules)

olmo2.head_dim = decoder.head_dim

function olmo2.build(g, c)
  return decoder.build(g, c, {
    qkv_bias = c.attention_bias, out_bias = c.attention_bias, qk_norm = "width",
    norms = decoder.NORMS.after,
  })
end

function olmo2.check(c) return decoder.check(olmo2.class, c, rules) end

return olmo2
