-- consoles.lua - runs what pages show of a console, and compares what they say is printed:
--   WEFT=build/weft build/weft lua tests/docs/consoles.lua [PAGE...]
--
-- A block with a line "$ COMMAND" is a console. The commands of a page run in one new folder,
-- in which `plans` are those of the tree; files are those that the page shows before, with
-- their name: as output of `$ cat NAME`, or as a block of Lua that begins with "-- NAME".
-- "..." in an output stands for anything, a line "..." for any lines. What a machine's speed
-- decides is not compared. Headers of plans say bytes of commands, which are compared, too. Lines of
-- a run that stand without a command are those of the quick start.
local pages = { "README.md" }
for name in io.popen("ls docs/*.md"):lines() do pages[#pages + 1] = name end
local wanted = #arg > 0 and arg or pages
local here = io.popen("pwd"):read("l")
local weft = os.getenv("WEFT") or here .. "/build/weft"
local failed, compared, ran, told = 0, 0, 0, {}

local function say(...) io.write(string.format(...), "\n") end

local function fail(...)
  failed = failed + 1
  say(...)
end

local function read(path)
  local f = assert(io.open(path))
  local text = f:read("a")
  f:close()
  return text
end

local function write(path, text)
  local f = assert(io.open(path, "w"))
  f:write(text)
  f:close()
end

-- ---- what cannot run as it stands, and why ----

local YOURS = "a file of the reader"
local not_run = {
  ["weft import recipe.yaml"] = YOURS, ["weft import ds_config.json"] = YOURS,
  ["weft import qlora.yml"] = YOURS, ["weft import examples/train_full/qwen3_full_sft.yaml"] = YOURS,
  ["weft import config_registry.py"] = YOURS, ["weft import configuration_mixtral.py"] = YOURS,
  ["weft report recipe.yaml"] = YOURS, ["weft import out/config.toml"] = YOURS,
  ["weft export --to"] = YOURS, ["ls out"] = YOURS, ["docs/import.md: weft check plan.lua"] = YOURS,
  ["weft calibrate small.lua"] = "its suite measures, which takes a while",
  ["weft sim small.lua"] = "the suite calibration has tables",
  ["weft repl"] = "the suite repl types it", ["LUA_CPATH="] = "the suite lua_module runs Lua without weft",
}

-- Files that a page describes and does not show, before the command that begins so.
local prepared = {
  ["README.md: weft check plan.lua"] = function(page)
    local plan = page:match("## A plan.-```lua\n(.-)```")
    return "plan.lua", (plan:gsub("tp = 4", "tp = 3"):gsub("global", "gobal"))
  end,
  ["docs/report.md: weft diff"] = function()
    return "full.lua", (read("plans/llama3_8b_fsdp2.lua"):gsub('recompute%s*=%s*"cheap"', 'recompute = "full"'))
  end,
  ["docs/sweeps.md: weft lua three.lua"] = function()
    return "three.lua", [[
local weft = require "weft"
local plan = weft.plan { model = weft.model { "llama-tiny", num_attention_heads = 8 },
                         mesh = { tp = 2 }, batch = { global = 8, seq = 16 } }
weft.sweep { plan = plan, over = weft.grid { { "mesh.tp", 3 }, { "batch.micro", 1, 2 } } }
]]
  end,
}

-- ---- comparing ----

-- Times and rates of this machine; what weft sim predicts is not one.
local function measured(line)
  return (line:gsub("in [%d.]+ m?s", "in T"):gsub("[%d.]+ points/s", "N points/s")
    :gsub("%d[%d.]* ?[kMG]? tokens/s.*", "N tokens/s"):gsub(" [%d.]+ ms each", " T each"))
end

local function pattern(line)
  local out = measured(line):gsub("%s+$", ""):gsub("[%^%$%(%)%%%[%]%*%+%-%?]", "%%%0")
  return "^" .. out:gsub("%.%.%.", "\0"):gsub("%.", "%%."):gsub(" *%z", ".*") .. "$"
end

-- Whether got[g..] is what want[w..] says; else the first line that is not.
local function matches(want, got, w, g)
  for i = w, #want do
    if want[i] == "..." then
      for k = g, #got + 1 do if matches(want, got, i + 1, k) then return true end end
      return false, i
    end
    if not got[g] or not measured(got[g]):gsub("%s+$", ""):match(pattern(want[i])) then return false, i end
    g = g + 1
  end
  return g > #got, #want
end

local function lines_of(text)
  local out = {}
  for line in (text:gsub("\n*$", "\n")):gmatch("([^\n]*)\n") do out[#out + 1] = line end
  while out[#out] == "" do out[#out] = nil end
  return out
end

-- ---- running ----

local folder = io.popen("mktemp -d"):read("l")

local function fresh()
  os.execute(string.format("rm -rf '%s' && mkdir '%s' && ln -s '%s/plans' '%s/plans' && ln -s '%s/docs' '%s/docs'",
    folder, folder, here, folder, here, folder))
end

local before = {} -- what commands that read nothing but plans have printed

local function run(command)
  if before[command] then return table.unpack(before[command]) end
  local bin = weft:match("^(.*)/[^/]*$")
  local p = io.popen(string.format("cd '%s' && export PATH='%s':$PATH && { %s\n} 2>&1; echo \"exit $?\"", folder, bin, command))
  local text = p:read("a")
  p:close()
  local body, code = text:match("^(.-)exit (%d+)\n$")
  if command:match("^weft %l+ plans/[%w_.]+$") then before[command] = { body, tonumber(code) } end
  return body, tonumber(code)
end

local function begins(name, command, key)
  return command:sub(1, #key) == key or (name .. ": " .. command):sub(1, #key) == key
end

local function excused(name, command)
  for key in pairs(not_run) do
    if begins(name, command, key) then
      told[key] = true
      return true
    end
  end
end

local function prepare(name, page, command)
  for key, make in pairs(prepared) do
    if begins(name, command, key) then
      local file, text = make(page)
      write(folder .. "/" .. file, text)
      told[key] = true
    end
  end
end

local function check(name, page, command, want)
  local file = command:match("^cat ([%w_.-]+)$")
  if file then return write(folder .. "/" .. file, table.concat(want, "\n") .. "\n") end
  if excused(name, command) then return end
  prepare(name, page, command)
  local text, code = run(command)
  ran = ran + 1
  -- What fails on a page says so there.
  local shown = table.concat(want, "\n")
  local may_fail = shown:find("error", 1, true) or shown:find("does not fit", 1, true)
    or shown:find("^weft: ") or command:find("^weft diff ")
  if code ~= 0 and not may_fail then
    return fail("%s: %s: exit code %d:\n%s", name, command, code, text)
  end
  if #want == 0 then return end
  compared = compared + 1
  local ok, at = matches(want, lines_of(text), 1, 1)
  if not ok then fail("%s: %s: line %d is not so: %s\nprinted:\n%s", name, command, at, want[at] or "", text) end
end

local function console(name, page, block)
  local command, want = nil, {}
  local function done() if command then check(name, page, command, want) end end
  for line in block:gmatch("([^\n]*)\n") do
    local next_one = line:match("^%$ (.*)$")
    if next_one then
      done()
      command, want = next_one:gsub("%s+#.*$", ""), {}
    elseif command and command:match("\\$") then
      command = command:gsub("\\$", "") .. line
    elseif command then
      want[#want + 1] = line
    end
  end
  while want[#want] == "" do want[#want] = nil end
  done()
end

-- ---- lines of runs ----

local soon = 20 -- the step up to which the quick start is run
local QUICKSTART = "weft run plans/quickstart.lua --steps " .. soon + 1

local function figures(line)
  local step, steps, loss, grad, lr, rest = line:match("^step%s+(%d+)/(%d+)%s+loss%s+([%d.]+)%s+grad%s+([%d.]+)%s+lr (%S+)(.*)$")
  if not step then return end
  return { step = tonumber(step), steps = tonumber(steps), loss = tonumber(loss), grad = tonumber(grad), lr = lr,
           bytes = rest:match("[%d.]+ [KMGT]iB") }
end

local quick -- its header, and its steps by number
local function quickstart()
  if quick then return quick end
  quick = { steps = {} }
  for _, line in ipairs(lines_of((run(QUICKSTART)))) do
    local f = figures(line)
    if f then quick.steps[f.step], quick.bytes = f, f.bytes end
    if line:match("^quickstart: ") then quick.header = line end
  end
  return quick
end

local function near(a, b, part) return math.abs(a - b) <= part * math.abs(b) end

-- Loss and norm may differ a little between CPUs; bytes and rates do not.
local function run_lines(name, text)
  for line in text:gmatch("[^\n]+") do
    local f, is = figures(line), nil
    if f or line:match("%d ranks? %(%l+%), [%d.]+ [KMGT]iB each") then
      local q = quickstart()
      compared = compared + 1
      if f then
        local s = q.steps[f.step]
        is = f.bytes == q.bytes and (s or f.step > soon)
          and (not s or f.lr == s.lr and near(f.loss, s.loss, 1e-3) and near(f.grad, s.grad, 1e-2))
      else
        is = line == q.header
      end
      if not is then fail("%s: no line of the quick start: %s (its header: %s)", name, line, q.header) end
    end
  end
end

-- Blocks in order: language, text. What follows the language, as the file that a block is, is no part of it.
local function blocks(name, page)
  local at = 1
  return function()
    local first, last, language = page:find("\n```(%w*)[^\n]*\n", at)
    if not first then return end
    local stop = page:find("\n```", last, true)
    if not stop then
      fail("%s: a block has no end: %s", name, page:sub(first + 1, last - 1))
      return
    end
    local text = page:sub(last + 1, stop)
    at = stop + 4
    return language, text
  end
end

for _, name in ipairs(wanted) do
  local page = read(name)
  fresh()
  for language, text in blocks(name, page) do
    local file = language == "lua" and text:match("^%-%- ([%w_]+%.lua)%f[^%w]")
    if file then
      write(folder .. "/" .. file, text)
    elseif (language == "" or language == "console") and ("\n" .. text):find("\n$ ", 1, true) then
      console(name, page, text)
    elseif language == "" then
      run_lines(name, text)
    end
  end
end

-- ---- headers of plans ----

local function gib(text)
  local n, unit = text:match("([%d.]+) ([MGT]iB)")
  return n and tonumber(n) * ({ MiB = 1 / 1024, GiB = 1, TiB = 1024 })[unit]
end

local function header(path)
  for line in io.lines(path) do
    local command, said = line:match("^%-%-   (weft check plans/.-)%s%s+([%d.]+ GiB)")
    if command then
      local text, code = run(command)
      -- A limit that the change breaks says the bytes instead.
      local over = text:match("plan.expect.peak_gib: is ([%d.]+)")
      local is = over and tonumber(over) or gib(text:match("\n  memory  ([%d.]+ [MGT]iB)") or "")
      compared, ran = compared + 1, ran + 1
      if code ~= (over and 1 or 0) or not is or math.abs(is - gib(said)) > 0.051 then
        fail("%s: %s: %s is not so:\n%s", path, command, said, text)
      end
    end
    if not line:match("^%-%-") then break end
  end
end

if #arg == 0 then
  fresh()
  for path in io.popen("ls plans/*.lua"):lines() do header(path) end
  for _, list in ipairs { not_run, prepared } do
    for key in pairs(list) do
      if not told[key] then fail("tests/docs/consoles.lua: no page has: %s", key) end
    end
  end
end
os.execute("rm -rf '" .. folder .. "'")
say("%d commands of pages ran, %d outputs compared, %d are not so", ran, compared, failed)
os.exit(failed == 0 and 0 or 1)
