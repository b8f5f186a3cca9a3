-- quote.lua - values of settings in the text of a plan: the only way in which anything of a
-- file gets there. Whatever a text holds, it ends neither its string nor its comment.
local scalar = use "import/scalar"
local shown = use "shown"
local quote = {}

local function escaped(c)
  if c == '"' or c == "\\" then return "\\" .. c end
  if c == "\n" then return "\\n" end
  return string.format("\\%03d", string.byte(c))
end

function quote.text(s)
  return '"' .. string.gsub(s, '[%c"\\\x7f-\xff]', escaped) .. '"'
end

local function number(n)
  if math.type(n) == "integer" then return tostring(n) end
  if n ~= n then return "(0 / 0)" end
  if n == math.huge then return "math.huge" end
  if n == -math.huge then return "-math.huge" end
  local short = string.format("%.15g", n)
  if tonumber(short) ~= n then short = string.format("%.17g", n) end
  if not string.find(short, "[.eE]") then short = short .. ".0" end
  return short
end

local reserved = {}
for word in string.gmatch([[and break do else elseif end false for function goto if in local nil
  not or repeat return then true until while]], "%S+") do reserved[word] = true end

-- A name as it stands before "=".
function quote.key(name)
  if string.find(name, "^[%a_][%w_]*$") and not reserved[name] then return name end
  return "[" .. quote.text(name) .. "]"
end

-- A Lua expression for a value, in one line.
function quote.value(v)
  if type(v) == "string" then return quote.text(v) end
  if type(v) == "number" then return number(v) end
  if type(v) == "boolean" then return tostring(v) end
  if type(v) ~= "table" then return "nil" end
  local parts = {}
  for _, item in ipairs(v) do parts[#parts + 1] = quote.value(item) end
  for _, key in ipairs(keys(v)) do
    if type(key) == "string" and v[key] ~= scalar.null then
      parts[#parts + 1] = quote.key(key) .. " = " .. quote.value(v[key])
    end
  end
  if #parts == 0 then return "{}" end
  return "{ " .. table.concat(parts, ", ") .. " }"
end

-- For comments and reports: one line, with what a terminal obeys written out, cut off where
-- it is longer than `most` bytes, 60 if that is not given.
function quote.shown(v, most)
  most = most or 60
  local text
  if v == scalar.null then
    text = "null"
  elseif type(v) == "string" then
    text = v
  else
    text = quote.value(v)
  end
  text = shown(text)
  if #text <= most then return text end
  local cut = most - 3
  while cut > 1 and string.find(string.sub(text, cut + 1, cut + 1), "[\x80-\xbf]") do
    cut = cut - 1
  end
  return string.sub(text, 1, cut) .. "..."
end

return quote
