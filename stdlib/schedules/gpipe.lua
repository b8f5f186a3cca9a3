-- gpipe.lua - all forwards, then all backwards, both from microbatch 0. The activations
-- of all microbatches are alive at once; any number of them works.
return {
  virtual = 1,
  run = function(s, options)
    for mb = 0, s.microbatches - 1 do s:F(0, mb) end
    for mb = 0, s.microbatches - 1 do s:B(0, mb) end
  end,
  check = function(ranks, virtual, microbatches)
    if virtual ~= 1 then
      return string.format("gpipe has one stage per rank, got virtual = %d", virtual)
    end
  end,
}
