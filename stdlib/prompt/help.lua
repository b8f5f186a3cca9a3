-- help.lua - what is known about a topic: a field, a function, a method, an object or a
-- ,command; from what scripts can call and from the fields of plans.
local host, fields, names = use "prompt/host", use "prompt/fields", use "prompt/names"
local api, commands = use "prompt/api", use "prompt/commands"
local presets = use "presets"
local find, format, match, rep = string.find, string.format, string.match, string.rep
local sub = string.sub

local help = {}

-- ---- what is printed ----

local function entry(d) return d.form .. "\n  " .. d.doc end

local function has(list, word)
  for _, w in ipairs(list) do if w == word then return true end end
end

-- As one writes it: mesh = { tp = ... }, strategy = { "zero", stage = ... },
-- weft.adamw { eps = ... }.
local function written(f)
  if f.scope == "plan" then return f.key .. " = ..." end
  local named = has(fields.schedules, f.scope) and "schedule"
    or has(fields.find("plan", "strategy").values, f.scope) and "strategy"
  if named then return format('%s = { "%s", %s = ... }', named, f.scope, f.key) end
  local built = f.scope ~= "mesh" and api.find("weft", f.scope)
  return format(built and "weft.%s { %s = ... }" or "%s = { %s = ... }", f.scope, f.key)
end

local function field(f)
  local form, default, doc = host.texts(f.number)
  default = default == "required" and "; required"
    or default ~= "-" and "; default: " .. default or ""
  return written(f) .. "   " .. form .. default .. "\n  " .. doc
end

local function add_scope(scope, out)
  local widest = 0
  for _, f in ipairs(fields.of[scope]) do widest = math.max(widest, #f.key) end
  for _, f in ipairs(fields.of[scope]) do
    local _, _, doc = host.texts(f.number)
    local space = rep(" ", widest + 2 - #f.key)
    if not f.alias then out[#out + 1] = "  " .. f.key .. space .. doc end
  end
end

-- Scopes beside those of the plan's own objects, on lines of at most 79 characters.
local function scopes()
  local lines, line, last = {}, " ", "plan"
  for _, f in ipairs(fields.list) do
    if f.scope ~= last and f.scope ~= "mesh" then
      last = f.scope
      if #line + 1 + #last > 79 then
        lines[#lines + 1] = line
        line = " "
      end
      line = line .. " " .. last
    end
  end
  lines[#lines + 1] = line
  return table.concat(lines, "\n")
end

function help.overview()
  local out = {}
  for i, c in ipairs(commands.list) do
    out[i] = format("  ,%-6s %-11s %s", c.name, c.form, c.doc)
  end
  return table.concat(out, "\n") .. [[

  ?topic              what is known about a field, function or object
A value is printed and kept as _; a ; at the end of the line hides it.
Ctrl-C stops what runs, the tab key completes.
Topics: weft (functions), plan and mesh (objects and fields), names of schedules
and of presets (?1f1b, ?llama3-8b), and fields of
]] .. scopes()
end

-- ---- finding it ----

-- The kind of object that a name stands for: itself, or that of a global variable.
local function object_of(name)
  return api.of[name] and name or names.object(rawget(host.globals, name))
end

local function add_api(owner, name, out)
  local object = owner ~= "" and object_of(owner)
  if owner ~= "" and not object then return end
  for _, d in ipairs(object and api.of[object] or api.list) do
    if d.name == name then out[#out + 1] = entry(d) end
  end
  object = owner == "" and object_of(name)
  for _, d in ipairs(object and api.of[object] or {}) do out[#out + 1] = entry(d) end
end

local function add_schema(owner, name, out)
  local scope = fields.scope(owner) or fields.known(owner)
  local f = fields.find(scope, name)
  local below = f and fields.below(scope, name)
  if f then out[#out + 1] = field(f) end
  if not below and owner == "" then below = name end
  if below and fields.of[below] then
    out[#out + 1] = format("fields of %s:", owner == "" and below or owner)
    add_scope(below, out)
  end
end

-- What a file of the library says of itself at its begin, without its own name.
local function about(folder, name)
  local text = host.about(folder .. name)
  return text and string.gsub(string.gsub(text, "^[^ ]+%.lua %- ", ""), "\n+$", "")
end

-- A value of a preset, as a plan would write it.
local function literal(v)
  if type(v) ~= "table" then return type(v) == "string" and format("%q", v) or tostring(v) end
  local parts = {}
  for i, one in ipairs(v) do parts[i] = literal(one) end
  for _, key in ipairs(keys(v)) do
    if type(key) == "string" then parts[#parts + 1] = key .. " = " .. literal(v[key]) end
  end
  return "{ " .. table.concat(parts, ", ") .. " }"
end

-- Schedules and models that have a name: schedule = "1f1b", weft.model "llama3-8b".
local function add_named(name, out)
  local preset = presets[name]
  if has(fields.schedules, name) then
    local text = about("schedules/", name)
    if text then out[#out + 1] = format('schedule = "%s"\n  %s', name, (string.gsub(text, "\n", "\n  "))) end
  elseif preset then
    local lines = { format('weft.model "%s"', name), "  a preset of the architecture " .. preset[1] .. ":" }
    for _, key in ipairs(keys(preset)) do
      if key ~= 1 then lines[#lines + 1] = format("  %s = %s", key, literal(preset[key])) end
    end
    out[#out + 1] = table.concat(lines, "\n")
  end
end

-- "?presets": by architecture; other public names are too many.
local function add_presets(out)
  local by, names_of = {}, {}
  for _, name in ipairs(keys(presets)) do
    local architecture = presets[name][1]
    if not by[architecture] then names_of[#names_of + 1] = architecture end
    by[architecture] = (by[architecture] and by[architecture] .. ", " or "") .. name
  end
  table.sort(names_of)
  out[1] = "presets of weft.model by architecture; it knows public names such as\n"
    .. '"Qwen/Qwen2.5-7B", too; ?NAME has the sizes of a preset'
  for _, architecture in ipairs(names_of) do
    out[#out + 1] = "  " .. architecture .. rep(" ", 13 - #architecture) .. " " .. by[architecture]
  end
end

-- The nearest of all names that have the same owner.
local function nearest(owner, name)
  local all = {}
  local object = owner ~= "" and object_of(owner)
  for _, d in ipairs(owner == "" and api.list or api.of[object] or {}) do
    all[#all + 1] = d.name
  end
  for _, f in ipairs(fields.of[fields.scope(owner)] or {}) do all[#all + 1] = f.key end
  for _, one in ipairs(owner == "" and fields.schedules or {}) do all[#all + 1] = one end
  for _, one in ipairs(owner == "" and keys(presets) or {}) do all[#all + 1] = one end
  local near = suggest(name, all)
  return near and owner ~= "" and owner .. "." .. near or near
end

-- The text about a topic such as "mesh.tp" or "plan:with"; nil and a message if nothing is
-- known.
function help.topic(topic)
  if sub(topic, 1, 1) == "," then
    local c = commands.find(sub(topic, 2))
    if c then return format(",%s%s%s\n  %s", c.name, c.form == "" and "" or " ", c.form, c.doc) end
  end
  local out, path = {}, match(topic, "^[^( {]*")
  local owner, name = match(path, "^(.*)[.:]([^.:]*)$")
  owner, name = owner or "", name or path
  if path == "presets" then add_presets(out) end
  add_named(path, out)
  add_api(owner, name, out)
  add_schema(owner, name, out)
  if #out > 0 then return table.concat(out, "\n") end
  local near = nearest(owner, name) or suggest(path, keys(presets))
  return nil, format("nothing is known about '%s'", topic)
    .. (near and format(" (did you mean '%s'?)", near) or "")
end

-- ---- help(x) ----

-- The topic that a function stands for, if it is one of weft's.
local function function_topic(f)
  for _, d in ipairs(api.list) do
    local methods = d.object == "weft" and host.weft or names.methods(d.object)
    if rawget(methods, d.name) == f then return d.object .. "." .. d.name end
  end
end

-- The topic that a value stands for; nil and a message if it is none of weft's.
local function topic_of(x)
  if type(x) == "string" then return x end
  local topic = names.object(x) or x == host.weft and "weft"
    or type(x) == "function" and function_topic(x)
  return topic or nil, "help knows weft's functions and objects and names in quotes, not "
    .. "this " .. type(x)
end

-- help(x), or help(): the text, or nil and a message.
function help.about(given, x)
  if not given then return help.overview() end
  local topic, why = topic_of(x)
  if not topic then return nil, why end
  return help.topic(topic)
end

return help
