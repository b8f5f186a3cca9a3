-- phi.lua - Phi 1, 1.5 and 2: MLP and attention side by side behind one LayerNorm, biases in all linear
-- layers and the head, an MLP without a gate, and a part of each head turns.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"

local phi = {
  class = "PhiForCausalLM",
  files_have_aliases = true,
  not_of_files = { rms_norm_eps = true },
  aliases = { layer_norm_eps = "rms_norm_eps" },
  ignored = config.ignored(),
}
phi.defaults, phi.unwritten = decoder.defaults {
  vocab_size = 51200, hidden_size = 2048, intermediate_size = 8192, num_hidden_layers = 24,
  hidden_act = "gelu_new", rms_norm_eps = 1e-5, resid_pdrop = 0.0, embd_pdrop = 0.0,
  qk_layernorm = false, partial_rotary_factor = 0.5,
}

local rules = {
  { "hidden_act", "only", { "gelu_new" } }, { "resid_pdrop", "rate" }, { "embd_pdrop", "rate" },
  { "partial_rotary_factor", "part" },
}
config.dense(phi, rules)

phi.head_dim = decoder.head_dim

local function gelu(g, x) return g:gelu(x) end

function phi.build(g, c)
  return decoder.build(g, c, {
    norm = decoder.layer_norm, norms = decoder.NORMS.one, parallel = true, activation = gelu,
    names = { out = "dense", up = "fc1", down = "fc2", norm = "final_layernorm" },
    qkv_bias = true, out_bias = true, mlp_bias = true, head_bias = true,
    residual_dropout = c.resid_pdrop, embedding_dropout = c.embd_pdrop,
  })
end

function phi.check(c) return decoder.check(phi.class, c, rules) end

return phi
