-- glm.lua - GLM-4 of 2024: Llama's decoder with biases on q, k and v, of whose heads a part
-- turns, pairs of neighbours.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"

local rules = { { "attention_bias", "boolean" }, { "partial_rotary_factor", "part" } }

-- The architecture with Hugging Face's name of the causal model; norms as in decoder.NORMS.
local function family(class, norms)
  local glm = {
    class = class,
    aliases = {},
    packed = { "gate_up_proj" }, -- modules that files have as one
    modules = { gate_up_proj = { "gate_proj", "up_proj" } }, -- of Transformers in memory
    ignored = config.ignored(),
    head_dim = decoder.head_dim,
  }
  glm.defaults, glm.unwritten = decoder.defaults {
    vocab_size = 151552, hidden_size = 4096, intermediate_size = 13696,
    num_hidden_layers = 40, num_attention_heads = 32, num_key_value_heads = 2,
    head_dim = 128, max_position_embeddings = 131072, rms_norm_eps = 1.5625e-7,
    attention_bias = true, partial_rotary_factor = 0.5,
  }
  local own = table.move(rules, 1, #rules, 1, {})
  config.dense(glm, own)

  function glm.build(g, c)
    return decoder.build(g, c, {
      qkv_bias = c.attention_bias, interleaved = true, norms = norms,
    })
  end

  function glm.check(c) return decoder.check(class, c, own) end

  return glm
end

local glm = family("GlmForCausalLM", decoder.NORMS.before)
glm.family = family

return glm
