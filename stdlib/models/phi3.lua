-- phi3.lua - Phi-3 and Phi-4: Llama's decoder. Files have q, k and v as one weight, and gate
-- and up; here they are apart, so that each is cut by heads or by ffn.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"

local phi3 = {
  class = "Phi3ForCausalLM",
  aliases = {},
  packed = { "qkv_proj", "gate_up_proj" }, -- modules that files have as one
  modules = { qkv_proj = { "q_proj", "k_proj", "v_proj" }, gate_up_proj = { "gate_proj", "up_proj" } },
  ignored = config.ignored { "embd_pdrop" }, -- Hugging Face's class does not read it, either
}
phi3.defaults, phi3.unwritten = decoder.defaults {
  vocab_size = 32064, hidden_size = 3072, intermediate_size = 8192,
  max_position_embeddings = 4096, original_max_position_embeddings = 4096,
  rms_norm_eps = 1e-5, attention_bias = false, partial_rotary_factor = 1.0,
  resid_pdrop = 0.0, sliding_window = false,
}
phi3.unwritten.attention_bias = true

local rules = {
  { "attention_bias", "only", { false } }, { "partial_rotary_factor", "part" },
  { "sliding_window", "optional_count" },
  { "resid_pdrop", "rate" },
}
config.dense(phi3, rules)

phi3.head_dim = decoder.head_dim

function phi3.build(g, c) 
  return decoder.build(g, c, {
    residual_dropout = c.resid_pdrop, window = decoder.same_window,
  })
end

function phi3.check(c) return decoder.check(phi3.class, c, rules) end

return phi3
