-- interpreter_experts.lua - the ops of models with experts; see interpreter_ops.lua.
local exp, log, max = math.exp, math.log, math.max
local last, zeros = interpreter_lists.last, interpreter_lists.zeros
local ops = interpreter_ops
local experts = {}

function experts.router_logits(k, x, w)
  return ops.linear({ attr = { layout = 0 }, dims = k.dims, out_dims = k.out_dims }, x, w)
end
function experts.router_logits_dx(k, dl, w)
  return ops.linear_dx({ attr = { layout = 0 }, dims = k.dims, out_dims = k.out_dims }, dl, w)
end
function experts.router_logits_dw(k, x, dl)
  return ops.linear_dw({ attr = { layout = 0 }, dims = k.dims, out_dims = k.out_dims }, x, dl)
end

-- ---- scores ----

local function softmax(l, at, E)
  local most, sum, p = -math.huge, 0, {}
  for e = 1, E do most = max(most, l[at + e]) end
  for e = 1, E do
    p[e] = exp(l[at + e] - most)
    sum = sum + p[e]
  end
  for e = 1, E do p[e] = p[e] / sum end
  return p, most + log(sum)
end

local function sigmoids(l, at, E)
  local p = {}
  for e = 1, E do p[e] = 1 / (1 + exp(-l[at + e])) end
  return p
end

local function scores(k, l, at, E)
  if k.attr.score == 0 then return (softmax(l, at, E)) end
  return sigmoids(l, at, E)
end

local function largest(key)
  local best, most = nil, -math.huge
  for i = 1, #key do
    if key[i] > most then best, most = i, key[i] end
  end
  return best
end

-- Only the groups whose largest, two or attr.n, add up to most are left.
local function keep_groups(k, key)
  local groups = k.attr.groups
  local size, sum, kept = #key // groups, {}, {}
  for g = 1, groups do
    local own = { table.unpack(key, (g - 1) * size + 1, g * size) }
    table.sort(own, function(a, b) return a > b end)
    sum[g] = 0
    for i = 1, k.attr.n ~= 0 and k.attr.n or 2 do sum[g] = sum[g] + own[i] end
  end
  for _ = 1, k.attr.topk_group do
    local g = largest(sum)
    kept[g], sum[g] = true, -math.huge
  end
  for i = 1, #key do
    if not kept[(i - 1) // size + 1] then key[i] = -math.huge end
  end
end

function experts.route(k, l, bias)
  local E, topk = last(k.dims[1]), k.attr.topk
  local weights, ids = {}, {}
  for r = 0, #l // E - 1 do
    local p, key, sum = scores(k, l, r * E, E), {}, 0
    for e = 1, E do key[e] = p[e] + (bias and bias[e] or 0) end
    if bias and #k.dims[2] == 2 then key = { table.unpack(bias, r * E + 1, (r + 1) * E) } end
    if k.attr.groups ~= 0 then keep_groups(k, key) end
    for j = 1, topk do
      local e = largest(key)
      key[e], ids[r * topk + j] = -math.huge, e - 1
      sum = sum + p[e]
    end
    for j = 1, topk do
      local w = p[ids[r * topk + j] + 1] * k.attr.scale
      weights[r * topk + j] = k.attr.norm_topk ~= 0 and w / sum or w
    end
  end
  return weights, ids
end

-- The logarithms of the factors of columns, of which and of those of rows each is found from the
-- other in turn.
function experts.sinkhorn(k, l)
  local E, groups = last(k.dims[1]), k.out_dims[1][1]
  local rows, out = #l // E // groups, {}
  for g = 0, groups - 1 do
    local by, moved, steps, at = {}, 1, 0, g * rows * E
    for e = 1, E do by[e] = 1 end
    while k.attr.n > 0 and moved > 1e-4 and steps < 1000 do
      local sum = zeros(E)
      for r = 0, rows - 1 do
        local all = 1e-8
        for e = 1, E do all = all + by[e] * exp(l[at + r * E + e]) end
        for e = 1, E do sum[e] = sum[e] + exp(l[at + r * E + e]) / all / rows end
      end
      moved, steps = 0, steps + 1
      for e = 1, E do
        local new = 1 / E / (sum[e] + 1e-8)
        moved, by[e] = moved + math.abs(new - by[e]) / E, new
      end
    end
    for e = 1, E do out[g * E + e] = log(by[e]) end
  end
  return out
end

function experts.sequence_bias(k, l, b)
  local E, each, y = last(k.dims[1]), #l // k.dims[2][1], {}
  for i = 1, #l do y[i] = l[i] + b[(i - 1) // each * E + (i - 1) % E + 1] end
  return y
end

-- Through the weights to the scores, and through these to the logits.
function experts.route_dx(k, l, ids, dw)
  local E, topk, dl = last(k.dims[1]), last(k.dims[2]), {}
  for r = 0, #l // E - 1 do
    local p, dp, sum, mean = scores(k, l, r * E, E), zeros(E), 0, 0
    for j = 1, topk do
      local e = ids[r * topk + j] + 1
      sum, mean = sum + p[e], mean + dw[r * topk + j] * p[e]
    end
    for j = 1, topk do
      local d = dw[r * topk + j]
      if k.attr.norm_topk ~= 0 then d = d / sum - mean / sum ^ 2 end
      dp[ids[r * topk + j] + 1] = d * k.attr.scale
    end
    local less = 0
    for e = 1, E do less = less + dp[e] * p[e] end
    for e = 1, E do
      dl[r * E + e] = k.attr.score == 0 and p[e] * (dp[e] - less) or p[e] * (1 - p[e]) * dp[e]
    end
  end
  return dl
end

-- ---- load and losses ----

-- What the microbatches so far add up to, behind it their number, and the mean of them.
function experts.running_counts(k, n, sums)
  local y, s, E = {}, {}, #n - 1
  s[E + 1], y[E + 1] = sums[E + 1] + 1, n[E + 1]
  for e = 1, E do
    s[e] = sums[e] + n[e]
    y[e] = s[e] / s[E + 1]
  end
  return y, s
end

-- Of all tokens, or of each so many sequences.
function experts.expert_counts(k, ids, labels)
  local row, rows = k.attr.experts + 1, #k.out_dims[1] == 2 and k.out_dims[1][1] or 1
  local n = zeros(rows * row)
  for i = 1, #ids do
    local at = (i - 1) * rows // #ids * row + ids[i] + 1
    n[at] = n[at] + 1
  end
  for i = 1, #labels do
    local at = (i - 1) * rows // #labels * row + row
    n[at] = n[at] + (labels[i] ~= -100 and 1 or 0)
  end
  return n
end

function experts.expert_load(k, ids)
  local n = zeros(last(k.out_dims[1]))
  for i = 1, #ids do n[ids[i] + 1] = n[ids[i] + 1] + 1 end
  return n
end

-- The row of counts for row r of logits, from 0; the coefficients of n[e] p[e] and of the squared
-- logarithm of a row.
local function counts_for(k, l, all, r, E)
  local rows, n = (#l // E) // (#all // (E + 1)), {}
  table.move(all, r // rows * (E + 1) + 1, (r // rows + 1) * (E + 1), 1, n)
  return n
end

local function terms(k, n, E)
  local a, N = k.attr, k.attr.n
  return n[E + 1] * a.aux * E / (N * N * a.topk), n[E + 1] * a.z / N
end

local function row_of_loss(k, l, at, E)
  local p, lse = softmax(l, at, E)
  if k.attr.score == 0 then return p, p, lse, 1 end
  local s, total = sigmoids(l, at, E), 0
  for e = 1, E do total = total + s[e] end
  for e = 1, E do s[e] = s[e] / total end
  return s, p, lse, total
end

function experts.router_loss(k, l, all)
  local E, sum = last(k.dims[1]), 0
  for r = 0, #l // E - 1 do
    local n = counts_for(k, l, all, r, E)
    local balance, z = terms(k, n, E)
    local p, _, lse = row_of_loss(k, l, r * E, E)
    for e = 1, E do sum = sum + balance * n[e] * p[e] end
    sum = sum + z * lse * lse
  end
  return { sum }
end

function experts.router_loss_dx(k, l, all, g)
  local E, dl = last(k.dims[1]), {}
  for r = 0, #l // E - 1 do
    local n = counts_for(k, l, all, r, E)
    local balance, z = terms(k, n, E)
    local p, q, lse, total = row_of_loss(k, l, r * E, E)
    local less = 0
    for e = 1, E do less = less + n[e] * p[e] end
    for e = 1, E do
      local slope = k.attr.score == 0 and p[e] or p[e] * (1 - p[e] * total)
      dl[r * E + e] = g[1] * (balance * slope * (n[e] - less) + 2 * z * lse * q[e])
    end
  end
  return dl
end

-- ---- rows of tokens to experts, and back ----

function experts.permute(k, x, ids, weights)
  assert(k.attr.capacity == 0 and k.attr.bound == 0, "no limits of rows here")
  local here, C, topk = last(k.out_dims[2]) - 1, last(k.dims[1]), last(k.dims[2])
  local first = k.attr.cut ~= 0 and k.index * here or 0
  local y, offsets, rows, n = zeros(k.out_dims[1][1] * C), { 0 }, {}, 0
  for i = 1, #ids do rows[i] = -1 end
  for e = 0, here - 1 do
    for i = 1, #ids do
      if ids[i] - first == e then
        for c = 1, C do y[n * C + c] = x[(i - 1) // topk * C + c] end
        rows[i], n = n, n + 1
      end
    end
    offsets[e + 2] = n
  end
  return y, offsets, rows
end

local function sum_choices(x, rows, topk, C, weight)
  local y = {}
  for t = 0, #rows // topk - 1 do
    for c = 1, C do
      local s = 0
      for j = 1, topk do
        local row = rows[t * topk + j]
        if row >= 0 then s = s + (weight and weight[t * topk + j] or 1) * x[row * C + c] end
      end
      y[t * C + c] = s
    end
  end
  return y
end

function experts.permute_dx(k, dy, rows)
  return sum_choices(dy, rows, last(k.dims[2]), last(k.dims[1]))
end

function experts.combine(k, x, weights, rows)
  return sum_choices(x, rows, last(k.dims[3]), last(k.dims[1]), weights)
end

function experts.combine_dx(k, x, weights, rows, dy)
  local C, topk = last(k.dims[1]), last(k.dims[2])
  local dx, dw = zeros(#x), zeros(#weights)
  for i = 1, #rows do
    for c = 1, rows[i] >= 0 and C or 0 do
      local d = dy[(i - 1) // topk * C + c]
      dx[rows[i] * C + c] = weights[i] * d
      dw[i] = dw[i] + d * x[rows[i] * C + c]
    end
  end
  return dx, dw
end

-- f(expert, row) for all rows that an expert has.
local function each_row(offsets, f)
  for e = 0, #offsets - 2 do
    for row = offsets[e + 1], offsets[e + 2] - 1 do f(e, row) end
  end
end

-- Where the weight of expert e from input i, from 1, to output o, from 0, is.
local function weight_at(k, e, o, i, O, I)
  return k.attr.layout == 1 and (e * I + i - 1) * O + o + 1 or (e * O + o) * I + i
end

function experts.grouped_linear(k, x, w, offsets)
  local I, O = last(k.dims[1]), last(k.out_dims[1])
  local y = zeros(k.out_dims[1][1] * O)
  each_row(offsets, function(e, row)
    for o = 0, O - 1 do
      local s = 0
      for i = 1, I do s = s + x[row * I + i] * w[weight_at(k, e, o, i, O, I)] end
      y[row * O + o + 1] = s
    end
  end)
  return y
end

function experts.grouped_linear_dx(k, dy, w, offsets)
  local O, I = last(k.dims[1]), last(k.out_dims[1])
  local dx = zeros(k.out_dims[1][1] * I)
  each_row(offsets, function(e, row)
    for o = 0, O - 1 do
      for i = 1, I do
        dx[row * I + i] = dx[row * I + i] + dy[row * O + o + 1] * w[weight_at(k, e, o, i, O, I)]
      end
    end
  end)
  return dx
end

function experts.grouped_linear_dw(k, x, dy, offsets)
  local I, O = last(k.dims[1]), last(k.dims[2])
  local dw = zeros((#offsets - 1) * O * I)
  each_row(offsets, function(e, row)
    for o = 0, O - 1 do
      for i = 1, I do
        local at = weight_at(k, e, o, i, O, I)
        dw[at] = dw[at] + x[row * I + i] * dy[row * O + o + 1]
      end
    end
  end)
  return dw
end

local function adds_here(k) return k.attr.cut == 0 or k.index == 0 end

function experts.grouped_bias(k, x, b, offsets)
  local O = last(k.dims[1])
  local y = zeros(#x)
  each_row(offsets, function(e, row)
    for o = 1, O do y[row * O + o] = x[row * O + o] + (adds_here(k) and b[e * O + o] or 0) end
  end)
  return y
end

function experts.grouped_bias_dw(k, dy, offsets)
  local O = last(k.dims[1])
  local db = zeros((#offsets - 1) * O)
  each_row(offsets, function(e, row)
    for o = 1, adds_here(k) and O or 0 do db[e * O + o] = db[e * O + o] + dy[row * O + o] end
  end)
  return db
end

-- ---- rows between ranks ----

function experts.expert_sizes(k, offsets)
  local n = {}
  for i = 1, #offsets - 1 do n[i] = offsets[i + 1] - offsets[i] end
  return n
end

function experts.expert_ends(k, n)
  local P, E, ends = k.dims[1][1], k.dims[1][2], { 0 }
  for e = 1, E do
    ends[e + 1] = ends[e]
    for p = 0, P - 1 do ends[e + 1] = ends[e + 1] + n[p * E + e] end
  end
  return ends
end

-- f(row in the places, row in the order) for all rows.
local function each_place(k, places, n, f)
  local P, E = k.dims[2][1], k.dims[2][2]
  local row, begin = 0, {}
  for p = 0, P - 1 do
    local at = p * places
    for e = 0, E - 1 do
      begin[p * E + e] = at
      at = at + n[p * E + e + 1]
    end
  end
  local function block(p, e)
    for i = 0, n[p * E + e + 1] - 1 do
      f(begin[p * E + e] + i, row)
      row = row + 1
    end
  end
  if k.attr.kind == 0 then
    for p = 0, P - 1 do for e = 0, E - 1 do block(p, e) end end
  else
    for e = 0, E - 1 do for p = 0, P - 1 do block(p, e) end end
  end
end

function experts.regroup(k, x, n)
  local back = k.attr.inverse ~= 0
  local dims = k.out_dims[1]
  local C, y, size = last(dims), nil, 1
  for _, d in ipairs(dims) do size = size * d end
  y = zeros(size)
  local places = (back and dims or k.dims[1])[2]
  each_place(k, places, n, function(place, row)
    local from, to = back and row or place, back and place or row
    for c = 1, C do y[to * C + c] = x[from * C + c] end
  end)
  return y
end

-- ---- once a step ----

local function with(k, scal, changes)
  local y = { table.unpack(scal) }
  for name, v in pairs(changes) do y[k.scalar[name] + 1] = v end
  return y
end

function experts.acc_rows(k, offsets, scal)
  local most = scal[k.scalar.SC_ROWS_MAX + 1]
  for e = 1, #offsets - 1 do most = max(most, offsets[e + 1] - offsets[e]) end
  return with(k, scal, { SC_ROWS_MAX = most,
    SC_ROWS = scal[k.scalar.SC_ROWS + 1] + offsets[#offsets],
    SC_ROWS_EXPERTS = scal[k.scalar.SC_ROWS_EXPERTS + 1] + #offsets - 1 })
end

function experts.acc_dropped(k, rows, scal)
  local n = scal[k.scalar.SC_DROPPED + 1]
  for i = 1, #rows do n = n + (rows[i] == -2 and 1 or 0) end
  return with(k, scal, { SC_DROPPED = n })
end

function experts.bias_step(k, p, load, scal)
  local y, steps = {}, k.attr.n or 0
  local over = steps > 0 and scal[k.scalar.SC_STEP + 1] > steps
  for i = 1, #p do
    local step = load[i] < k.attr.theta and k.attr.scale or load[i] > k.attr.theta and -k.attr.scale or 0
    y[i] = p[i] + (scal[k.scalar.SC_HOLD + 1] == 0 and not over and step or 0)
  end
  return y, y
end

return experts
