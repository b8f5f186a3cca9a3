-- gpipe.lua - all forwards, then all backwards.
--
-- Rule:       F of microbatches 0 .. m-1, then B of 0 .. m-1.
-- Constraint: one stage per rank; any number of microbatches.
-- Bubble:     (P-1)(F+I+W) of a rank's time.
-- Memory:     all m microbatches on every rank.
return {
  virtual = 1,
  fixed = true,
  run = function(s)
    for mb = 0, s.microbatches - 1 do s:F(0, mb) end
    for mb = 0, s.microbatches - 1 do s:B(0, mb) end
  end,
}
