-- fits.lua - weft report: whether a plan, or settings of another system, fit their GPUs. Takes
-- the command line, gives one screen and the same as JSON: memory and its largest classes,
-- the proof, the bubble, warnings, and the nearest layouts that fit if it does not.
local assignments = use "fits/assignments"
local import = use "import/import"
local nearest = use "fits/nearest"
local page = use "page/page"
local plan_asks, plan_draft = use "plan_asks", use "plan_draft"
local plan_facts, plan_of_text = use "plan_facts", use "plan_of_text"
local quote, read_text = use "import/quote", use "read_text"
local screen = use "fits/screen"
local weft = use "weft"

local USUAL_GPU = "h100-sxm"

-- ---- a plan ----

-- The field that names the GPU, however the plan writes its cluster.
local function gpu_field(spec)
  local cluster = spec.cluster
  return type(cluster) == "table" and cluster[1] == nil and "cluster.gpu" or "cluster"
end

local function names_gpu(spec)
  local cluster = spec.cluster
  return type(cluster) == "string"
    or type(cluster) == "table" and (cluster.gpu or cluster[1]) ~= nil
end

-- The plan of a file, or nil and the reasons; the GPU that was assumed, if any; and what makes it a
-- draft. Where there is not even that, loading the plan says all that is wrong with it.
local function load_plan(args)
  if args.model then
    fail(string.format("%s is a plan, which has its model: --model is for settings that name none",
                       quote.shown(args.file)))
  end
  local set, define = assignments(args.set), assignments(args.define)
  for key, value in next, assignments(args.words) do set[key] = value end
  if args.world then set["mesh.world"] = tostring(args.world) end
  local function draft() return plan_draft(args.file, { set = set, define = define }) end
  local drafted = draft()
  if not drafted then return weft.load(args.file, { set = set, define = define }) end
  local assumed = nil
  if args.gpu or not names_gpu(drafted.spec) then
    set[gpu_field(drafted.spec)] = args.gpu or USUAL_GPU
    assumed = not args.gpu and USUAL_GPU or nil
  end
  local plan, wrong = weft.load(args.file, { set = set, define = define })
  return plan, wrong, assumed, draft
end

-- ---- settings ----

-- What a line of an imported plan comes from: its comment.
local function place_in(text, line)
  local n = 0
  for one in string.gmatch(text, "([^\n]*)\n") do
    n = n + 1
    if n == line then return string.match(one, "%-%- (.*)$") end
  end
end

-- Lines of a plan that no file has say nothing: the settings' are told instead.
local function relate(reasons, name, text)
  for _, one in ipairs(reasons) do
    if one.file == name then
      one.from, one.file, one.line = one.line and place_in(text, one.line), nil, nil
    end
  end
end

local function load_settings(args)
  if #args.define > 0 then
    fail(string.format("%s is no plan: -D %s is for variables of a plan",
                       quote.shown(args.file), quote.shown(args.define[1])))
  end
  args.gpu, args.gpu_from = args.gpu or USUAL_GPU, args.gpu and "--gpu" or "assumed"
  local made = import(args)
  local assumed = args.gpu_from == "assumed" and USUAL_GPU or nil
  if not made.ok then return made end
  local name = quote.shown(args.file) .. ".lua"
  local plan, why = plan_of_text(name, made.document)
  return made, plan, why, assumed, function() return plan_draft(name, made.document) end,
         function(reasons) relate(reasons, name, made.document) end
end

-- ---- the report ----

local function is_plan_file(args) return not args.folder and string.find(args.file, "%.lua$") end

-- Errors that are not about fields (a file, a limit) end the verb.
local function reasons_or_raise(why)
  if not why[1] or not why[1].code then error(why, 0) end
  return why
end

-- Looks for layouts near what a plan asks for, if it says for how many ranks.
local function look_around(r, plan, world)
  local was = plan_asks(plan)
  was.world = world or was.world
  if was.world < 1 or not was.room then return end
  for _, axis in ipairs { "tp", "pp", "cp", "ep" } do was[axis] = math.max(was[axis], 1) end
  r.nearest, r.interrupted = nearest(plan, was)
  r.world = was.world
end

-- Fields that another layout may set right.
local LAYOUT = { mesh = true, batch = true, schedule = true, pp_plan = true, cp = true, model = true,
                 strategy = true, tp_plan = true }

local function is_about_layout(reasons)
  for _, one in ipairs(reasons) do
    if one.severity ~= "warning" and not LAYOUT[string.match(one.path or "", "^[%w_]*")] then return false end
  end
  return true
end

local function wrong(r, why)
  r.verdict, r.errors = "wrong", {}
  for i, one in ipairs(reasons_or_raise(why)) do r.errors[i] = one end
  local draft = is_about_layout(r.errors) and r.draft and r.draft()
  if draft then look_around(r, draft) end
  if r.relate then r.relate(r.errors) end
  return r
end

-- Tight: each rank has its room, but one of them not beside what CUDA and NCCL take by weft's estimate.
local function verdict(r, memory)
  if r.rank.total > r.facts.room then return "too_large" end
  local most = 0
  for _, rank in ipairs(memory) do
    local all = rank.total
    for _, line in ipairs(rank.gpu or {}) do all = all + line.bytes end
    most = math.max(most, all)
  end
  r.beyond = most - (r.facts.gpu_memory or math.huge)
  return r.beyond > 0 and "tight" or "fits"
end

local function judge(r, plan)
  local ok, why = plan:check()
  if not ok then return wrong(r, why) end
  r.plan = plan
  r.facts = plan_facts(plan)
  if r.relate then r.relate(r.facts.warnings) end
  local memory = plan:memory()
  r.rank = memory[memory.worst_pp + 1]
  table.sort(r.rank.classes, function(a, b) return a.bytes > b.bytes end)
  r.bubble = plan:schedule().bubble
  r.verdict = verdict(r, memory)
  if r.verdict == "too_large" then look_around(r, plan, r.facts.world) end
  return r
end

local function report(args)
  local r = { file = args.file }
  local plan, why
  if is_plan_file(args) then
    plan, why, r.assumed_gpu, r.draft = load_plan(args)
  else
    r.made, plan, why, r.assumed_gpu, r.draft, r.relate = load_settings(args)
    if not r.made.ok then
      r.verdict, r.errors = "refused", r.made.json.errors
      return r
    end
  end
  return plan and judge(r, plan) or wrong(r, why)
end

-- The text of the plan that was judged; nil: settings that became none.
local function plan_text(r, args)
  if r.made then return r.made.ok and r.made.document or nil end
  return (read_text(args.file))
end

return function(args)
  local r = report(args)
  return { ok = r.verdict == "fits" or r.verdict == "tight", text = screen.text(r), json = screen.json(r),
           page = args.html and page(r, args, plan_text(r, args)) or nil, interrupted = r.interrupted }
end
