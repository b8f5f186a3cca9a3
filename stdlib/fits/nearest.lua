-- nearest.lua - the nearest layouts that fit, of a plan that does not or whose layout is none that
-- can run: sizes of the mesh, ZeRO's stage, the microbatch and recomputation are varied at the same
-- number of ranks, and "ddp" is given up for strategies that cut something; fewest changed fields
-- first, judged by weft.sweep. If none fits, the fewest times as many ranks on which one does. A
-- cluster of stated machines grows with them.
local divisors, sweep = use "fits/divisors", use "sweep/sweep"
local gib = 1 << 30
local most_changes, most_times, kept = 3, 64, 3

-- ---- values of fields ----

-- The values that each size may have. tp stays within a machine.
local function sizes_to_try(facts, world)
  return {
    tp = divisors(world, facts.node),
    pp = divisors(world, facts.layers > 0 and math.min(facts.layers, 64) or 64),
    cp = divisors(world, 16),
    ep = facts.experts > 0 and divisors(world, facts.experts) or { 1 },
  }
end

local AXES = { "tp", "pp", "cp", "ep" }

local function count_changes(was, is)
  local n = 0
  for _, axis in ipairs(AXES) do
    if was[axis] ~= is[axis] then n = n + 1 end
  end
  return n
end

-- Several sizes at once are doubled or halved a few times: all combinations would take minutes.
-- A size that the ranks are no multiple of has no such neighbours.
local farthest = 8
local function is_near(was, is, world)
  local times = math.max(was, is) / math.min(was, is)
  return times <= farthest and (math.log(times, 2) % 1 == 0 or world % was ~= 0)
end

local function keep_near(try, was, world)
  for axis, list in next, try do
    local near = {}
    for _, value in ipairs(list) do
      if is_near(was[axis], value, world) then near[#near + 1] = value end
    end
    try[axis] = near
  end
  return try
end

-- All meshes of `world` ranks with at most so many sizes that are not those of the plan, as
-- fields of a plan: what else is written of its mesh stays, and dp, if it is written, is what the
-- others leave.
local function meshes(plan, was, world, most)
  local try, list = sizes_to_try(was, world), {}
  if most > 1 then try = keep_near(try, was, world) end
  local function add(is)
    local mesh = {}
    for key, value in next, plan.spec.mesh or {} do mesh[key] = value end
    mesh.world = world
    mesh.dp = was.dp > 0 and world // (is.tp * is.pp * is.cp) or nil
    for _, axis in ipairs(AXES) do
      if is[axis] > 1 or mesh[axis] then mesh[axis] = is[axis] end
    end
    list[#list + 1] = mesh
  end
  for _, tp in ipairs(try.tp) do
    for _, pp in ipairs(try.pp) do
      for _, cp in ipairs(try.cp) do
        for _, ep in ipairs(try.ep) do
          local is = { tp = tp, pp = pp, cp = cp, ep = ep }
          if world % (tp * pp * cp) == 0 and count_changes(was, is) <= most then add(is) end
        end
      end
    end
  end
  return list
end

local function micros(plan)
  local list, now = {}, plan.spec.batch.micro or 1
  for d = now, 1, -1 do
    if now % d == 0 then list[#list + 1] = d end
  end
  return list
end

-- Only where one field says it: another name of it would be in its way.
local function recomputes(spec)
  local strategy = type(spec.strategy) == "table" and spec.strategy or {}
  if spec.activation_checkpointing ~= nil or strategy.activation_checkpointing ~= nil then return nil end
  local now = spec.recompute
  if now == nil or now == false or now == "none" then return { "none", "full" } end
  if now == true or now == "full" then return nil end
  return { now, "full" }
end

-- From each stage of ZeRO on, those that leave less on a rank: optimizer state, then all.
local STAGES = { [0] = { 0, 1, 3 }, [1] = { 1, 3 }, [2] = { 2, 3 } }

-- The field and its values, that of the plan first; nil: another strategy has its own fields. A plan
-- without one gets one, and "ddp", which keeps copies of all, another.
local function strategies(spec, was)
  if was.is_ddp then return "strategy", { spec.strategy, { "zero", stage = 1 }, "fsdp2" } end
  local list = STAGES[was.zero_stage]
  if not list or spec.strategy ~= nil then return "strategy.stage", list end
  local whole = {}
  for i, stage in ipairs(list) do whole[i] = { "zero", stage = stage } end
  return "strategy", whole
end

-- The machines of so many ranks, where the plan's cluster has another number of them. A name alone
-- has as many as the mesh needs.
local function machines(spec, was, world)
  local cluster = spec.cluster
  if type(cluster) ~= "table" or world % was.node ~= 0 then return nil end
  if cluster.nodes == nil and type(cluster[1]) == "string" then return nil end
  local nodes = world // was.node
  return nodes ~= (cluster.nodes or 1) and nodes or nil
end

-- ---- what changes ----

-- A value of a point or a row, nil if this field is not varied: reading it would be an error.
local function varied(point, name) return rawget(point, name) end

local function size_of(mesh, axis) return mesh[axis] or 1 end

-- What follows from the other sizes, where the plan says it: it is told, as the plan is none that
-- can run without, and does not count.
local function add_following(list, spec, was, point)
  for _, size in ipairs { "dp", "world" } do
    local from, to = was[size], point.mesh[size]
    if to and from ~= to then list[#list + 1] = { path = "mesh." .. size, from = from, to = to } end
  end
  local nodes = varied(point, "nodes")
  if nodes then list[#list + 1] = { path = "cluster.nodes", from = spec.cluster.nodes or 1, to = nodes } end
end

-- Returns how far it is.
local function add_stage(list, was, point)
  local from, strategy = was.zero_stage, varied(point, "strategy")
  local to = strategy and strategy.stage or varied(point, "stage")
  if not to or to == from then return 0 end
  list[#list + 1] = strategy
    and { path = "strategy", from = "zero", to = string.format('{ "zero", stage = %d }', to) }
    or { path = "strategy.stage", from = from, to = to }
  return (to - from + 1) / 2
end

-- The same of a plan with "ddp".
local function add_strategy(list, point)
  local to = varied(point, "strategy")
  local cuts = to == "fsdp2" and 2 or type(to) == "table" and to[1] == "zero" and 1 or 0
  if cuts > 0 then
    list[#list + 1] = { path = "strategy", from = "ddp", to = cuts == 2 and to or '{ "zero", stage = 1 }' }
  end
  return cuts
end

-- A list of { path =, from =, to = }, how far it is, and how many of them are changes of their own.
local function changes_of(plan, was, point)
  local list, far = {}, 0
  for _, axis in ipairs(AXES) do
    local from, to = was[axis], size_of(point.mesh, axis)
    if from ~= to then
      list[#list + 1] = { path = "mesh." .. axis, from = from, to = to }
      far = far + math.abs(math.log(to / from, 2))
    end
  end
  local micro = plan.spec.batch.micro or 1
  if point.micro ~= micro then
    list[#list + 1] = { path = "batch.micro", from = micro, to = point.micro }
    far = far + math.log(micro / point.micro, 2)
  end
  if varied(point, "recompute") == "full" then
    list[#list + 1] = { path = "recompute", from = plan.spec.recompute or "none", to = "full" }
    far = far + 1
  end
  far = far + (was.is_ddp and add_strategy(list, point) or add_stage(list, was, point))
  local own = #list
  add_following(list, plan.spec, was, point)
  return list, far, own
end

local function count_own(plan, was, point) return (select(3, changes_of(plan, was, point))) end

-- Whether what follows from the sizes is written otherwise: the dp that they leave, the machines.
local function is_layout_wrong(spec, was)
  return was.dp > 0 and was.dp * was.tp * was.pp * was.cp ~= was.world or machines(spec, was, was.world) ~= nil
end

-- The best plans of `world` ranks with exactly `n` changes, nearest first; nil: none. What Ctrl-C
-- has cut says of none that it does not fit.
local function judge(plan, was, world, n)
  local list = meshes(plan, was, world, n)
  if #list == 0 then return nil end
  local over = { { "mesh", table.unpack(list) }, { "batch.micro", table.unpack(micros(plan)) } }
  local function vary(path, values)
    if values then over[#over + 1] = { path, table.unpack(values) } end
  end
  local nodes = machines(plan.spec, was, world)
  vary("recompute", recomputes(plan.spec))
  vary(strategies(plan.spec, was))
  vary("cluster.nodes", nodes and { nodes })
  local rows = sweep({
    plan = plan, over = over, max_gib = was.room / gib, keep = kept,
    where = function(point) return count_own(plan, was, point) == n end,
    score = function(row)
      local _, far = changes_of(plan, was, row)
      return far * 1e12 + (row.step_ms or 0) -- nil: the cluster lacks a figure that times need
    end,
  }, true)
  if rows.interrupted then return {}, true end
  local found = {}
  for i, row in ipairs(rows) do
    found[i] = { changes = (changes_of(plan, was, row)), world = world, peak = math.floor(row.peak_gib * gib),
                 bubble = row.bubble, step_ms = row.step_ms }
  end
  return #found > 0 and found or nil
end

-- Plans that fit, as { changes =, world =, peak =, bubble =, step_ms = }; there may be none. `was` is
-- what the plan asks for: world, tp, pp, cp, ep, dp (0: not written), zero_stage (nil: another
-- strategy), is_ddp, and the bounds node, layers, experts and room. And whether Ctrl-C has ended the
-- search, which then has found none.
return function(plan, was)
  if was.room <= 0 then return {} end
  for n = is_layout_wrong(plan.spec, was) and 0 or 1, most_changes do
    local found, cut = judge(plan, was, was.world, n)
    if found then return found, cut end
  end
  local times = 2
  while times <= most_times do
    for n = 0, most_changes - 1 do
      local found, cut = judge(plan, was, was.world * times, n)
      if found then return found, cut end
    end
    times = times * 2
  end
  return {}
end
