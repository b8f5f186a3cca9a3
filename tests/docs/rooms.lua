-- rooms.lua - what a reader of the sources may count on: every folder of sources has a README
-- that names its files and only files that are there, no folder has more than 20 sources, no two
-- files have one name, files and rooms do not include each other in circles, and no header declares
-- functions of another room. Prints what is not so.
--
--   weft lua tests/docs/rooms.lua [circles]     in the root of the sources
local MAX_SOURCES, MAX_CIRCLE, MAX_CIRCLES, LINES = 20, 3, 5, { 4, 30 }

local complaints = 0
local function complain(...)
  complaints = complaints + 1
  print(string.format(...))
end

local function lines_of(command)
  local pipe, list = assert(io.popen(command)), {}
  for line in pipe:lines() do list[#list + 1] = line end
  assert(pipe:close(), command)
  return list
end

local function read(path)
  local f = io.open(path, "rb")
  if not f then return nil end
  local s = f:read "a"
  f:close()
  return s
end

local function folder_of(path) return path:match "^(.*)/[^/]*$" end
local function base_of(path) return path:match "([^/]*)$" end
local function is_source(path) return path:find "%.c$" or path:find "%.cu$" end

local all, there = {}, {}
for _, path in ipairs(lines_of "find . -type f -not -path './build*' -not -path './.git/*'") do
  all[#all + 1] = path:sub(3)
end
table.sort(all)
for _, path in ipairs(all) do there[path] = true end
local house = {}
for _, path in ipairs(all) do
  if path:find "^vm/" or path:find "^bindings/" or path:find "^kernels/" then
    house[#house + 1] = path
  end
end

-- ---- folders ----

local sources = {}
for _, path in ipairs(house) do
  local d = folder_of(path)
  if is_source(path) then sources[d] = (sources[d] or 0) + 1 end
end

local function below(folder, name)
  if there[folder .. "/" .. name] or there[name] then return true end
  local tail = "/" .. base_of(name)
  for _, path in ipairs(all) do
    if path:sub(-#tail) == tail and path:sub(1, #folder + 1) == folder .. "/" then return true end
  end
  return false
end

local function check_names(path, text)
  for name in text:gmatch "`([%w_./]+%.%a+)`" do
    local kind = name:match "%.(%a+)$"
    local file = kind == "c" or kind == "h" or kind == "def" or kind == "cu" or kind == "cuh"
    if file and not name:find "%u%u" and not below(folder_of(path) or ".", name) and
       not below("vm", name) and not below("bindings", name) then
      complain("%s: no file %s", path, name)
    end
  end
end

-- Names behind the word "suite" are those of tests.
local function check_suites(path, text)
  for list in text:gmatch "[Ss]uites?%s+(`[%w_`,%s]+`)" do
    for name in list:gmatch "`([%w_]+)`" do
      if not below("tests", "check_" .. name .. ".c") then complain("%s: no suite %s", path, name) end
    end
  end
end

-- A README names every source of its room, by name or by the family that is a folder of the room.
-- A header is named by its source, a source by its header. Kernels are a file an op: by folders alone.
local function check_sources(room, text)
  for _, path in ipairs(house) do
    local base, kind = base_of(path):match "^([%w_]+)%.(%a+)$"
    if (kind == "c" or kind == "h" or kind == "def") and folder_of(path) == room and not room:find "^kernels/" and not base:find "_int$" and
       not text:find("%f[%w_]" .. base .. "%f[^%w_]") then
      complain("%s/README.md: does not name %s", room, base_of(path))
    end
  end
end

for d, n in pairs(sources) do
  if n > MAX_SOURCES then complain("%s: %d sources, more than %d", d, n, MAX_SOURCES) end
  local room = d:match "^%w+/[%w_]+" -- a family inside of a room is in the room's README
  local text = room and read(room .. "/README.md")
  if room and not text then complain("%s: no README.md", room) end
  if text and d == room then check_sources(room, text) end
end

local tour = read "stdlib/README.md"
for _, path in ipairs(all) do
  local room = path:match "^stdlib/([%w_]+)/"
  if room and not tour:find("`" .. room .. "/`", 1, true) then
    complain("stdlib/README.md: does not name %s/", room)
  end
end
for _, path in ipairs(all) do
  local text = path:find "README%.md$" or path == "CONTRIBUTING.md" or path:find "^docs/[ag]%w+%.md$"
  text = text and read(path)
  if text then check_names(path, text) end
  if text then check_suites(path, text) end
  if text and path:find "^%w+/%w+/README%.md$" then
    local n = select(2, text:gsub("\n", ""))
    if n < LINES[1] or n > LINES[2] then
      complain("%s: %d lines, not %d to %d", path, n, LINES[1], LINES[2])
    end
  end
end

-- ---- names ----

local owner = {}
for _, path in ipairs(house) do
  local base = path:match "([^/]+)%.[ch]$"
  local d = folder_of(path)
  if base then
    local ext = path:match "%.[ch]$"
    local key = base
    if owner[key] and owner[key] ~= d then
      complain("%s%s: %s has a file of this name, too", d .. "/" .. base, ext, owner[key])
    end
    owner[key] = owner[key] or d
  end
end

-- ---- circles ----

-- A source and its headers are one node, also the one with _int behind its name, which it
-- shares with the files that were split off it.
local function node_of(path)
  local node = path:gsub("%.%a+$", "")
  local of = path:find "_int%.h$" and node:sub(1, -5)
  return of and (there[of .. ".c"] or there[of .. ".h"]) and of or node
end

-- A family of kernels is inside of its room.
local function room_of(path) return path:match "^%w+/[%w_]+" end

local function edges(of)
  local to = {}
  for _, path in ipairs(house) do
    local from = of(path)
    to[from] = to[from] or {}
    if path:find "%.c[uh]?h?$" or path:find "%.h$" then
      for inc in read(path):gmatch '#include "([^"]+)"' do
        local beside = folder_of(path) .. "/" .. inc
        local target = there[beside] and beside or there[inc] and inc
        if target and not target:find "%.def$" and of(target) ~= from then
          to[from][of(target)] = true
        end
      end
    end
  end
  return to
end

-- Tarjan's strongly connected components of more than one node.
local function circles(to)
  local index, low, on, stack, n, found = {}, {}, {}, {}, 0, {}
  local function visit(v)
    n = n + 1
    index[v], low[v] = n, n
    stack[#stack + 1], on[v] = v, true
    for w in pairs(to[v] or {}) do
      if not index[w] then
        visit(w)
        low[v] = math.min(low[v], low[w])
      elseif on[w] then
        low[v] = math.min(low[v], index[w])
      end
    end
    if low[v] == index[v] then
      local c = {}
      repeat
        local w = table.remove(stack)
        on[w] = nil
        c[#c + 1] = w
      until w == v
      table.sort(c)
      if #c > 1 then found[#found + 1] = c end
    end
  end
  local names = {}
  for v in pairs(to) do names[#names + 1] = v end
  table.sort(names)
  for _, v in ipairs(names) do
    if not index[v] then visit(v) end
  end
  return found
end

-- ---- declarations ----

-- A header that declares what another room defines hides that its room needs the other. device.h
-- names the devices that are there, which implement it.
local DECLARES = { ["vm/device/device.h"] = "^kernels/" }

local function without_comments(path) return (read(path):gsub("/%*.-%*/", "")) end

local defined = {} -- function -> its rooms
for _, path in ipairs(house) do
  if is_source(path) then
    for name, rest in without_comments(path):gmatch "\n%a[%w_ *]-([%w_]+)(%b()%s*{)" do
      defined[name] = defined[name] or {}
      defined[name][room_of(path)] = true
    end
  end
end
for _, path in ipairs(house) do
  if path:find "%.h$" and path ~= "vm/weft.h" then
    for name in without_comments(path):gmatch "\n%a[%w_ *]-([%w_]+)%b();" do
      local room = defined[name] and next(defined[name])
      if room and not defined[name][room_of(path)] and not room:find(DECLARES[path] or "^$") then
        complain("%s: declares %s(), which %s has", path, name, room)
      end
    end
  end
end

local of_files = circles(edges(node_of))
for _, c in ipairs(of_files) do
  if #c > MAX_CIRCLE or #of_files > MAX_CIRCLES or arg[1] == "circles" then
    complain("a circle of %d files: %s", #c, table.concat(c, " "))
  end
end
for _, c in ipairs(circles(edges(room_of))) do
  complain("a circle of rooms: %s", table.concat(c, " "))
end
os.exit(complaints == 0)
