-- cover.lua - which lines each check runs, recorded once per state of the sources, suite by
-- suite, so that a recording that was ended goes on. The sources are compiled so that each
-- block tells that it runs (trace.c); a block is the line at which it begins. `.lines` lists
-- these, in the order of their numbers:
--
--   vm/mesh/mesh.c 12
--
-- and a file per suite has, for each check, its name, the seconds it took, how it ended, and
-- the blocks that it runs, a bit each, behind a line of these.
local tree = dofile "tests/mutate/tree.lua"
local BUILD, LINES = tree.SOURCES .. "/build-traced", tree.PLACE .. "/lines"
local SECONDS = 900 -- for a suite
local PAGE = 4096   -- of what trace.c writes, a byte for each WIDTH bytes of code
local WIDTH = 4

local M = {}

-- ---- the build ----

local function here() return tree.lines_of("pwd")[1] end
local function place() return tree.lines_of("realpath -m '%s'", tree.PLACE)[1] end

local function build()
  local object = place() .. "/trace.o"
  if not tree.run("cc -O2 -fPIC -c -o %s tests/mutate/trace.c", object) then
    tree.fail "tests/mutate/trace.c does not compile"
  end
  tree.configure(BUILD, ('-DCMAKE_C_FLAGS="-g" -DCMAKE_C_COMPILER_LAUNCHER=%s/tests/mutate/trace-cc \z
    -DCMAKE_SHARED_LINKER_FLAGS=%s -DCMAKE_MODULE_LINKER_FLAGS=%s'):format(here(), object, object), object)
  if not tree.build(BUILD) then
    tree.fail("the sources do not compile for recording: see ", BUILD, ".log")
  end
end

-- The lines of a module's blocks, as "path line", by their place among its bytes.
local function blocks_of(file)
  local root = tree.lines_of("realpath %s", tree.SOURCES)[1] .. "/"
  local addresses = tree.lines_of("objdump -d --no-show-raw-insn %s | awk '/call .*<(__sanitizer_cov_trace_pc|\z
    __cyg_profile_func_enter)>/ { f = 1; next } f && /^ / { sub(\":\", \"\", $1); print $1 } { f = 0 }'", file)
  -- A call is before where it returns to.
  local calls = {}
  for i, a in ipairs(addresses) do calls[i] = ("%x\n"):format(tonumber(a, 16) - 1) end
  tree.write(tree.PLACE .. "/calls", table.concat(calls))
  local places, blocks = tree.lines_of("addr2line -e %s <%s/calls", file, tree.PLACE), {}
  for i, a in ipairs(addresses) do
    local path, line = (places[i] or ""):match "^(.-):(%d+)"
    if path and path:sub(1, #root) == root then
      blocks[tonumber(a, 16) // WIDTH] = path:sub(#root + 1) .. " " .. line
    end
  end
  return blocks
end

-- All modules of the build: { name = { place = number of the line } }, and the lines.
local function modules()
  local found, numbers, list = {}, {}, {}
  local files = tree.lines_of("find %s -maxdepth 2 -type f -not -path '*/pages/*' \\( -name weft -o \z
    -name weft-tests -o -name '*.so' \\)", BUILD)
  for _, file in ipairs(files) do
    local blocks = blocks_of(file)
    for place, text in pairs(blocks) do
      if not numbers[text] then
        list[#list + 1] = text
        numbers[text] = #list
      end
      blocks[place] = numbers[text]
    end
    found[file:match "[^/]+$"] = next(blocks) and blocks
  end
  return found, list
end

-- ---- recording ----

-- The places that a file of trace.c names.
local function each_place(path, f)
  local file, page, nothing = assert(io.open(path, "rb")), 0, ("\0"):rep(PAGE)
  while true do
    local bytes = file:read(PAGE)
    if not bytes then break end
    if bytes ~= nothing then
      local at = bytes:find("[^\0]")
      while at do
        f(page * PAGE + at - 1)
        at = bytes:find("[^\0]", at + 1)
      end
    end
    page = page + 1
  end
  file:close()
end

local function bits_of(set, n)
  local bytes = {}
  for i = 1, n // 8 + 1 do bytes[i] = 0 end
  for k in pairs(set) do
    local i = k // 8 + 1
    bytes[i] = bytes[i] | 1 << k % 8
  end
  local parts = {}
  for i = 1, #bytes, 200 do parts[#parts + 1] = string.char(table.unpack(bytes, i, math.min(i + 199, #bytes))) end
  return table.concat(parts)
end

-- How each check of the suite ended, by its number.
local function checks_of(xml)
  local list = {}
  for result, body in (tree.read(xml) or ""):gmatch '<test result="(%w+)">(.-)</test>' do
    list[body:match "<iteration>(%d+)<"] =
      ("%s %s"):format(body:match "<duration>(.-)<", result)
  end
  return list
end

-- The blocks that each check ran, by SUITE#CHECK#ITERATION#NUMBER of only.c.
local function sets_of(folder, found)
  local sets = {}
  for _, path in ipairs(tree.lines_of("find '%s' -name '*#*'", folder)) do
    local check, module = path:match "/([^/]*#%d+)%.([^/]*)$"
    local set, places = sets[check] or {}, found[module] or {}
    each_place(path, function(place)
      if places[place] then set[places[place]] = true end
    end)
    sets[check] = set
  end
  return sets
end

local function trace_of(suite) return place() .. "/trace/" .. suite end

-- What the suite left in its folder; how it ended is told.
local function keep(suite, result, seconds, found, n)
  local folder, out = trace_of(suite), {}
  local checks = checks_of(folder .. "/checks.xml")
  for check, set in pairs(sets_of(folder, found)) do
    local name, i, number = check:match "#(.*)#(%d+)#(%d+)$"
    if checks[number] then
      out[#out + 1] = ("%s %s %s\n%s\n"):format(name, i, checks[number], bits_of(set, n))
    end
  end
  table.sort(out)
  tree.write(LINES .. "/" .. suite .. ".new", table.concat(out))
  assert(os.rename(LINES .. "/" .. suite .. ".new", LINES .. "/" .. suite))
  assert(tree.run("rm -rf '%s'", folder))
  print(("  %-20s %-6s %4d checks %7.1f s"):format(suite, result, #out, seconds))
  io.stdout:flush()
end

local function record(suites, found, n)
  local trace = trace_of "{}"
  assert(tree.run("rm -rf '%s'", trace_of ""))
  for _, suite in ipairs(suites) do assert(tree.run("mkdir -p '%s'", trace_of(suite))) end
  tree.each_suite(BUILD, suites, SECONDS, ("WEFT_TRACE=%s CK_XML_LOG_FILE_NAME=%s/checks.xml"):format(trace, trace),
    function(suite, result, seconds) keep(suite, result, seconds, found, n) end)
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
  local found, list = modules()
  if #list == 0 then tree.fail("no block of ", BUILD, " has a line") end
  tree.write(LINES .. "/.lines", table.concat(list, "\n") .. "\n")
  print(("recording which of %d lines %d of %d suites run:"):format(#list, #left, #suites))
  record(left, found, #list)
end

-- ---- asking ----

local function has(bits, k) return bits:byte(k // 8 + 1) >> k % 8 & 1 == 1 end

-- What was recorded: the numbers of each file's blocks with their lines, in order, and the checks.
function M.load(suites)
  local c, k = { files = {}, checks = {} }, 0
  for text in tree.read(LINES .. "/.lines"):gmatch "[^\n]+" do
    k = k + 1
    local path, line = text:match "^(%S+) (%d+)$"
    c.files[path] = c.files[path] or {}
    table.insert(c.files[path], { line = line // 1, k = k })
  end
  for _, blocks in pairs(c.files) do table.sort(blocks, function(a, b) return a.line < b.line end) end
  local size = k // 8 + 1
  for _, suite in ipairs(suites) do
    local file = assert(io.open(LINES .. "/" .. suite, "rb"))
    while true do
      local head = file:read "l"
      if not head then break end
      local name, i, seconds, ended = head:match "^(%S+) (%d+) (%S+) (%S+)$"
      local bits = file:read(size)
      file:read(1)
      c.checks[#c.checks + 1] = { suite = suite, name = name, id = suite .. ":" .. name .. ":" .. i,
                                  seconds = tonumber(seconds), ended = ended, bits = bits }
    end
    file:close()
  end
  return c
end

-- The blocks of the place: those that begin at its line, and at the nearest before it, as a line
-- may begin in the middle of a block (`if (condition) return`, whose own block is the return);
-- where none begins at it also the nearest after it. `run`: the blocks that any check runs; a copy
-- of a function that compilers leave beside the ones in its callers has blocks that nothing runs.
local function blocks_of_place(blocks, place, run)
  local list, before, at, after = {}, nil, nil, nil
  for _, b in ipairs(blocks) do
    if not run[b.k] then goto next end
    if b.line < place.line and (not before or b.line > before) then before = b.line end
    if b.line == place.line then at = b.line end
    if b.line > place.line and not after then after = b.line end
    ::next::
  end
  for _, b in ipairs(blocks) do
    if b.line == before or b.line == (at or after) then list[#list + 1] = b.k end
  end
  return list, before
end

local function runs_any(check, list)
  for _, k in ipairs(list) do
    if has(check.bits, k) then return true end
  end
end

-- The checks that run the place, those first that are likely to tell soonest what is wrong:
-- quick ones, and ones that run much of its file. Many run a line of the compiler on their
-- way to something else; few have plans that need every line of its file. What failed without
-- a fault is not asked.
function M.checks_of(c, path, place)
  local blocks, list, cost = c.files[path], {}, {}
  if not blocks or not place then return list end
  local run = {}
  for _, b in ipairs(blocks) do
    for _, check in ipairs(c.checks) do
      if has(check.bits, b.k) then run[b.k] = true break end
    end
  end
  local wanted, before = blocks_of_place(blocks, place, run)
  for _, check in ipairs(c.checks) do
    if check.ended == "success" and runs_any(check, wanted) then
      local n = 0
      for _, b in ipairs(blocks) do
        if has(check.bits, b.k) then n = n + 1 end
      end
      list[#list + 1] = check
      cost[check] = (check.seconds + 0.02) / n ^ 2
    end
  end
  table.sort(list, function(a, b)
    return cost[a] < cost[b] or cost[a] == cost[b] and a.id < b.id
  end)
  -- In kernels functions alone are told, and those that others hold have blocks that nobody
  -- is seen to run: then it is the one before.
  if #list == 0 then return M.checks_of(c, path, before and { line = before }) end
  return list
end

return M
