-- interpreter_loss.lua - cross entropy, losses of a plan's own, and a head with its loss; see
-- interpreter_ops.lua.
local exp, log, max, min = math.exp, math.log, math.max, math.min
local lists = interpreter_lists
local last, map, zeros, first_row = lists.last, lists.map, lists.zeros, lists.first_row
local ops = interpreter_ops
local loss = {}

-- ---- cross entropy ----

-- The first column here among those of the vocabulary, and how many of the model's are.
local function columns(k, V)
  local first = first_row(k, V)
  return first, max(0, min(V, k.attr.vocab - first))
end

function loss.ce_max(k, l)
  local V = last(k.dims[1])
  local _, n = columns(k, V)
  local m = {}
  for r = 0, #l // V - 1 do
    m[r + 1] = -math.huge
    for c = 1, n do m[r + 1] = max(m[r + 1], l[r * V + c]) end
  end
  return m
end

local function label_here(label, first, n)
  return label ~= -100 and label >= first and label < first + n
end

function loss.ce_sum(k, l, labels, m)
  local V = last(k.dims[1])
  local first, n = columns(k, V)
  local s = {}
  for r = 0, #labels - 1 do
    local sum, label = 0, labels[r + 1]
    for c = 1, n do sum = sum + exp(l[r * V + c] - m[r + 1]) end
    s[2 * r + 1] = sum
    s[2 * r + 2] = label_here(label, first, n) and l[r * V + label - first + 1] - m[r + 1] or 0
  end
  return s
end

function loss.ce_stats(k, l, labels)
  local m = ops.ce_max(k, l)
  return m, ops.ce_sum(k, l, labels, m)
end

function loss.ce_shift(k, s, m, most, labels)
  local first, n = columns(k, k.attr.n)
  local y = {}
  for r = 0, #labels - 1 do
    local d = m[r + 1] - most[r + 1]
    y[2 * r + 1] = n > 0 and s[2 * r + 1] * exp(d) or 0
    y[2 * r + 2] = label_here(labels[r + 1], first, n) and s[2 * r + 2] + d or 0
  end
  return y
end

function loss.ce_loss(k, s, labels)
  local sum = 0
  for r = 0, #labels - 1 do
    if labels[r + 1] ~= -100 then sum = sum + log(s[2 * r + 1]) - s[2 * r + 2] end
  end
  return { sum }
end

function loss.ce_dx(k, l, labels, m, s, g)
  local V = last(k.dims[1])
  local first, n = columns(k, V)
  local d = zeros(#l)
  for r = 0, #labels - 1 do
    for c = 1, labels[r + 1] ~= -100 and n or 0 do
      local p = exp(l[r * V + c] - m[r + 1]) / s[2 * r + 1]
      d[r * V + c] = (p - (labels[r + 1] == first + c - 1 and 1 or 0)) * g[#g > 1 and r + 1 or 1]
    end
  end
  return d
end

-- ---- losses of a plan's own ----

function loss.ce_losses(k, s, labels)
  return map(labels, function(label, r)
    return label ~= -100 and log(s[2 * r - 1]) - s[2 * r] or 0
  end)
end

function loss.label_mask(k, labels)
  return map(labels, function(label) return label ~= -100 and 1 or 0 end)
end

-- The sums of n equal runs.
local function sums(x, n)
  local y = zeros(n)
  for i = 1, #x do
    local r = (i - 1) // (#x // n) + 1
    y[r] = y[r] + x[i]
  end
  return y
end

function loss.row_sums(k, x) return sums(x, #x // last(k.dims[1])) end
function loss.sum_all(k, x) return sums(x, 1) end

function loss.spread(k, dy)
  local n, dx = 1, {}
  for _, d in ipairs(k.out_dims[1]) do n = n * d end
  for i = 1, n do dx[i] = dy[(i - 1) // (n // #dy) + 1] end
  return dx
end

function loss.split_pairs(k, x)
  local a, b = {}, {}
  for i = 1, #x // 2 do a[i], b[i] = x[2 * i - 1], x[2 * i] end
  return a, b
end

function loss.join_pairs(k, a, b)
  local x = {}
  for i = 1, #a do x[2 * i - 1], x[2 * i] = a[i], b[i] end
  return x
end

local function ratio(a, b) return b == 0 and 0 or a / b end
function loss.divide(k, a, b) return map(a, function(v, i) return ratio(v, b[i]) end) end
function loss.divide_db(k, b, y, dy)
  return map(b, function(v, i) return -ratio(y[i] * dy[i], v) end)
end
function loss.offset(k, x) return map(x, function(v) return v + k.attr.scale end) end
function loss.exponential(k, x) return map(x, function(v) return exp(v) end) end
function loss.log_sigmoid(k, x)
  return map(x, function(v) return math.min(v, 0) - log(1 + exp(-math.abs(v))) end)
end
function loss.log_sigmoid_dx(k, x, dy)
  return map(x, function(v, i) return dy[i] / (1 + exp(v)) end)
end

-- Calls fn(row, column, p, q) with the probabilities of the columns of rows that count.
local function each_probability(k, x, y, labels, mx, sx, my, sy, fn)
  local V = last(k.dims[1])
  local _, n = columns(k, V)
  for r = 1, #labels do
    for c = 1, labels[r] ~= -100 and n or 0 do
      local i = (r - 1) * V + c
      fn(r, i, exp(x[i] - mx[r]) / sx[2 * r - 1], exp(y[i] - my[r]) / sy[2 * r - 1])
    end
  end
end

function loss.divergence_sums(k, x, y, labels, mx, sx, my, sy)
  local beta, d = k.attr.beta or 0, zeros(2 * #labels)
  each_probability(k, x, y, labels, mx, sx, my, sy, function(r, _, p, q)
    local m = (1 - beta) * p + beta * q
    local of_p, of_q = p * log(p / m), q * log(q / m)
    d[2 * r - 1] = d[2 * r - 1] + (beta == 0 and of_q or beta == 1 and of_p or
                                   beta * of_q + (1 - beta) * of_p)
    d[2 * r] = d[2 * r] + of_p
  end)
  return d
end

function loss.divergence_rows(k, d)
  local y = {}
  for r = 1, #d // 2 do y[r] = d[2 * r - 1] end
  return y
end

function loss.divergence_dx(k, x, y, labels, mx, sx, my, sy, d, g)
  local beta, dx = k.attr.beta or 0, zeros(#x)
  each_probability(k, x, y, labels, mx, sx, my, sy, function(r, i, p, q)
    local m = (1 - beta) * p + beta * q
    local by = p * (log(p / m) - d[2 * r])
    dx[i] = g[r] * (beta == 0 and p - q or beta == 1 and by or (1 - beta) * by)
  end)
  return dx
end

-- ---- a head with its loss, in pieces of the rows or not ----

-- The logits, and what an op on them has as k.
local function logits(k, x, w)
  local rows = #x // last(k.dims[1])
  local V = k.dims[2][k.attr.layout == 0 and 1 or 2]
  local of = setmetatable({ out_dims = { { rows, V } }, dims = { { rows, V } } }, { __index = k })
  return ops.linear(setmetatable({ out_dims = of.out_dims }, { __index = k }), x, w), of
end

function loss.linear_ce_stats(k, x, w, labels)
  local l, of = logits(k, x, w)
  return ops.ce_stats(of, l, labels)
end

function loss.linear_ce_dw(k, x, w, ...)
  local l, of = logits(k, x, w)
  local dims = { k.dims[1], of.dims[1] }
  return ops.linear_dw(setmetatable({ dims = dims }, { __index = k }), x, ops.ce_dx(of, l, ...))
end

function loss.linear_ce_dx(k, x, w, ...)
  local l, of = logits(k, x, w)
  local shapes = { dims = of.dims, out_dims = { k.dims[1] } }
  return ops.linear_dx(setmetatable(shapes, { __index = k }), ops.ce_dx(of, l, ...), w)
end

function loss.linear_ce_back(k, ...)
  return ops.linear_ce_dw(k, ...), ops.linear_ce_dx(k, ...)
end

return loss
