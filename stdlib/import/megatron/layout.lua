-- layout.lua - the notation of --pipeline-model-parallel-layout: how many stages it makes.
local layout = {}

local limits = { stages = 100000, nesting = 8 }

-- Bars between here and the end of a bracket, and where that is; nil and why not.
local function bars(text, at, depth)
  local all, last = 0, 0
  if depth > limits.nesting then return nil, "is nested too deeply" end
  while at <= #text do
    local c = string.sub(text, at, at)
    if c == ")" then return all, at + 1 end
    at = at + 1
    if c == "|" then
      last = 1
    elseif string.find(c, "[EtmL, ]") then
      last = 0
    elseif c == "(" then
      last, at = bars(text, at, depth + 1)
      if not last then return nil, at end
    elseif c == "*" then
      local n, after = string.match(text, "^(%d+)()", at)
      if not n or #n > 6 then return nil, "behind * stands a number" end
      all, at, last = all + last * (tonumber(n) - 1), after, 0
    else
      return nil, string.format("\"%s\" means nothing in a layout (E, t, m, L, |, brackets and *n)", c)
    end
    if c ~= "*" then all = all + last end
    if all > limits.stages then return nil, "makes too many stages" end
  end
  return all, at
end

function layout.stages(text)
  local n, at = bars(text, 1, 0)
  if not n then return nil, at end
  if at <= #text then return nil, "a ) is too many" end
  return n + 1
end

return layout
