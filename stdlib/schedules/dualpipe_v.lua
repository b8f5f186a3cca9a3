-- dualpipe_v.lua - DualPipe cut in half: two chunks per rank in a V, and in the middle a
-- forward and a backward at the same time, so that one's transfers hide behind the other.
--
-- Rule (F0: forward of chunk 0; B is I and W at once; & at the same time):
--   1. 2(P-r-1) times F0          5. P-r-1 times B1, F1&B0
--   2. r+1 times F0 F1            6. r+1 times B1 B0, the second half as I
--   3. P-r-1 times I1 W F1        7. P-r-1 times W I0 (B0 if 6 has no I)
--   4. m-2P+r+1 times F0&B1 F1&B0 8. r+1 times W
--   W is always the oldest that waits. The first pair of step 4 is not overlapped on the
--   last rank, where its backward needs the forward just done.
-- Constraint: two stages per rank; at least 2P microbatches.
-- Bubble:     about (P-1)(F+I-W)/2 of a rank's time, if W is not the longest and a pair
--             takes as long as its parts; less if it does not.
-- Memory:     2P+1 chunks on every rank.
return {
  virtual = 2,
  fixed = true,
  placement = "v",
  run = function(s)
    local p, r, m = s.ranks, s.rank, s.microbatches
    local forward, backward = { [0] = 0, 0 }, { [0] = 0, 0 }
    local waiting, oldest = {}, 1
    local function next_of(count, chunk)
      count[chunk] = count[chunk] + 1
      return chunk, count[chunk] - 1
    end
    local function F(chunk) s:F(next_of(forward, chunk)) end
    local function B(chunk) s:B(next_of(backward, chunk)) end
    local function I(chunk)
      local c, mb = next_of(backward, chunk)
      s:I(c, mb)
      waiting[#waiting + 1] = { c, mb }
    end
    local function W()
      if oldest > #waiting then return end
      s:W(waiting[oldest][1], waiting[oldest][2])
      oldest = oldest + 1
    end
    local function both(cf, cb)
      local _, f = next_of(forward, cf)
      local _, b = next_of(backward, cb)
      s:overlap(cf, f, cb, b)
    end

    for _ = 1, 2 * (p - r - 1) do F(0) end
    for _ = 1, r + 1 do F(0) F(1) end
    for _ = 1, p - r - 1 do I(1) W() F(1) end
    for i = 1, m - 2 * p + r + 1 do
      if i == 1 and r == p - 1 then F(0) B(1) else both(0, 1) end
      both(1, 0)
    end
    for _ = 1, p - r - 1 do B(1) both(1, 0) end
    -- Halves of an odd number of backwards: on even ranks the switch is inside a pair.
    local split, half = false, (r + 1) // 2
    local function back(chunk) if split then I(chunk) else B(chunk) end end
    for i = 0, r do
      if i == half and r % 2 == 1 then split = true end
      back(1)
      if i == half and r % 2 == 0 then split = true end
      back(0)
    end
    for _ = 1, p - r - 1 do W() back(0) end
    for _ = 1, r + 1 do W() end
  end,
  check = function(ranks, virtual, microbatches)
    if microbatches < 2 * ranks then
      return string.format("dualpipe_v needs at least two microbatches per pipeline "
                           .. "rank, got %d for %d", microbatches, ranks)
    end
  end,
}
