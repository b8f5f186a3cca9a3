-- 1f1b.lua - rank r starts with up to ranks - r forwards, then takes backward and forward
-- in turns, so that at most ranks - r microbatches are alive on it.
return {
  virtual = 1,
  run = function(s, options)
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
    if virtual ~= 1 then
      return string.format("1f1b has one stage per rank, got virtual = %d", virtual)
    end
    if microbatches < ranks then
      return string.format("1f1b needs at least as many microbatches as pipeline ranks, "
                           .. "got %d for %d", microbatches, ranks)
    end
  end,
}
