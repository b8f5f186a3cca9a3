-- verb.lua - weft best: the command line as options of weft.best; the result as a screen, as
-- JSON and as the file of a plan.
local best, plan_file, space = use "best/best", use "best/plan_file", use "best/space"
local asks_of, draft, of_text = use "plan_asks", use "plan_draft", use "plan_of_text"
local report = use "reports/best"
local quote, screen, shown = use "import/quote", use "fits/screen", use "shown"
local text, weft = use "reports/text", use "weft"
local format = string.format

local NUMBERS = { clock = true, keep = true, threads = true, memory = true }

local function failf(...) fail("weft best: " .. format(...)) end

local function assignments(list, what)
  local fields = {}
  for _, word in ipairs(list) do
    local key, value = string.match(word, "^([^=]+)=(.*)$")
    if not key then failf("\"%s\" is no %s", quote.shown(word), what) end
    fields[key] = value
  end
  return fields
end

-- "4,8" -> { 4, 8 }
local function values(word)
  local list = {}
  for item in string.gmatch(word, "[^,]+") do list[#list + 1] = math.tointeger(tonumber(item)) or item end
  return list
end

local function options(args)
  local o, given = { over = {} }, assignments(args.words, "NAME=VALUE,VALUE: what the search looks at")
  for _, key in ipairs(keys(given)) do
    local word, known = given[key], NUMBERS[key]
    for _, name in ipairs(space.NAMES) do known = known or name == key end
    if not known then
      local names = table.move(space.NAMES, 1, #space.NAMES, 1, keys(NUMBERS))
      local near = suggest(key, names)
      failf("\"%s\" is nothing that is searched%s", quote.shown(key),
        near and format(" (did you mean \"%s\"?)", near) or "")
    end
    if NUMBERS[key] then
      o[key] = math.tointeger(tonumber(word)) or tonumber(word)
        or failf("%s=%s is no number", key, quote.shown(word))
    else
      o.over[key] = values(word)
    end
  end
  return o
end

-- Where there is not even a draft, loading the plan says all that is wrong with it.
local function load(args)
  if args.folder then failf("%s is a folder, not a plan", shown(args.file)) end
  local given = { set = assignments(args.set, "field=value"), define = assignments(args.define, "name=value") }
  local plan, why = draft(args.file, given)
  if plan then return plan end
  plan, why = weft.load(args.file, given)
  if plan then return plan end
  if not why[1] or not why[1].code then error(why, 0) end
  return nil, why
end

-- Reasons as weft check prints them.
local function wrong(why)
  local out = {}
  for i, x in ipairs(why) do out[i] = screen.reason(x, "error") end
  out[#out + 1] = ""
  return { ok = false, text = table.concat(out, "\n"), errors = why }
end

local function comment(v, file)
  local b = v.best
  return { format("%s - made by weft best of %s: %.4g s a step, MFU %.1f %%, by the clock.", v.plan, shown(file),
             b.seconds, 100 * b.mfu),
           format("The best of %s, %d of them on the clock.", text.plural(v.layouts, "layout"), v.on_the_clock) }
end

-- The text is read again, as the file will be: what it cannot say is told now.
local function write(plan, v, args)
  local fine, document = pcall(plan_file.text, plan, v.best.fields, comment(v, args.file))
  if not fine then return nil, document end
  local again, why = of_text(args.output, document)
  if not again then
    return nil, format("weft best: the plan cannot be written: %s",
      type(why) == "table" and why[1] and why[1].message or tostring(why))
  end
  again:close()
  return document
end

-- The command that trains by the layout: with what the plan was given here, of which the layout's
-- fields come last.
local function run_line(args, fields)
  local out = { "weft run", plan_file.word(args.file) }
  for _, option in ipairs { { "-D", args.define }, { "--set", args.set }, { "--data", args.data } } do
    for _, word in ipairs(option[2]) do out[#out + 1] = option[1] .. " " .. plan_file.word(word) end
  end
  out[#out + 1] = plan_file.options(fields)
  return shown(table.concat(out, " "))
end

-- What was asked for of schedules says nothing of a layout that has none.
local function unused(over, layout)
  local names = {}
  for _, name in ipairs { "schedule", "virtual", "balance" } do
    if over[name] then names[#names + 1] = name end
  end
  if layout.pp > 1 or #names == 0 then return nil end
  return format("%s: of layouts with a pipeline; the best has none (pp=2,4 leaves it out)\n",
    table.concat(names, ", "))
end

return function(args)
  local plan, why = load(args)
  if not plan then return wrong(why) end
  local o = options(args)
  o.plan = plan
  if not asks_of(plan).gpu then -- an error of the plan, as weft sim has it
    return wrong { { file = args.file, path = "cluster", severity = "error", code = "required",
                     message = "the clock needs the GPU: cluster = \"h100-sxm\", or figures of your own" } }
  end
  if args.output then plan_file.check(plan.spec, true) end
  local v = best(o)
  local lines = { v.best and unused(o.over, v.best.layout) }
  lines[#lines + 1] = report(v, text)
  if v.best then
    lines[#lines + 1] = ""
    lines[#lines + 1] = run_line(args, v.best.fields)
  end
  lines[#lines + 1] = ""
  local document, unwritten
  if args.output and v.best then document, unwritten = write(plan, v, args) end
  return { ok = v.best ~= nil or v.interrupted, unwritten = unwritten, interrupted = v.interrupted, json = v,
           text = table.concat(lines, "\n"), document = document or nil }
end
