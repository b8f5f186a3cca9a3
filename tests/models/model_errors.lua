-- model_errors.lua - model functions with one mistake each (-D case=arity); check_models
-- knows the message, and the line by the comment MARK:case.
local weft = require "weft"

local cases = {}
local hidden, vocab = { "hidden", 8 }, { "vocab", 16 }

local function embed(g)
  return g:embedding(g:tokens(), g:param("embed.weight", { vocab, hidden }))
end

local function head(g, x)
  local logits = g:linear(x, g:param("head.weight", { vocab, hidden }))
  return g:cross_entropy(logits, g:labels())
end

function cases.fine(g) return head(g, embed(g)) end

function cases.arity(g)
  return head(g, g:silu_mul(embed(g)))                              -- MARK:arity
end

function cases.attribute(g)
  local w = g:param("w", { hidden }, { init = "ones" })
  return head(g, g:rmsnorm(embed(g), w, { epz = 1e-5 }))            -- MARK:attribute
end

function cases.missing(g)
  local w = g:param("w", { hidden }, { init = "ones" })
  return head(g, g:rmsnorm(embed(g), w))                            -- MARK:missing
end

function cases.method(g)
  return head(g, g:rmsnrom(embed(g)))                               -- MARK:method
end

function cases.tag(g)
  g:param("w", { { "hiden", 8 } })                                  -- MARK:tag
end

function cases.number(g)
  g:param("w", { hidden, { "ffn", 0 } })                            -- MARK:number
end

function cases.unit_size(g)
  g:param("w", { { "head", 10, unit = 4 } })                        -- MARK:unit_size
end

function cases.shape(g)
  local w = g:param("w", { vocab, { "hidden", 9 } })
  return g:linear(embed(g), w)                                      -- MARK:shape
end

function cases.tied(g)
  embed(g)
  g:param("embed.weight", { vocab, { "hidden", 9 } })               -- MARK:tied
end

function cases.nested(g)
  g:layer(0, function()
    g:layer(1, function() end)                                      -- MARK:nested
  end)
end

function cases.no_loss(g) embed(g) end

function cases.not_scalar(g) return embed(g) end

function cases.user_error(g)
  error("my own message")                                           -- MARK:user_error
end

local kept
function cases.stale(g)
  if kept then return g:silu(kept) end                              -- MARK:stale
  kept = embed(g)
  return head(g, kept)
end

function cases.packed(g)
  assert(g:doc_starts() == nil)
  local x = embed(g)
  assert(tostring(x) == "tensor (batch 1, seq 8, hidden 8) act", tostring(x))
  assert(x:size(2) == 8 and x:size(-1) == 8 and #x:shape() == 3)
  return g:unit("head", function() return head(g, x) end)
end

return weft.plan {
  model = weft.model { cases[weft.vars.case], vocab_size = 16 },
  batch = { global = 1, seq = 8 },
}
