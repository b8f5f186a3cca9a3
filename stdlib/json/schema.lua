-- schema.lua - the JSON schema of what verbs print, made of the rows of members.lua. A type there is
--
--   string, integer, number, boolean, null, object, list      also joined by |
--   [T]                      a list
--   {a: T, b?: T}            an object; b may be absent
--   {*: T}                   an object with any names
--
-- and another word stands for itself, "error|warning".
local members, version = use "json/members", use "version"
local words = { string = "string", integer = "integer", number = "number", boolean = "boolean", null = "null",
                object = "object", list = "array" }

-- ---- types ----

-- The type that begins at a place of a text, and the place behind it.
local union

local function object_type(text, at)
  local out = { { "type", "object" } }
  local properties, required = {}, {}
  while true do
    local name, optional, behind = string.match(text, "^%s*([%w_*]+)(%??):%s*()", at)
    if not name then break end
    local value
    value, at = union(text, behind)
    if name == "*" then
      out[#out + 1] = { "additionalProperties", value }
    else
      properties[#properties + 1] = { name, value }
      if optional == "" then required[#required + 1] = name end
    end
    at = string.match(text, "^,()", at) or at
  end
  if #properties > 0 then
    out[#out + 1] = { "properties", properties }
    if #required > 0 then out[#out + 1] = { "required", { list = required } } end
  end
  return out, string.match(text, "^%s*}()", at) or error("no } in " .. text)
end

local function one_type(text, at)
  local behind = string.match(text, "^{()", at)
  if behind then return object_type(text, behind) end
  behind = string.match(text, "^%[()", at)
  if behind then
    local items, stop = union(text, behind)
    return { { "type", "array" }, { "items", items } }, string.match(text, "^%]()", stop) or error("no ] in " .. text)
  end
  local word, stop = string.match(text, "^([%a_]+)()", at)
  if not word then error("no type in " .. text .. " at " .. at) end
  if words[word] then return { { "type", words[word] } }, stop end
  return { { "const", word } }, stop
end

union = function(text, at)
  local any = {}
  repeat
    any[#any + 1], at = one_type(text, at)
    local behind = string.match(text, "^|()", at)
    at = behind or at
  until not behind
  return #any == 1 and any[1] or { { "anyOf", { list = any } } }, at
end

-- ---- sections ----

local function object_of(rows)
  local properties, required = {}, {}
  for _, row in ipairs(rows) do
    for name, optional in string.gmatch(row[1], "([%w_]+)(%??)") do
      local value = (union(row[2], 1))
      if row[3] then value = { { "description", row[3] }, table.unpack(value) } end
      properties[#properties + 1] = { name, value }
      if optional == "" then required[#required + 1] = name end
    end
  end
  return { { "type", "object" }, { "properties", properties }, { "required", { list = required } } }
end

-- A verb whose object stands alone prints the frame where there is none, with a result of null.
local function alone(section)
  local rows = {}
  for i, row in ipairs(members.frame) do
    rows[i] = row[1] == "command" and { "command", string.match(section[1], "^%a+") }
      or row[1] == "result" and { "result", "null" } or row
  end
  return { { "anyOf", { list = { object_of(section[2]), object_of(rows) } } } }
end

-- In the frame, the result is that of the verb, or null.
local function framed(section)
  local rows = {}
  for _, row in ipairs(members.frame) do rows[#rows + 1] = row[1] ~= "result" and row or nil end
  local out = object_of(rows)
  local result = { { "anyOf", { list = { { { "type", "null" } }, object_of(section[2]) } } } }
  table.insert(out[2][2], { "result", result })
  table.insert(out[3][2].list, "result")
  return out
end

-- ---- text ----

-- Objects are lists of { name, value }, lists are { list = }, all else are scalars.
local function encode(value, indent, out)
  if type(value) ~= "table" then
    out[#out + 1] = '"' .. string.gsub(tostring(value), '[\\"]', "\\%0") .. '"'
    return
  end
  local items, open, close = value.list or value, "{", "}"
  if value.list then open, close = "[", "]" end
  local deeper = indent .. "  "
  out[#out + 1] = open
  for i, item in ipairs(items) do
    out[#out + 1] = (i > 1 and ",\n" or "\n") .. deeper
    if not value.list then out[#out + 1] = '"' .. item[1] .. '": ' end
    encode(value.list and item or item[2], deeper, out)
  end
  out[#out + 1] = (#items > 0 and "\n" .. indent or "") .. close
end

return function()
  local defs, any = {}, {}
  for _, section in ipairs(members.sections) do
    local name = string.gsub(section[1], "[ -]+", "-")
    defs[#defs + 1] = { name, section.bare and alone(section) or framed(section) }
    any[#any + 1] = { { "$ref", "#/$defs/" .. name } }
  end
  local out = {}
  encode({
    { "$schema", "https://json-schema.org/draft/2020-12/schema" },
    { "title", "weft --json" },
    { "description", "What the verbs of weft " .. version .. " print with --json: $defs has a schema for each, "
      .. "check for weft check. New members may come." },
    { "anyOf", { list = any } },
    { "$defs", defs },
  }, "", out)
  return table.concat(out) .. "\n"
end
