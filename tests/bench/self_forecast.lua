-- self_forecast.lua - the clock after weft calibrate beside what this machine then takes:
-- random small plans on virtual ranks.
--
--   ./dev bench foresight [PLANS [SEED [REPEATS]]]     default: 12 plans, seed 1, 5 repeats
--
-- Each plan is calibrated for, then all of them run by turns, so that a machine that gets busy
-- does so for all. The time of a step is the median of its repeats, each the median of a few
-- steps; a plan whose repeats spread by more than 5 % is listed and left out. Beside it stands
-- the processor time of a step, of all ranks together, which other work on the machine changes
-- little, and which tells wrong rows of the calibration from a wrong clock.
local weft = require "weft"
local count, seed, repeats = (...), select(2, ...), select(3, ...)
count, seed, repeats = tonumber(count) or 12, tonumber(seed) or 1, tonumber(repeats) or 5
local STEPS, SPREAD, APART = 6, 0.05, 0.10
local folder = os.tmpname()
os.remove(folder)
assert(os.execute("mkdir " .. folder))
local program = "build/weft"

-- ---- plans ----

-- The same numbers everywhere, from 0 to n - 1.
local state = seed
local function draw(n)
  state = (state * 1103515245 + 12345) % 2147483648
  return (state // 65536) % n
end
local function one_of(list) return list[draw(#list) + 1] end

local meshes = {
  "world = 1", "world = 2", "world = 2, tp = 2", "world = 2, pp = 2", "world = 2, cp = 2",
  "world = 4", "world = 4, tp = 2", "world = 4, pp = 2", "world = 4, cp = 2", "world = 4, tp = 2, pp = 2",
  "world = 4, pp = 4", "world = 8, tp = 2, pp = 2", "world = 4, tp = 4",
}

-- The text of a plan.
local function text_of(i)
  local mesh = one_of(meshes)
  local pp = tonumber(mesh:match "pp = (%d)") or 1
  local world = tonumber(mesh:match "world = (%d)")
  local ranks = world // (pp * (tonumber(mesh:match "tp = (%d)") or 1) * (tonumber(mesh:match "cp = (%d)") or 1))
  local hidden = one_of { 128, 192, 256 }
  local schedule = pp > 1 and one_of { "1f1b", "gpipe", "zero_bubble", "interleaved_1f1b" } or "1f1b"
  local strategy = ranks > 1 and one_of { '{ "zero", stage = 0 }', '{ "zero", stage = 1 }', '{ "fsdp2" }' }
    or '{ "zero", stage = 0 }'
  return ([[
local weft = require "weft"
return weft.plan {
  name = "random %d",
  model = weft.model { "llama", hidden_size = %d, num_hidden_layers = 8, num_attention_heads = 8,
    num_key_value_heads = 4, intermediate_size = %d, vocab_size = 512 },
  mesh = { %s }, schedule = "%s", strategy = %s, recompute = "%s",
  batch = { global = %d, micro = %d, seq = 128 }, optimizer = weft.adamw { lr = 1e-4 },
  train = { steps = 100 }, data = weft.synthetic {},
}
]]):format(i, hidden, hidden * 5 // 2, mesh, schedule, strategy, one_of { "none", "none", "full" },
    8 * ranks, one_of { 1, 2 }), mesh .. ", " .. schedule .. ", " .. strategy
end

local function write(name, text)
  local f <close> = assert(io.open(name, "w"))
  f:write(text)
end

-- ---- measuring ----

local function median(list)
  local t = table.move(list, 1, #list, 1, {})
  table.sort(t)
  return #t % 2 == 1 and t[#t // 2 + 1] or (t[#t // 2] + t[#t // 2 + 1]) / 2
end

local function run_steps(plan, n)
  local before = os.clock()
  local rows = plan:run { steps = n, threads = 1 }
  local ms = {}
  for i = 2, #rows do ms[#ms + 1] = rows[i].ms end
  return median(ms) / 1e3, os.clock() - before
end

local calibration = folder .. "/calibration.lua"
local function calibrate(p)
  assert(os.execute(("%s calibrate -q --threads 1 -o %s %s >%s/said"):format(program, calibration, p.path, folder)))
end

local plans = {}
while #plans < count do
  local text, what = text_of(#plans + 1)
  local path = ("%s/plan%d.lua"):format(folder, #plans + 1)
  write(path, text)
  local fine, plan = pcall(weft.load, path)
  if fine then plans[#plans + 1] = { path = path, plan = plan, what = what, took = {}, core = {} } end
end
for i, p in ipairs(plans) do
  calibrate(p)
  io.stderr:write(("\rcalibrated for %d of %d plans "):format(i, #plans))
end
for _, p in ipairs(plans) do
  local sim = p.plan:sim { calibration = calibration }
  p.clock, p.predicted_core, p.measured_share = sim.seconds, 0, sim.sources.measured
  for _, op in ipairs(sim.ops) do
    p.predicted_core = p.predicted_core + op.seconds * sim.ranks / #sim.pipeline
  end
end
for round = 1, repeats do
  for i, p in ipairs(plans) do
    local _, short = run_steps(p.plan, 2)
    local took, long = run_steps(p.plan, 2 + STEPS)
    p.took[round], p.core[round] = took, (long - short) / STEPS
    io.stderr:write(("\rround %d of %d, plan %d of %d "):format(round, repeats, i, #plans))
  end
end
io.stderr:write "\n"

-- ---- figures ----

for _, p in ipairs(plans) do
  p.measured, p.core = median(p.took), median(p.core)
  table.sort(p.took)
  p.spread = (p.took[#p.took] - p.took[1]) / p.measured
end

-- Of plans that differ by more than a tenth, how many stand in the right order.
local function in_order(list, measured, predicted)
  local right, n = 0, 0
  for i = 1, #list do
    for k = i + 1, #list do
      local a, b = list[i], list[k]
      if math.abs(a[measured] - b[measured]) > APART * math.min(a[measured], b[measured]) then
        n = n + 1
        if (a[measured] < b[measured]) == (a[predicted] < b[predicted]) then right = right + 1 end
      end
    end
  end
  return right, n
end

local function figures(name, list, measured, predicted)
  local sum = 0
  for _, p in ipairs(list) do sum = sum + math.abs(p[predicted] / p[measured] - 1) end
  local right, n = in_order(list, measured, predicted)
  print(("%-34s %3d plans, mean error %5.1f %%, pairs in order %d of %d"):format(name, #list,
    #list > 0 and 100 * sum / #list or 0, right, n))
end

print "                                                                  step, ms             spread   processor time, ms"
print "plan                                                        measured    clock   error     %    measured predicted   error"
local steady = {}
for _, p in ipairs(plans) do
  print(("%-58s %9.1f %8.1f %+6.1f %% %5.1f%s %9.1f %9.1f %+6.1f %%"):format(p.what:sub(1, 58), 1e3 * p.measured,
    1e3 * p.clock, 100 * (p.clock / p.measured - 1), 100 * p.spread, p.spread > SPREAD and "*" or " ", 1e3 * p.core,
    1e3 * p.predicted_core, 100 * (p.predicted_core / p.core - 1)))
  if p.spread <= SPREAD then steady[#steady + 1] = p end
end
print(("* left out: %d of %d plans whose repeats spread by more than 5 %%"):format(#plans - #steady, #plans))
figures("step", steady, "measured", "clock")
figures("step, also of those left out", plans, "measured", "clock")
figures("processor time of all plans", plans, "core", "predicted_core")

-- ---- by op, from traces of three plans ----

local ops, order = {}, {}
for i = 1, math.min(3, #plans) do
  local p, trace = plans[i], ("%s/trace%d.json"):format(folder, i)
  assert(os.execute(("%s run %s --threads 1 --steps 6 -q --trace %s"):format(program, p.path, trace)))
  local out <close> = assert(io.popen(("%s sim %s --calibration %s --compare %s --json"):format(program, p.path,
    calibration, trace)))
  for object in out:read "a":match '"compare": (%b[])':gmatch "%b{}" do
    local name = object:match '"op": "([%w_]+)"'
    local op = ops[name]
    if not op then
      op = { name = name, measured = 0, predicted = 0, count = 0 }
      ops[name], order[#order + 1] = op, op
    end
    op.measured = op.measured + tonumber(object:match '"measured": ([%d%.e+-]+)')
    op.predicted = op.predicted + tonumber(object:match '"predicted": ([%d%.e+-]+)')
    op.count = op.count + tonumber(object:match '"count": (%d+)')
  end
end
table.sort(order, function(a, b) return math.abs(a.measured - a.predicted) > math.abs(b.measured - b.predicted) end)
print "\nkernels of a step of the first three plans, in ms (medians by the clock of the machine)"
print "op                    count   measured  predicted difference"
for i = 1, math.min(15, #order) do
  local o = order[i]
  print(("%-20s %6d %10.3f %10.3f %+10.3f"):format(o.name, o.count, 1e3 * o.measured, 1e3 * o.predicted,
    1e3 * (o.measured - o.predicted)))
end
os.execute("rm -r " .. folder)
