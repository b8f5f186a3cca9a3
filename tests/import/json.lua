-- json.lua - JSON as tables, for scripts of tests that read settings and reports. Objects and
-- lists are tables; null is json.null.
local json = { null = setmetatable({}, { __tostring = function() return "null" end }) }

local ESCAPES = { b = "\b", f = "\f", n = "\n", r = "\r", t = "\t" }
local WORDS = { ["true"] = true, ["false"] = false, null = json.null }

local function unescaped(text)
  text = text:gsub("\\u(%x%x%x%x)", function(hex) return utf8.char(tonumber(hex, 16)) end)
  return (text:gsub("\\(.)", function(c) return ESCAPES[c] or c end))
end

local value

local function text_at(s, at)
  local to = at + 1
  while s:sub(to, to) ~= '"' do
    to = assert(s:find('["\\]', to), "a text without an end")
    if s:sub(to, to) == "\\" then to = to + 2 end
  end
  return unescaped(s:sub(at + 1, to - 1)), to + 1
end

-- What stands between brackets: `one(at)` reads a part of it and returns where it ends.
local function parts(s, at, close, one)
  at = s:find("%S", at + 1)
  while s:sub(at, at) ~= close do
    at = s:find("%S", one(at))
    if s:sub(at, at) == "," then at = s:find("%S", at + 1) end
  end
  return at + 1
end

function value(s, at)
  at = s:find("%S", at)
  local c = s:sub(at, at)
  if c == '"' then return text_at(s, at) end
  local out = {}
  if c == "{" then
    return out, parts(s, at, "}", function(from)
      local key, behind = text_at(s, from)
      out[key], behind = value(s, s:find(":", behind, true) + 1)
      return behind
    end)
  elseif c == "[" then
    return out, parts(s, at, "]", function(from)
      local behind
      out[#out + 1], behind = value(s, from)
      return behind
    end)
  end
  local word = s:match("^[%w.+-]+", at)
  local known = WORDS[word]
  if known == nil then known = assert(tonumber(word), "no JSON: " .. s:sub(at, at + 20)) end
  return known, at + #word
end

function json.decode(s) return (value(s, 1)) end

return json
