-- zero_bubble.lua - ZB1P: the backward of the weights waits and fills the gaps.
--
-- Rule:       as interleaved_1f1b, but rank r begins with (v-1)*group + (P-1-r) forwards,
--             and backward is cut into I and W. From the r-th I on a W, the oldest,
--             follows each I; the rest comes at the end.
-- Constraint: with R = max(1, m // P) rounds, m is a multiple of R (any m if v = 1).
-- Bubble:     (P-1)(F+I-W)/v of a rank's time.
-- Memory:     v*P chunks on every rank, as rank 0 of 1f1b.
local rounds = require "weft.rounds"

return {
  virtual = 1,
  run = function(s)
    local v, m, total = s.virtual, s.microbatches, s.virtual * s.microbatches
    local group = rounds.size(s.ranks, m)
    local at = rounds.order(v, m, group)
    local warm = math.min((v - 1) * group + s.ranks - 1 - s.rank, total)
    local function back(kind, step)
      local chunk, mb = at(step)
      s[kind](s, v - 1 - chunk, mb)
    end
    for step = 0, total + warm - 1 do
      if step < total then s:F(at(step)) end
      if step >= warm then
        back("I", step - warm)
        if step - warm >= s.rank then back("W", step - warm - s.rank) end
      end
    end
    for step = math.max(0, total - s.rank), total - 1 do back("W", step) end
  end,
  check = function(ranks, virtual, microbatches)
    return rounds.problem("zero_bubble", ranks, virtual, microbatches)
  end,
}
