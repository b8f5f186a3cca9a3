-- seed_oss.lua - Seed-OSS: Llama's decoder with heads of an own size, and biases on q, k and v.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"

local seed_oss = {
  class = "SeedOssForCausalLM",
  aliases = {},
  ignored = config.ignored(),
}
seed_oss.defaults, seed_oss.unwritten = decoder.defaults {
  vocab_size = 155136, intermediate_size = 27648, num_hidden_layers = 64,
  num_attention_heads = 80, num_key_value_heads = 8, head_dim = 128,
  max_position_embeddings = 524288, attention_bias = true, attention_out_bias = false,
  mlp_bias = false, attention_dropout = 0.1, residual_dropout = 0.1,
}

local rules = {
  { "attention_bias", "boolean" }, { "attention_out_bias", "boolean" },
  { "mlp_bias", "boolean" }, { "residual_dropout", "rate" },
}
config.dense(seed_oss, rules)

seed_oss.head_dim = decoder.head_dim

function seed_oss.build(g, c)
  return decoder.build(g, c, {
    qkv_bias = c.attention_bias, out_bias = c.attention_out_bias, mlp_bias = c.mlp_bias,
    residual_dropout = c.residual_dropout,
  })
end

function seed_oss.check(c) return decoder.check(seed_oss.class, c, rules) end

return seed_oss
