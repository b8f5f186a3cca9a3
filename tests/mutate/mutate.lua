-- mutate.lua - plants small faults one at a time and asks the suites to find them.
--
--   lua5.4 tests/mutate/mutate.lua [--check | FIRST [LAST]]
--
-- Runs in the root of the sources, and changes only a copy of them, in build-mutate/ or
-- where WEFT_MUTATE says (two runs at a time need two). Each row of mutants.lua names a
-- file, a text that stands there exactly once, what to put in its place, and the suites
-- that should notice. A fault is killed if one of them fails or does not end. A row with
-- `equal` changes nothing that can be seen, for the reason given: it is planted all the
-- same, and must survive. `missing` says which test a fault that survives calls for.
-- --check only looks whether each row still names suites and a text that are there; the
-- suite docs does so, too.
local TREE = (os.getenv "WEFT_MUTATE" or "build-mutate") .. "/src"
local SECONDS = 180 -- for a suite
local WANTED = 0.9

local function read(path)
  local f = io.open(path, "rb")
  if not f then return nil end
  local text = f:read "a"
  f:close()
  return text
end

local function write(path, text)
  local f = assert(io.open(path, "wb"))
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

-- What is wrong with the rows, one line each.
local function check(mutants)
  local suites = {}
  for _, path in ipairs(lines_of "ls tests/*/check_*.c") do
    suites[path:match "check_([%w_]+)%.c$"] = true
  end
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
  assert(run("cmake -S %s -B %s/build -G Ninja -DCMAKE_BUILD_TYPE=Release >/dev/null", TREE, TREE))
end

local function build()
  return run("cmake --build %s/build --target weft-tests weft-cli >%s/build/log 2>&1", TREE, TREE)
end

-- One after the other, so that most faults cost one suite.
local function suites_pass(suites)
  for suite in suites:gmatch "%S+" do
    if not run("cd %s && timeout -k 5 %d build/weft-tests %s >build/tests.log 2>&1 </dev/null",
               TREE, SECONDS, suite) then
      return false
    end
  end
  return true
end

local function plant(m)
  local path = TREE .. "/" .. m.file
  local text = read(path)
  write(path, (replaced(text, m.from, m.to)))
  local result = "does not compile"
  if build() then result = suites_pass(m.suites) and "survived" or "killed" end
  write(path, text)
  return result
end

-- A suite that fails by itself would seem to find everything.
local function check_suites(mutants, first, last)
  local seen = {}
  for i = first, math.min(last, #mutants) do
    for suite in mutants[i].suites:gmatch "%S+" do
      if not seen[suite] and not suites_pass(suite) then
        io.stderr:write("suite ", suite, " fails without a fault: see ", TREE,
                        "/build/tests.log\n")
        os.exit(2)
      end
      seen[suite] = true
    end
  end
end

local function plant_all(mutants, first, last)
  local count = { killed = 0, survived = 0, equal = 0, wrong = 0 }
  for i = first, math.min(last, #mutants) do
    local m = mutants[i]
    local result = plant(m)
    local as = m.equal and result == "survived" and "equal" or result
    if m.equal and result == "killed" then as = "wrong: called equal, and a suite sees it" end
    local kind = count[as] and as or "wrong"
    count[kind] = count[kind] + 1
    print(("%3d  %-9s %s: %s"):format(i, as, m.file, first_line(m.from)))
    local why = m.equal or as == "survived" and m.missing and "missing: " .. m.missing
    print(("%15s-> %s%s"):format("", first_line(m.to), why and "  (" .. why .. ")" or ""))
    io.stdout:flush()
  end
  local faults = count.killed + count.survived
  local share = faults > 0 and count.killed / faults or 1
  print(("%d faults: %d killed, %d survived (%.0f %% killed, %.0f %% wanted); "
         .. "%d change nothing; %d rows are wrong")
    :format(faults, count.killed, count.survived, 100 * share, 100 * WANTED, count.equal,
            count.wrong))
  return share >= WANTED and count.wrong == 0
end

local mutants = dofile "tests/mutate/mutants.lua"
local wrong = check(mutants)
for _, line in ipairs(wrong) do print(line) end
if #wrong > 0 or arg[1] == "--check" then
  print(("%d faults; %d rows are wrong"):format(#mutants, #wrong))
  os.exit(#wrong == 0)
end
copy()
if not build() then
  io.stderr:write("the sources do not compile: see ", TREE, "/build/log\n")
  os.exit(2)
end
local first, last = tonumber(arg[1] or 1), tonumber(arg[2] or #mutants)
check_suites(mutants, first, last)
os.exit(plant_all(mutants, first, last))
