-- best.lua - weft.best { ... }: the fastest layout of a model on machines, by a search of all
-- that the passes and the clock can judge. Reads its options and makes the result.
local format = string.format
local asks_of, draft = use "plan_asks", use "plan_draft"
local compare, search, space = use "best/compare", use "best/search", use "best/space"
local core, options, report = use "sweep/core", use "objects/options", use "reports/report"

local usual_clock, usual_keep = 64, 10
local NAMES = { "plan", "model", "cluster", "batch", "seq", "precision", "memory", "over", "clock", "keep",
                "threads" }

local function failf(...) fail("weft.best: " .. format(...)) end

-- ---- options ----

local function positive(o, key)
  local v = o[key]
  if v ~= nil and (not math.type(v) or not (v > 0) or v > 1e9) then failf("%s is a positive number", key) end
  return v
end

local function raise(why)
  local lines = {}
  for i, x in ipairs(type(why) == "table" and why or {}) do lines[i] = x.message end
  error(#lines > 0 and why or tostring(why), 0)
end

-- A plan of a model, machines and a batch, in the types in which GPUs are trained.
local function make_plan(o)
  for _, key in ipairs { "model", "cluster", "batch", "seq" } do
    if o[key] == nil then
      failf("%s is missing: a search is of plan =, or of model =, cluster =, batch = and seq =", key)
    end
  end
  return { model = o.model, cluster = o.cluster, mesh = {}, strategy = { "zero", stage = 1 },
           precision = o.precision or "bf16",
           batch = { global = options.integer(o, "batch", 1, 1 << 40), micro = 1,
                     seq = options.integer(o, "seq", 1, 1 << 40) } }
end

local function find_plan(o)
  if o.plan == nil then
    local plan, why = draft(make_plan(o))
    return plan or raise(why)
  end
  for _, key in ipairs { "model", "cluster", "batch", "seq", "precision" } do
    if o[key] ~= nil then failf("%s is that of the plan; leave it out, or search without plan =", key) end
  end
  if core.is_plan(o.plan) then return o.plan end
  if type(o.plan) ~= "string" and type(o.plan) ~= "table" then
    failf("plan is a file, a plan or its fields, got a %s", type(o.plan))
  end
  local plan, why = draft(o.plan)
  return plan or raise(why)
end

-- ---- the result ----

local gib = 1 << 30

local function row_of(s, best, x)
  local row = { layout = x.layout, fields = space.fields(s, x.i), seconds = x.seconds, low = x.sim.low,
                high = x.sim.high, mfu = x.sim.mfu, tokens_per_s_per_gpu = x.sim.tokens_per_s_per_gpu,
                bound = x.bound, peak_gib = x.row.peak_bytes / gib, microbatches = x.row.microbatches,
                classes = compare.classes(x.sim) }
  if best and best ~= x then
    row.behind = x.seconds / best.seconds - 1
    row.tie = compare.is_tie(best.sim, x.sim)
    row.why = compare.why(best.sim, x.sim)
  end
  return row
end

-- Of each field its values, each with the best layout on the clock that has it, and with how many
-- of them have it: what rests on one says little of the value.
local function best_with(r)
  local list = {}
  for _, name in ipairs(space.NAMES) do
    local seen = {}
    for _, x in ipairs(r.clocked) do
      local v = x.layout[name]
      if v ~= nil and seen[v] then
        seen[v].layouts = seen[v].layouts + 1
      elseif v ~= nil and v ~= r.best.layout[name] then
        seen[v] = { field = name, value = v, behind = x.seconds / r.best.seconds - 1, layouts = 1,
                    why = compare.why(r.best.sim, x.sim), seconds = r.best.seconds }
        list[#list + 1] = seen[v]
      end
    end
  end
  return list
end

local function result(plan, asks, s, r, keep)
  local out = {
    plan = plan.spec.name or "plan", gpu = asks.gpu, ranks = asks.world, room_gib = asks.room / gib,
    layouts = r.layouts, refused = 0, memory = r.memory, memory_by_buffers = r.memory - r.floor_memory,
    memory_beside = r.beside,
    slower_by_bound = r.pruned, on_the_clock = #r.clocked, forecast_slower = #r.left,
    least_forecast = r.left[1] and r.left[1].expected, forecast_error = search.mean(r.errors),
    reasons = r.reasons, interrupted = r.interrupted, seconds = r.seconds, rows = {}, others = {},
    unseen = r.layouts - r.judged,
  }
  for _, x in ipairs(r.reasons) do out.refused = out.refused + x.count end
  if r.interrupted and #r.clocked == 0 then out.untimed = r.fits end
  for k = 1, math.min(keep, #r.clocked) do out.rows[k] = row_of(s, r.best, r.clocked[k]) end
  if r.best then out.others = best_with(r) end
  out.best = out.rows[1]
  return report("best", out)
end

-- The ranks of the plan: as it says, which may be one, or those that its mesh has.
local function ranks_of(asks)
  if asks.world > 0 then return asks.world end
  local n = 1
  for _, axis in ipairs { "tp", "pp", "cp", "dp" } do n = n * math.max(asks[axis], 1) end
  if n < 2 then failf "nothing says that there are several ranks: mesh.world, or cluster.nodes" end
  return n
end

return function(o)
  expected(o, "table", "best")
  options.read(o, NAMES, "best")
  local memory = positive(o, "memory")
  local clock = options.integer(o, "clock", 1, 1000000) or usual_clock
  local keep = options.integer(o, "keep", 1, 1000000) or usual_keep
  local threads = options.integer(o, "threads", 1, 1024) or 0
  local plan = find_plan(o)
  local asks = asks_of(plan)
  if not asks.gpu then failf "the plan names no GPU: cluster = \"h100-sxm\", or figures of your own" end
  asks.world = ranks_of(asks)
  if memory then asks.room, asks.gpu_memory = memory * gib, nil end
  local s = space.make(plan.spec, asks, o.over)
  local r = search.run(plan, s, { memory = memory, gpu_memory = asks.gpu_memory, clock = clock,
                                     threads = threads })
  return result(plan, asks, s, r, keep)
end
