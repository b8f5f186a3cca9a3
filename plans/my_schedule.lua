-- my_schedule.lua - a pipeline schedule of one's own.
--
--   weft show plans/my_schedule.lua schedule        draws it
--   weft verify plans/my_schedule.lua               runs it and compares with one rank
--   weft verify plans/my_schedule.lua -D limit=2    with less memory and more idle time
--
-- A schedule is a function that weft calls once for each pipeline rank. It says in which
-- order its rank works; where transfers go, when gradients are reduced and where memory
-- lies is worked out from that, and the whole is proven before anything runs. This one
-- does not know a closed form: it plays the step through for all ranks, slot by slot, and
-- writes down what its own rank did.
--
-- Expected of `weft show plans/my_schedule.lua schedule`: at most 4 chunks in flight on
-- every rank and a bubble of 17.24 %. With limit=8 it is 11.11 %, none of it within the
-- ranks' own spans; with limit=2 41.46 %.
local weft = require "weft"

-- Microbatches that may be alive on a rank: their activations are kept from F until W.
local limit = weft.var("limit", 4)

-- Any action may be emitted once its inputs are there: F needs F of the rank before, I
-- (gradients of the inputs) needs I of the rank behind, W (of the weights) its own I.
local function greedy(s)
  local ranks, m = s.ranks, s.microbatches
  local F, I, W = {}, {}, {} -- how many each rank has done
  for r = 0, ranks - 1 do F[r], I[r], W[r] = 0, 0, 0 end

  -- What rank r does next: a backward unblocks the rank before, so it comes first; then
  -- a forward if there is room for its activations; W waits until there is nothing else.
  local function choose(r)
    local behind = r == ranks - 1 and F[r] or I[r + 1]
    if I[r] < behind then return I end
    local before = r == 0 and m or F[r - 1]
    if F[r] < before and F[r] - W[r] < limit then return F end
    if W[r] < I[r] then return W end
  end

  while W[0] < m do
    -- All ranks choose before any of them acts: they work at the same time.
    local choice = {}
    for r = 0, ranks - 1 do choice[r] = choose(r) end
    for r = 0, ranks - 1 do
      local done = choice[r]
      if done then
        if r == s.rank then
          -- Chunk 0, the only one of each rank here; microbatches count from 0.
          if done == F then s:F(0, F[r]) end
          if done == I then s:I(0, I[r]) end
          if done == W then s:W(0, W[r]) end
        end
        done[r] = done[r] + 1
      end
    end
  end
  -- Rank 0 is done last with I, but others may still owe some W.
  for mb = W[s.rank], m - 1 do s:W(0, mb) end
end

return weft.plan {
  name      = "my-schedule",
  model     = weft.model "llama-tiny",
  mesh      = { pp = 4 },
  schedule  = greedy,
  batch     = { global = 8, micro = 1, seq = 64 },
  optimizer = weft.adamw { lr = 3e-4 },
  data      = weft.synthetic {},
  train     = { steps = 20 },
}
