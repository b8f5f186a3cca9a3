-- mutate.lua - plants small faults one at a time and asks the suites to find them.
--
--   lua5.4 tests/mutate/mutate.lua [--check | ROW ...]
--
-- Runs in the root of the sources, and changes only a copy of them, in build-mutate/ or
-- where WEFT_MUTATE says (two runs at a time need two). Each row of mutants.lua names a
-- file, a text that stands there exactly once, what to put in its place, and the suites
-- that should notice. A fault is killed as soon as a suite fails or does not end: first the
-- row's suites are asked, then, if none of them sees it, all others. A row with `equal`
-- changes nothing that can be seen, for the reason given: it is planted all the same, and
-- must survive. `missing` says which test a fault that survives calls for.
-- ROW is a number or a range, 7 or 20-35; without any, all rows are planted that this copy
-- has no result for, so that a run that was ended goes on. The results are those of one
-- state of the sources: another one begins anew.
-- --check only looks whether each row still names suites and a text that are there; the
-- suite docs does so, too.
local PLACE = os.getenv "WEFT_MUTATE" or "build-mutate"
local TREE, RESULTS = PLACE .. "/src", PLACE .. "/results"
local SECONDS = 240 -- for a suite
local WANTED = 0.9

local function read(path)
  local f = io.open(path, "rb")
  if not f then return nil end
  local text = f:read "a"
  f:close()
  return text
end

local function write(path, text, mode)
  local f = assert(io.open(path, mode or "wb"))
  assert(f:write(text))
  assert(f:close())
end

local function run(fmt, ...)
  return os.execute(fmt:format(...)) == true
end

local function lines_of(command)
  local pipe, list = assert(io.popen(command)), {}
  for line in pipe:lines() do list[#list + 1] = line end
  assert(pipe:close(), command)
  return list
end

local function fail(...)
  io.stderr:write(...)
  io.stderr:write "\n"
  os.exit(2)
end

-- `text` with its only `from` replaced; nil and why otherwise.
local function replaced(text, from, to)
  if from == to then return nil, "it changes nothing" end
  local a, b = text:find(from, 1, true)
  if not a then return nil, "the text is not there" end
  if text:find(from, b + 1, true) then return nil, "the text is there more than once" end
  return text:sub(1, a - 1) .. to .. text:sub(b + 1)
end

local function first_line(text)
  return (text:gsub("^%s+", ""):match "^[^\n]*")
end

local function all_suites()
  local list = {}
  for _, path in ipairs(lines_of "ls tests/*/check_*.c") do
    list[#list + 1] = path:match "check_([%w_]+)%.c$"
  end
  return list
end

-- ---- the rows ----

-- What is wrong with them, one line each.
local function check(mutants)
  local suites = {}
  for _, suite in ipairs(all_suites()) do suites[suite] = true end
  local wrong = {}
  local function say(i, m, why)
    wrong[#wrong + 1] = ("%3d  %s: %s: %s"):format(i, m.file, first_line(m.from), why)
  end
  for i, m in ipairs(mutants) do
    local text = read(m.file)
    if not text then
      say(i, m, "there is no such file")
    else
      local changed, why = replaced(text, m.from, m.to)
      if not changed then say(i, m, why) end
    end
    if not m.suites:find "%S" then say(i, m, "it names no suite") end
    for suite in m.suites:gmatch "%S+" do
      if not suites[suite] then say(i, m, "there is no suite " .. suite) end
    end
  end
  return wrong
end

-- The rows that the command line names, in order; nil if it names none.
local function chosen(mutants)
  if #arg == 0 then return nil end
  local list = {}
  for _, a in ipairs(arg) do
    local first, last = a:match "^(%d+)%-?(%d*)$"
    first = tonumber(first)
    last = tonumber(last) or first
    if not first or first < 1 or last > #mutants then
      fail("rows are numbers or ranges from 1 to ", #mutants, ": ", a)
    end
    for i = first, last do list[#list + 1] = i end
  end
  return list
end

-- ---- the copy ----

local function configure()
  local cached = run "command -v ccache >/dev/null" and
                 "-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache"
  return run("cmake -S %s -B %s/build -G Ninja -DCMAKE_BUILD_TYPE=Release %s >/dev/null",
             TREE, TREE, cached or "")
end

-- Brings the copy up to date, touching only what differs, so that little is compiled again.
local function copy()
  local here, changed = {}, {}
  for _, path in ipairs(lines_of "git ls-files") do
    here[path] = true
    if read(path) ~= read(TREE .. "/" .. path) then changed[#changed + 1] = path .. "\n" end
  end
  assert(run("mkdir -p %s/build", TREE))
  for _, path in ipairs(lines_of("cd " .. TREE .. " && find . -type f -not -path './build/*'")) do
    if not here[path:sub(3)] then assert(os.remove(TREE .. "/" .. path)) end
  end
  write(TREE .. "/build/changed", table.concat(changed))
  assert(run("xargs -r -d '\\n' cp --parents -t %s <%s/build/changed", TREE, TREE))
  assert(configure())
end

local function build()
  return run("cmake --build %s/build --target weft-tests weft-cli >%s/build/log 2>&1", TREE, TREE)
end

local function suite_passes(suite)
  return run("cd %s && timeout -k 5 %d build/weft-tests %s >build/tests.log 2>&1 </dev/null",
             TREE, SECONDS, suite)
end

-- ---- planting ----

-- The suite of the row that fails, one after the other, so that most faults cost one suite.
local function own_killer(m)
  for suite in m.suites:gmatch "%S+" do
    if not suite_passes(suite) then return suite end
  end
end

-- The first other suite that fails. The suite docs reads the rows themselves, which are not
-- right while their fault is planted.
local function other_suspect(m)
  local own = " docs " .. m.suites .. " "
  for _, suite in ipairs(all_suites()) do
    if not own:find(" " .. suite .. " ", 1, true) and not suite_passes(suite) then
      return suite
    end
  end
end

-- "killed", "survived" or "broken", and the suite that killed it.
local function plant(m)
  local path = TREE .. "/" .. m.file
  local text = read(path)
  write(path, (replaced(text, m.from, m.to)))
  local compiles = build()
  local killer = compiles and (own_killer(m) or not m.equal and other_suspect(m))
  write(path, text)
  if not compiles then return "broken", "-" end
  return killer and "killed" or "survived", killer or "-"
end

-- ---- results ----

-- Of all that a result depends on.
local function digest()
  return lines_of("git ls-files | xargs -d '\\n' sha1sum | sha1sum")[1]
end

local function load_results(id)
  local results, lines = {}, (read(RESULTS) or ""):gmatch "[^\n]+"
  if lines() ~= id then
    write(RESULTS, id .. "\n")
    return results
  end
  for line in lines do
    local i, kind, suite, seconds = line:match "^(%d+) (%S+) (%S+) (%d+)$"
    results[tonumber(i)] = { kind = kind, suite = suite, seconds = tonumber(seconds) }
  end
  return results
end

local unsound = {} -- suites that fail without a fault, too

-- A suite that fails by itself would seem to find everything. Those that killed something
-- are run once more, without a fault.
local function check_killers(results)
  assert(build())
  local seen = { ["-"] = true }
  for _, r in pairs(results) do
    if not seen[r.suite] then
      seen[r.suite] = true
      if not suite_passes(r.suite) then unsound[r.suite] = true end
    end
  end
end

-- What is told of a fault, and what it counts as.
local function verdict(m, r)
  if unsound[r.suite] then
    return "wrong: suite " .. r.suite .. " fails without it, too", "wrong"
  end
  if r.kind == "broken" then return "wrong: it does not compile", "wrong" end
  if m.equal and r.kind == "killed" then
    return "wrong: called equal, and " .. r.suite .. " sees it", "wrong"
  end
  if m.equal then return "equal", "equal" end
  if r.kind == "survived" then return "survived", "survived" end
  local named = (" " .. m.suites .. " "):find(" " .. r.suite .. " ", 1, true)
  return "killed", "killed", "by " .. r.suite .. (named and "" or ", which its row does not name")
end

local function tell(i, m, r)
  local text, _, by = verdict(m, r)
  print(("%3d  %-9s %s: %s"):format(i, text, m.file, first_line(m.from)))
  local why = m.equal or by or m.missing and "missing: " .. m.missing
  print(("%15s-> %s  (%s%d s)"):format("", first_line(m.to), why and why .. "; " or "",
                                       r.seconds))
  io.stdout:flush()
end

local function sum_up(mutants, results)
  local count, seconds, planted = { killed = 0, survived = 0, equal = 0, wrong = 0 }, 0, 0
  for i, m in ipairs(mutants) do
    if results[i] then
      local _, kind = verdict(m, results[i])
      count[kind] = count[kind] + 1
      seconds = seconds + results[i].seconds
      planted = planted + 1
    end
  end
  local faults = count.killed + count.survived
  local share = faults > 0 and count.killed / faults or 1
  print(("%d of %d rows planted: %d killed, %d survived (%.1f %% killed, %.0f %% wanted); "
         .. "%d change nothing; %d rows are wrong; %d min %d s")
    :format(planted, #mutants, count.killed, count.survived, 100 * share, 100 * WANTED,
            count.equal, count.wrong, seconds // 60, seconds % 60))
  return share >= WANTED and count.wrong == 0
end

-- ---- main ----

local mutants = dofile "tests/mutate/mutants.lua"
local wrong = check(mutants)
for _, line in ipairs(wrong) do print(line) end
if #wrong > 0 or arg[1] == "--check" then
  print(("%d faults; %d rows are wrong"):format(#mutants, #wrong))
  os.exit(#wrong == 0)
end
local rows = chosen(mutants)
copy()
if not build() then fail("the sources do not compile: see ", TREE, "/build/log") end
local results = load_results(digest())
if not rows then
  rows = {}
  for i = 1, #mutants do
    if not results[i] then rows[#rows + 1] = i end
  end
end
for _, i in ipairs(rows) do
  local begun = os.time()
  local kind, suite = plant(mutants[i])
  results[i] = { kind = kind, suite = suite, seconds = os.time() - begun }
  write(RESULTS, ("%d %s %s %d\n"):format(i, kind, suite, results[i].seconds), "ab")
  tell(i, mutants[i], results[i])
end
check_killers(results)
for suite in pairs(unsound) do print("suite " .. suite .. " fails without a fault") end
os.exit(sum_up(mutants, results))
