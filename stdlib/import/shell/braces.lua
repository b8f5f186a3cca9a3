-- braces.lua - {a,b} and {1..8} in a word, before anything else is made of it: one word for each. What is quoted,
-- and what a variable stands for, opens no brace.
local braces = {}

local limits = { words = 10000 }

-- The parts of a word with each of its braces and commas as a part of its own: "{", "}" and ",".
local function pieces_of(parts)
  local list = {}
  for _, part in ipairs(parts) do
    if part[1] == "text" and not part[3] then
      for plain, mark in string.gmatch(part[2], "([^{},]*)([{},]?)") do
        if plain ~= "" then list[#list + 1] = { "text", plain } end
        if mark ~= "" then list[#list + 1] = mark end
      end
    else
      list[#list + 1] = part
    end
  end
  return list
end

-- The places of the commas between the brace at `i` and the one that closes it, and that one's; nil: none does.
local function group(list, i)
  local depth, commas = 0, {}
  for k = i, #list do
    local one = list[k]
    if one == "{" then depth = depth + 1 end
    if one == "}" then depth = depth - 1 end
    if one == "," and depth == 1 then commas[#commas + 1] = k end
    if depth == 0 then return commas, k end
  end
end

local function slice(list, from, to)
  return table.move(list, from, to, 1, {})
end

-- The texts of "1..8", "08..10", "a..e" and "1..9..2"; nil: it is none.
local function sequence(text)
  local from, to, by = string.match(text, "^(%-?%d+)%.%.(%-?%d+)(.*)$")
  local letters = not from
  if letters then from, to, by = string.match(text, "^(%a)%.%.(%a)(.*)$") end
  local step = by and (by == "" and 1 or tonumber((string.match(by, "^%.%.(%-?%d+)$"))))
  if not step or #text > 40 then return nil end
  local width = 0
  if not letters and (string.find(from, "^%-?0%d") or string.find(to, "^%-?0%d")) then width = math.max(#from, #to) end
  local a = letters and string.byte(from) or tonumber(from)
  local b = letters and string.byte(to) or tonumber(to)
  step = math.max(math.abs(step), 1)
  if math.abs(a - b) // step >= limits.words then return nil, true end
  local out = {}
  for n = a, b, a <= b and step or -step do
    out[#out + 1] = letters and string.char(n) or string.format("%0" .. math.max(width, 1) .. "d", n)
  end
  return out
end

local expand

-- The lists of pieces that what stands between two braces may be; nil: these braces are text.
local function choices(list, i, commas, close, many)
  local out = {}
  if #commas == 0 then
    local one = close == i + 2 and list[i + 1]
    local texts = one and one[1] == "text" and not one[3] and sequence(one[2])
    for _, text in ipairs(texts or {}) do out[#out + 1] = { { "text", text } } end
    return texts and out
  end
  local from = i + 1
  commas[#commas + 1] = close
  for _, comma in ipairs(commas) do
    local some = expand(slice(list, from, comma - 1), many)
    table.move(some, 1, #some, #out + 1, out)
    from = comma + 1
  end
  return out
end

-- All words, as lists of pieces, that one list of pieces stands for.
function expand(list, many)
  for i = 1, #list do
    local commas, close = nil, nil
    if list[i] == "{" then commas, close = group(list, i) end
    local inner = close and choices(list, i, commas, close, many)
    if inner then
      local rests, out = expand(slice(list, close + 1, #list), many), {}
      for _, middle in ipairs(inner) do
        for _, rest in ipairs(rests) do
          local one = slice(list, 1, i - 1)
          table.move(middle, 1, #middle, #one + 1, one)
          table.move(rest, 1, #rest, #one + 1, one)
          out[#out + 1] = one
          if #out > limits.words then many() end
        end
      end
      return out
    end
  end
  return { list }
end

local function has_braces(word)
  for _, part in ipairs(word.parts) do
    if part[1] == "text" and not part[3] and string.find(part[2], "{", 1, true) then return true end
  end
  return false
end

-- The words that a word stands for; `many()` fails, as there are too many of them.
function braces.words(word, many)
  if not has_braces(word) then return { word } end
  local out = {}
  for i, list in ipairs(expand(pieces_of(word.parts), many)) do
    local parts = {}
    for k, piece in ipairs(list) do parts[k] = type(piece) == "string" and { "text", piece } or piece end
    out[i] = { kind = "word", line = word.line, parts = parts }
  end
  return out
end

return braces
