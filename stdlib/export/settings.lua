-- settings.lua - settings that are written: keys in order, each with a value and the field of the
-- plan that it says; as YAML and TOML, with the fields as comments, and as JSON, which has none.
local scalar = use "import/scalar"
local shown = use "shown"
local settings = {}
settings.__index = settings

function settings.new() return setmetatable({ root = { list = {}, at = {} } }, settings) end

-- The setting `key` ("a.b"; a step that has a point of its own is not possible) of a text, number,
-- boolean, scalar.null, list of these, or a table of them; nil: it is not said.
function settings:put(key, value, field)
  if value == nil then return end
  if type(value) == "table" and value[1] == nil and value ~= scalar.null then
    for _, name in ipairs(keys(value)) do self:put(key .. "." .. name, value[name], field) end
    return
  end
  local node = self.root
  for step in string.gmatch(key, "[^.]+") do
    if not node.at[step] then
      local new = { name = step, list = {}, at = {} }
      node.at[step], node.list[#node.list + 1] = new, new
    end
    node = node.at[step]
  end
  node.value, node.field = value, field
end

-- ---- values ----

local escapes = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\t"] = "\\t" }
local function escaped(c) return escapes[c] or string.format("\\u%04x", string.byte(c)) end
local function quoted(text) return '"' .. string.gsub(text, '[%c"\\\x7f]', escaped) .. '"' end

-- With a point: readers of YAML 1.1 take 1e-05 for a text.
local function number(n)
  if math.type(n) == "integer" then return tostring(n) end
  if n == math.floor(n) and math.abs(n) < 1e15 then return string.format("%.1f", n) end
  local short = string.format("%.15g", n)
  if tonumber(short) ~= n then short = string.format("%.17g", n) end
  if not string.find(short, ".", 1, true) then short = string.gsub(short, "e", ".0e") end
  return short
end

local words = {}
for word in string.gmatch("y n yes no on off true false null none nan inf", "%a+") do words[word] = true end

-- A word that is nothing else; all other texts have quotes.
local function plain(text)
  return string.find(text, "^[%a_][%w_./-]*$") and not words[string.lower(text)]
end

local function value_of(v, yaml)
  if v == scalar.null then return "null" end
  if type(v) == "number" then return number(v) end
  if type(v) == "boolean" then return tostring(v) end
  if type(v) == "string" then return yaml and plain(v) and v or quoted(v) end
  local parts = {}
  for i, item in ipairs(v) do parts[i] = value_of(item, yaml) end
  return "[" .. table.concat(parts, ", ") .. "]"
end

-- ---- forms ----

local function add_yaml(out, node, indent)
  for _, child in ipairs(node.list) do
    local head = indent .. (plain(child.name) and child.name or quoted(child.name)) .. ":"
    if child.value ~= nil then
      local note = child.field and "  # " .. child.field or ""
      out[#out + 1] = head .. " " .. value_of(child.value, true) .. note
    else
      out[#out + 1] = head
      add_yaml(out, child, indent .. "  ")
    end
  end
end

-- `head`: lines of the comment above.
function settings:yaml(head)
  local out = {}
  for i, line in ipairs(head) do out[i] = "# " .. shown(line) end
  out[#out + 1] = ""
  add_yaml(out, self.root, "")
  return table.concat(out, "\n") .. "\n"
end

-- ---- TOML ----

local function add_toml(out, node, path)
  for _, child in ipairs(node.list) do
    if child.value ~= nil then
      local note = child.field and "  # " .. child.field or ""
      out[#out + 1] = child.name .. " = " .. value_of(child.value) .. note
    end
  end
  for _, child in ipairs(node.list) do
    if child.value == nil then
      local name = path .. child.name
      out[#out + 1] = ""
      out[#out + 1] = "[" .. name .. "]"
      add_toml(out, child, name .. ".")
    end
  end
end

function settings:toml(head)
  local out = {}
  for i, line in ipairs(head) do out[i] = "# " .. shown(line) end
  add_toml(out, self.root, "")
  return table.concat(out, "\n") .. "\n"
end

local function add_values(at, node, path)
  for _, child in ipairs(node.list) do
    at[path .. child.name] = child.value
    add_values(at, child, path .. child.name .. ".")
  end
end

-- { ["a.b"] = value }
function settings:values()
  local at = {}
  add_values(at, self.root, "")
  return at
end

local function add_json(out, node, indent)
  for i, child in ipairs(node.list) do
    local head, comma = indent .. quoted(child.name) .. ": ", i < #node.list and "," or ""
    if child.value ~= nil then
      out[#out + 1] = head .. value_of(child.value) .. comma
    else
      out[#out + 1] = head .. "{"
      add_json(out, child, indent .. "  ")
      out[#out + 1] = indent .. "}" .. comma
    end
  end
end

function settings:json()
  local out = { "{" }
  add_json(out, self.root, "  ")
  out[#out + 1] = "}"
  return table.concat(out, "\n") .. "\n"
end

return settings
