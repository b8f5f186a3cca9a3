-- random.lua - ./dev mutate --random N SEED [SECONDS]: N faults drawn at random from the C
-- files of vm, bindings and kernels/cpu, each put to the checks that run its line.
--
-- The draws follow from SEED and the sources alone. First one of the four kinds of
-- faults.lua is drawn, then a place, then what stands there instead. A draw that does not
-- compile, or that leaves the object file as it was, is not a fault: another one takes its
-- place. A fault is
--
--   killed    a check fails, and fails once more when it is run again; one that fails without
--             the fault, too, is told of at the end
--   late      checks do not end, and none fails otherwise: nobody would know whether the
--             machine is slow, so that does not count as killed
--   survived  neither
--
-- Checks are asked in order of what they cost and how much they say (cover.lua), in batches,
-- as many at a time as there are cores, as long as they take no more than SECONDS together
-- when nothing is wrong. A run that was ended goes on; with more SECONDS, what survived is
-- put to the checks that were not asked before.
local tree = dofile "tests/mutate/tree.lua"
local cover = dofile "tests/mutate/cover.lua"
local faults = dofile "tests/mutate/faults.lua"
local FILES = "git ls-files 'vm/*.c' 'bindings/*.c' 'kernels/cpu/*.c'"
local SECONDS = 300
local BUILD_SECONDS = 600 -- for what a fault may make endless: the build runs programs, too
local LATE = 2 -- batches that may not end, of a fault
local WANTED = 0.85
local LANES = math.min(tree.cores(), 4) -- batches at a time: checks have threads for all cores

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

-- The list cut into batches, each a second or two at first and longer later on, so that what
-- is found soon is found soon; as many as take no more than so many seconds together. Each
-- has the number of its last check.
local function batches(list, first, seconds)
  local made, spent, i = {}, 0, 1
  while i <= #list and spent < seconds do
    local b, limit = { seconds = 0 }, math.min(2 + spent / 4, 20)
    repeat
      b[#b + 1] = list[i]
      b.seconds = b.seconds + list[i].seconds + 0.02
      i = i + 1
    until i > #list or b.seconds > limit
    spent = spent + b.seconds
    b.last = i - 1
    if i > first then made[#made + 1] = b end
  end
  return made
end

local function start(checks, seconds, lane)
  local ids, file = {}, ("%s/checks%d"):format(tree.PLACE, lane)
  for i, c in ipairs(checks) do ids[i] = c.id end
  tree.write(file, table.concat(ids, "\n") .. "\n")
  return tree.start_suite(tree.BUILD, "@" .. file, math.ceil(30 + 4 * seconds), lane)
end

-- Those of the batch that failed and fail again.
local function fails_again(batch, names)
  for _, name in ipairs(names) do
    for _, c in ipairs(batch) do
      if c.id:sub(-#name - 1) == ":" .. name and
         tree.end_suite(start({ c }, c.seconds, LANES)) == "failed" then
        return c
      end
    end
  end
end

-- Puts the batches on to the tree as it is now. What counts is the first one that fails,
-- whichever ends first.
local function ask(list)
  local r = { kind = "survived", check = "-", asked = 0, late = 0 }
  local running = {}
  local function begin(i)
    if list[i] then running[i] = start(list[i], list[i].seconds, i % LANES) end
  end
  local function stop(kind, check, i)
    for k = i + 1, #list do
      if running[k] then tree.stop_suite(running[k]) end
    end
    r.kind, r.check = kind, check
    return r
  end
  for i = 1, LANES - 1 do begin(i) end
  for i, batch in ipairs(list) do
    begin(i + LANES - 1)
    local result, _, names = tree.end_suite(running[i])
    r.asked = batch.last
    local check = result == "failed" and fails_again(batch, names)
    if check then return stop("killed", check.id, i) end
    if result == "late" then
      r.late = r.late + 1
      r.kind, r.check = "late", batch[1].id
      if r.late >= LATE then return stop("late", r.check, i) end
    end
  end
  return r
end

-- Compiles the fault's file and, if that changes an object, links and asks.
local function try(d, list)
  local path, text = tree.SOURCES .. "/" .. d.path, tree.read(tree.SOURCES .. "/" .. d.path)
  local objects = objects_of(d.path)
  if #objects == 0 then return { kind = "unbuilt", check = "-", asked = 0, late = 0 } end
  local before, r = contents(objects), nil
  tree.write(path, faults.planted(text, d.place, d.to))
  if not tree.build(tree.BUILD, table.concat(objects, " ")) then
    r = { kind = "broken", check = "-", asked = 0, late = 0 }
  elseif contents(objects) == before then
    r = { kind = "same", check = "-", asked = 0, late = 0 }
  else
    local built = tree.build_planted(BUILD_SECONDS)
    r = built == "built" and ask(list) or { kind = built, check = "the-build", asked = 0, late = 0 }
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
    local n, kind, check, asked, late, seconds = line:match "^(%d+) (%S+) (%S+) (%d+) (%d+) (%d+)$"
    results[n // 1] = { kind = kind, check = check, asked = asked // 1, late = late // 1,
                        seconds = seconds // 1 }
  end
  return results
end

local function save(file, n, r)
  tree.write(file, ("%d %s %s %d %d %d\n"):format(n, r.kind, r.check, r.asked, r.late, r.seconds), "ab")
end

-- The checks that killed something and fail without a fault, too.
local function check_killers(killers)
  local list, wrong = {}, 0
  for _, c in pairs(killers) do list[#list + 1] = c end
  table.sort(list, function(a, b) return a.id < b.id end)
  if not tree.build() then tree.fail("the sources do not compile: see ", tree.BUILD, ".log") end
  for _, c in ipairs(list) do
    if tree.end_suite(start({ c }, c.seconds, LANES)) ~= "passed" then
      print("wrong: " .. c.id .. " fails without a fault, too")
      wrong = wrong + 1
    end
  end
  return wrong == 0
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
  local why = r.kind == "killed" and "by " .. r.check
              or r.kind == "late" and "from " .. r.check .. " on does not end"
              or #list == 0 and "no check runs it"
              or ("%d of %d checks asked"):format(r.asked, #list)
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
local recorded = cover.load(suites)

local file = ("%s/random-%d"):format(tree.PLACE, seed)
local results, draw = load_results(file, id), faults.draws(tree.lines_of(FILES), seed)
local count = { killed = 0, survived = 0, late = 0, same = 0, broken = 0, unbuilt = 0 }
local n, planted, total, killers = 0, 0, 0, {}
while planted < N do
  n = n + 1
  local d, r = draw(), results[n]
  local list = cover.checks_of(recorded, d.path, d.place)
  local left = batches(list, r and r.asked + 1 or 1, seconds)
  if not r or r.kind == "survived" and #left > 0 then
    local begun, before = os.time(), r and r.seconds or 0
    r = try(d, left)
    r.seconds = os.time() - begun + before
    save(file, n, r)
  end
  count[r.kind] = count[r.kind] + 1
  if FAULT[r.kind] then
    planted = planted + 1
    total = total + r.seconds
    for _, c in ipairs(list) do
      if r.kind == "killed" and c.id == r.check then killers[c.id] = c end
    end
    tell(n, d, r, list)
  end
end
local sound = check_killers(killers)
os.exit(sum_up(count, total) and sound)
