-- options.lua - tables of options, as functions take them.
local format = string.format

local options = {}

local function failf(...) fail(format(...)) end

-- The table, or an empty one for nil; it may have these names only.
function options.read(t, names, method)
  if t == nil then return {} end
  expected(t, "table", method)
  local known = {}
  for _, name in ipairs(names) do known[name] = true end
  for key in next, t do
    local name = type(key) == "string" and key or "1"
    if not known[name] then
      local near = suggest(name, names)
      failf("there is no option '%s'%s", name,
        near and format(" (did you mean '%s'?)", near) or "")
    end
  end
  return t
end

-- An integer from `low` to `high`, or nil.
function options.integer(t, key, low, high)
  local v = t[key]
  if v == nil then return nil end
  local n = math.type(v) and math.tointeger(v)
  if not n or n < low or n > high then
    failf("%s must be an integer from %d to %d", key, low, high)
  end
  return n
end

-- A number as text that reads as the same number: 14 digits where these are enough.
function options.number(v)
  local s = tostring(v)
  return tonumber(s) == v and s or format("%.17g", v)
end

-- "name=value" for each field of the option `key`, in the order of the names.
function options.assignments(t, key)
  local fields, list = t[key], {}
  if fields == nil then return nil end
  if type(fields) ~= "table" then failf("%s: expected a table of names and values", key) end
  for i, name in ipairs(keys(fields) or failf("%s: the keys are names", key)) do
    local v = rawget(fields, name)
    local kind = type(v)
    if type(name) ~= "string" then
      failf('%s: written { ["name"] = value }, not as a list', key)
    end
    if kind ~= "string" and kind ~= "number" and kind ~= "boolean" then
      failf('%s: the value of "%s" is a %s, not a string, number or boolean', key, name, kind)
    end
    list[i] = name .. "=" .. (kind == "number" and options.number(v) or tostring(v))
  end
  return list
end

-- The folders of the option `data`: one or a list of them.
function options.folders(t)
  local data, list = t.data, {}
  if type(data) == "string" then return { data } end
  if data == nil then return nil end
  if type(data) ~= "table" then fail "data: expected a folder or a list of folders" end
  for i = 1, rawlen(data) do
    list[i] = rawget(data, i)
    if type(list[i]) ~= "string" then
      failf("data: item %d is a %s, not the name of a folder", i, type(list[i]))
    end
  end
  return list
end

-- weft.load(path, options): the arguments of what loads.
function options.load(path, t)
  if type(path) == "number" then path = tostring(path) end
  expected(path, "string", "load")
  t = options.read(t, { "data", "define", "set" }, "load")
  return path, options.assignments(t, "define"), options.assignments(t, "set"),
    options.folders(t)
end

return options
