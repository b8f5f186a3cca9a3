-- nemotron.lua - Nemotron-4 and Minitron: Llama's attention, of whose heads a part turns,
-- LayerNorm by 1 + w with a bias, and an MLP without a gate: the square of ReLU.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"

local nemotron = {
  class = "NemotronForCausalLM",
  files_have_aliases = true,
  not_of_files = { rms_norm_eps = true },
  aliases = { norm_eps = "rms_norm_eps" },
  ignored = config.ignored(),
}
nemotron.defaults, nemotron.unwritten = decoder.defaults {
  vocab_size = 256000, hidden_size = 6144, intermediate_size = 24576, num_attention_heads = 48,
  hidden_act = "relu2", max_position_embeddings = 4096, initializer_range = 0.0134,
  rms_norm_eps = 1e-5, attention_bias = false, mlp_bias = false, partial_rotary_factor = 0.5,
}

local rules = {
  { "attention_bias", "boolean" }, { "mlp_bias", "boolean" },
  { "hidden_act", "only", { "relu2" } }, { "partial_rotary_factor", "part" },
}
config.dense(nemotron, rules)

nemotron.head_dim = decoder.head_dim

local function norm(g, c, x, name, dim)
  local w = g:param(name .. ".weight", { dim }, { init = "zeros" })
  local b = g:param(name .. ".bias", { dim }, { init = "zeros" })
  return g:layernorm(x, w, b, { eps = c.rms_norm_eps, zero_centered = 1 })
end

local function squared_relu(g, x)
  local y = g:relu(x)
  return g:mul(y, y)
end

function nemotron.build(g, c)
  return decoder.build(g, c, {
    norm = norm, activation = squared_relu, qkv_bias = c.attention_bias,
    out_bias = c.attention_bias, mlp_bias = c.mlp_bias,
  })
end

function nemotron.check(c) return decoder.check(nemotron.class, c, rules) end

return nemotron
