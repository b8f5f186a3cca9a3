-- v_half.lua - half the activations of 1f1b: two chunks per rank in a V.
--
-- Rule:       a pattern of six slots per microbatch in which forward of the first chunk
--             and backward of the second move on by two slots per rank, the other two by
--             one; see vshape.lua.
-- Constraint: two stages per rank; any number of microbatches.
-- Bubble:     about half of 1f1b's; (3P-7)/2 forwards if F = I = W and P is even, from 4.
-- Memory:     (P+2)//2 microbatches on every rank, two chunks each.
local vshape = require "weft.vshape"

return vshape.schedule(function(ranks, r)
  local gap = ranks % 2 == 0 and 3 or 0
  return 2 * r, 3 * ranks - r - 2, 3 * ranks + gap + 2 * r - 1, 6 * ranks + gap - r - 2
end, function(ranks) return 2 * ((ranks + 2) // 2) end)
