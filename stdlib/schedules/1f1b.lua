-- 1f1b.lua - one forward, one backward: as early a backward as possible.
--
-- Rule:       rank r begins with P-r forwards, then takes backward and forward in turns.
-- Constraint: one stage per rank; at least as many microbatches as ranks.
-- Bubble:     (P-1)(F+I+W) of a rank's time.
-- Memory:     P-r microbatches on rank r.
return {
  virtual = 1,
  fixed = true,
  run = function(s)
    local m = s.microbatches
    local warm = math.min(m, s.ranks - s.rank)
    for mb = 0, warm - 1 do s:F(0, mb) end
    for mb = warm, m - 1 do
      s:B(0, mb - warm)
      s:F(0, mb)
    end
    for mb = m - warm, m - 1 do s:B(0, mb) end
  end,
  check = function(ranks, virtual, microbatches)
    if microbatches < ranks then
      return string.format("1f1b needs at least as many microbatches as pipeline ranks, "
                           .. "got %d for %d", microbatches, ranks)
    end
  end,
}
