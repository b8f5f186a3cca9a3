-- gemma3_text.lua - Gemma 3, text: Gemma 2's decoder without caps of scores, with norms over
-- each head of q and k. Five layers of six see a window and turn by a rope of their own.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"
local gemma = require "weft.models.gemma"

local gemma3, rules = gemma.later("Gemma3ForCausalLM", {
  vocab_size = 262208, max_position_embeddings = 131072, rope_theta = 1000000.0,
  rope_local_base_freq = 10000.0, sliding_window_pattern = 6,
})
gemma3.ropes = true -- each type of layers has one: see rope.of_type
gemma3.unwritten.rope_local_base_freq = true
gemma3.ignored._sliding_window_pattern = config.unread -- written beside layer_types, never read
for _, rule in ipairs {
  { "rope_parameters", "ropes" }, { "rope_local_base_freq", "positive" },
  { "sliding_window_pattern", "count" },
} do rules[#rules + 1] = rule end

local function slides(c, i) return (i + 1) % c.sliding_window_pattern ~= 0 end

local function layer_type(c, i)
  return decoder.layer_type(c, i, slides(c, i) and "sliding_attention" or "full_attention")
end

function gemma3.build(g, c)
  return decoder.build(g, c, gemma.later_options(c, slides, {
    qk_norm = "heads", rope_type = layer_type,
  }))
end

function gemma3.check(c) return decoder.check(gemma3.class, c, rules) end

return gemma3
