-- plan.lua - methods of plan objects: those that put together what others say, and those
-- whose values come from functions in C by the same name (plan_params.c).
local format, match = string.format, string.match
local options = use "objects/options"
local report, text, view = use "reports/report", use "reports/text", use "objects/view"

local deepest = 20 -- tables inside tables whose fields are compared

local function failf(...) fail(format(...)) end

-- ---- fields, for plan:diff ----

-- A value as one writes it, 1.0 as 1; tables are their builder or {}. Functions are the same if
-- their code is; the place says which one it is.
local function written(x)
  if type(x) == "string" then return '"' .. x .. '"' end
  if type(x) == "table" then return builder(x) and "weft." .. builder(x) or "{}" end
  if type(x) == "number" then return options.number(math.tointeger(x) or x) end
  if type(x) ~= "function" then return tostring(x) end
  local place, hash = origin(x)
  return format("function %s (0x%06x)", place, hash & 0xffffff)
end

local function path_below(base, k)
  if type(k) ~= "string" then return format("%s[%s]", base, k) end
  if not match(k, "^[%a_][%w_]*$") then return format('%s["%s"]', base, k) end
  return base == "" and k or base .. "." .. k
end

-- out[path] = text for all fields of a table.
local function flatten(t, base, out, nest)
  for k, x in next, nest < deepest and t or {} do
    local path = path_below(base, k)
    local plain = type(x) == "table" and not builder(x) and rawlen(x) > 0
    if not plain then out[path] = written(x) end
    if type(x) == "table" then flatten(x, path, out, nest + 1) end
  end
  return out
end

return function(methods)
  local values = {}
  for name, f in next, methods do values[name] = f end
  methods.figures, methods.self = nil, nil

  -- plan:program(rank): what the rank does in a step.
  function methods.program(plan, rank)
    values.self(plan)
    expected(rank, "number", "program")
    return report("result", values.program(plan, rank))
  end

  -- plan:warnings()
  function methods.warnings(plan, ...)
    return report("result", values.warnings(plan, ...))
  end

  -- plan:stages()
  function methods.stages(plan, ...)
    return report("stages", values.stages(plan, ...))
  end

  -- plan:memory([rank]), plan:comm([rank])
  for _, name in ipairs { "memory", "comm" } do
    methods[name] = function(plan, rank)
      values.self(plan)
      if rank ~= nil then expected(rank, "number", name) end
      return report(name, values[name](plan, rank))
    end
  end

  -- plan:sim { attention = "fused", steps = "apart", sends = "beside", calibration = "FILE" }: a step on
  -- the clock; what a stack does otherwise than weft, and measured times.
  local stack = {
    attention = { fused = true, flash2 = true, flash1 = true, scores = true },
    steps = { apart = true, overlap = true }, sends = { beside = true, blocking = true },
    tp = { beside = true, blocking = true },
  }
  local says = {
    attention = '"fused", "flash2", "flash1" or "scores"', steps = '"apart" or "overlap"',
    sends = '"beside" or "blocking"', tp = '"beside" or "blocking"',
  }
  -- The rows of the busiest rank over the mean: `experts` is this number, or what each expert gets,
  -- in any unit, of which the ranks of ep have equal parts in order.
  local function busiest(plan, experts)
    if type(experts) ~= "table" then return experts end
    local ep, n, sum, most = plan.mesh.ep, rawlen(experts), 0, 0
    if n == 0 or n % ep ~= 0 then
      failf("skew.experts has %d loads, which %d ranks of ep cannot share", n, ep)
    end
    for first = 1, n, n // ep do
      local here = 0
      for i = first, first + n // ep - 1 do
        local load = rawget(experts, i)
        if not math.type(load) or not (load >= 0 and load < math.huge) then
          failf("skew.experts: %s is no load", written(load))
        end
        here = here + load
      end
      sum, most = sum + here, math.max(most, here)
    end
    if sum == 0 then failf "skew.experts: no expert gets anything" end
    return most * ep / sum
  end

  local function read_skew(plan, skew)
    local s = options.read(skew, { "experts", "pp", "slow" }, "sim.skew")
    if s.pp ~= nil and not math.tointeger(s.pp) then failf("skew.pp is a pipeline rank, not %s", written(s.pp)) end
    if s.pp ~= nil and s.slow == nil then failf "skew.pp is of a slow rank: skew.slow is missing" end
    local experts = busiest(plan, s.experts)
    for name, v in pairs { slow = s.slow, experts = experts } do
      if not math.type(v) or not (v >= 1 and v <= 1000) then
        failf("skew.%s is a number from 1 to 1000, not %s", name, written(v))
      end
    end
    return s.slow, s.pp, experts
  end

  function methods.sim(plan, how)
    values.self(plan)
    local o = options.read(how, { "attention", "calibration", "sends", "skew", "steps", "tp" }, "sim")
    for field, values in pairs(stack) do
      if o[field] ~= nil and not values[o[field]] then
        failf("%s is %s, not %s", field, says[field], written(o[field]))
      end
    end
    if o.calibration then expected(o.calibration, "string", "sim.calibration") end
    return report("sim", values.sim(plan, o.attention or "fused", o.steps == "overlap", o.sends == "blocking",
      o.tp == "blocking", o.calibration, read_skew(plan, o.skew)))
  end

  -- plan:rank(n): where the rank is in the mesh, what it runs, holds and sends.
  function methods.rank(plan, n)
    values.self(plan)
    expected(n, "number", "rank")
    local mesh, coord, groups = plan.mesh, {}, {}
    local at, memory = mesh:coord(n), plan:memory(n)
    for _, axis in ipairs(mesh.axes) do
      if mesh[axis] > 1 then
        local name = axis == "dp_shard" and mesh.dp_replicate == 1 and "dp" or axis
        local group = mesh:group(axis, n)
        coord[#coord + 1] = { axis = name, at = at[axis] }
        groups[#groups + 1] = { axis = name, ranks = group, nodes = group.nodes }
      end
    end
    local experts = mesh.expert
    for _, axis in ipairs { "ep_shard", "ep", "etp" } do
      if experts.ep > 1 and experts[axis] > 1 then
        local group = mesh:group(axis, n)
        groups[#groups + 1] = { axis = axis, ranks = group, nodes = group.nodes }
      end
    end
    local stages, schedule = {}, plan:schedule()
    for _, s in ipairs(plan:stages()) do
      if s.pp == memory.pp then stages[#stages + 1] = s end
    end
    return report("rank", {
      rank = n, world = #mesh, node = at.node, local_rank = at.local_rank, coord = coord,
      groups = groups, stages = stages, microbatches = schedule.microbatches,
      actions = schedule[memory.pp + 1], memory = memory, comm = plan:comm(n),
    })
  end

  -- plan:match([pattern]): the parameters that a pattern of tp_plan matches.
  function methods.match(plan, pattern)
    values.self(plan)
    if pattern ~= nil then expected(pattern, "string", "match") end
    local list = values.match(plan, pattern)
    if #list == 0 then
      local all = values.match(plan)
      for i, p in ipairs(all) do all[i] = p.like end
      list.pattern, list.near = pattern, suggest(pattern, all)
    end
    return report("match", list)
  end

  -- The one parameter that a name or a pattern stands for.
  local function find_shards(plan, name)
    local found = values.shards(plan, name)
    if found then return found end
    local list = values.match(plan, name)
    if #list == 1 then return values.shards(plan, list[1].name) end
    if #list > 1 then
      failf('"%s" stands for %d parameters, the first is %s', name, #list, list[1].name)
    end
    local all = values.match(plan)
    for i, p in ipairs(all) do all[i] = p.name end
    local near = suggest(name, all)
    failf('there is no parameter "%s"%s', name,
      near and format(' (did you mean "%s"?)', near) or "")
  end

  -- plan:shards(parameter): which ranks hold which slice. A shard has the fields of its
  -- last range itself.
  function methods.shards(plan, name)
    values.self(plan)
    expected(name, "string", "shards")
    local found = find_shards(plan, name)
    for _, shard in ipairs(found) do
      for _, range in ipairs(shard.ranges) do
        for k, x in next, range do shard[k] = x end
      end
      shard.ranks.nodes = view.nodes(shard.ranks, plan.mesh.gpus)
      report("ranks", shard.ranks)
    end
    return report("shards", found)
  end

  -- plan:run { steps =, threads = }
  function methods.run(plan, o)
    values.self(plan)
    o = options.read(o, { "steps", "threads" }, "run")
    return report("run", values.run(plan, options.integer(o, "steps", 1, 1000000),
      options.integer(o, "threads", 1, 1024)))
  end

  -- plan:verify { steps =, ranks =, tolerance = }
  function methods.verify(plan, o)
    values.self(plan)
    o = options.read(o, { "steps", "ranks", "tolerance" }, "verify")
    local most = o.tolerance
    if most ~= nil and not (math.type(most) and most > 0 and most <= 1e30) then
      fail "tolerance must be a positive number"
    end
    return report("verify", values.verify(plan, options.integer(o, "ranks", 1, 1024),
      options.integer(o, "steps", 1, 1000000), most))
  end

  -- plan:schedule { width = }
  function methods.schedule(plan, o)
    values.self(plan)
    o = options.read(o, { "width" }, "schedule")
    return report("result", values.schedule(plan, options.integer(o, "width", 20, 10000)))
  end

  -- plan:diff(other): the fields that differ, then the figures that follow from them, all
  -- as texts.
  function methods.diff(plan, other)
    local figures = values.figures(plan, other)
    local was, is, paths = flatten(plan.spec, "", {}, 0), flatten(other.spec, "", {}, 0), {}
    local list = { compared = figures ~= nil }
    local function add(path, from, to, figure)
      if from ~= to then
        list[#list + 1] = { path = path, from = from, to = to, figure = figure }
      end
    end
    for path in next, was do paths[path] = true end
    for path in next, is do paths[path] = true end
    for _, path in ipairs(keys(paths)) do add(path, was[path], is[path], false) end
    for _, f in ipairs(figures or {}) do
      local shown = f.name == "memory" and text.bytes or tostring
      add(f.name, shown(f.from), shown(f.to), true)
    end
    return report("diff", list)
  end
end
