-- rank.lua - plan:rank(n): one screen about one rank.
local format, gsub = string.format, string.gsub

local names = { F = "F", I = "I", W = "W", B = "B", overlap = "F+B", unshard = "UNSHARD",
                reshard = "RESHARD", reduce_grad = "REDUCE" }

-- A list of words as "a b (c d) x 6 e": the repetition that covers most comes first.
local function compressed(words)
  local out, i = {}, 1
  while i <= #words do
    local best, times = 1, 1
    for period = 1, math.min(24, #words // 2) do
      local n = 0
      while words[i + n + period] and words[i + n] == words[i + n + period] do n = n + 1 end
      local r = n // period + 1
      if r > 1 and r * period > best * times then best, times = period, r end
    end
    local part = table.concat(words, " ", i, i + best - 1)
    if times == 1 then
      out[#out + 1] = part
    else
      out[#out + 1] = format("%s x %d", best > 1 and "(" .. part .. ")" or part, times)
    end
    i = i + best * times
  end
  return table.concat(out, ", ")
end

local function step(actions, chunks)
  local words = {}
  for i, a in ipairs(actions) do
    words[i] = names[a.op] .. (chunks > 1 and a.chunk or "")
  end
  return compressed(words)
end

return function(v, text)
  local out = {}
  local function add(...) out[#out + 1] = format(...) end
  local where = {}
  for _, c in ipairs(v.coord) do where[#where + 1] = format("%s %d", c.axis, c.at) end
  add("rank %d of %d: %s; node %d, number %d there", v.rank, v.world,
      #where > 0 and table.concat(where, ", ") or "alone", v.node, v.local_rank)
  for _, s in ipairs(v.stages) do
    add("  stage %d: %s, %.1f %% of the work", s.stage, text.plural(s.layers, "layer"),
        100 * s.share)
  end
  add "groups"
  for _, g in ipairs(v.groups) do
    add("  %-12s %4d ranks on %s: %s", g.axis, #g.ranks, text.plural(g.nodes, "node"),
        text.list(g.ranks, 8))
  end
  if #v.groups == 0 then add "  none" end
  add("step: %s", text.plural(v.microbatches, "microbatch"))
  add("  %s", step(v.actions, #v.stages))
  add("%s", tostring(v.memory))
  add("communication in a step")
  add("  %s", (gsub(gsub(tostring(v.comm), "\nof rank.*$", ""), "\n", "\n  ")))
  return table.concat(out, "\n")
end
