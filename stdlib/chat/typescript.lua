-- typescript.lua - JSON schemas of tools as the TypeScript that gpt-oss reads.
local text = require "weft.chat.text"
local typescript = {}

local plain = { number = "number", integer = "number", boolean = "boolean" }
local items_of = { string = "string[]", number = "number[]", integer = "number[]",
                   boolean = "boolean[]" }
local type_of

local function is_in(list, name)
  for _, x in ipairs(list) do
    if x == name then return true end
  end
  return false
end

local function required_of(spec)
  return text.is_list(spec.required) and spec.required or {}
end

local function joined(list, between)
  local out = {}
  for i, x in ipairs(list) do out[i] = text.str(x) end
  return table.concat(out, between)
end

local function array_type(spec)
  local null = text.truthy(spec.nullable) and " | null" or ""
  if not text.truthy(spec.items) then return "any[]" .. null end
  local known = items_of[spec.items.type]
  if known then return known .. null end
  local inner = type_of(spec.items)
  local long = inner == "object | object" or utf8.len(inner) > 50
  return (long and "any" or inner) .. "[]" .. null
end

-- The spaces and lines here are those of the model's template. It means to write "any" for
-- objects among the variants, but looks at a variable of Jinja that a loop cannot set.
local function variants_type(list)
  local out = {}
  for i, x in ipairs(list) do
    out[#out + 1] = type_of(x)
    if text.truthy(x.description) then out[#out + 1] = "// " .. x.description end
    if x.default ~= nil then
      out[#out + 1] = (" "):rep(20) .. "// default: " .. text.tojson(x.default)
    end
    if i < #list then out[#out + 1] = " | \n" end
  end
  return table.concat(out)
end

local function object_type(spec)
  if not text.truthy(spec.properties) then return "object" end
  local out = {}
  for i, name in ipairs(spec.properties) do
    out[i] = name .. (is_in(required_of(spec), name) and "" or "?") .. ": " .. "\n" ..
             (" "):rep(16) .. type_of(spec.properties[name])
  end
  return "{\n" .. table.concat(out, ", ") .. "}"
end

local function string_type(spec)
  if text.truthy(spec.enum) then return '"' .. joined(spec.enum, '" | "') .. '"' end
  return text.truthy(spec.nullable) and "string | null" or "string"
end

function type_of(spec)
  local kind = spec.type
  if kind == "array" then return array_type(spec) end
  if text.is_list(kind) and #kind > 0 then return joined(kind, " | ") end
  if text.truthy(spec.oneOf) then return variants_type(spec.oneOf) end
  if kind == "string" then return string_type(spec) end
  if kind == "object" then return object_type(spec) end
  return plain[kind] or "any"
end

local function default_text(spec)
  if spec.default == nil then return "" end
  if text.truthy(spec.enum) then return ", // default: " .. text.str(spec.default) end
  if text.truthy(spec.oneOf) then return "// default: " .. text.str(spec.default) end
  return ", // default: " .. text.tojson(spec.default)
end

local function parameter(name, spec, required)
  return (text.truthy(spec.description) and "// " .. spec.description .. "\n" or "") .. name ..
         (is_in(required, name) and "" or "?") .. ": " .. type_of(spec) .. default_text(spec) ..
         ",\n"
end

local function declaration(tool)
  local f = text.callee(tool)
  if type(f.description) ~= "string" then
    error(('the tool %s has no description, which gpt-oss needs'):format(f.name), 0)
  end
  local head = "// " .. f.description .. "\ntype " .. f.name .. " = "
  local parameters = f.parameters
  if not text.truthy(parameters) or not text.truthy(parameters.properties) then
    return head .. "() => any;\n\n"
  end
  local out = { head, "(_: {\n" }
  for _, name in ipairs(parameters.properties) do
    out[#out + 1] = parameter(name, parameters.properties[name], required_of(parameters))
  end
  return table.concat(out) .. "}) => any;\n\n"
end

function typescript.namespace(name, tools)
  local out = { "## " .. name .. "\n\nnamespace " .. name .. " {\n\n" }
  for _, tool in ipairs(tools) do out[#out + 1] = declaration(tool) end
  return table.concat(out) .. "} // namespace " .. name
end

return typescript
