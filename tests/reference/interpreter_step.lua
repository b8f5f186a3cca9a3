-- interpreter_step.lua - the ops that run once a step: what counts, scales and clips, in the
-- block of scalars, and the optimizers; see interpreter_ops.lua.
local sqrt, log, max, min = math.sqrt, math.log, math.max, math.min
local ops = {}

local function map(x, f)
  local y = {}
  for i = 1, #x do y[i] = f(x[i], i) end
  return y
end

-- ---- the block of scalars ----

local function changed(k, scal, changes)
  local y = map(scal, function(v) return v end)
  for name, v in pairs(changes) do
    y[(math.type(name) == "integer" and name or k.scalar[name]) + 1] = v
  end
  return y
end

local function reader(k, scal)
  return function(name) return scal[k.scalar[name] + 1] end
end

function ops.count_labels(k, labels, scal)
  local n = 0
  for i = 1, #labels do n = n + (labels[i] ~= -100 and 1 or 0) end
  return changed(k, scal, { SC_TOKENS = n })
end

function ops.seed(k, scal)
  local s = reader(k, scal)
  local n = k.attr.n or 0
  return { s "SC_SCALE" / (n > 0 and n or max(s "SC_TOKENS", 1)) }
end

function ops.acc_loss(k, loss, scal)
  return changed(k, scal, { SC_LOSS = reader(k, scal) "SC_LOSS" + loss[1] })
end

function ops.acc_sources(k, s, labels, sources, scal)
  local sums, from = {}, k.scalar.SC_SOURCES
  for r = 0, #labels - 1 do
    if labels[r + 1] ~= -100 then
      local at = from + 2 * sources[r + 1]
      sums[at] = (sums[at] or scal[at + 1]) + log(s[2 * r + 1]) - s[2 * r + 2]
      sums[at + 1] = (sums[at + 1] or scal[at + 2]) + 1
    end
  end
  return changed(k, scal, sums)
end

function ops.sqnorm(k, g, scal)
  local sum = scal[k.attr.n + 1]
  for i = 1, #g do sum = sum + g[i] * g[i] end
  return changed(k, scal, { [k.attr.n] = sum })
end

local function clip_factor(norm, clip)
  return clip > 0 and min(1, clip / (norm + 1e-6)) or 1
end

local function finite(x) return x == x and math.abs(x) < math.huge end

function ops.clip_coef(k, scal)
  local s = reader(k, scal)
  local norm = sqrt(s "SC_NORM2") / s "SC_SCALE"
  local skip = not finite(norm) or not finite(s "SC_LOSS")
  local clip = clip_factor(norm, k.attr.clip) / s "SC_SCALE"
  local guessed, right = s "SC_GUESS" ~= 0, not skip and s "SC_GUESS" == clip
  return changed(k, scal, { SC_NORM = norm, SC_CLIP = clip, SC_SKIP = skip and 1 or 0,
    SC_UNDO = guessed and not right and 1 or 0,
    SC_HOLD = (skip or guessed and right) and 1 or 0 })
end

function ops.clip_guess(k, scal)
  local s = reader(k, scal)
  local norm = sqrt(s "SC_NORM2") / s "SC_SCALE"
  local clip = clip_factor(norm, k.attr.clip)
  local held = not finite(norm) or (k.attr.n == 0 and clip < 1) or s "SC_CAREFUL" ~= 0
  clip = clip / s "SC_SCALE"
  return changed(k, scal, { SC_CLIP = clip, SC_HOLD = held and 1 or 0,
    SC_GUESS = held and 0 or clip })
end

function ops.scal_add(k, scal)
  return changed(k, scal, { [k.attr.n] = scal[k.attr.n + 1] + scal[k.attr.dim + 1] })
end

function ops.scal_zero(k, scal)
  return map(scal, function(v, i) return i > k.scalar.SC_TOKENS and 0 or v end)
end

-- ---- optimizers ----

-- Of a step: SC_LR, or a multiple of it.
local function rate_of(k, scal)
  local factor = k.attr.lr or 0
  return reader(k, scal) "SC_LR" * (factor > 0 and factor or 1)
end

function ops.adamw(k, p, g, m, v, scal)
  local s, a = reader(k, scal), k.attr
  if s "SC_HOLD" ~= 0 then return p, m, v, p end
  local p1, m1, v1 = {}, {}, {}
  local lr, decay = rate_of(k, scal), a.weight_decay or 0
  for i = 1, #p do
    local x = g[i] * s "SC_CLIP"
    m1[i] = m[i] + (1 - a.beta1) * (x - m[i])
    v1[i] = v[i] + (1 - a.beta2) * (x * x - v[i])
    p1[i] = p[i] * (1 - lr * decay)
      - lr / s "SC_BC1" * m1[i] / (sqrt(v1[i] / s "SC_BC2") + a.eps)
  end
  return p1, m1, v1, p1
end

function ops.sgd(k, p, g, m, scal)
  local s, a = reader(k, scal), k.attr
  if s "SC_HOLD" ~= 0 then return p, m, p end
  local momentum, add = a.momentum or 0, 1
  if momentum ~= 0 and s "SC_STEP" ~= 1 then add = 1 - (a.dampening or 0) end
  local p1, m1, lr = {}, {}, rate_of(k, scal)
  for i = 1, #p do
    local x = g[i] * s "SC_CLIP" + (a.weight_decay or 0) * p[i]
    m1[i] = momentum * m[i] + add * x
    p1[i] = p[i] - lr * ((a.nesterov or 0) ~= 0 and x + momentum * m1[i] or m1[i])
  end
  return p1, m1, p1
end

function ops.sgd_try(k, p, g, m, scal)
  local p1, m1, copy = ops.sgd(k, p, g, m, scal)
  return p1, m1, copy, p, m
end

function ops.lion(k, p, g, m, scal)
  local s, a = reader(k, scal), k.attr
  if s "SC_HOLD" ~= 0 then return p, m, p end
  local b1, b2, decay = a.beta1 or 0, a.beta2 or 0, a.weight_decay or 0
  local p1, m1, lr = {}, {}, rate_of(k, scal)
  for i = 1, #p do
    local x = g[i] * s "SC_CLIP"
    local to = b1 * m[i] + (1 - b1) * x
    local sign = to > 0 and 1 or to < 0 and -1 or 0
    p1[i] = p[i] - lr * (sign + decay * p[i])
    m1[i] = b2 * m[i] + (1 - b2) * x
  end
  return p1, m1, p1
end

function ops.lion_try(k, p, g, m, scal)
  local p1, m1, copy = ops.lion(k, p, g, m, scal)
  return p1, m1, copy, p, m
end

function ops.adamw_try(k, p, g, m, v, scal)
  local p1, m1, v1, copy = ops.adamw(k, p, g, m, v, scal)
  return p1, m1, v1, copy, p, m, v
end

function ops.step_undo(k, p, ...)
  local kept = { ... }
  if reader(k, table.remove(kept)) "SC_UNDO" == 0 then return end
  return p, p, table.unpack(kept)
end

return ops
