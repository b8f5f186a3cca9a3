-- rounds.lua - the order in which a rank with several chunks takes its microbatches: in
-- groups, each of which passes through all chunks before the next group begins.
local rounds = {}

-- Microbatches of a group where the plan does not say it: as near to the number of ranks as equal
-- groups allow.
function rounds.size(ranks, microbatches)
  return microbatches // math.max(1, microbatches // ranks)
end

-- A function from the number of a forward step, from 0, to its chunk and microbatch. The
-- last group may be smaller.
function rounds.order(virtual, microbatches, size)
  return function(step)
    local first = step // (size * virtual) * size
    local n = math.min(size, microbatches - first)
    local rest = step - first * virtual
    return rest // n, first + rest % n
  end
end

-- What the number of microbatches must be for equal groups; nil if it is. One chunk does
-- not wait for a group to come round, so any number will do.
function rounds.problem(name, ranks, virtual, microbatches)
  local n = math.max(1, microbatches // ranks)
  if virtual == 1 or microbatches % n == 0 then return nil end
  return string.format("%s makes %d rounds of %d microbatches on %d pipeline ranks, but "
                       .. "%d is not a multiple of %d", name, n, microbatches // n, ranks,
                       microbatches, n)
end

return rounds
