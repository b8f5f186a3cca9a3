-- commands.lua - the ,commands, which begin as no Lua does, and the plan of the prompt.
local host, lines = use "prompt/host", use "prompt/say"
local find, format, match, sub = string.find, string.format, string.match, string.sub

local commands = { list = {} }
local say = lines.line

local function complain(...) lines.error(format(...)) end

-- ---- the plan ----

-- The file that is loaded or was to be, nil: none yet; the fields that are set, in order.
local file, set, timing = host.file, host.set, false

-- What -D gave is for the plan of the command line, or for all if that named none.
local function defined()
  if not host.file or file == host.file then return host.define end
end

-- What is wrong with a plan that could be loaded: who does not see its memory there takes
-- it for one that fits.
local function warn(plan)
  local ok, why = plan:check()
  local warnings = ok and plan:warnings()
  if not ok then
    lines.reasons(tostring(why))
  elseif #warnings > 0 then
    lines.reasons(tostring(warnings))
  end
end

-- Loads the file into the globals `plan` and `mesh`. What is wrong is printed, and the
-- globals stay what they were. Gives the status, 0: all is well.
function commands.load()
  local values = {}
  for _, f in ipairs(set) do values[f.path] = f.value end
  local plan, why = host.load(file, { set = values, define = defined() })
  if not plan then
    lines.reasons(tostring(why))
    return why.status
  end
  rawset(host.globals, "plan", plan)
  rawset(host.globals, "mesh", plan.mesh)
  if host.talks then
    say(tostring(plan))
    warn(plan)
  end
  return 0
end

-- ---- one function for each ----

local run = {}

-- What was set belongs to the other plan. A wrong plan can be mended and loaded again; a
-- file that is not there is a slip, and ,set and ,reload stay with the plan that is loaded.
function run.plan(name)
  if name == "" then return say(file or "no plan: ,plan FILE loads one") end
  local file_before, set_before = file, set
  if name ~= file then set = {} end
  file = name
  if commands.load() == host.no_file and file_before then
    file, set = file_before, set_before
  end
end

function run.reload()
  if not file then return complain "there is no plan to load again: ,plan FILE" end
  commands.load()
end

-- The value of a path that is set again takes the place of the old one; a change that the
-- plan does not take is undone.
function run.set(text)
  for _, f in ipairs(text == "" and set or {}) do say(f.path .. "=" .. f.value) end
  if text == "" then return #set == 0 and say "every field is as in the plan" end
  local path, value = match(text, "^([^=]-) *= *(.*)$")
  if (path or "") == "" then return complain ",set takes path=value: mesh.tp=4" end
  if not file then return complain "there is no plan to change: ,plan FILE" end
  local i, before = 1, set
  while before[i] and before[i].path ~= path do i = i + 1 end
  set = table.move(before, 1, #before, 1, {})
  set[i] = { path = path, value = value }
  if commands.load() ~= 0 then set = before end
end

function run.time(code)
  if code ~= "" then
    return host.eval(code) == "incomplete" and complain "the line is not complete"
  end
  timing = not timing
  host.timing(timing)
  say("the time of each line is " .. (timing and "printed" or "not printed"))
end

function run.help(topic)
  local help = use "prompt/help"
  if topic == "" then return say(help.overview()) end
  local text, why = help.topic(topic)
  if text then say(text) else complain("%s", why) end
end

function run.quit() host.quit() end

-- ---- all of them ----

-- takes: what completion offers after the name.
local function add(name, form, takes, doc)
  commands.list[#commands.list + 1] = { name = name, form = form, takes = takes, doc = doc }
end
add("plan", "FILE", "file", "loads a plan: globals `plan` and `mesh`")
add("reload", "", nil, "loads the plan again, after its file was changed")
add("set", "path=value", "assignment",
  "changes a field of the plan, for example ,set mesh.tp=4")
add("time", "[code]", "code", "times a line of Lua; alone: every line, or none")
add("help", "[topic]", "topic", "this list, or what ?topic says")
add("quit", "", nil, "leaves, as Ctrl-D does")

function commands.find(name)
  for _, c in ipairs(commands.list) do if c.name == name then return c end end
end

local function call(line)
  local name, text = match(line, "^,(%S*)%s*(.-)%s*$")
  local c = commands.find(name)
  if c and text ~= "" and c.form == "" then
    complain(",%s takes nothing", name)
  elseif c then
    run[name](text)
  else
    local all = {}
    for i, other in ipairs(commands.list) do all[i] = other.name end
    local near = suggest(name, all)
    complain("no command ',%s'%s", name,
      near and format(" (did you mean ',%s'?)", near) or "; ,help lists them")
  end
end

-- What people type to leave or for help, which means nothing in Lua unless they gave the
-- name to something.
local words = { exit = ",quit", ["exit()"] = ",quit", quit = ",quit", ["quit()"] = ",quit",
                help = ",help" }

-- True if the line is a ,command or a ?topic, which was then done, and no Lua.
function commands.line(line)
  line = match(line, "^%s*(.*)$")
  local word = match(line, "^(.-)[%s;]*$")
  local variable = rawget(host.globals, match(word, "^[^(]*")) ~= nil
  if words[word] and (word == "help" or not variable) then line = words[word] end
  local topic = match(line, "^%?(.*)$")
  if not topic and not find(line, "^,") then return false end
  host.remember(line)
  call(topic and ",help " .. topic or line)
  return true
end

return commands
