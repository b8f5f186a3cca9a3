-- mutate.lua - plants small faults one at a time and asks the suites to find them.
--
--   lua5.4 tests/mutate/mutate.lua [--check | ROW ...]
--   lua5.4 tests/mutate/mutate.lua --random N SEED [SECONDS]   (random.lua)
--
-- Runs in the root of the sources, and changes only a copy of them, in build-mutate/ or
-- where WEFT_MUTATE says (two runs at a time need two). Each row of mutants.lua names a
-- file, a text that stands there exactly once, what to put in its place, and the suites
-- that should notice. A fault is killed as soon as a suite fails: first the row's suites are
-- asked, then, if none of them sees it, all others. One that only makes suites hang is
-- late. A row with `equal` changes nothing that can be seen, for the reason given: it is
-- planted all the same, and must survive. `missing` says which test a fault that survives
-- calls for.
-- ROW is a number or a range, 7 or 20-35; without any, all rows are planted that this copy
-- has no result for, so that a run that was ended goes on. The results are those of one
-- state of the sources: another one begins anew.
-- --check only looks whether each row still names suites and a text that are there; the
-- suite docs does so, too.
local tree = dofile "tests/mutate/tree.lua"
local RESULTS = tree.PLACE .. "/results"
local SECONDS = 240 -- for a suite
local WANTED = 0.9

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

-- ---- the rows ----

-- What is wrong with them, one line each.
local function check(mutants)
  local suites = {}
  for _, suite in ipairs(tree.suites()) do suites[suite] = true end
  local wrong = {}
  local function say(i, m, why)
    wrong[#wrong + 1] = ("%3d  %s: %s: %s"):format(i, m.file, first_line(m.from), why)
  end
  for i, m in ipairs(mutants) do
    local text = tree.read(m.file)
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
      tree.fail("rows are numbers or ranges from 1 to ", #mutants, ": ", a)
    end
    for i = first, last do list[#list + 1] = i end
  end
  return list
end

-- ---- planting ----

-- Asks one suite after the other until one fails: "killed" and which; "late" if none does and
-- one of them does not end, which nobody can tell from a slow machine; else "survived".
local function ask(suites)
  local kind, late = "survived", "-"
  for _, suite in ipairs(suites) do
    local result = tree.run_suite(tree.BUILD, suite, SECONDS)
    if result == "failed" then return "killed", suite end
    if result == "late" then kind, late = "late", suite end
  end
  return kind, late
end

-- The row's own suites first, so that most faults cost one, then all others. The suite docs
-- reads the rows themselves, which are not right while their fault is planted.
local function suites_to_ask(m)
  local list, seen = {}, { docs = true }
  local function add(suite)
    if not seen[suite] then list[#list + 1] = suite end
    seen[suite] = true
  end
  for suite in m.suites:gmatch "%S+" do add(suite) end
  if not m.equal then
    for _, suite in ipairs(tree.suites()) do add(suite) end
  end
  return list
end

-- "killed", "late", "survived" or "broken", and the suite that killed it or did not end.
local function plant(m)
  local path = tree.SOURCES .. "/" .. m.file
  local text = tree.read(path)
  tree.write(path, (replaced(text, m.from, m.to)))
  local kind, suite = "broken", "-"
  if tree.build() then kind, suite = ask(suites_to_ask(m)) end
  tree.write(path, text)
  return kind, suite
end

-- ---- results ----

local function load_results(id)
  local results, lines = {}, (tree.read(RESULTS) or ""):gmatch "[^\n]+"
  if lines() ~= id then
    tree.write(RESULTS, id .. "\n")
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
  assert(tree.build())
  local seen = {}
  for _, r in pairs(results) do
    if r.kind == "killed" and not seen[r.suite] then
      seen[r.suite] = true
      if tree.run_suite(tree.BUILD, r.suite, SECONDS) ~= "passed" then unsound[r.suite] = true end
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
  if r.kind == "late" then return "late: " .. r.suite .. " does not end", "late" end
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
  local count, seconds, planted = { killed = 0, survived = 0, late = 0, equal = 0, wrong = 0 }, 0, 0
  for i, m in ipairs(mutants) do
    if results[i] then
      local _, kind = verdict(m, results[i])
      count[kind] = count[kind] + 1
      seconds = seconds + results[i].seconds
      planted = planted + 1
    end
  end
  local faults = count.killed + count.survived + count.late
  local share = faults > 0 and count.killed / faults or 1
  print(("%d of %d rows planted: %d killed, %d survived, %d late (%.1f %% killed, "
         .. "%.0f %% wanted); "
         .. "%d change nothing; %d rows are wrong; %d min %d s")
    :format(planted, #mutants, count.killed, count.survived, count.late, 100 * share, 100 * WANTED,
            count.equal, count.wrong, seconds // 60, seconds % 60))
  return share >= WANTED and count.wrong == 0
end

-- ---- main ----

if arg[1] == "--random" then return dofile "tests/mutate/random.lua" end
local mutants = dofile "tests/mutate/mutants.lua"
local wrong = check(mutants)
for _, line in ipairs(wrong) do print(line) end
if #wrong > 0 or arg[1] == "--check" then
  print(("%d faults; %d rows are wrong"):format(#mutants, #wrong))
  os.exit(#wrong == 0)
end
local rows = chosen(mutants)
tree.copy()
tree.configure(tree.BUILD)
if not tree.build() then tree.fail("the sources do not compile: see ", tree.BUILD, ".log") end
local results = load_results(tree.digest "tests/mutate/mutants.lua")
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
  tree.write(RESULTS, ("%d %s %s %d\n"):format(i, kind, suite, results[i].seconds), "ab")
  tell(i, mutants[i], results[i])
end
check_killers(results)
for suite in pairs(unsound) do print("suite " .. suite .. " fails without a fault") end
os.exit(sum_up(mutants, results))
