-- gemma2.lua - Gemma 2: norms before and behind attention and MLP, soft caps of scores and
-- logits, and a window in every second layer, from the first on.
local decoder = require "weft.models.decoder"
local gemma = require "weft.models.gemma"

local gemma2, rules = gemma.later("Gemma2ForCausalLM", {
  final_logit_softcapping = 30.0, attn_logit_softcapping = 50.0,
})
gemma2.unwritten.attn_logit_softcapping = nil
rules[#rules + 1] = { "attn_logit_softcapping", "optional_positive" }

local function slides(_, i) return i % 2 == 0 end

function gemma2.build(g, c)
  return decoder.build(g, c, gemma.later_options(c, slides, {
    score_cap = c.attn_logit_softcapping or nil,
  }))
end

function gemma2.check(c) return decoder.check(gemma2.class, c, rules) end

return gemma2
