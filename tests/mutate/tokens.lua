-- tokens.lua - C as a list of tokens: { kind = "name" | "number" | "string" | "op", text, a, b
-- (the first and last byte), line }. Comments and preprocessor lines are left out.
local OPS = {}
for op in ([[ ... <<= >>= -> ++ -- << >> <= >= == != && || += -= *= /= %= &= |= ^= ]]):gmatch "%S+" do
  OPS[op] = true
end

local function quoted(text, at)
  local quote = text:sub(at, at)
  local i = at + 1
  while text:sub(i, i) ~= quote do
    i = i + (text:sub(i, i) == "\\" and 2 or 1)
  end
  return i
end

-- The end of the preprocessor line at `at`, with the lines that it goes on in.
local function directive(text, at)
  local stop = text:find("\n", at, true) or #text + 1
  while text:sub(stop - 1, stop - 1) == "\\" do
    stop = text:find("\n", stop + 1, true) or #text + 1
  end
  return stop - 1
end

local function number(text, at)
  local i = at
  while true do
    local _, stop = text:find("^[%w_.]*", i)
    local sign = text:find("^[eEpP][+-]", stop) and not text:find("^0[xX]%x*$", at)
    if not sign then return stop end
    i = stop + 2
  end
end

local function operator(text, at)
  for n = 3, 2, -1 do
    if OPS[text:sub(at, at + n - 1)] then return at + n - 1 end
  end
  return at
end

return function(text)
  local list, at, line = {}, 1, 1
  while at <= #text do
    local c = text:sub(at, at)
    local stop, kind = at, nil
    if c:find "%s" then
      stop = select(2, text:find("^%s+", at))
    elseif text:find("^//", at) then
      stop = directive(text, at)
    elseif text:find("^/%*", at) then
      stop = select(2, text:find("*/", at + 2, true))
    elseif c == "#" then -- is an operator only in preprocessor lines
      stop = directive(text, at)
    elseif c == '"' or c == "'" then
      stop, kind = quoted(text, at), "string"
    elseif text:find("^%.?%d", at) then
      stop, kind = number(text, at), "number"
    elseif c:find "[%a_]" then
      stop, kind = select(2, text:find("^[%w_]+", at)), "name"
    else
      stop, kind = operator(text, at), "op"
    end
    local piece = text:sub(at, stop)
    if kind then
      list[#list + 1] = { kind = kind, text = piece, a = at, b = stop, line = line }
    end
    line = line + select(2, piece:gsub("\n", ""))
    at = stop + 1
  end
  return list
end
