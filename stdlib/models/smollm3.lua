-- smollm3.lua - SmolLM3: Llama's decoder in which queries and keys of each fourth layer, or of
-- those with a 0 in no_rope_layers, do not turn.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"

local smollm3 = {
  class = "SmolLM3ForCausalLM",
  aliases = {},
  types_decide = true, -- layer_types, whatever use_sliding_window says
  ignored = config.ignored { "max_window_layers" },
}
smollm3.defaults, smollm3.unwritten = decoder.defaults {
  vocab_size = 128256, hidden_size = 2048, num_hidden_layers = 36,
  num_attention_heads = 16, num_key_value_heads = 4, max_position_embeddings = 32768,
  rope_theta = 2000000.0, attention_bias = false, mlp_bias = false,
  tie_word_embeddings = true, use_sliding_window = false, sliding_window = false,
  no_rope_layers = false, no_rope_layer_interval = 4, layer_types = false,
}

local rules = {
  { "attention_bias", "boolean" }, { "mlp_bias", "boolean" },
  { "use_sliding_window", "boolean" }, { "sliding_window", "optional_count" },
  { "layer_types", "each", { "full_attention", "sliding_attention" } },
  { "no_rope_layers", "switches" }, { "no_rope_layer_interval", "count" },
}
config.dense(smollm3, rules)

smollm3.head_dim = decoder.head_dim

local function turns(c, i)
  if c.no_rope_layers then return c.no_rope_layers[i + 1] == 1 end
  return (i + 1) % c.no_rope_layer_interval ~= 0
end

-- Layers whose queries do not turn may have a window.
local still_window = decoder.window_by_type(function(c, i) return not turns(c, i) end)
local function window(c, i)
  return (c.layer_types or c.use_sliding_window) and still_window(c, i) or nil
end

function smollm3.build(g, c)
  return decoder.build(g, c, {
    qkv_bias = c.attention_bias, out_bias = c.attention_bias, mlp_bias = c.mlp_bias,
    turns = turns, window = window,
  })
end

function smollm3.check(c)
  local problems = decoder.check(smollm3.class, c, rules)
  local list = c.no_rope_layers
  if config.sound(problems) and list and #list < c.num_hidden_layers then
    config.add(problems, "no_rope_layers", "%d numbers for %d layers", #list,
               c.num_hidden_layers)
  end
  return problems
end

return smollm3
