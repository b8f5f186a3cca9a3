-- eager_1f1b.lua - 1F1B that starts with twice as many forwards.
--
-- Rule:       rank r begins with 2*(P-1-r) forwards, then takes forward and backward in
--             turns. It is interleaved_1f1b with one chunk per rank.
-- Constraint: one stage per rank; any number of microbatches.
-- Bubble:     (P-1)(F+I+W), as 1f1b; the microbatches that are ahead hide transfers.
-- Memory:     2*(P-1-r) + 1 microbatches on rank r.
return {
  virtual = 1,
  fixed = true,
  run = function(s)
    local m = s.microbatches
    local warm = math.min(2 * (s.ranks - 1 - s.rank), m)
    for step = 0, m + warm - 1 do
      if step < m then s:F(0, step) end
      if step >= warm then s:B(0, step - warm) end
    end
  end,
}
