-- plan_file.lua - a plan with the fields of a layout, as the text of a plan file and as
-- options of the command line.
local quote = use "import/quote"
local format = string.format
local plan_file = {}

local FIRST = { "name", "model", "cluster", "mesh", "strategy", "tp_plan", "pp_plan", "schedule", "precision",
                "recompute", "cp", "moe", "batch" }

local function is_empty(v) return type(v) == "table" and next(v) == nil and not builder(v) end

-- The first value that has no text: a function of the plan.
local function unwritable(v, path)
  if type(v) == "function" or type(v) == "userdata" then return path, type(v) end
  for key, item in next, type(v) == "table" and v or {} do
    local found, kind = unwritable(item, format("%s.%s", path, tostring(key)))
    if found then return found, kind end
  end
end

-- Values as quote has them, tables of builders with their builder.
local function source(v)
  if type(v) ~= "table" then return quote.value(v) end
  local parts, list = {}, rawlen(v)
  for i = 1, list do parts[i] = source(rawget(v, i)) end
  for _, key in ipairs(keys(v)) do
    if type(key) == "string" then parts[#parts + 1] = quote.key(key) .. " = " .. source(rawget(v, key)) end
  end
  if builder(v) == "between" then return format("weft.between(%s, %s)", source(v.low), source(v.high)) end
  local marked = builder(v) and builder(v) ~= "tp_plan" -- a copy, which may have been changed
  local head = marked and "weft." .. builder(v) .. " " or ""
  return #parts == 0 and head .. "{}" or head .. "{ " .. table.concat(parts, ", ") .. " }"
end

local function set_path(spec, path, value)
  local key, rest = string.match(path, "^([^.]+)%.(.+)$")
  if not key then
    spec[path] = value
    return
  end
  if type(spec[key]) ~= "table" then spec[key] = {} end
  set_path(spec[key], rest, value)
end

-- Raises what no file could have, of a plan or of what a search leaves of it: the schedule is one
-- of several, or not used.
function plan_file.check(spec, searched)
  local kept = {}
  for name, value in next, spec do
    if name ~= "schedule" or not searched then kept[name] = value end
  end
  local path, kind = unwritable(kept, "plan")
  if path then
    fail(format("weft best: %s is a %s of the plan, which no other file has; set the fields of the layout "
      .. "in the plan itself, or with --set", path, kind))
  end
end

-- The fields of `list`, which are { path, value }, in a copy of the plan's.
function plan_file.text(plan, list, comment)
  local spec = plan.spec
  for _, field in ipairs(list) do set_path(spec, field[1], field[2]) end
  plan_file.check(spec)
  local names, rank = {}, {}
  for i, name in ipairs(FIRST) do rank[name] = i end
  for _, name in ipairs(keys(spec)) do
    if not is_empty(spec[name]) or name == "data" then names[#names + 1] = name end
  end
  table.sort(names, function(a, b)
    local ra, rb = rank[a] or 100, rank[b] or 100
    if ra ~= rb then return ra < rb end
    return a < b
  end)
  local out = {}
  for _, line in ipairs(comment) do out[#out + 1] = "-- " .. line end
  out[#out + 1] = "local weft = require \"weft\"\n\nreturn weft.plan {"
  for _, name in ipairs(names) do out[#out + 1] = format("  %s = %s,", quote.key(name), source(spec[name])) end
  out[#out + 1] = "}\n"
  return table.concat(out, "\n")
end

-- A word for a shell: quoted, unless it is plain.
function plan_file.word(s)
  if string.find(s, "^[%w_./=,:@%%+-]+$") then return s end
  return "'" .. string.gsub(s, "'", "'\\''") .. "'"
end

-- "--set 'mesh={ tp = 4 }' ...", for a shell.
function plan_file.options(list)
  local out = {}
  for _, field in ipairs(list) do
    if not is_empty(field[2]) then
      local value = type(field[2]) == "string" and field[2] or source(field[2])
      out[#out + 1] = format("--set '%s=%s'", field[1], string.gsub(value, "'", "'\\''"))
    end
  end
  return table.concat(out, " ")
end

return plan_file
