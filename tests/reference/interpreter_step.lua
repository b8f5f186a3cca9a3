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

function ops.adam(k, p, g, m, v, scal)
  local s, a = reader(k, scal), k.attr
  if s "SC_HOLD" ~= 0 then return p, m, v, p end
  local p1, m1, v1, lr = {}, {}, {}, rate_of(k, scal)
  for i = 1, #p do
    local x = g[i] * s "SC_CLIP" + (a.weight_decay or 0) * p[i]
    m1[i] = m[i] + (1 - a.beta1) * (x - m[i])
    v1[i] = v[i] + (1 - a.beta2) * (x * x - v[i])
    p1[i] = p[i] - lr / s "SC_BC1" * m1[i] / (sqrt(v1[i] / s "SC_BC2") + a.eps)
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

function ops.sgd_plain(k, p, g, scal)
  local s, p1 = reader(k, scal), {}
  if s "SC_HOLD" ~= 0 then return p, p end
  local lr, decay = rate_of(k, scal), k.attr.weight_decay or 0
  for i = 1, #p do p1[i] = p[i] - lr * (g[i] * s "SC_CLIP" + decay * p[i]) end
  return p1, p1
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

-- With states in f32, as small parameters have them.
ops.adamw_8bit = ops.adamw
ops.adamw_8bit_try = ops.adamw_try

function ops.adam_try(k, p, g, m, v, scal)
  local p1, m1, v1, copy = ops.adam(k, p, g, m, v, scal)
  return p1, m1, v1, copy, p, m, v
end

-- ---- whole matrices ----

function ops.matrix_average(k, g, m, scal)
  local s, mu = reader(k, scal), k.attr.momentum or 0
  if s "SC_HOLD" ~= 0 then return m, map(m, function() return 0 end) end
  local m1, u = {}, {}
  for i = 1, #m do
    local x = g[i] * s "SC_CLIP"
    m1[i] = mu * m[i] + (1 - mu) * x
    u[i] = (k.attr.nesterov or 0) ~= 0 and x + mu * (m1[i] - x) or m1[i]
  end
  return m1, u
end

-- Calls f(place in the boxes, place in x or nil) for each element of each piece of a matrix
-- that is x, or whose transpose x is.
local function each_place(k, boxes, x, f)
  local a = k.attr
  local turned, cut, parts = (a.inverse or 0) ~= 0, (a.dim or 0) + 1, max(a.parts or 1, 1)
  local whole = turned and { x[2], x[1] } or { x[1], x[2] }
  local part, here = whole[cut] // parts, { whole[1], whole[2] }
  local run = -(-part // boxes[1])
  here[cut] = parts * run
  for piece = 0, boxes[1] - 1 do
    for i = 0, here[1] - 1 do
      for j = 0, here[2] - 1 do
        local at, to = { i, j }, piece * boxes[2] + (a.first or 0) + i * here[2] + j
        local within = piece * run + at[cut] % run
        at[cut] = at[cut] // run * part + within
        f(to + 1, within < part
          and 1 + (turned and at[2] * x[2] + at[1] or at[1] * x[2] + at[2]) or nil)
      end
    end
  end
end

function ops.matrix_take(k, boxes, x)
  local y = map(x, function(v) return v end)
  if k.index ~= (k.attr.from or 0) then return y end
  each_place(k, k.dims[1], k.dims[2], function(there, here)
    if here then y[here] = boxes[there] end
  end)
  return y
end

function ops.matrix_put(k, x, boxes)
  local y, mine = map(boxes, function(v) return v end), k.index == (k.attr.from or 0)
  each_place(k, k.dims[2], k.dims[1], function(there, here)
    y[there] = here and mine and k.attr.scale * x[here] or 0
  end)
  return y
end

function ops.unit_norm(k, x)
  local sum = 0
  for i = 1, #x do sum = sum + x[i] * x[i] end
  return map(x, function(v) return v / max(sqrt(sum), k.attr.eps) end)
end

function ops.matrix_step(k, p, o, scal)
  local s, decay, lr = reader(k, scal), k.attr.weight_decay or 0, rate_of(k, scal)
  if s "SC_HOLD" ~= 0 then return p, p end
  local p1 = map(p, function(v, i) return v - lr * (decay * v + o[i]) end)
  return p1, p1
end

-- ---- averages of rows and columns ----

-- Calls f(element, matrix, row, column) for each element of the parameter, of `matrices`, that the
-- rank has among its n; row and column are from 0, one of them nil where it is padding.
local function each_factor(k, n, matrices, f)
  local a = k.attr
  local whole, cut = { a.rows // 1 | 0, a.cols // 1 | 0 }, (a.dim // 1 | 0) + 1
  local here, pieces, parts = { whole[1], whole[2] }, a.pieces // 1 | 0, max(a.parts // 1 | 0, 1)
  local part = whole[cut] // parts
  local run = pieces > 0 and -(-part // pieces) or part
  here[cut] = parts * run
  for at = 0, n - 1 do
    local x = k.shard * n + at - (a.first // 1 | 0)
    if whole[1] == 0 then
      if x >= 0 and x < a.n then f(at + 1, 0, 0, x) end
    elseif x >= 0 and x < matrices * here[1] * here[2] then
      local of = { x // here[2] % here[1], x % here[2] }
      local within = k.index * run + of[cut] % run
      of[cut] = within < part and of[cut] // run * part + within or nil
      f(at + 1, x // (here[1] * here[2]), of[1], of[2])
    end
  end
end

function ops.factored_sums(k, p, g, scal)
  local y, rows, clip = {}, k.attr.rows // 1 | 0, reader(k, scal) "SC_CLIP"
  local M, W = k.out_dims[1][1], k.out_dims[1][2]
  for i = 1, M * W do y[i] = 0 end
  each_factor(k, #p, M, function(at, m, i, j)
    if not (i and j) then return end
    local x = g[at] * clip
    local function add(column, v) y[m * W + column + 1] = y[m * W + column + 1] + v end
    add(rows == 0 and 0 or W - rows + i, p[at] * p[at])
    if rows > 0 then
      add(i, x * x)
      add(rows + j, x * x)
    end
  end)
  return y
end

function ops.factored_average(k, g, v, sums, scal)
  local s, a = reader(k, scal), k.attr
  local y, by = map(v, function(x) return x end), s "SC_STEP" ^ a.beta2_decay
  if s "SC_HOLD" ~= 0 then return y end
  if a.rows == 0 then
    each_factor(k, #g, 1, function(at)
      local x = g[at] * s "SC_CLIP"
      y[at] = y[at] + by * (x * x - y[at])
    end)
    return y
  end
  local rows, cols = a.rows // 1 | 0, a.cols // 1 | 0
  for i = 0, #v - 1 do
    local m, c = i // (rows + cols), i % (rows + cols)
    local mean = sums[m * (2 * rows + cols) + c + 1] / (c < rows and cols or rows)
    y[i + 1] = y[i + 1] + by * (mean - y[i + 1])
  end
  return y
end

-- A function of an element's place that gives what its gradient is divided by.
local function roots(k, v)
  local a, means = k.attr, {}
  local rows, cols = a.rows // 1 | 0, a.cols // 1 | 0
  return function(at, m, i, j)
    if rows == 0 then return sqrt(max(v[at], a.epsilon ^ 2)) end
    local from = m * (rows + cols)
    if not means[m] then
      local sum = 0
      for r = 1, rows do sum = sum + v[from + r] end
      means[m] = max(sum / rows, a.epsilon)
    end
    return sqrt(max(v[from + i + 1] * v[from + rows + j + 1] / means[m], a.epsilon ^ 2))
  end
end

function ops.factored_norm(k, g, v, scal)
  local s, y, root = reader(k, scal), {}, roots(k, v)
  local M, R = k.out_dims[1][1], k.out_dims[1][2]
  for i = 1, M * R do y[i] = 0 end
  if s "SC_HOLD" ~= 0 then return y end
  each_factor(k, #g, M, function(at, m, i, j)
    if not (i and j) then return end
    local u = g[at] * s "SC_CLIP" / root(at, m, i, j)
    y[m * R + i + 1] = y[m * R + i + 1] + u * u
  end)
  return y
end

function ops.factored_step(k, p, g, v, sums, norms, scal)
  local s, a, lr, root = reader(k, scal), k.attr, rate_of(k, scal), roots(k, v)
  if s "SC_HOLD" ~= 0 then return p, p end
  local M, R, W, rates = k.dims[5][1], k.dims[5][2], k.dims[4][2], {}
  for m = 0, M - 1 do
    local p2, u2, n, rate = 0, 0, R * a.cols, lr
    for i = 1, R do
      p2 = p2 + sums[(m + 1) * W - R + i]
      u2 = u2 + norms[m * R + i]
    end
    if a.relative_step ~= 0 then rate = min(rate, 1 / sqrt(s "SC_STEP")) end
    if a.scale_parameter ~= 0 then rate = rate * max(a.least_rms, sqrt(p2 / n)) end
    rates[m] = rate / max(1, sqrt(u2 / n) / a.threshold)
  end
  local p1 = map(p, function(x) return x end)
  each_factor(k, #p, M, function(at, m, i, j)
    local u = i and j and g[at] * s "SC_CLIP" / root(at, m, i, j) or 0
    p1[at] = p[at] * (1 - lr * a.weight_decay) - rates[m] * u
  end)
  return p1, p1
end

function ops.step_undo(k, p, ...)
  local kept = { ... }
  if reader(k, table.remove(kept)) "SC_UNDO" == 0 then return end
  return p, p, table.unpack(kept)
end

return ops
