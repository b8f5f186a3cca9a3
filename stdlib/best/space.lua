-- space.lua - the layouts that a search looks at: sizes of the mesh that make up the ranks,
-- and for each of them strategies, recomputation, micro batches, schedules and stages. Takes
-- what the plan asks for and the values that the caller wants; gives axes as weft.grid has
-- them, and the numbers of the points that are layouts.
local format = string.format
local divisors = use "fits/divisors"
local most_points = 10000000
local space = {}

local function failf(...) fail("weft.best: " .. format(...)) end

-- What can be searched, in the order in which layouts are told. Others stay as the plan
-- has them.
space.NAMES = { "tp", "pp", "cp", "ep", "etp", "strategy", "recompute", "micro", "schedule",
                "virtual", "balance" }
local SIZES = { tp = true, pp = true, cp = true, ep = true, etp = true, micro = true, virtual = true }

-- Stages of each rank under a schedule of the library: one number, or any from `least`.
local STAGES = {
  gpipe = 1, ["1f1b"] = 1, eager_1f1b = 1, zb_h2 = 1, zbv = 2, v_half = 2, v_min = 2, dualpipe_v = 2,
  zero_bubble = 1, interleaved_1f1b = { least = 2 }, looped_bfs = { least = 2 },
}

-- Those whose backward is one body; others have one for inputs and one for weights, which is more
-- work where layers are computed again.
local JOINED = { gpipe = true, ["1f1b"] = true, eager_1f1b = true, interleaved_1f1b = true, looped_bfs = true }

-- ---- usual values ----

local function powers(n, most)
  local list = {}
  for _, d in ipairs(divisors(n, most)) do
    if math.log(d, 2) % 1 == 0 then list[#list + 1] = d end
  end
  return list
end

local longest_share = 2048 -- tokens of a sequence below which it is not cut further

local function with(list, value)
  for _, v in ipairs(list) do
    if v == value then return list end
  end
  list[#list + 1] = value
  return list
end

-- Where the plan says recomputation in a field of its strategy, it stays.
local function recomputes(spec)
  local strategy = type(spec.strategy) == "table" and spec.strategy or {}
  if spec.activation_checkpointing ~= nil or strategy.activation_checkpointing ~= nil then return nil end
  if type(spec.recompute) == "table" then return { "none", "cheap", "full", spec.recompute } end
  return { "none", "cheap", "full" }
end

local function schedules(spec, asks)
  local own = spec.schedule
  if own ~= nil and type(own) ~= "string" then return { own } end
  local list = { "1f1b", "interleaved_1f1b", "zero_bubble", "zbv" }
  if asks.experts > 0 then list[#list + 1] = "dualpipe_v" end
  return own and STAGES[own] and with(list, own) or list
end

-- Experts add two sizes to the mesh: there are fewer values of what matters less.
local function usual(spec, asks)
  local world, batch = asks.world, spec.batch or {}
  local seq = math.tointeger(batch.seq) or longest_share
  local experts = asks.experts > 0
  return {
    tp = powers(world, asks.domain),
    pp = divisors(world, math.min(asks.layers > 0 and asks.layers or 64, 64)),
    cp = powers(world, math.max(1, math.min(seq // longest_share, 16))),
    ep = experts and divisors(world, asks.experts) or { 1 },
    etp = experts and { 1, 2, 4, 8 } or { 1 },
    strategy = experts and { "zero-1", "fsdp2" } or { "zero-0", "zero-1", "zero-2", "fsdp2" },
    recompute = recomputes(spec),
    micro = experts and { 1, 2, 4 } or { 1, 2, 4, 8 },
    schedule = schedules(spec, asks),
    virtual = false, -- by the layers
    balance = experts and { "even" } or { "even", "cost" },
  }
end

-- ---- the caller's values ----

local function check_size(name, v)
  local n = math.type(v) and math.tointeger(v)
  if not n or n < 1 then failf("over.%s: %s is no size", name, tostring(v)) end
  return n
end

local function read_values(name, list)
  if type(list) ~= "table" or (rawlen(list) == 0 and next(list) ~= nil) then
    failf("over.%s: expected a list of values, got %s", name, type(list) == "table" and "a table"
      or "a " .. type(list))
  end
  local out = {}
  for i = 1, rawlen(list) do
    local v = rawget(list, i)
    out[i] = SIZES[name] and check_size(name, v) or v
  end
  if #out == 0 then failf("over.%s has no values: there is nothing to search", name) end
  return out
end

local function read_over(over, try)
  if over == nil then return try end
  if type(over) ~= "table" then failf("over is a table of lists, got a %s", type(over)) end
  for name, list in next, over do
    local known = false
    for _, n in ipairs(space.NAMES) do known = known or n == name end
    if not known then
      local near = type(name) == "string" and suggest(name, space.NAMES)
      failf("over has no '%s'%s; it has %s", tostring(name),
        near and format(" (did you mean '%s'?)", near) or "", table.concat(space.NAMES, ", "))
    end
    try[name] = read_values(name, list)
  end
  for _, name in ipairs(try.schedule) do
    if type(name) == "string" and not STAGES[name] then
      local names = keys(STAGES)
      local near = suggest(name, names)
      failf("over.schedule: there is no schedule '%s'%s", name,
        near and format(" (did you mean '%s'?)", near) or "; there are " .. table.concat(names, ", "))
    end
  end
  return try
end

-- ---- fields of a plan ----

local function copy_without(t, names)
  local out = {}
  for key, value in next, type(t) == "table" and t or {} do out[key] = value end
  for _, name in ipairs(names) do out[name] = nil end
  return out
end

local function mesh_field(spec, world, is)
  local mesh = copy_without(spec.mesh, { "dp", "dp_replicate", "tp", "pp", "cp", "ep", "etp" })
  mesh.world = world
  for _, axis in ipairs { "tp", "pp", "cp", "ep" } do
    if is[axis] > 1 then mesh[axis] = is[axis] end
  end
  if is.ep > 1 or is.etp > 1 then mesh.etp = is.etp end
  return mesh
end

-- The options of the plan's own strategy stay, if it is this one. Activations between layers
-- are cut by sequence where there is tp; without, the option would have no effect, nor has a stage
-- where there are no replicas.
local function strategy_field(spec, name, tp, replicas)
  if type(name) ~= "string" then return name end
  local kind, stage = string.match(name, "^(zero)%-([0-3])$")
  kind = kind or name
  local own = type(spec.strategy) == "table" and spec.strategy or { spec.strategy }
  local field = own[1] == kind and copy_without(own, {}) or {}
  field[1] = kind
  field.stage = replicas > 1 and (stage and math.tointeger(stage) or field.stage) or nil
  if tp == 1 then
    field.sequence_parallel, field.enable_async_tensor_parallel = nil, nil
  elseif (kind == "zero" or kind == "fsdp2") and field.sequence_parallel == nil then
    field.sequence_parallel = true
  end
  return field
end

local function stages_field(spec, pipe)
  local field = copy_without(spec.pp_plan, { "virtual", "layers", "layers_per_stage", "layout", "modules",
    "balance", "round_virtual_stages_to_pp_multiple" })
  field.virtual = pipe.virtual > 1 and pipe.virtual or nil
  field.balance = pipe.balance ~= "even" and pipe.balance or nil
  return field
end

-- ---- combinations ----

-- Meshes whose sizes make up the ranks; experts are shared by ranks of dp, cp and tp.
local function meshes(try, world)
  local list = {}
  for _, tp in ipairs(try.tp) do for _, pp in ipairs(try.pp) do for _, cp in ipairs(try.cp) do
    for _, ep in ipairs(try.ep) do for _, etp in ipairs(try.etp) do
      local shared = world // pp
      local fits = world % (tp * pp * cp) == 0 and shared % (ep * etp) == 0
      if fits and (etp == 1 or etp == tp) then
        list[#list + 1] = { tp = tp, pp = pp, cp = cp, ep = ep, etp = etp, dp = world // (tp * pp * cp) }
      end
    end end
  end end end
  return list
end

-- Numbers of stages for each rank: those that the layers are a multiple of, and a few more.
local function chunk_counts(try, asks, pp, least)
  local list, layers = {}, asks.layers > 0 and asks.layers or 0
  if try.virtual then
    for _, v in ipairs(try.virtual) do
      if v >= least then list[#list + 1] = v end
    end
    return list
  end
  if layers == 0 then -- of a model function nobody knows before it runs
    for _, v in ipairs { 1, 2, 4, 8 } do
      if v >= least then list[#list + 1] = v end
    end
    return list
  end
  for v = least, layers // pp do
    if v == 1 or layers % (pp * v) == 0 or v == 2 or v == 4 or v == 8 then list[#list + 1] = v end
  end
  return list
end

-- A schedule, its stages and how layers are shared out; without a pipeline there is one.
local function pipelines(try, asks, pp)
  local list = {}
  if pp == 1 then return { { schedule = "1f1b", virtual = 1, balance = "even" } } end
  for _, schedule in ipairs(try.schedule) do
    local stages = STAGES[schedule] or { least = 1 }
    local fixed = math.type(stages) and stages
    local counts = fixed and chunk_counts({ virtual = try.virtual or { fixed } }, asks, pp, fixed)
      or chunk_counts(try, asks, pp, stages.least)
    for _, v in ipairs(counts) do
      if not fixed or v == fixed then
        for _, balance in ipairs(try.balance) do
          list[#list + 1] = { schedule = schedule, virtual = v, balance = balance }
        end
      end
    end
  end
  return list
end

-- An axis of values that are made when they are first needed; index(key, make) is the number
-- of a value, from 1.
local function axis(path)
  local a = { path, at = {} }
  function a.index(key, make)
    if not a.at[key] then
      a[#a + 1] = make()
      a.at[key] = #a - 1
    end
    return a.at[key]
  end
  return a
end

local function describe(try, asks)
  return format("no layout of %d ranks has tp %s, pp %s, cp %s, ep %s, virtual %s with these schedules", asks.world,
    table.concat(try.tp, "/"), table.concat(try.pp, "/"), table.concat(try.cp, "/"),
    table.concat(try.ep, "/"), try.virtual and table.concat(try.virtual, "/") or "as layers allow")
end

local function add(s, pick, layout, lightest, plainest)
  local n = #s.layouts + 1
  s.picks[n], s.layouts[n], s.lightest[n], s.plainest[n] = pick, layout, lightest, plainest
  if n > most_points then
    failf("more than %d million layouts: give fewer values in over", most_points // 1000000)
  end
end

-- All layouts of a mesh under a strategy: the first one stands for their parameters, the first
-- ones of each micro batch and recomputation, with backwards in one body and in two, for the work.
local function add_group(s, axes, try, m, im, strategy, pipes)
  local replicas = m.dp * m.cp
  local key = type(strategy) == "string"
    and (m.tp > 1 and "tp " or "") .. (replicas > 1 and "dp " or "") .. strategy or strategy
  local is = axes.strategy.index(key, function() return strategy_field(s.spec, strategy, m.tp, replicas) end)
  local lightest = nil
  for _, b in ipairs(try.micro) do
    local ib = axes.micro.index(b, function() return b end)
    for _, r in ipairs(try.recompute or { false }) do
      local ir = axes.recompute and axes.recompute.index(r, function() return r end)
      local plainest = {}
      for _, p in ipairs(pipes) do
        local ic = axes.schedule.index(p.schedule, function() return p.schedule end)
        local ip = axes.stages.index(p.virtual .. p.balance, function() return stages_field(s.spec, p) end)
        local layout = { tp = m.tp, pp = m.pp, cp = m.cp, ep = m.ep, etp = m.etp, dp = m.dp, strategy = strategy,
          micro = b, recompute = r or nil, schedule = m.pp > 1 and p.schedule or nil, virtual = p.virtual,
          balance = m.pp > 1 and p.balance or nil }
        local joined = JOINED[p.schedule] or false
        lightest, plainest[joined] = lightest or layout, plainest[joined] or layout
        add(s, { im, is, ib, ic, ip, ir }, layout, lightest, plainest[joined])
      end
    end
  end
end

-- Those that stand for others come first.
local function order(s)
  local at, list = {}, {}
  local function take(is)
    for i, layout in ipairs(s.layouts) do
      if not at[layout] and is(i, layout) then
        list[#list + 1] = i
        at[layout] = #list
      end
    end
    return #list
  end
  s.nlightest = take(function(i, layout) return s.lightest[i] == layout end)
  s.nplainest = take(function(i, layout) return s.plainest[i] == layout end)
  take(function() return true end)
  local picks, layouts, lightest, plainest = {}, {}, {}, {}
  for k, i in ipairs(list) do
    picks[k], layouts[k] = s.picks[i], s.layouts[i]
    lightest[k], plainest[k] = at[s.lightest[i]], at[s.plainest[i]]
  end
  s.picks, s.layouts, s.lightest, s.plainest = picks, layouts, lightest, plainest
end

-- { axes = { { path, value... }... }, points = their numbers, layouts = what each is;
-- lightest = the number of the layout that stands for its parameters, of the first nlightest;
-- plainest = of the one that stands for its work, of the first nplainest }
function space.make(spec, asks, over)
  local try = read_over(over, usual(spec, asks))
  local axes = { mesh = axis "mesh", strategy = axis "strategy", micro = axis "batch.micro",
                 schedule = axis "schedule", stages = axis "pp_plan",
                 recompute = try.recompute and axis "recompute" }
  local s = { spec = spec, picks = {}, layouts = {}, lightest = {}, plainest = {}, points = {}, room = asks.room,
              axes = { axes.mesh, axes.strategy, axes.micro, axes.schedule, axes.stages, axes.recompute } }
  for _, m in ipairs(meshes(try, asks.world)) do
    local key = table.concat({ m.tp, m.pp, m.cp, m.ep, m.etp }, " ")
    local im = axes.mesh.index(key, function() return mesh_field(spec, asks.world, m) end)
    local pipes = pipelines(try, asks, m.pp)
    for _, strategy in ipairs(try.strategy) do add_group(s, axes, try, m, im, strategy, pipes) end
  end
  if #s.layouts == 0 then failf("%s", describe(try, asks)) end
  order(s)
  for i, pick in ipairs(s.picks) do
    local n = 0
    for k, a in ipairs(s.axes) do n = n * (#a - 1) + pick[k] - 1 end
    s.points[i] = n
  end
  return s
end

-- The fields of layout i, as { path, value } in the order of the axes.
function space.fields(s, i)
  local list = {}
  for k, a in ipairs(s.axes) do list[k] = { a[1], a[s.picks[i][k] + 1] } end
  return list
end

return space
