-- tree.lua - the copy of the sources that faults are planted in, how it is built, and how a
-- suite of it is run. Everything lies in build-mutate/, or where WEFT_MUTATE says.
local M = {}

M.PLACE = os.getenv "WEFT_MUTATE" or "build-mutate"
M.SOURCES = M.PLACE .. "/src"
M.BUILD = M.SOURCES .. "/build"

function M.read(path)
  local f = io.open(path, "rb")
  if not f then return nil end
  local text = f:read "a"
  f:close()
  return text
end

function M.write(path, text, mode)
  local f = assert(io.open(path, mode or "wb"))
  assert(f:write(text))
  assert(f:close())
end

function M.run(fmt, ...)
  return os.execute(fmt:format(...)) == true
end

function M.lines_of(fmt, ...)
  local command = fmt:format(...)
  local pipe, list = assert(io.popen(command)), {}
  for line in pipe:lines() do list[#list + 1] = line end
  assert(pipe:close(), command)
  return list
end

function M.fail(...)
  io.stderr:write(...)
  io.stderr:write "\n"
  os.exit(2)
end

function M.suites()
  local list = {}
  for _, path in ipairs(M.lines_of "ls tests/*/check_*.c") do
    list[#list + 1] = path:match "check_([%w_]+)%.c$"
  end
  return list
end

-- Of all that a result depends on: pages and the planting itself are not part of it, but for
-- the files named.
function M.digest(...)
  return M.lines_of("(git ls-files | grep -vE '\\.md$|^docs/|^tests/mutate/'; for f in %s; do echo $f; done) | \z
                     xargs -d '\\n' sha1sum | sha1sum", table.concat({ ... }, " "))[1]
end

-- ---- the copy ----

-- Configures a build of the copy. The device for CUDA is not planted in, and nvcc is slow. A
-- program that has not freed what it took fails, as it does under the sanitizers of .ci/run: the
-- part of them that costs nothing is linked in. `objects`: more for the linker.
function M.configure(folder, options, objects)
  if not M.run("cmake -S %s -B %s -G Ninja -DCMAKE_BUILD_TYPE=Release -DWEFT_CUDA=OFF \z
                -DCMAKE_EXE_LINKER_FLAGS='-fsanitize=leak %s' %s >%s.log 2>&1", M.SOURCES, folder,
               objects or "", options or "", folder) then
    M.fail("cmake fails: see ", folder, ".log")
  end
end

-- Brings the copy up to date, touching only what differs, so that little is compiled again.
function M.copy()
  local here, changed = {}, {}
  for _, path in ipairs(M.lines_of "git ls-files") do
    here[path] = true
    if M.read(path) ~= M.read(M.SOURCES .. "/" .. path) then changed[#changed + 1] = path .. "\n" end
  end
  assert(M.run("mkdir -p %s", M.SOURCES))
  for _, path in ipairs(M.lines_of("cd %s && find . -type f -not -path './build*'", M.SOURCES)) do
    if not here[path:sub(3)] then assert(os.remove(M.SOURCES .. "/" .. path)) end
  end
  M.write(M.PLACE .. "/changed", table.concat(changed))
  assert(M.run("xargs -r -d '\\n' cp --parents -t %s <%s/changed", M.SOURCES, M.PLACE))
end

function M.build(folder, targets)
  return M.run("cmake --build %s --target %s >%s.log 2>&1", folder or M.BUILD,
               targets or "weft-tests weft-cli", folder or M.BUILD)
end

-- With a fault: the build runs programs, which may not end then. "built", "broken" or "late".
function M.build_planted(seconds)
  local _, _, status = os.execute(("timeout -k 5 %d cmake --build %s --target weft-tests weft-cli >%s.log 2>&1")
                                  :format(seconds, M.BUILD, M.BUILD))
  return status == 0 and "built" or (status == 124 or status == 137) and "late" or "broken"
end

-- ---- a suite ----

-- What the log says of the checks that failed: the names, as CHECK:ITERATION, of those that
-- failed by themselves, and whether there are none of these but some that did not end.
local function failures(log)
  local names, late = {}, false
  for of, text in log:gmatch "\n[^\n:]+:%d+:[FE]:[^:\n]+:([^:\n]+:%d+): ([^\n]*)" do
    local slow = text:find("Test timeout expired", 1, true) or text:find("does not end", 1, true)
    if slow then late = true else names[#names + 1] = of end
  end
  return names, late and #names == 0
end

function M.cores() return math.tointeger(tonumber(M.lines_of "nproc"[1])) end

-- How much longer everything takes because others use the processors, too.
local function slower()
  local load = (M.read "/proc/loadavg" or ""):match "^%S+" or 0
  return math.max(1, math.ceil(load / M.cores()))
end

-- The line that runs what weft-tests takes, a suite or @FILE. `seconds`: how long it may take on
-- a quiet machine; `times`: how much slower this one is; `settings`: more of the environment.
local function line_of(folder, suite, seconds, log, times, settings)
  return ("LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0 \z
           CK_TIMEOUT_MULTIPLIER=%d %s bash tests/mutate/suite.sh %s/weft-tests %s %d %s")
           :format(times, settings or "", folder, suite, times * seconds, log)
end

-- How one ended, by its exit status and its log.
local function ended(status, log)
  if status == 0 then return "passed", {} end
  if status == 124 then return "late", {} end
  local names, late = failures("\n" .. M.read(log))
  return late and "late" or "failed", names
end

-- Starts one. `lane`: of those that run at once, each has its own.
function M.start_suite(folder, suite, seconds, lane)
  local log = ("%s.suite%d"):format(folder, lane or 0)
  os.remove(log .. ".session")
  return { pipe = assert(io.popen(line_of(folder, suite, seconds, log, slower()))), log = log }
end

-- Waits for it: "passed", "failed" or "late" (it did not end, or checks of it did not and no
-- other failed); the processor time; the checks that failed.
function M.end_suite(s)
  local status, cpu = (s.pipe:read "l" or ""):match "^(%d+) (%S+)$"
  s.pipe:close()
  local how, names = ended(math.tointeger(tonumber(status)), s.log)
  return how, tonumber(cpu), names
end

-- Runs suites, as many at a time as there are cores, and calls done(suite, how it ended, its
-- processor time) when each ends. {} in `settings` is the suite's name.
function M.each_suite(folder, suites, seconds, settings, done)
  local line = line_of(folder, "{}", seconds, folder .. ".suite-{}", slower() + M.cores() - 1, settings)
  M.write(folder .. ".suites", table.concat(suites, "\n") .. "\n")
  local pipe = assert(io.popen(("xargs -a %s.suites -P %d -I{} bash -c 'echo {} $(%s)'")
                                 :format(folder, M.cores(), line)))
  for text in pipe:lines() do
    local suite, status, cpu = text:match "^(%S+) (%d+) (%S+)$"
    done(suite, ended(math.tointeger(tonumber(status)), folder .. ".suite-" .. suite), tonumber(cpu))
  end
  pipe:close()
end

-- Ends it before its time.
function M.stop_suite(s)
  M.run("until [ -s %s ]; do sleep 0.01; done; kill $(cat %s) 2>/dev/null", s.log .. ".session",
        s.log .. ".session")
  s.pipe:close()
end

function M.run_suite(...) return M.end_suite(M.start_suite(...)) end

return M
