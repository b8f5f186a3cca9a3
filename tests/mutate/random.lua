-- random.lua - ./dev mutate --random N SEED [SECONDS]: N faults drawn at random from the C
-- files of vm, bindings and kernels/cpu, each put to the suites that run its line.
--
-- The draws follow from SEED and the sources alone. First one of the four kinds of
-- faults.lua is drawn, then a place, then what stands there instead. A draw that does not
-- compile, or that leaves the object file as it was, is not a fault: another one takes its
-- place. A fault is
--
--   killed    a check fails, and fails once more when its test case is run again
--   late      suites do not end, or checks do not, and none fails otherwise: nobody would
--             know whether the machine is slow, so that does not count as killed
--   survived  neither
--
-- Suites are asked in order of what they cost, as many at a time as there are cores, as long
-- as they take no more than SECONDS together when nothing is wrong. A run that was ended goes
-- on; with more SECONDS, what survived is put to the suites that were not asked before.
local tree = dofile "tests/mutate/tree.lua"
local cover = dofile "tests/mutate/cover.lua"
local faults = dofile "tests/mutate/faults.lua"
local FILES = "git ls-files 'vm/*.c' 'bindings/*.c' 'kernels/cpu/*.c'"
local SECONDS = 300
local LATE = 2 -- suites that may not end, of a fault
local WANTED = 0.85
local LANES = math.min(tree.cores(), 4) -- suites at a time: each has threads for all cores

-- ---- planting ----

local function objects_of(path)
  local list = tree.lines_of("cd %s && find . -path '*/%s.o'", tree.BUILD, path)
  for i, name in ipairs(list) do list[i] = name:gsub("^%./", "") end
  return list
end

local function contents(objects)
  local text = {}
  for i, name in ipairs(objects) do text[i] = tree.read(tree.BUILD .. "/" .. name) or "" end
  return table.concat(text)
end

-- How many suites of the list take no more than so many seconds together.
local function within(list, seconds)
  local n, spent = 0, 0
  for i, s in ipairs(list) do
    spent = spent + s.seconds
    if spent > seconds and i > 1 then break end
    n = i
  end
  return n
end

-- Puts the suites of `list` from number `first` on to the tree as it is now. What counts is
-- the first of the list that fails, whichever ends first.
local function ask(list, first, seconds)
  local r = { kind = "survived", suite = "-", asked = first - 1, late = 0 }
  local last, running = within(list, seconds), {}
  local function begin(i, case, lane)
    local limit = math.ceil(30 + 4 * list[i].seconds)
    return tree.start_suite(tree.BUILD, list[i].suite, limit, case, lane)
  end
  local function start(i)
    if i <= last then running[i] = begin(i, nil, i % LANES) end
  end
  local function stop(kind, i)
    for k = i + 1, last do
      if running[k] then tree.stop_suite(running[k]) end
    end
    r.kind, r.suite = kind, list[i].suite
    return r
  end
  for i = first, first + LANES - 2 do start(i) end
  for i = first, last do
    start(i + LANES - 1)
    local result, _, case = tree.end_suite(running[i])
    r.asked = i
    if result == "failed" and tree.end_suite(begin(i, case, LANES)) == "failed" then
      return stop("killed", i)
    end
    if result == "late" then
      r.late = r.late + 1
      r.kind, r.suite = "late", list[i].suite
      if r.late >= LATE then return stop("late", i) end
    end
  end
  return r
end

-- Compiles the fault's file and, if that changes an object, links and asks.
local function try(d, list, first, seconds)
  local path, text = tree.SOURCES .. "/" .. d.path, tree.read(tree.SOURCES .. "/" .. d.path)
  local objects = objects_of(d.path)
  if #objects == 0 then return { kind = "unbuilt", suite = "-", asked = 0, late = 0 } end
  local before, r = contents(objects), nil
  tree.write(path, faults.planted(text, d.place, d.to))
  if not tree.build(tree.BUILD, table.concat(objects, " ")) then
    r = { kind = "broken", suite = "-", asked = 0, late = 0 }
  elseif contents(objects) == before then
    r = { kind = "same", suite = "-", asked = 0, late = 0 }
  elseif not tree.build() then
    r = { kind = "broken", suite = "-", asked = 0, late = 0 }
  else
    r = ask(list, first, seconds)
  end
  tree.write(path, text)
  return r
end

-- ---- results ----

local FAULT = { killed = true, survived = true, late = true }

local function load_results(file, id)
  local results, lines = {}, (tree.read(file) or ""):gmatch "[^\n]+"
  if lines() ~= id then
    tree.write(file, id .. "\n")
    return results
  end
  for line in lines do
    local n, kind, suite, asked, late, seconds = line:match "^(%d+) (%S+) (%S+) (%d+) (%d+) (%d+)$"
    results[n // 1] = { kind = kind, suite = suite, asked = asked // 1, late = late // 1,
                        seconds = seconds // 1 }
  end
  return results
end

local function save(file, n, r)
  tree.write(file, ("%d %s %s %d %d %d\n"):format(n, r.kind, r.suite, r.asked, r.late, r.seconds), "ab")
end

local function diff(d)
  local text = tree.read(d.path)
  local changed, out = faults.planted(text, d.place, d.to), {}
  local new = changed:gmatch "([^\n]*)\n"
  for old in text:gmatch "([^\n]*)\n" do
    local now = new()
    if old ~= now then
      out[#out + 1] = "       - " .. old
      if now:find "%S" then out[#out + 1] = "       + " .. now end
    end
  end
  return table.concat(out, "\n")
end

local function tell(n, d, r, list)
  local why = r.kind == "killed" and "by " .. r.suite
              or r.kind == "late" and r.suite .. " does not end"
              or #list == 0 and "no suite runs it"
              or ("%d of %d suites asked"):format(r.asked, #list)
  print(("%4d %-8s %s:%d: %s; %s (%d s)"):format(n, r.kind, d.path, d.place.line, d.kind, why, r.seconds))
  if r.kind ~= "killed" then print(diff(d)) end
  io.stdout:flush()
end

local function sum_up(count, seconds)
  local all = count.killed + count.survived + count.late
  local share = all > 0 and count.killed / all or 1
  print(("%d faults: %d killed (%.1f %%, %.0f %% wanted), %d survived, %d late; %d draws changed \z
          nothing, %d did not compile; %d min"):format(
    all, count.killed, 100 * share, 100 * WANTED, count.survived, count.late,
    count.same + count.unbuilt, count.broken, seconds // 60))
  return share >= WANTED
end

-- ---- main ----

local function usage()
  tree.fail("usage: ./dev mutate --random N SEED [SECONDS]")
end

local N, seed, seconds = tonumber(arg[2]), math.tointeger(tonumber(arg[3])), tonumber(arg[4] or SECONDS)
if not N or not seed or not seconds then usage() end
tree.copy()
local id, suites = tree.digest("tests/mutate/tokens.lua", "tests/mutate/faults.lua"), {}
-- The suite docs reads the sources as text.
for _, suite in ipairs(tree.suites()) do
  if suite ~= "docs" then suites[#suites + 1] = suite end
end
cover.record(suites, tree.digest())
tree.configure(tree.BUILD)
if not tree.build() then tree.fail("the sources do not compile: see ", tree.BUILD, ".log") end

local lines = cover.load(suites)
-- What fails without a fault says nothing. With --coverage symbols are others, so a suite
-- that failed then is asked here.
for i = #lines.suites, 1, -1 do
  local s = lines.suites[i]
  if s.ended ~= "passed" and tree.run_suite(tree.BUILD, s.suite, 600) ~= "passed" then
    print("suite " .. s.suite .. " fails without a fault: it is not asked")
    table.remove(lines.suites, i)
  end
end

local file = ("%s/random-%d"):format(tree.PLACE, seed)
local results, draw = load_results(file, id), faults.draws(tree.lines_of(FILES), seed)
local count = { killed = 0, survived = 0, late = 0, same = 0, broken = 0, unbuilt = 0 }
local n, planted, total = 0, 0, 0
while planted < N do
  n = n + 1
  local d, r = draw(), results[n]
  local list = cover.suites_of(lines, d.path, d.place)
  local again = r and r.kind == "survived" and r.asked < within(list, seconds)
  if not r or again then
    local begun, before = os.time(), r and r.seconds or 0
    r = try(d, list, r and r.asked + 1 or 1, seconds)
    r.seconds = os.time() - begun + before
    save(file, n, r)
  end
  count[r.kind] = count[r.kind] + 1
  if FAULT[r.kind] then
    planted = planted + 1
    total = total + r.seconds
    tell(n, d, r, list)
  end
end
os.exit(sum_up(count, total))
