-- cover.lua - which lines each suite runs, recorded once per state of the sources with gcov,
-- a suite at a time, so that a recording that was ended goes on. One file per suite:
--
--   7.31 passed              seconds of processor time, and how it ended
--   vm/mesh/mesh.c 12-14 17  the lines that it runs
--
-- and one, `.code`, with all lines that hold code.
local tree = dofile "tests/mutate/tree.lua"
local BUILD, LINES = tree.PLACE .. "/cover", tree.PLACE .. "/lines"
local HEADER = "tests/mutate/cover.h"
local SECONDS = 300 -- for a suite
local PLANTED = "^(vm/.*%.c)$ ^(bindings/.*%.c)$ ^(kernels/cpu/.*%.c)$"

local M = {}

-- ---- lists of lines ----

local function join(set) -- { [12] = true, ... } as "12-14 17"
  local list, parts, i = {}, {}, 1
  for n in pairs(set) do list[#list + 1] = n end
  table.sort(list)
  while i <= #list do
    local k = i
    while list[k + 1] == list[k] + 1 do k = k + 1 end
    parts[#parts + 1] = k > i and list[i] .. "-" .. list[k] or list[i]
    i = k + 1
  end
  return table.concat(parts, " ")
end

local function split(text)
  local set = {}
  for first, last in text:gmatch "(%d+)%-?(%d*)" do
    for n = first // 1, (tonumber(last) or first) // 1 do set[n] = true end
  end
  return set
end

-- ---- recording ----

local function planted_in(path)
  for pattern in PLANTED:gmatch "%S+" do
    if path:find(pattern) then return true end
  end
end

-- A path that gcov names, from the root of the sources; ccache makes them relative.
local function in_sources(path, root, build)
  if path:sub(1, 1) ~= "/" then path = build .. "/" .. path end
  local times
  repeat path, times = path:gsub("/[^/]+/%.%./", "/", 1) until times == 0
  return path:sub(1, #root) == root and path:sub(#root + 1)
end

-- What gcov says of the notes or counts that `find` names: { path = { line = runs } }.
local function gcov(find)
  local root = tree.lines_of("realpath %s", tree.SOURCES)[1] .. "/"
  local build = tree.lines_of("realpath %s", BUILD)[1]
  local files, lines = {}, nil
  local pipe = io.popen(("cd %s && find . %s -print0 | xargs -0 -r gcov -t 2>/dev/null")
                          :format(BUILD, find))
  for text in pipe:lines() do
    local runs, line, rest = text:match "^%s*([^:%s]+):%s*(%d+):(.*)$"
    if line == "0" then
      local source = rest:match "^Source:(.*)$"
      if source then
        local path = in_sources(source, root, build)
        lines = path and planted_in(path) and (files[path] or {}) or nil
        if lines then files[path] = lines end
      end
    elseif lines and runs and runs ~= "-" then
      line = math.tointeger(tonumber(line))
      lines[line] = lines[line] or runs:find "^%d" ~= nil
    end
  end
  pipe:close()
  return files
end

-- The files' lines that are run, or that hold code.
local function put(name, head, files, code)
  local out = {}
  for path, lines in pairs(files) do
    local set = {}
    for line, runs in pairs(lines) do
      if runs or code then set[line] = true end
    end
    if next(set) then out[#out + 1] = path .. " " .. join(set) end
  end
  table.sort(out)
  table.insert(out, 1, head)
  tree.write(LINES .. "/" .. name .. ".new", table.concat(out, "\n") .. "\n")
  assert(os.rename(LINES .. "/" .. name .. ".new", LINES .. "/" .. name))
end

local function build()
  local flags = "--coverage -include $PWD/" .. tree.SOURCES .. "/" .. HEADER
  tree.configure(BUILD, ('-DCMAKE_C_FLAGS="%s" -DCMAKE_EXE_LINKER_FLAGS=--coverage \z
    -DCMAKE_SHARED_LINKER_FLAGS=--coverage -DCMAKE_MODULE_LINKER_FLAGS=--coverage'):format(flags))
  if not tree.build(BUILD) then
    tree.fail("the sources do not compile with --coverage: see ", BUILD, ".log")
  end
end

local function record(suite)
  assert(tree.run("find %s -name '*.gcda' -delete", BUILD))
  local result, seconds = tree.run_suite(BUILD, suite, SECONDS)
  put(suite, ("%.2f %s"):format(seconds, result), gcov "-name '*.gcda' -not -path '*/tests/*'", false)
  print(("  %-20s %-6s %7.1f s"):format(suite, result, seconds))
  io.stdout:flush()
end

-- Records the suites that there is no file for yet.
function M.record(suites, id)
  if tree.read(LINES .. "/.id") ~= id then
    assert(tree.run("rm -rf %s && mkdir -p %s", LINES, LINES))
    tree.write(LINES .. "/.id", id)
  end
  local left = {}
  for _, suite in ipairs(suites) do
    if not tree.read(LINES .. "/" .. suite) then left[#left + 1] = suite end
  end
  if #left == 0 then return end
  build()
  print(("recording which lines %d of %d suites run:"):format(#left, #suites))
  for _, suite in ipairs(left) do record(suite) end
  put(".code", "", gcov "-name '*.gcno' -not -path '*/tests/*'", true)
end

-- ---- asking ----

local function load(name)
  local r = { files = {}, runs = 0 }
  local lines = tree.read(LINES .. "/" .. name):gmatch "[^\n]+"
  if name ~= ".code" then
    r.suite = name
    r.seconds, r.ended = lines():match "^(%S+) (%S+)$"
    r.seconds = tonumber(r.seconds)
  end
  for line in lines do
    local path, list = line:match "^(%S+) (.*)$"
    r.files[path] = split(list)
    for _ in pairs(r.files[path]) do r.runs = r.runs + 1 end
  end
  return r
end

function M.load(suites)
  local c = { code = load ".code", suites = {} }
  for i, suite in ipairs(suites) do c.suites[i] = load(suite) end
  return c
end

-- The lines to ask about: that of the place, else those around it, else (data) all of its file.
local function lines_of_place(code, place)
  if code[place.line] then return { [place.line] = true } end
  local set = {}
  for line = place.first, place.last do
    if code[line] then set[line] = true end
  end
  return next(set) and set or code
end

local function lines_in(s, path)
  local n = 0
  for _ in pairs(s.files[path] or {}) do n = n + 1 end
  return n
end

-- The suites that run the place, those first that are likely to tell soonest what is wrong:
-- quick ones, and ones that run much of its file and little else. Many run a line of the
-- compiler on their way to something else; few have plans that need every line of its file.
function M.suites_of(c, path, place)
  local code, list, cost = c.code.files[path], {}, {}
  if not code then return list end
  local wanted = lines_of_place(code, place)
  for _, s in ipairs(c.suites) do
    local runs = s.files[path] or {}
    for line in pairs(wanted) do
      if runs[line] then
        list[#list + 1] = s
        cost[s] = s.seconds * s.runs / lines_in(s, path) ^ 2
        break
      end
    end
  end
  table.sort(list, function(a, b)
    return cost[a] < cost[b] or cost[a] == cost[b] and a.suite < b.suite
  end)
  return list
end

return M
