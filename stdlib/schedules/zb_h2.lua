-- zb_h2.lua - ZB-H2 (ZB2P): no idle time between a rank's first and last action.
--
-- Rule:       rank r begins with 2*(P-1-r)+1 forwards, then takes F and I in turns. From
--             the 2r-th I on a W, the oldest, follows each I; the rest comes at the end.
--             The forward that is more than needed hides transfers.
-- Constraint: one stage per rank; any number of microbatches.
-- Bubble:     none within a rank's own span if m >= 2P; over the whole step each rank
--             idles P-1 forwards, unless the optimizer need not wait for all ranks.
-- Memory:     2P microbatches on every rank, twice zero_bubble.
return {
  virtual = 1,
  fixed = true,
  run = function(s)
    local m, lag = s.microbatches, 2 * s.rank
    local warm = math.min(2 * (s.ranks - 1 - s.rank) + 1, m)
    for step = 0, m + warm - 1 do
      if step < m then s:F(0, step) end
      if step >= warm then
        s:I(0, step - warm)
        if step - warm >= lag then s:W(0, step - warm - lag) end
      end
    end
    for mb = math.max(0, m - lag), m - 1 do s:W(0, mb) end
  end,
}
