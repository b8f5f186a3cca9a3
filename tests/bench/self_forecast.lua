-- self_forecast.lua - the clock after weft calibrate beside what this machine then takes:
-- random small plans, on virtual ranks and on processes.
--
--   ./dev bench foresight [PLANS [SEED [REPEATS [FOLDER]]]]    default: 40 plans, seed 1, 5 repeats,
--                                                              build/foresight-PLANS-SEED
--
-- A turn of a plan calibrates for it, anew, and then runs it, and its turns follow each other, as a
-- machine that others use, too, is faster for some minutes and slower for others. The time of a step
-- is the median of its turns, each the median of a few steps; what is foretold of it is the median
-- of what the turns foretold, each times its own step. Plans whose turns still spread by more than
-- 5 % have up to as many again, and are listed and left out if that does not help. The spread is
-- that of the middle half of the turns over their median. Beside the step stands the processor time
-- of a step, of all virtual ranks together, which other work on the machine changes little, and
-- which tells wrong rows of the calibration from a wrong clock.
--
-- Every figure is in FOLDER once it is measured: the same command goes on where it was ended.
-- Remove the folder to begin again.
local weft = require "weft"
local count, seed, repeats, folder = ...
count, seed, repeats = tonumber(count) or 40, tonumber(seed) or 1, tonumber(repeats) or 5
folder = folder or ("build/foresight-%d-%d"):format(count, seed)
local STEPS, SPREAD, APART, TRACED = 6, 0.05, 0.10, 3
local program = "build/weft"
assert(os.execute("mkdir -p " .. folder))

local function read(name)
  local f <close> = io.open(name)
  return f and f:read "a" or ""
end

local function write(name, text, mode)
  local f <close> = assert(io.open(name, mode or "w"))
  f:write(text)
end

local function say(...) io.stderr:write("\r" .. (...):format(select(2, ...)) .. "          ") end

-- ---- plans ----

-- The same numbers everywhere, from 0 to n - 1.
local state = seed
local function draw(n)
  state = (state * 1103515245 + 12345) % 2147483648
  return (state // 65536) % n
end
local function one_of(list) return list[draw(#list) + 1] end

local meshes = {
  "world = 1", "world = 2", "world = 2, tp = 2", "world = 2, pp = 2", "world = 2, cp = 2", "world = 2, ep = 2",
  "world = 4", "world = 4, tp = 2", "world = 4, pp = 2", "world = 4, cp = 2", "world = 4, tp = 2, pp = 2",
  "world = 4, pp = 4", "world = 8, tp = 2, pp = 2", "world = 4, tp = 4",
}

local function size(mesh, axis) return tonumber(mesh:match("%f[%w]" .. axis .. " = (%d)")) or 1 end

-- The text of a plan, what it is in a line, and its number of processes, 0: virtual ranks.
local function text_of(i)
  local mesh = one_of(meshes)
  local pp, world, ep = size(mesh, "pp"), size(mesh, "world"), size(mesh, "ep")
  local ranks = world // (pp * size(mesh, "tp") * size(mesh, "cp"))
  local hidden = one_of { 128, 192, 256 }
  local schedule = pp > 1 and one_of { "1f1b", "gpipe", "zero_bubble", "interleaved_1f1b" } or "1f1b"
  local strategy = ranks > 1 and one_of { '{ "zero", stage = 0 }', '{ "zero", stage = 1 }', '{ "fsdp2" }' }
    or '{ "zero", stage = 0 }'
  local procs = draw(3) == 0 and world > 1 and world <= 4 and world or 0
  local recompute = one_of { "none", "none", "full" }
  local model = ep > 1 and ('"mixtral", num_local_experts = 4, num_experts_per_tok = 2') or '"llama"'
  return ([[
local weft = require "weft"
return weft.plan {
  name = "random %d",
  model = weft.model { %s, hidden_size = %d, num_hidden_layers = 8, num_attention_heads = 8,
    num_key_value_heads = 4, intermediate_size = %d, vocab_size = 512 },
  mesh = { %s }, schedule = "%s", strategy = %s, recompute = "%s",%s
  batch = { global = %d, micro = %d, seq = 128 }, optimizer = weft.adamw { lr = 1e-4 },
  train = { steps = 100 }, data = weft.synthetic {},
}
]]):format(i, model, hidden, hidden * 5 // 2, mesh, schedule, strategy, recompute,
    ep > 1 and ' moe = { dispatcher = "alltoall" },' or "", 8 * ranks, one_of { 1, 2 }),
    (procs > 0 and "processes, " or "") .. mesh .. ", " .. schedule .. ", " .. strategy:gsub('[{}"]', ""), procs
end

local plans, tried = {}, 0
while #plans < count do
  tried = tried + 1
  local text, what, procs = text_of(#plans + 1)
  local path = ("%s/plan%d.lua"):format(folder, #plans + 1)
  if read(path) ~= text then write(path, text) end
  local fine, plan = pcall(weft.load, path)
  if fine then plans[#plans + 1] = { number = #plans + 1, path = path, plan = plan, what = what, procs = procs, took = {}, core = {} } end
  assert(tried < 20 * count, "hardly any of the random plans is one: " .. tostring(plan))
end

-- ---- measuring ----

local function median(list)
  local t = table.move(list, 1, #list, 1, {})
  table.sort(t)
  return #t % 2 == 1 and t[#t // 2 + 1] or (t[#t // 2] + t[#t // 2 + 1]) / 2
end

-- Of the middle half of a list, over its median.
local function spread(list)
  local t = table.move(list, 1, #list, 1, {})
  table.sort(t)
  local cut = #t // 4
  return (t[#t - cut] - t[1 + cut]) / median(t)
end

local function run_threads(p, n)
  local before = os.clock()
  local rows = p.plan:run { steps = n, threads = 1 }
  local ms = {}
  for i = 2, #rows do ms[#ms + 1] = rows[i].ms end
  return median(ms) / 1e3, os.clock() - before
end

local function run_processes(p, n)
  local log, ms = folder .. "/run.jsonl", {}
  os.remove(log)
  assert(os.execute(("%s run %s --procs %d --threads 1 --steps %d -q --log %s"):format(program, p.path, p.procs, n,
    log)))
  for step, took in read(log):gmatch '"step":(%d+),"step_ms":([%d.e+-]+)' do
    if tonumber(step) > 1 then ms[#ms + 1] = tonumber(took) end
  end
  return median(ms) / 1e3
end

-- A turn of a plan: the step and, of virtual ranks, its processor time.
local function turn(p)
  if p.procs > 0 then return run_processes(p, 3 + STEPS) end
  local _, short = run_threads(p, 2)
  local took, long = run_threads(p, 2 + STEPS)
  return took, (long - short) / STEPS
end

local function calibration(p, round) return ("%s/plan%d-%d.lua"):format(folder, p.number, round) end

local done = folder .. "/turns.txt" -- "plan round step processor"
for i, round, took, core in read(done):gmatch "(%d+) (%d+) (%S+) (%S+)\n" do
  local p = plans[tonumber(i)]
  p.took[tonumber(round)], p.core[tonumber(round)] = tonumber(took), tonumber(core)
end

local function calibrate(p, round)
  os.remove(calibration(p, round))
  assert(os.execute(("%s calibrate -q --threads 1 %s -o %s %s >%s/said"):format(program,
    p.procs > 0 and "--procs " .. p.procs or "", calibration(p, round), p.path, folder)))
end

for _, p in ipairs(plans) do
  while #p.took < repeats or #p.took < 2 * repeats and spread(p.took) > SPREAD do
    local round = #p.took + 1
    say("plan %d of %d, turn %d", p.number, #plans, round)
    calibrate(p, round)
    local took, core = turn(p)
    p.took[round], p.core[round] = took, core or 0
    write(done, ("%d %d %.9g %.9g\n"):format(p.number, round, took, core or 0), "a")
  end
end
io.stderr:write "\n"

-- ---- figures ----

for _, p in ipairs(plans) do
  p.measured, p.spread = median(p.took), spread(p.took)
  local clock, ratio, core = {}, {}, {}
  for round, took in ipairs(p.took) do
    local sim = p.plan:sim { calibration = calibration(p, round) }
    clock[round], core[round], p.known = sim.seconds, 0, 1 - sim.sources["data sheet"]
    ratio[round] = sim.seconds / took
    for _, op in ipairs(sim.ops) do core[round] = core[round] + op.seconds * sim.ranks / #sim.pipeline end
  end
  p.clock, p.predicted_core, p.drift = p.measured * median(ratio), median(core), spread(clock)
  if p.procs == 0 then p.core = median(p.core) else p.core = nil end
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
  local mean = #list > 0 and sum / #list or 0
  print(("%-34s %3d plans, mean error %5.1f %%, pairs in order %d of %d"):format(name, #list, 100 * mean, right, n))
  return mean, n > 0 and right / n or 1
end

local function pick(is)
  local out = {}
  for _, p in ipairs(plans) do if is(p) then out[#out + 1] = p end end
  return out
end

print "                                                                  step, ms                 spread, %      processor time, ms"
print "plan                                                        measured    clock   error    known measured clock  measured predicted   error"
for _, p in ipairs(plans) do
  local core = p.core and ("%9.1f %9.1f %+6.1f %%"):format(1e3 * p.core, 1e3 * p.predicted_core,
    100 * (p.predicted_core / p.core - 1)) or "        -"
  print(("%-58s %9.1f %8.1f %+6.1f %% %5.0f %% %5.1f%s %6.1f %s"):format(p.what:sub(1, 58), 1e3 * p.measured,
    1e3 * p.clock, 100 * (p.clock / p.measured - 1), 100 * p.known, 100 * p.spread, p.spread > SPREAD and "*" or " ",
    100 * p.drift, core))
end
local steady = pick(function(p) return p.spread <= SPREAD end)
print(("* left out: %d of %d plans whose turns spread by more than 5 %%"):format(#plans - #steady, #plans))
local mean, order = figures("step", steady, "measured", "clock")
figures("step, on virtual ranks", pick(function(p) return p.spread <= SPREAD and p.procs == 0 end), "measured", "clock")
figures("step, on processes", pick(function(p) return p.spread <= SPREAD and p.procs > 0 end), "measured", "clock")
figures("step, also of those left out", plans, "measured", "clock")
figures("processor time of virtual ranks", pick(function(p) return p.core end), "core", "predicted_core")

local function target(holds, ...) print((holds and "holds   " or "misses  ") .. (...):format(select(2, ...))) end
target(#plans - #steady <= #plans // 5, "%d of %d plans left out, at most a fifth", #plans - #steady, #plans)
target(#steady > 0 and mean <= 0.08, "mean error %.1f %%, at most 8", 100 * mean)
target(#steady > 0 and order >= 0.9, "pairs in order %.1f %%, at least 90", 100 * order)

-- ---- by op, from traces of the first plans on virtual ranks ----

local ops, list = {}, {}
for i, p in ipairs(pick(function(p) return p.procs == 0 end)) do
  if i > TRACED then break end
  local trace = ("%s/trace%d.json"):format(folder, i)
  assert(os.execute(("%s run %s --threads 1 --steps 6 -q --trace %s"):format(program, p.path, trace)))
  local out <close> = assert(io.popen(("%s sim %s --calibration %s --compare %s --json"):format(program, p.path,
    calibration(p, #p.took), trace)))
  for object in out:read "a":match '"compare": (%b[])':gmatch "%b{}" do
    local name = object:match '"op": "([%w_]+)"'
    local op = ops[name]
    if not op then
      op = { name = name, measured = 0, predicted = 0, count = 0 }
      ops[name], list[#list + 1] = op, op
    end
    op.measured = op.measured + tonumber(object:match '"measured": ([%d%.e+-]+)')
    op.predicted = op.predicted + tonumber(object:match '"predicted": ([%d%.e+-]+)')
    op.count = op.count + tonumber(object:match '"count": (%d+)')
  end
end
table.sort(list, function(a, b) return math.abs(a.measured - a.predicted) > math.abs(b.measured - b.predicted) end)
print(("\nkernels of a step of the first %d plans on virtual ranks, in ms (medians by the clock of the machine)"):format(
  TRACED))
print "op                    count   measured  predicted difference"
for i = 1, math.min(15, #list) do
  local o = list[i]
  print(("%-20s %6d %10.3f %10.3f %+10.3f"):format(o.name, o.count, 1e3 * o.measured, 1e3 * o.predicted,
    1e3 * (o.measured - o.predicted)))
end
