-- complete.lua - what the tab key offers: chains such as plan.mesh:co are looked up in
-- Lua's tables, the rest is a matter of where the cursor stands.
local host, fields, names = use "prompt/host", use "prompt/fields", use "prompt/names"
local scan, commands = use "prompt/scan", use "prompt/commands"
local api = use "prompt/api"
local find, gmatch, match, sub = string.find, string.gmatch, string.match, string.sub

local most, links = 2000, 16 -- links: tables behind __index that are followed

-- ---- matches ----

-- What is offered: names that begin with `prefix`, the text before the cursor that a match
-- replaces.
local prefix, found, suffixes

local function begin(text) prefix = text end

local function add(name, suffix)
  if #found >= most or suffixes[name] or sub(name, 1, #prefix) ~= prefix then return end
  found[#found + 1] = name
  suffixes[name] = suffix or ""
end

local function add_all(list) for _, name in ipairs(list) do add(name) end end

local function add_fields(scope, suffix)
  for _, f in ipairs(fields.of[scope] or {}) do add(f.key, suffix) end
end

-- Paths of a plan below "mesh." and so on.
local function add_path(path, suffix)
  local parent, name = match(path, "^(.*)%.([^.]*)$")
  local scope = fields.scope(parent or "")
  begin(name or path)
  if scope then add_fields(scope, suffix) end
end

-- The values that a field takes.
local function add_values(f)
  add_all(f.key == "schedule" and fields.schedules or f.values or {})
end

local function add_files(path, ending)
  local folder, name = match(path, "^(.-)([^/]*)$")
  begin(name)
  for file in gmatch(host.files(folder), "[^\0]+") do
    local hidden = sub(file, 1, 1) == "." and sub(name, 1, 1) ~= "."
    local wanted = not ending or sub(file, -#ending) == ending or find(file, "/$")
    if wanted and not hidden then add(file) end
  end
end

-- ---- looking things up ----

-- The table behind a value in its metatable's __index, or nil.
local function behind(v)
  local index = names.meta(v, "__index")
  return type(index) == "table" and index or nil
end

local function get(object, key) return object[key] end

-- value[key] or nil. The __index of weft's own objects is known to have no effect.
local function follow(v, key)
  local object = names.object(v)
  if object and type(key) == "string" then
    local d = api.find(object, key)
    if not d or d.method then return nil end
    local ok, field = pcall(get, v, key)
    return ok and field or nil
  end
  for _ = 1, links do
    local field
    if type(v) == "table" then field = rawget(v, key) end
    if field ~= nil then return field end
    v = behind(v)
    if v == nil then return nil end
  end
end

-- How many tokens before the end the chain begins that ends `back` before it; nil if it
-- begins with something that has no value yet, such as a call.
local function chain_begin(s, back)
  while true do
    local t = s.back(back)
    if t.kind == "]" then
      local key = s.back(back + 1).kind
      if (key ~= '"' and key ~= "0") or s.back(back + 2).kind ~= "[" then return nil end
      back = back + 3
    else
      if t.kind == '"' then return back end
      if t.kind ~= "a" then return nil end
      local dot = s.back(back + 1).kind
      if dot ~= "." and dot ~= ":" then return back end
      back = back + 2
    end
  end
end

local function key_of(t)
  if t.kind == '"' then return sub(t.text, 2, -2) end
  return t.kind == "0" and tonumber(t.text) or t.text
end

-- The value of the chain from `first` to `last` tokens before the end.
local function chain(s, first, last)
  local v = key_of(s.back(first))
  if s.back(first).kind ~= '"' then v = follow(host.globals, v) end
  for at = first - 1, last, -1 do
    local t = s.back(at)
    if t.kind == "a" or t.kind == '"' or t.kind == "0" then v = follow(v, key_of(t)) end
  end
  return v
end

-- The names in a value and in what it inherits from.
local function add_members(v, methods)
  local object = names.object(v)
  if object then
    for _, d in ipairs(api.of[object] or {}) do
      if d.method == methods then add(d.name, methods and "(") end
    end
    if #found == 0 and not methods then add_members(v, true) end
    return
  end
  -- A text has methods and no fields.
  if type(v) == "string" and not methods then return end
  local hides = sub(prefix, 1, 1) ~= "_"
  for _ = 1, links do
    for k, x in next, type(v) == "table" and v or {} do
      local call = type(x) == "function"
      local hidden = not names.is_name(k) or (hides and sub(k, 1, 1) == "_")
      if not hidden and (call or not methods) then add(k, call and "(") end
    end
    v = behind(v)
    if v == nil then return end
  end
end

-- ---- code ----

local function add_code(s)
  local back = s.typed and 2 or 1
  begin(s.typed and s.back(1).text or "")
  local before = s.back(back).kind
  if before == "." or before == ":" then
    local first = chain_begin(s, back + 1)
    return first and add_members(chain(s, first, back + 1), before == ":")
  end
  local b = s.bracket
  local new_item = before == "{" or before == "," or before == ";"
  if b.scope and b.kind == "{" and new_item then add_fields(b.scope, " = ") end
  if #found > 0 then return end
  add_members(host.globals, false)
  if prefix ~= "" then add_all(names.keywords) end
end

-- ---- texts ----

-- What functions take between quotes.
local arguments = {
  require = function() add "weft" end,
  group = function() add_all(host.axes) end,
  groups = function() add_all(host.axes) end,
  help = function(text) add_path(text) end,
}

local function add_text(s)
  local b, last, key = s.bracket, s.back(1), s.back(2)
  local f = last.kind == "{" and b.field
  if last.kind == "=" and key.kind == "a" then f = fields.find(b.scope, key.text) end
  local name = last.kind == "(" and key or last
  local argument = name.kind == "a" and arguments[name.text]
  begin(s.text)
  if b.scope == "tp_plan" and last.kind == "=" then
    add_all(host.styles)
  elseif b.scope == "axis" and b.items == 0 then
    add_path(s.text)
  elseif f and b.scope ~= "tp_plan" then
    add_values(f)
  elseif argument then
    return argument(s.text)
  end
  if #found == 0 then add_files(s.text) end
end

local function add_lua(text)
  local s = scan(text)
  if s.place == "code" then add_code(s) end
  if s.place == "text" then add_text(s) end
end

-- ---- commands ----

-- What follows the name of a command, by what it takes. A topic is a path of a plan, what
-- an object of the same name has, or the name of something.
local takes = { code = add_lua }

function takes.file(text) add_files(text, ".lua") end

function takes.topic(text)
  add_path(text)
  for _, d in ipairs(api.of[match(text, "^(.*)%.[^.]*$") or ""] or {}) do add(d.name) end
  if #found == 0 then add_lua(text) end
end

-- path=value: fields before the equals sign, what the field takes behind it.
function takes.assignment(text)
  local path, value = match(text, "^([^=]*)=(.*)$")
  if not path then return add_path(text, "=") end
  local parent, key = match(path, "^(.*)%.([^.]*)$")
  local f = fields.find(fields.scope(parent or ""), key or path)
  begin(value)
  if f then add_values(f) end
end

local function add_command(text)
  local name, rest = match(text, "^,(%S*) *(.*)$")
  if not find(text, " ", 1, true) then
    begin(name)
    for _, c in ipairs(commands.list) do add(c.name, c.form ~= "" and " ") end
    return
  end
  local c = commands.find(name)
  begin(rest)
  if c and c.takes then takes[c.takes](rest) end
end

-- What may stand at the end of `text`, a chunk of Lua, a ,command or a ?topic up to the
-- cursor: a sorted list. `replaces`: how many bytes at the end each stands for; `suffix`:
-- what follows the only one.
return function(text)
  found, suffixes = {}, {}
  begin ""
  local special, rest = match(text, "^([,?])(.*)$")
  if special == "," then add_command(text)
  elseif special == "?" then takes.topic(rest)
  else add_lua(text) end
  table.sort(found)
  found.replaces, found.suffix = #prefix, #found == 1 and suffixes[found[1]] or ""
  return found
end
