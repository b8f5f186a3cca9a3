-- text.lua - what chat templates do with strings and JSON, as Python does it, because the
-- templates that models come with are written for Jinja: strip, split, tojson.
--
-- Values of JSON: an object has its fields, their names in the order of the file at 1, 2, ...,
-- and true at 0, so that an empty one is no empty list; null is a userdata.
local text = {}

function text.is_object(v) return type(v) == "table" and v[0] == true end
function text.is_list(v) return type(v) == "table" and v[0] ~= true end
function text.is_null(v) return v == nil or type(v) == "userdata" end

-- Whether Python takes the value for true.
function text.truthy(v)
  if text.is_null(v) or v == false or v == "" or v == 0 then return false end
  return type(v) ~= "table" or v[1] ~= nil
end

-- ---- ends of strings ----

-- What str.strip() takes away, besides the spaces of ASCII.
local wide = {}
for _, code in ipairs { 0x85, 0xa0, 0x1680, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000 } do
  wide[utf8.char(code)] = true
end
for code = 0x2000, 0x200a do wide[utf8.char(code)] = true end

local function is_space(byte)
  return byte == 32 or byte and (byte >= 9 and byte <= 13 or byte >= 28 and byte <= 31)
end

-- The length of the space that begins, or ends, at a byte of s; nil: there is none.
local function space_after(s, at)
  if is_space(s:byte(at)) then return 1 end
  return wide[s:sub(at, at + 1)] and 2 or wide[s:sub(at, at + 2)] and 3
end

local function space_before(s, at)
  if is_space(s:byte(at)) then return 1 end
  return wide[s:sub(at - 1, at)] and 2 or wide[s:sub(at - 2, at)] and 3
end

function text.strip(s)
  local first, last = 1, #s
  while first <= last and space_after(s, first) do first = first + space_after(s, first) end
  while last >= first and space_before(s, last) do last = last - space_before(s, last) end
  return s:sub(first, last)
end

function text.lstrip_lines(s) return s:sub((s:find("[^\n]") or #s + 1)) end

function text.rstrip_lines(s)
  local last = #s
  while last > 0 and s:byte(last) == 10 do last = last - 1 end
  return s:sub(1, last)
end

function text.strip_lines(s) return text.rstrip_lines(text.lstrip_lines(s)) end

function text.has(s, part) return s:find(part, 1, true) ~= nil end

-- What is before the first, or after the last, place where `mark` is; s if it is nowhere.
function text.before(s, mark) return s:sub(1, (s:find(mark, 1, true) or #s + 1) - 1) end

function text.after_last(s, mark)
  local from = 1
  while true do
    local _, last = s:find(mark, from, true)
    if not last then return s:sub(from) end
    from = last + 1
  end
end

-- ---- JSON ----

local escape = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r",
                 ["\t"] = "\\t", ["\f"] = "\\f", ["\b"] = "\\b" }

local function quote(s)
  return '"' .. s:gsub('[%z\1-\31"\\]', function(c)
    return escape[c] or ("\\u%04x"):format(c:byte())
  end) .. '"'
end

-- The fewest digits that give the number back, with an exponent where Python has one.
local function real(v)
  local s
  for digits = 0, 16 do
    s = ("%." .. digits .. "e"):format(v)
    if tonumber(s) == v then break end
  end
  local sign, whole, part, power = s:match("^(%-?)(%d)%.?(%d*)e([-+]%d+)$")
  power = tonumber(power)
  if power < -4 or power >= 16 then
    return ("%s%s%se%s%02d"):format(sign, whole, part == "" and "" or "." .. part,
                                    power < 0 and "-" or "+", math.abs(power))
  end
  local digits = whole .. part
  if power < 0 then return sign .. "0." .. ("0"):rep(-power - 1) .. digits end
  digits = digits .. ("0"):rep(power + 1 - #digits)
  local rest = digits:sub(power + 2)
  return sign .. digits:sub(1, power + 1) .. "." .. (rest == "" and "0" or rest)
end

local function scalar(v)
  if text.is_null(v) then return "null" end
  if type(v) == "string" then return quote(v) end
  if math.type(v) == "float" then return real(v) end
  return tostring(v)
end

local function items(v, indent, depth, parts)
  local out, object = {}, text.is_object(v)
  for i, x in ipairs(v) do
    if object then
      out[i] = quote(x) .. ": " .. text.tojson(v[x], indent, depth + 1)
    else
      out[i] = text.tojson(x, indent, depth + 1)
    end
  end
  if #out == 0 then return parts end
  if not indent then return parts:sub(1, 1) .. table.concat(out, ", ") .. parts:sub(2) end
  local line = "\n" .. (" "):rep(indent * (depth + 1))
  return parts:sub(1, 1) .. line .. table.concat(out, "," .. line) .. "\n" ..
         (" "):rep(indent * depth) .. parts:sub(2)
end

-- What json.dumps(v, ensure_ascii=False, indent=indent) gives.
function text.tojson(v, indent, depth)
  if type(v) ~= "table" then return scalar(v) end
  return items(v, indent, depth or 0, text.is_object(v) and "{}" or "[]")
end

-- What str(v) gives of a value that is no list and no object.
function text.str(v)
  if type(v) == "string" then return v end
  if text.is_null(v) then return "None" end
  if type(v) == "boolean" then return v and "True" or "False" end
  return scalar(v)
end

-- ---- pieces ----

-- A list of pieces and a function that adds one: put(text, learn).
function text.pieces()
  local list = {}
  return list, function(s, learn) list[#list + 1] = { s, learn = learn or false } end
end

-- The text of pieces.
function text.joined(pieces)
  local out = {}
  for i, p in ipairs(pieces) do out[i] = p[1] end
  return table.concat(out)
end

-- Templates without tools would write a call as an empty answer, which is learnt.
function text.without_tools(name, messages, tools)
  if tools then error(name .. " has no place for tools", 0) end
  for i, m in ipairs(messages) do
    if m.tool_calls then error(("message %d: %s has no place for tool calls"):format(i, name), 0) end
  end
end

-- The function of a tool or of a call, which some data has without a table around it.
function text.callee(call) return text.is_object(call["function"]) and call["function"] or call end

return text
