-- granite.lua - Granite 3 and 4 without experts and state spaces: Llama's decoder whose
-- embeddings, scores, branches and logits are multiplied by numbers of the config.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"

local granite = {
  class = "GraniteForCausalLM",
  aliases = {},
  ignored = config.ignored(),
}
granite.defaults, granite.unwritten = decoder.defaults {
  attention_bias = false, mlp_bias = false, embedding_multiplier = 1.0,
  logits_scaling = 1.0, residual_multiplier = 1.0, attention_multiplier = 1.0,
}

local rules = {
  { "attention_bias", "boolean" }, { "mlp_bias", "boolean" },
  { "embedding_multiplier", "positive" }, { "logits_scaling", "positive" },
  { "residual_multiplier", "positive" }, { "attention_multiplier", "positive" },
}
config.dense(granite, rules)

granite.head_dim = decoder.head_dim

function granite.build(g, c)
  return decoder.build(g, c, {
    qkv_bias = c.attention_bias, out_bias = c.attention_bias, mlp_bias = c.mlp_bias,
    embedding_multiplier = c.embedding_multiplier, attention_scale = c.attention_multiplier,
    residual_scale = c.residual_multiplier, logits_scale = 1 / c.logits_scaling,
  })
end

function granite.check(c) return decoder.check(granite.class, c, rules) end

return granite
