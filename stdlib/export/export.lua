-- export.lua - weft export: a checked plan as settings of another system. What is written is read
-- again as weft import reads it, and compared field by field with the plan: the fields that differ
-- are the list of what the system cannot say, so that export and import cannot disagree.
local fields = use "export/fields"
local give_settings = use "give_settings"
local import = use "import/import"
local plan_of_text = use "plan_of_text"
local shown = use "shown"
local weft = use "weft"

local systems = { automodel = use "export/automodel", deepspeed = use "export/deepspeed",
                  megatron = use "export/megatron/megatron", torchtitan = use "export/torchtitan/torchtitan" }

-- ---- the command line ----

local function system_of(args)
  local names = keys(systems)
  if not args.to then
    fail("weft export writes settings: --to " .. table.concat(names, "|")
         .. "; weights are written by weft ckpt export PLAN CKPT DIR")
  end
  if systems[args.to] then return systems[args.to] end
  local near = suggest(args.to, names)
  fail(string.format("--to %s: is none of %s%s", shown(args.to), table.concat(names, ", "),
                     near and string.format(" (did you mean \"%s\"?)", near) or ""))
end

local function assignments(list)
  local set = {}
  for _, word in ipairs(list) do
    local key, value = string.match(word, "^([^=]+)=(.*)$")
    if not key then fail(string.format("\"%s\" is no field=value", shown(word))) end
    set[key] = value
  end
  return set
end

local function load_plan(args)
  if #args.words > 0 then
    fail(string.format("weft export takes one plan, got %s, too; weights are written by weft ckpt "
                       .. "export PLAN CKPT DIR", shown(args.words[1])))
  end
  local plan = assert(weft.load(args.file, { set = assignments(args.set), define = assignments(args.define) }))
  assert(plan:check())
  return plan
end

-- ---- reading it again ----

local function first_error(why)
  for _, one in ipairs(why) do
    if one.severity == "error" then return (one.path and one.path .. ": " or "") .. one.message end
  end
end

-- What weft import makes of it, as fields; nil and why not.
local function read_again(system, made, f)
  local model = made.model
  if model then give_settings("./" .. model.name, model.text) end
  local path = "./" .. system.file
  give_settings(path, made.text {})
  local back = import { file = path, words = {}, set = made.set or {}, model = model and model.option or nil,
                        world = system.world and system.world(f) or nil }
  if not back.ok then return nil, back.json.errors[1].text end
  local plan, why = plan_of_text("plan.lua", back.document)
  local ok = plan and true
  if plan then ok, why = plan:check() end
  if not ok then return nil, first_error(why) end
  made.assumed = back.json.assumed
  return fields.of(plan)
end

-- The form of the settings that says most of the plan.
local function best_of(system, f)
  local best, refused
  for _, form in ipairs(system.forms(f)) do
    local made, why = system.write(f, form)
    local back
    if made then back, why = read_again(system, made, f) end
    refused = refused or why
    if back then
      if made.csv then back.value.schedule, back.value["schedule's order"] = f.value.schedule, f.csv end
      made.differences = fields.differences(f, back)
      if not best or #made.differences < #best.differences then best = made end
    end
  end
  return best, refused
end

-- ---- what is said ----

local function value_of(v)
  if v == nil then return "nothing" end
  local text = shown(tostring(v))
  return #text <= 60 and text or string.sub(text, 1, 57) .. "..."
end

local function list_of(system, made)
  local out = {}
  for i, d in ipairs(made.differences) do
    out[i] = string.format("%s: %s here, %s as these settings say it", d.field, value_of(d.here), value_of(d.there))
  end
  return out
end

-- Whether the order of the pipeline stands in a file beside the settings.
local function has_order(system, f) return f.mesh.pp > 1 and not system.fixed_orders end

local function head_of(system, args, f, list, assumptions)
  local out = { string.format("%s: settings of %s for %d ranks, made by weft export.", f.facts.name, system.name,
                              f.facts.world) }
  if has_order(system, f) then out[#out + 1] = "The order of the pipeline as PyTorch reads it: schedule.csv" end
  local assumed = {}
  for i, one in ipairs(assumptions) do assumed[i] = one.what end
  if #assumed > 0 then
    out[#out + 1] = "What weft import assumes, as they do not say it: " .. table.concat(assumed, ", ")
  end
  if #list == 0 then
    out[#out + 1] = #assumed == 0 and "They say all of the plan." or "They say all else of the plan."
  else
    out[#out + 1] = string.format("What they do not say (%d):", #list)
    for _, line in ipairs(list) do out[#out + 1] = "  " .. line end
  end
  return out
end

-- NCCL tells a few of these words by their case, too.
local CASED = { ring = "Ring", tree = "Tree", collnetdirect = "CollnetDirect", collnetchain = "CollnetChain",
                nvls = "NVLS", nvlstree = "NVLSTree", pat = "PAT", ll = "LL", ll128 = "LL128", simple = "Simple" }

-- What NCCL is told, as { name =, value =, field = }.
local function variables_of(f)
  local list = {}
  for _, path in ipairs(keys(f.stored)) do
    local name, value = string.match(path, "^nccl%.(.*)$"), f.stored[path]
    if name and value ~= "-" and not string.find(name, "_ctas$") then
      value = string.gsub(value, '^"(.*)"$', "%1")
      value = value == "true" and "1" or value == "false" and "0" or CASED[value] or value
      list[#list + 1] = { name = "NCCL_" .. string.upper(name), value = value, field = path }
    end
  end
  return list
end

-- Machines, and processes of each: all have as many.
local function launch_of(f)
  local each = math.min(f.facts.world, f.facts.node)
  while f.facts.world % each ~= 0 do each = each - 1 end
  return { nodes = f.facts.world // each, each = each }
end

-- How it is started, and what NCCL is told.
local function environment_of(f)
  local out = { "# environment of each process; started on every machine by",
    string.format("#   torchrun --nnodes %d --nproc-per-node %d ...", f.launch.nodes, f.launch.each) }
  for _, set in ipairs(f.environment) do
    out[#out + 1] = string.format("export %s='%s'", set.name, (string.gsub(set.value, "'", "'\\''")))
  end
  return table.concat(out, "\n") .. "\n"
end

local function files_of(system, made, f, head)
  local files = { { name = system.file, text = made.text(head) },
                  { name = "not_said.txt", text = table.concat(head, "\n") .. "\n" } }
  if not system.has_environment then files[#files + 1] = { name = "environment.sh", text = environment_of(f) } end
  if made.model then files[#files + 1] = { name = made.model.name, text = made.model.text } end
  if has_order(system, f) then files[#files + 1] = { name = "schedule.csv", text = f.csv .. "\n" } end
  return files
end

local function json_of(system, made, f, head)
  local out = { system = system.name, settings = made.text(head), schedule = has_order(system, f) and f.csv or nil,
                environment = not system.has_environment and environment_of(f) or nil, model = made.model and made.model.text, not_said = {} }
  for i, d in ipairs(made.differences) do
    out.not_said[i] = { field = d.field, here = d.here, there = d.there }
  end
  return out
end

return function(args)
  local system = system_of(args)
  local f = fields.of(load_plan(args))
  f.environment, f.launch = variables_of(f), launch_of(f)
  local made, why = nil, "the model is a function of the plan"
  if f.config then made, why = best_of(system, f) end
  if not made then
    local text = string.format("%s: %s cannot say this plan: %s\n", shown(args.file), system.name, why)
    return { ok = false, aside = true, text = text, json = { system = system.name, error = why } }
  end
  local head = head_of(system, args, f, list_of(system, made), made.assumed)
  return { ok = true, document = made.text(head), files = files_of(system, made, f, head), aside = args.output == nil,
           text = table.concat(head, "\n") .. "\n", json = json_of(system, made, f, head) }
end
