-- v_min.lua - a third of the activations of 1f1b: two chunks per rank in a V.
--
-- Rule:       a pattern of six slots per microbatch in which forward and backward of both
--             chunks move one slot per rank; see vshape.lua.
-- Constraint: two stages per rank; any number of microbatches.
-- Bubble:     about two thirds of 1f1b's. Uneven costs add to it in every microbatch.
-- Memory:     (P+4)//3 microbatches on every rank, two chunks each.
local vshape = require "weft.vshape"

return vshape.schedule(function(ranks, r)
  local gap = ranks % 3 == 0 and 2 or 0
  return r, 2 * ranks - r - 1, 2 * ranks + gap + r, 4 * ranks + gap - r - 1
end, function(ranks) return 2 * ((ranks + 4) // 3) end)
