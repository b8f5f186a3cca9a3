-- glob.lua - patterns of the shell: * ? [a-z]. A pattern is made of pieces { text, quoted }; what is quoted stands
-- for itself. Matching walks the text once with all places of the pattern that are possible, so that no pattern
-- takes longer than the product of both lengths.
local glob = {}

local CLASSES = { alpha = "%a", digit = "%d", alnum = "%w", upper = "%u", lower = "%l", space = "%s", xdigit = "%x",
                  punct = "%p", cntrl = "%c", blank = "[ \t]" }

local function characters(pieces)
  local list = {}
  for _, piece in ipairs(pieces) do
    local escaped = false
    for c in string.gmatch(piece[1], ".") do
      if not piece[2] and not escaped and c == "\\" then
        escaped = true
      else
        list[#list + 1] = { c = c, quoted = piece[2] or escaped }
        escaped = false
      end
    end
  end
  return list
end

local function is(one, c) return one and one.c == c and not one.quoted end

-- [:digit:] from list[i] on: its pattern of Lua, and where it ends.
local function class_name(list, i)
  if not is(list[i], "[") or not list[i + 1] or list[i + 1].c ~= ":" then return nil end
  local name, k = "", i + 2
  while list[k] and string.find(list[k].c, "%l") do name, k = name .. list[k].c, k + 1 end
  if list[k] and list[k].c == ":" and list[k + 1] and list[k + 1].c == "]" then return CLASSES[name], k + 2 end
end

-- What [...] from list[i] on takes: { bytes, patterns of Lua, other = all others }, and where it ends; nil: it is a "[".
local function bracket(list, i)
  local set, k = { bytes = {}, patterns = {}, other = false }, i + 1
  if is(list[k], "!") or is(list[k], "^") then set.other, k = true, k + 1 end
  local first = k
  while list[k] and (k == first or not is(list[k], "]")) do
    local pattern, after = class_name(list, k)
    if pattern then
      set.patterns[#set.patterns + 1] = pattern
      k = after
    else
      local low, high = string.byte(list[k].c), nil
      if is(list[k + 1], "-") and list[k + 2] and not is(list[k + 2], "]") then high, k = string.byte(list[k + 2].c), k + 2 end
      for b = low, high or low do set.bytes[b] = true end
      k = k + 1
    end
  end
  if not list[k] then return nil end
  return set, k
end

-- The pattern of these pieces; nil: it is one of bash's further ones, @(a|b).
function glob.parse(pieces)
  local list, out, i = characters(pieces), {}, 1
  while list[i] do
    local one = list[i]
    if not one.quoted and string.find(one.c, "[?*+@!]") and is(list[i + 1], "(") then return nil end
    if is(one, "*") then
      if out[#out] ~= "*" then out[#out + 1] = "*" end
    elseif is(one, "?") then
      out[#out + 1], out.one = { other = true, bytes = {}, patterns = {} }, true
    else
      local set, stop
      if is(one, "[") then set, stop = bracket(list, i) end
      out[#out + 1], i = set or { bytes = { [string.byte(one.c)] = true }, patterns = {}, other = false }, stop or i
      out.one = out.one or set ~= nil
    end
    i = i + 1
  end
  return out
end

local function takes(set, c)
  local found = set.bytes[string.byte(c)] or false
  for _, pattern in ipairs(set.patterns) do found = found or string.find(c, pattern) ~= nil end
  return found ~= set.other
end

-- Adds place k of the pattern, and those behind its stars.
local function reach(pattern, places, k)
  while not places[k] do
    places[k] = true
    if pattern[k] ~= "*" then return end
    k = k + 1
  end
end

-- The lengths of the text's beginnings that match: the shortest and the longest one, nil if there is none. A third
-- result says that bytes of several to a character make it unknown.
function glob.beginnings(pattern, text)
  if pattern.one and string.find(text, "[\x80-\xff]") then return nil, nil, true end
  local places, shortest, longest = {}, nil, nil
  reach(pattern, places, 1)
  local last = #pattern + 1
  if places[last] then shortest, longest = 0, 0 end
  for i = 1, #text do
    local c, after = string.sub(text, i, i), {}
    for k in pairs(places) do
      if pattern[k] == "*" then
        reach(pattern, after, k)
      elseif pattern[k] and takes(pattern[k], c) then
        reach(pattern, after, k + 1)
      end
    end
    places = after
    if places[last] then shortest, longest = shortest or i, i end
    if not next(places) then break end
  end
  return shortest, longest
end

-- Whether all of the text matches; nil: unknown.
function glob.matches(pattern, text)
  local _, longest, unknown = glob.beginnings(pattern, text)
  if unknown then return nil end
  return longest == #text
end

-- The pattern from its end on, for the ends of a text.
function glob.reversed(pattern)
  local out = { one = pattern.one }
  for k = #pattern, 1, -1 do out[#out + 1] = pattern[k] end
  return out
end

return glob
