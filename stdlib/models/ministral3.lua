-- ministral3.lua - Ministral 3, of which text alone: Mistral's decoder with YaRN, whose queries grow
-- with their positions.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"

local ministral3 = {
  class = "Ministral3ForCausalLM",
  aliases = {},
  ignored = config.ignored(),
}
ministral3.defaults, ministral3.unwritten = decoder.defaults {
  vocab_size = 131072, intermediate_size = 14336, num_hidden_layers = 34,
  num_key_value_heads = 8, head_dim = 128, max_position_embeddings = 262144,
  rms_norm_eps = 1e-5, sliding_window = false,
  rope_parameters = {
    rope_type = "yarn", rope_theta = 1000000.0, factor = 16.0, beta_fast = 32.0, beta_slow = 1.0,
    mscale = 1.0, mscale_all_dim = 1.0, original_max_position_embeddings = 16384,
    llama_4_scaling_beta = 0.1,
  },
}

local rules = { { "sliding_window", "optional_count" }, { "rope_parameters", "grows" } }
config.dense(ministral3, rules)

ministral3.head_dim = decoder.head_dim

function ministral3.build(g, c)
  return decoder.build(g, c, { window = decoder.same_window, longer_queries = true })
end

function ministral3.check(c) return decoder.check(ministral3.class, c, rules) end

return ministral3
