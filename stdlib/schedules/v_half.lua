-- v_half.lua - half the activations of 1f1b: two chunks per rank in a V.
--
-- Rule:       a pattern of six slots per microbatch in which the forward of the first
--             chunk moves two slots per rank, all others one; see vshape.lua.
-- Constraint: two stages per rank; any number of microbatches.
-- Bubble:     about half of 1f1b's: 3P/2 - 7/2 of a forward if F = I = W and P is even.
-- Memory:     (P+2)//2 microbatches on every rank, two chunks each.
local vshape = require "weft.vshape"

return vshape.schedule(function(ranks, r)
  local gap = ranks % 2 == 0 and 3 or 0
  return 2 * r, 3 * ranks - r - 2, 3 * ranks + gap + 2 * r - 1, 6 * ranks + gap - r - 2
end, function(ranks) return 2 * ((ranks + 2) // 2) end)
