-- compare.lua - two layouts on the clock: whether one is faster, and which classes of time
-- make the difference.
local compare = {}

-- Published pairs that differ by more are ordered right nine times in ten (foresight); of
-- others the clock does not say which is faster.
local too_near = 0.03

-- Seconds of a step by class, the mean of all pipeline ranks: they add up to the step.
function compare.classes(sim)
  local out, n = {}, #sim.pipeline
  local function add(name, seconds) out[name] = (out[name] or 0) + seconds / n end
  for _, rank in ipairs(sim.pipeline) do
    for name, seconds in next, rank.kernels do add(name, seconds) end
    for name, seconds in next, rank.exposed do add("exposed " .. name, seconds) end
    add("bubble", rank.bubble)
  end
  return out
end

-- The second is as fast as the first as far as the clock can tell: they are near, or their
-- order depends on how good the kernels and the network are.
function compare.is_tie(a, b)
  return b.seconds / a.seconds - 1 < too_near or (b.low - a.low) * (b.high - a.high) < 0
end

-- How the classes of `b` differ from those of `a`, as { class =, seconds = }, the largest
-- difference first. They add up to the difference of the steps.
function compare.why(a, b)
  local was, is, list = compare.classes(a), compare.classes(b), {}
  for name in next, was do is[name] = is[name] or 0 end
  for _, name in ipairs(keys(is)) do
    list[#list + 1] = { class = name, seconds = is[name] - (was[name] or 0) }
  end
  table.sort(list, function(x, y)
    local ax, ay = math.abs(x.seconds), math.abs(y.seconds)
    if ax ~= ay then return ax > ay end
    return x.class < y.class
  end)
  return list
end

return compare
