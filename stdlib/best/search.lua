-- search.lua - the search for a layout: bounds of memory and time for all of them, by the
-- passes of a sweep without lifetimes of buffers; then the clock on whole programs, for those
-- that may be best, each after its exact memory. What the clock said of some gives a forecast
-- of the others, by which the next ones are chosen. A layout whose bound is above what the
-- clock said of another cannot be better, and is never on the clock.
local ahead, core, forecast, space = use "sweep/ahead", use "sweep/core", use "best/forecast", use "best/space"
local format = string.format
local search = {}

local together = 8       -- layouts on the clock between two fits
local margin = 0.02      -- the search ends when nothing is forecast to be this near to the best,
local doubt = 2          -- nor so many times as far as forecasts were off on average,
local least_clocked = 24 -- and so many were on the clock

-- ---- bounds ----

local function progress(...)
  if core.progress() then core.progress(format(...)) end
end

-- The first so many points.
local function judge(points, n, all)
  local start = core.clock()
  points:start(n)
  while points:work(0.1) do
    local done = points:counts().judged
    progress("bounds of %d of %d layouts, %.0f/s", done, all, done / math.max(core.clock() - start, 1e-3))
  end
  points:join()
  return not points:counts().interrupted
end

-- Parameters, gradients and optimizer state of all stages are the same however layers are cut,
-- scheduled and recomputed: where the mean rank has no room for them no layout of the same
-- mesh and strategy fits, and one of them stands for all.
local function drop_large(points, s)
  for i = 0, #s.layouts - 1 do
    local of = s.lightest[i + 1] - 1
    if of ~= i then
      local state, row = points:row(of)
      if state == "memory" and row.mean_fixed_bytes > s.room then points:put(i, state, row) end
    end
  end
end

-- The work of all ranks is the same however layers are cut and scheduled, if backwards are in one
-- body or in two: where the mean rank has more of it than a step takes that was on the clock, no
-- such schedule makes up for that.
local function drop_slow(points, s, seconds)
  for i = 0, #s.layouts - 1 do
    local of = s.plainest[i + 1] - 1
    if of ~= i and not points:row(i) then
      local state, row = points:row(of)
      if state == "ok" and row.even_seconds >= seconds then
        row.step_ms = row.even_seconds * 1e3
        points:put(i, state, row)
      end
    end
  end
end

-- Sorts layouts by their bounds, equal ones as they were drawn; returns the list.
local function by_bound(list)
  table.sort(list, function(a, b)
    if a.bound ~= b.bound then return a.bound < b.bound end
    return a.i < b.i
  end)
  return list
end

-- The layouts that may fit, by their bounds; the first are the least.
-- `done`: those that were on the clock before.
local function collect(points, s, done)
  local list = {}
  for i = 1, #s.layouts do
    local state, row = points:row(i - 1)
    if done and done[i] then
      list[#list + 1] = done[i]
    elseif state == "ok" then
      list[#list + 1] = { i = i, layout = s.layouts[i], bound = row.step_ms and row.step_ms / 1e3, row = row }
    end
  end
  if list[1] and not list[1].bound then
    fail "weft.best: the plan's machines lack a figure that times need; weft sim names it"
  end
  return by_bound(list)
end

-- ---- the clock ----

local function refuse(r, why)
  for _, x in ipairs(r.reasons) do
    if x.code == why.code and x.path == why.path then
      x.count = x.count + 1
      return
    end
  end
  r.reasons[#r.reasons + 1] = { code = why.code, path = why.path, message = why.summary, count = 1 }
end

local function row_of(x) return x.i - 1 end

-- Exact memory, what CUDA and NCCL take besides, then the clock. False: the search was
-- interrupted.
local function clock(r, points, x)
  x.done = true
  local state, row, why = points:whole(x.i - 1)
  if not state then return false end
  if state ~= "ok" then
    if state == "memory" then r.memory = r.memory + 1 else refuse(r, why) end
    return true
  end
  local sim, wrong = points:clock(x.i - 1)
  if wrong then
    refuse(r, wrong)
    return true
  end
  if not sim then return false end
  if r.gpu_memory and sim.gpu_bytes > r.gpu_memory then
    r.beside = r.beside + 1
    return true
  end
  x.row, x.sim, x.seconds = row, sim, sim.seconds
  if x.expected then r.errors[#r.errors + 1] = math.abs(x.expected / x.seconds - 1) end
  r.clocked[#r.clocked + 1] = x
  if not r.best or x.seconds < r.best.seconds then r.best = x end
  progress("on the clock: %d of at most %d; the best takes %.4g s", #r.clocked, r.most, r.best.seconds)
  return true
end

-- By its bound, beside what the clock said of others.
local function may_be_best(r, x) return not r.best or x.bound < r.best.seconds end

-- For each value of each field the layout with the least bound, so that a fit knows all.
local function first_ones(list)
  local out, taken = {}, {}
  for _, name in ipairs(space.NAMES) do
    local seen = {}
    for _, x in ipairs(list) do
      local v = x.layout[name]
      if v ~= nil and not seen[v] then
        seen[v] = true
        if not taken[x] and not x.done then out[#out + 1] = x end
        taken[x] = true
      end
    end
  end
  return by_bound(out)
end

-- Those that are left, with what the clock is expected to say, the least first.
local function expect(r, list)
  local seen, left = {}, {}
  for k, x in ipairs(r.clocked) do
    seen[k] = { layout = x.layout, log = math.log(x.seconds / x.bound) }
  end
  local fit = forecast.fit(space.NAMES, seen)
  for _, x in ipairs(list) do
    if not x.done and may_be_best(r, x) then
      x.expected = x.bound * math.exp(forecast.log(fit, x.layout))
      left[#left + 1] = x
    end
  end
  table.sort(left, function(a, b)
    if a.expected ~= b.expected then return a.expected < b.expected end
    return a.i < b.i
  end)
  return left
end

-- Of none nil.
function search.mean(list)
  local sum = 0
  for _, v in ipairs(list) do sum = sum + v / #list end
  return #list > 0 and sum or nil
end

local function is_far(r, x)
  if not r.best or #r.clocked < least_clocked then return false end
  return x.expected > r.best.seconds * (1 + math.max(margin, doubt * (search.mean(r.errors) or 0)))
end

-- One after the other as long as they may be the best; those behind are made ahead. False: the
-- search was interrupted. `note`, if given, is called with each.
local function clock_in_order(r, points, list, note)
  local look = ahead(points, list, row_of, true, true)
  for k, x in ipairs(list) do
    if #r.clocked >= r.most or not may_be_best(r, x) then break end
    look(k, function(y) return may_be_best(r, y) end)
    if note then note(x) end
    if not clock(r, points, x) then return false end
  end
  return true
end

local function clock_best(r, points, list)
  if not clock_in_order(r, points, first_ones(list)) then return end
  while #r.clocked < r.most do
    local left = expect(r, list)
    if #left == 0 or is_far(r, left[1]) then return end
    local few = table.move(left, 1, math.min(together, #left), 1, {})
    local look = ahead(points, few, row_of, true, true)
    for k, x in ipairs(few) do
      if k > 1 and (is_far(r, x) or #r.clocked >= r.most) then break end
      look(k, function(y) return not is_far(r, y) end)
      if not clock(r, points, x) then return end
    end
  end
end

-- ---- the search ----

-- Bounds of all layouts: first of those that stand for others by their parameters, then of
-- those that do by their work, of which some are on the clock, then of what is left.
local function judge_all(r, points, s)
  if not judge(points, s.nlightest, #s.layouts) then return end
  drop_large(points, s)
  if not judge(points, s.nplainest, #s.layouts) then return end
  local least = collect(points, s)
  least = table.move(least, 1, math.min(together, #least), 1, {})
  if not clock_in_order(r, points, least, function(x) r.done[x.i] = x end) then return end
  if r.best then drop_slow(points, s, r.best.seconds) end
  judge(points, #s.layouts, #s.layouts)
end

-- Runs over the layouts of `s`. Gives what became of each: counts, `clocked` by their time,
-- and `left`, those that were not timed, by what is expected of them.
function search.run(plan, s, o)
  local start = core.clock()
  local shield <close> = core.shield()
  local sizes, axes = {}, {}
  for k, a in ipairs(s.axes) do
    axes[k] = table.move(a, 1, #a, 1, {})
    sizes[k] = #a - 1
  end
  local points <close> = core.points(sizes, s.points, o.memory)
  points:open(plan, axes, o.threads, true, true)
  local r = { layouts = #s.layouts, most = o.clock, clocked = {}, errors = {}, done = {}, reasons = {}, memory = 0,
              beside = 0, gpu_memory = o.gpu_memory }
  judge_all(r, points, s)
  local refused, by_buffers, counts = r.reasons, r.memory, points:counts()
  for key, v in next, counts do r[key] = v end
  for _, why in ipairs(refused) do refuse(r, why) end
  r.floor_memory, r.memory = r.memory, r.memory + by_buffers
  local list = collect(points, s, r.done)
  r.fits = #list
  if not r.interrupted then clock_best(r, points, list) end
  r.interrupted = points:counts().interrupted
  if core.progress() then core.progress(nil) end
  r.left = {}
  if #r.clocked > 0 then r.left = expect(r, list) end
  local timed_or_refused = 0
  for _, x in ipairs(list) do
    if x.done then timed_or_refused = timed_or_refused + 1 end
  end
  r.pruned = #r.clocked > 0 and #list - timed_or_refused - #r.left or 0
  table.sort(r.clocked, function(a, b)
    if a.seconds ~= b.seconds then return a.seconds < b.seconds end
    return a.i < b.i
  end)
  r.best = r.clocked[1] -- of several that take as long the first
  r.seconds = core.clock() - start
  return r
end

return search
