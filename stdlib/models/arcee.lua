-- arcee.lua - Arcee's AFM: Llama's decoder, but an MLP without a gate: the square of ReLU.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"

local arcee = {
  class = "ArceeForCausalLM",
  aliases = {},
  ignored = config.ignored(),
}
arcee.defaults, arcee.unwritten = decoder.defaults {
  hidden_size = 2560, intermediate_size = 18432, max_position_embeddings = 4096,
  rms_norm_eps = 1e-5, hidden_act = "relu2", attention_bias = false, mlp_bias = false,
}

local rules = {
  { "hidden_act", "only", { "relu2" } }, { "attention_bias", "boolean" }, { "mlp_bias", "boolean" },
}
config.dense(arcee, rules)

arcee.head_dim = decoder.head_dim

local function squared_relu(g, x)
  local y = g:relu(x)
  return g:mul(y, y)
end

function arcee.build(g, c)
  return decoder.build(g, c, {
    activation = squared_relu, qkv_bias = c.attention_bias, out_bias = c.attention_bias,
    mlp_bias = c.mlp_bias,
  })
end

function arcee.check(c) return decoder.check(arcee.class, c, rules) end

return arcee
