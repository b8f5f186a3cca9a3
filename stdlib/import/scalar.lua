-- scalar.lua - what a scalar of a settings file means: YAML 1.1 as the readers of these files
-- have it (yes and on are booleans, 1e-5 without a point is a text), and JSON, which is
-- narrower. Numbers too large for an integer are floats.
local scalar = {}

-- A value that stands for null, which Lua's tables cannot hold.
scalar.null = box(nil, { __name = "null" })

local words = {}
for word in string.gmatch("yes Yes YES true True TRUE on On ON", "%S+") do words[word] = true end
for word in string.gmatch("no No NO false False FALSE off Off OFF", "%S+") do words[word] = false end
for word in string.gmatch("null Null NULL ~", "%S+") do words[word] = scalar.null end
words[""] = scalar.null

-- What is behind the last mark of a text ("a.b.C" and "." is "C"), in one pass: a pattern that ends in $
-- is tried at each place of a long text.
function scalar.behind_last(text, mark)
  return string.reverse(string.match(string.reverse(text), "^[^" .. mark .. "]*"))
end

local digits = {
  { "^([-+]?)0b([01_]+)$", 2 }, { "^([-+]?)0x([%x_]+)$", 16 }, { "^([-+]?)0o?([0-7_]+)$", 8 },
  { "^([-+]?)(0)$", 10 }, { "^([-+]?)([1-9][%d_]*)$", 10 },
}

local function whole(sign, text, base)
  text = string.gsub(text, "_", "")
  if base == 10 then
    local n = math.tointeger(tonumber(text))
    if not n then return tonumber(sign .. text .. ".0") end
    return sign == "-" and -n or n
  end
  local n = text ~= "" and #text <= 15 and tonumber(text, base)
  if not n then return nil end
  return sign == "-" and -n or n
end

local function number(text)
  for _, form in ipairs(digits) do
    local sign, body = string.match(text, form[1])
    if sign then return whole(sign, body, form[2]) end
  end
  local plain = string.gsub(text, "_", "")
  if string.find(plain, "^[-+]?%d+%.%d*$") or string.find(plain, "^[-+]?%.%d+$")
    or string.find(plain, "^[-+]?%d+%.%d*[eE][-+]%d+$")
    or string.find(plain, "^[-+]?%d+%.%d*[eE]%d+$")
    or string.find(plain, "^[-+]?%.%d+[eE][-+]?%d+$") then
    return tonumber((string.gsub(plain, "^%+", "")))
  end
  if string.find(text, "^[-+]?%.[iI][nN][fF]$") then
    return string.sub(text, 1, 1) == "-" and -math.huge or math.huge
  end
end

-- What Python's json has beside JSON.
local endless = { Infinity = math.huge, ["-Infinity"] = -math.huge }

-- The value of a node of kind "scalar". `json`: only what JSON has is no text.
function scalar.value(node, json)
  if node.value ~= nil then return node.value end
  if node.quoted then return node.text end
  if json then
    local n = tonumber(node.text) or endless[node.text]
    if n then return math.tointeger(n) and not string.find(node.text, "[.eE]") and math.tointeger(n) or n end
  end
  local word = words[node.text]
  if word ~= nil then return word end
  local n = number(node.text)
  if n then return n end
  return node.text
end

-- A number, also one that is written as a text: 1e-5.
function scalar.number(value)
  if type(value) == "string" and string.find(value, "^%s*[-+]?[%d.][%d.eE+-]*%s*$") then
    return tonumber(value)
  end
  if type(value) == "number" and value == value then return value end
end

function scalar.integer(value)
  local n = scalar.number(value)
  return n and math.abs(n) < 1e18 and math.tointeger(n) or nil
end

-- What stands behind key= on a command line.
function scalar.of_word(text) return scalar.value { text = text, quoted = false } end

return scalar
