-- grid.lua - the points of a sweep: all combinations of the values of some fields.
local format, match, sub = string.format, string.match, string.sub
local figures, of_plan = use "sweep/figures", use "sweep/plan"

local most_axes, most_points = 32, 10000000
local grid = {}

local function failf(...) fail(format(...)) end

-- ---- values as texts ----

-- What has no text of its own is what it is called.
local function plain(v)
  local kind, meta = type(v), debug.getmetatable(v)
  if kind == "number" or kind == "string" or kind == "boolean" then return tostring(v) end
  if meta and rawget(meta, "__tostring") then return tostring(v) end
  local name = meta and rawget(meta, "__name")
  return type(name) == "string" and name or kind
end

-- "{ 7, 8, 8 }", "zbv": short enough for a table.
local function text_of(v, nest)
  if type(v) ~= "table" then return plain(v) end
  local list = nest < 10 and keys(v)
  if not list then return "{...}" end
  for i, k in ipairs(list) do
    local text = text_of(rawget(v, k), nest + 1)
    list[i] = math.type(k) == "integer" and text or format("%s = %s", k, text)
  end
  return "{" .. (#list > 0 and " " or "") .. table.concat(list, ", ") .. " }"
end

-- ---- fields ----

local function find_field(path, scope, key)
  local fields = of_plan.fields(scope)
  if fields[key] then return fields[key] end
  local near = suggest(key, keys(fields))
  failf("a plan has no field '%s'%s", path,
    near and format(" (did you mean '%s'?)", near) or "")
end

-- The first part of a path is a field of a plan; the second one of that field, where it is
-- a table of fields. What lies deeper is checked with the plan.
local function check_path(path)
  local rest = sub(path, 1, 5) == "plan." and sub(path, 6) or path
  local key, second = match(rest, "^([^.%[]*)%.?([^.%[]*)")
  local scope = find_field(path, "plan", key)
  if scope ~= "" and sub(rest, #key + 1, #key + 1) == "." then
    find_field(path, scope, second)
  end
end

-- ---- reading ----

-- A key beside the list would be left out without a word.
local function list_only(t, n, what)
  local odd
  for k in next, t do
    local s = plain(k)
    if (math.type(k) ~= "integer" or k < 1 or k > n) and (not odd or s < odd) then odd = s end
  end
  if odd then failf('%s is a list, but has a key "%s" besides', what, odd) end
end

local function read_axis(x, i, fields)
  if type(x) ~= "table" then
    failf('axis %d is a %s, not { "path", value, value, ... }', i, type(x))
  end
  local path = rawget(x, 1)
  if type(path) ~= "string" then
    failf('axis %d: the first item is the path of a field, such as "mesh.tp"', i)
  end
  if fields then check_path(path) end
  local axis = { path = path, field = path, n = rawlen(x) - 1, values = x, text = {} }
  if fields then
    axis.field = of_plan.path(path) or failf('"%s" is not the path of a field', path)
  end
  if axis.n < 1 then failf("axis %d (%s) has no values", i, path) end
  for k = 1, axis.n do
    local v = rawget(x, k + 1)
    if v == nil then failf("axis %d (%s): value %d is nil", i, path, k) end
    axis.text[k] = text_of(v, 0)
  end
  list_only(x, axis.n + 1, format("axis %d (%s)", i, path))
  return axis
end

-- Two axes may not set the same field: rows would name a value that was not used.
local function check_axis(g, x, i, fields)
  local path = x.path
  local column = figures.column[path] or path == "comm_gib" or path == "worst_rank"
  if not fields and column then
    failf("axis %d: %s is the name of a column; choose another", i, path)
  end
  for _, was in ipairs(g) do
    if was.field == x.field then failf("the grid has two axes %s", was.path) end
    local next = sub(was.field, #x.field + 1, #x.field + 1)
    if fields and sub(was.field, 1, #x.field) == x.field and (next == "." or next == "[") then
      failf("axis %s would set %s again: put it first", path, was.path)
    end
  end
end

local function last_part(path) return match(path, "[^.]*$") end

-- `short`: the last part of a path where no other axis has it, as points have it; `name`, for
-- tables and rows: where no column has it, either.
local function name_axes(g)
  for i, x in ipairs(g) do
    local last = last_part(x.path)
    local taken = match(last, '^"') or match(last, "%]")
    for k, other in ipairs(g) do
      taken = taken or k ~= i and last == last_part(other.path)
    end
    x.short = taken and x.path or last
    x.name = figures.column[last] and x.path or x.short
  end
end

-- { tp = { 1, 2 } } is how weft.best and Python write it: the first such key as an axis.
local sections = { mesh = { "tp", "pp", "dp", "cp", "ep", "etp" }, batch = { "global", "micro", "seq" } }
local function no_axes(list)
  local example = '{ "mesh.tp", 1, 2 }'
  for key, values in next, list do
    if type(key) == "string" and type(values) == "table" then
      for section, names in next, sections do
        for _, name in ipairs(names) do
          if name == key then key = section .. "." .. key end
        end
      end
      local texts = { format("%q", key) }
      for i = 1, rawlen(values) do
        local v = rawget(values, i)
        texts[i + 1] = type(v) == "string" and format("%q", v) or text_of(v, 0)
      end
      example = "{ " .. table.concat(texts, ", ") .. " }"
      break
    end
  end
  failf("the grid has no axes, each of which is a field and its values: weft.grid { %s }", example)
end

-- The axes of a list, and how many points they have; `fields`: they must be fields of a
-- plan.
function grid.read(list, fields)
  if type(list) ~= "table" then failf("expected a list of axes, got %s", type(list)) end
  local n, g = rawlen(list), { points = 1 }
  if n < 1 then no_axes(list) end
  if n > most_axes then failf("the grid has more than %d axes", most_axes) end
  for i = 1, n do
    local x = read_axis(rawget(list, i), i, fields)
    check_axis(g, x, i, fields)
    g[i] = x
    g.points = g.points * x.n
    if g.points > most_points then
      failf("the grid has more than %d million points", most_points // 1000000)
    end
  end
  list_only(list, n, "the grid")
  name_axes(g)
  return g
end

-- ---- points ----

-- The numbers of the values of a point, from 1: the last axis runs fastest.
function grid.choice(g, point)
  local choice = {}
  for i = #g, 1, -1 do
    choice[i], point = point % g[i].n + 1, point // g[i].n
  end
  return choice
end

-- The fields of a point; a script that changes them changes its copy.
function grid.fields(g, point)
  local t = {}
  for i = #g, 1, -1 do
    local x = g[i]
    local v = rawget(x.values, point % x.n + 2)
    if type(v) == "table" then v = of_plan.copy(v) end
    t[x.path], t[x.name], point = v, v, point // x.n
  end
  return t
end

-- A name that is none would be nil, for which a condition is false of all points alike.
local function axes_only(g)
  local names = {}
  for _, x in ipairs(g) do names[x.short], names[x.path] = true, true end
  return { __index = function(_, key)
    local near = type(key) == "string" and suggest(key, keys(names))
    error(format("there is no axis '%s'%s", plain(key),
      near and format(" (did you mean '%s'?)", near) or ""), 2)
  end }
end

-- What functions of a script get that are asked about a point.
function grid.point(g, point)
  local t = grid.fields(g, point)
  for _, x in ipairs(g) do t[x.short] = t[x.path] end
  return t
end

-- For conditions. Functions of plans may keep a point, which is plain data there.
function grid.strict_point(g, point)
  g.meta = g.meta or axes_only(g)
  return setmetatable(grid.point(g, point), g.meta)
end

-- ---- weft.grid ----

local meta = { __name = "weft.grid" }

function meta.__len(list) return grid.read(list, false).points end

-- "grid of 24 points: mesh.tp 1, 2, 4, 8; schedule gpipe, 1f1b"
function meta.__tostring(list)
  local g, axes = grid.read(list, false), {}
  for i, x in ipairs(g) do axes[i] = x.path .. " " .. table.concat(x.text, ", ") end
  return format("grid of %d points: %s", g.points, table.concat(axes, "; "))
end

function grid.make(list)
  grid.read(list, false)
  return setmetatable(list, meta)
end

return grid
