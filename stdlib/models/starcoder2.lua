-- starcoder2.lua - StarCoder 2: Llama's attention with biases, LayerNorm, and an MLP without a gate.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"

local starcoder2 = {
  class = "Starcoder2ForCausalLM",
  files_have_aliases = true,
  not_of_files = { rms_norm_eps = true },
  aliases = { norm_epsilon = "rms_norm_eps" },
  -- What the class is, said again in the files of its makers.
  ignored = config.ignored { "activation_function", "mlp_type", "norm_type" },
}
starcoder2.defaults, starcoder2.unwritten = decoder.defaults {
  vocab_size = 49152, hidden_size = 3072, intermediate_size = 12288, num_hidden_layers = 30,
  num_attention_heads = 24, num_key_value_heads = 2, hidden_act = "gelu_pytorch_tanh",
  max_position_embeddings = 4096, initializer_range = 0.018042, rms_norm_eps = 1e-5,
  sliding_window = false, residual_dropout = 0.0, embedding_dropout = 0.0, use_bias = true,
  tie_word_embeddings = true,
}

local rules = {
  { "use_bias", "boolean" }, { "hidden_act", "only", { "gelu_pytorch_tanh" } },
  { "sliding_window", "optional_count" }, { "residual_dropout", "rate" },
  { "embedding_dropout", "rate" },
}
config.dense(starcoder2, rules)

starcoder2.head_dim = decoder.head_dim

local function gelu(g, x) return g:gelu(x) end

function starcoder2.build(g, c)
  return decoder.build(g, c, {
    norm = decoder.layer_norm, activation = gelu, names = { up = "c_fc", down = "c_proj" },
    window = decoder.same_window, qkv_bias = c.use_bias, out_bias = c.use_bias,
    mlp_bias = c.use_bias, residual_dropout = c.residual_dropout,
    embedding_dropout = c.embedding_dropout,
  })
end

function starcoder2.check(c) return decoder.check(starcoder2.class, c, rules) end

return starcoder2
