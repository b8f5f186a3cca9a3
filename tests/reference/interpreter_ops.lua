-- interpreter_ops.lua - the ops of dense models, each as the program's "kernels" say what it
-- means. An op gets k (attributes, index, dims of operands, out_dims of results) and its
-- operands as flat lists, and gives its results as flat lists.
local exp, sqrt, max, min = math.exp, math.sqrt, math.max, math.min
local lists = interpreter_lists
local last, map, zeros, count = lists.last, lists.map, lists.zeros, lists.count
local product, matrix, turned = lists.product, lists.matrix, lists.turned
local beside, apart, widths = lists.beside, lists.apart, lists.widths
local first_row, kept, sigmoid = lists.first_row, lists.kept, lists.sigmoid
local ops = {}

-- ---- products, tables, elementwise ----

function ops.linear(k, x, w)
  local I, O = last(k.dims[1]), last(k.out_dims[1])
  local b = k.attr.layout == 0 and turned(w, I) or matrix(w, O)
  return product(#x // I, O, I, matrix(x, I), b)
end

function ops.linear_dx(k, dy, w)
  local O, I = last(k.dims[1]), last(k.out_dims[1])
  local b = k.attr.layout == 0 and matrix(w, I) or turned(w, O)
  return product(#dy // O, I, O, matrix(dy, O), b)
end

function ops.linear_dw(k, x, dy)
  local I, O = last(k.dims[1]), last(k.dims[2])
  local rows = #x // I
  if k.attr.layout == 0 then
    return product(O, I, rows, turned(dy, O), matrix(x, I))
  end
  return product(I, O, rows, turned(x, I), matrix(dy, O))
end

function ops.bias_dw(k, dy)
  local O = last(k.dims[1])
  local db = zeros(O)
  for i = 1, #dy do db[(i - 1) % O + 1] = db[(i - 1) % O + 1] + dy[i] end
  return db
end

function ops.embedding(k, ids, table)
  local V, C = k.dims[2][1], k.dims[2][2]
  local y, first = {}, first_row(k, V)
  for i = 1, #ids do
    local row = ids[i] - first
    for c = 1, C do
      y[#y + 1] = row >= 0 and row < V and table[row * C + c] or 0
    end
  end
  return y
end

function ops.embedding_dw(k, ids, dy)
  local V, C = k.out_dims[1][1], k.out_dims[1][2]
  local dw, first = zeros(V * C), first_row(k, V)
  for i = 1, #ids do
    local row = ids[i] - first
    for c = 1, row >= 0 and row < V and C or 0 do
      dw[row * C + c] = dw[row * C + c] + dy[(i - 1) * C + c]
    end
  end
  return dw
end

function ops.add_bias(k, x, b)
  return map(x, function(v, i) return v + b[(i - 1) % #b + 1] end)
end

local levels = { -1, -0.69619280, -0.52507305, -0.39491749, -0.28444138, -0.18477343, -0.0910500, 0,
  0.07958030, 0.16093020, 0.24611230, 0.33791524, 0.44070983, 0.56261700, 0.72295684, 1 }

-- What a code of scales stands for: the middles of 2^k equal parts of [0.1, 1] times 10^(k - 6).
local function scale_value(code)
  local n, k = math.abs(code - 127), 0
  if n == 0 or n == 128 then return n // 128 end
  while 2 << k <= n do k = k + 1 end
  local middle = 0.1 + (n - (1 << k) + 0.5) * 0.9 / (1 << k)
  return (code < 127 and -1 or 1) * 10.0 ^ (k - 6) * middle
end

function ops.nf4(k, codes, scales, groups)
  local R, I = k.out_dims[1][1], k.out_dims[1][2]
  local cut, n = (k.attr.cut or 0) ~= 0, math.max(k.attr.n or 1, 1)
  local rows, columns = cut and k.attr.dim == 0, cut and k.attr.dim == 1
  local parts, offset, w = rows and k.attr.parts or 1, groups[#groups], {}
  local each = R // parts
  for r = 0, R - 1 do
    local row = rows and (r // each * n + k.index) * each + r % each or r
    local first = columns and (row * n + k.index) * I or row * I
    for i = 0, I - 1 do
      local here = r * I + i
      local byte = codes[here // 2 + 1]
      local group = groups[(first + i) // 64 // 256 + 1]
      local scale = scale_value(scales[here // 64 + 1]) * group + offset
      w[here + 1] = levels[(i % 2 == 0 and byte >> 4 or byte & 15) + 1] * scale
    end
  end
  return w
end

function ops.feature_sqnorms(k, w, a, b)
  local R, I, O = k.dims[2][1], k.dims[2][2], k.dims[3][1]
  local at, n = k.attr.layout == 0 and matrix(w, I) or turned(w, O), {}
  for o = 0, O - 1 do
    n[o + 1] = 0
    for i = 0, I - 1 do
      local v = at(o, i)
      for r = 0, R - 1 do v = v + k.attr.scale * b[o * R + r + 1] * a[r * I + i + 1] end
      n[o + 1] = n[o + 1] + v * v
    end
  end
  return n
end
function ops.feature_scale(k, x, m, n)
  return map(x, function(v, i)
    local c = (i - 1) % #m + 1
    return v * m[c] / sqrt(n[c])
  end)
end
function ops.feature_scale_dw(k, x, n, dy)
  local dm = zeros(#n)
  for i = 1, #x do
    local c = (i - 1) % #n + 1
    dm[c] = dm[c] + x[i] * dy[i] / sqrt(n[c])
  end
  return dm
end
function ops.add(k, a, b) return map(a, function(v, i) return v + b[i] end) end
function ops.mul(k, a, b) return map(a, function(v, i) return v * b[i] end) end
function ops.scale(k, x) return map(x, function(v) return v * k.attr.scale end) end
function ops.acc(k, ...)
  local all = { ... }
  return map(all[1], function(v, i)
    for n = 2, #all do v = v + all[n][i] end
    return v
  end)
end
function ops.copy(k, x) return map(x, function(v) return v end) end
ops.flatten, ops.unflatten = ops.copy, ops.copy
function ops.cast(k, x)
  local keeps = k.attr.cut == 0 or k.index == 0
  return map(x, function(v) return keeps and v or 0 end)
end

-- ---- dropout ----

function ops.dropout(k, x, token)
  local C, a = last(k.dims[1]), k.attr
  local first, site, seed = a.cut ~= 0 and k.index * C or 0, a.site // 1 | 0, a.seed // 1 | 0
  return map(x, function(v, i)
    return v * kept(k, token[(i - 1) // C + 1], first + (i - 1) % C, site, seed)
  end)
end

function ops.noise(k, x, token)
  local C, a = last(k.dims[1]), k.attr
  local first, site, seed = a.cut ~= 0 and k.index * C or 0, a.site // 1 | 0, a.seed // 1 | 0
  return map(x, function(v, i)
    local word = lists.word(k, token[(i - 1) // C + 1], first + (i - 1) % C, site, seed)
    return v + a.rate * (word / 2 ^ 31 - 1)
  end)
end

-- ---- activations: the function and its slope ----

local function silu(x) return x * sigmoid(x) end
local function silu_slope(x)
  local s = sigmoid(x)
  return s * (1 + x * (1 - s))
end

-- The error function to 1e-15: a series, and a continued fraction where that is slow.
local function erf(x)
  local a = math.abs(x)
  if a < 3 then
    local term, sum, n = a, a, 0
    repeat
      n = n + 1
      term = -term * a * a / n
      sum = sum + term / (2 * n + 1)
    until math.abs(term) < 1e-18
    local y = 2 / sqrt(math.pi) * sum
    return x < 0 and -y or y
  end
  local f = 0
  for n = 60, 1, -1 do f = n / 2 / (a + f) end
  local y = 1 - exp(-a * a) / sqrt(math.pi) / (a + f)
  return x < 0 and -y or y
end

local function gelu(kind)
  if kind == 1 then
    return function(x) return x / 2 * (1 + erf(x / sqrt(2))) end, function(x)
      return (1 + erf(x / sqrt(2))) / 2 + x * exp(-x * x / 2) / sqrt(2 * math.pi)
    end
  end
  local c = sqrt(2 / math.pi)
  local function tanh(x) return 1 - 2 / (exp(2 * x) + 1) end
  return function(x) return x / 2 * (1 + tanh(c * (x + 0.044715 * x ^ 3))) end,
    function(x)
      local t = tanh(c * (x + 0.044715 * x ^ 3))
      return (1 + t) / 2 + x / 2 * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x)
    end
end

function ops.gelu(k, x) return map(x, (gelu(k.attr.kind))) end
function ops.gelu_dx(k, x, dy)
  local _, slope = gelu(k.attr.kind)
  return map(x, function(v, i) return slope(v) * dy[i] end)
end
function ops.silu(k, x) return map(x, silu) end
function ops.silu_dx(k, x, dy)
  return map(x, function(v, i) return silu_slope(v) * dy[i] end)
end
function ops.relu(k, x) return map(x, function(v) return max(v, 0) end) end
function ops.relu_dx(k, x, dy)
  return map(x, function(v, i) return v > 0 and dy[i] or 0 end)
end
function ops.clamp(k, x)
  return map(x, function(v) return max(min(v, k.attr.limit), -k.attr.limit) end)
end
function ops.clamp_dx(k, x, dy)
  return map(x, function(v, i) return math.abs(v) <= k.attr.limit and dy[i] or 0 end)
end
function ops.soft_cap(k, x)
  local c = k.attr.soft_cap
  return map(x, function(v) return c * (1 - 2 / (exp(2 * v / c) + 1)) end)
end
function ops.soft_cap_dx(k, y, dy)
  return map(y, function(v, i) return dy[i] * (1 - (v / k.attr.soft_cap) ^ 2) end)
end
local function gate(k, x, i)
  local most = k.attr.limit
  local g, u = math.min(x[2 * i - 1], most), math.max(math.min(x[2 * i], most), -most)
  return g, u, 1 / (1 + exp(-k.attr.scale * g))
end
function ops.clamped_swiglu(k, x)
  local y = {}
  for i = 1, #x // 2 do
    local g, u, s = gate(k, x, i)
    y[i] = g * s * (u + 1)
  end
  return y
end
function ops.clamped_swiglu_dx(k, x, dy)
  local dx, most = {}, k.attr.limit
  for i = 1, #dy do
    local g, u, s = gate(k, x, i)
    local slope = s + k.attr.scale * g * s * (1 - s)
    dx[2 * i - 1] = x[2 * i - 1] > most and 0 or dy[i] * (u + 1) * slope
    dx[2 * i] = math.abs(x[2 * i]) > most and 0 or dy[i] * g * s
  end
  return dx
end
function ops.silu_mul(k, g, u) return map(g, function(v, i) return silu(v) * u[i] end) end
function ops.silu_mul_dx(k, g, u, dy)
  return map(g, function(v, i) return silu_slope(v) * u[i] * dy[i] end),
    map(g, function(v, i) return silu(v) * dy[i] end)
end

function ops.split(k, x) return apart(#x // last(k.dims[1]), x, widths(k.out_dims)) end
function ops.concat(k, ...)
  return beside(count(k.out_dims[1]) // last(k.out_dims[1]), ...)
end

function ops.swiglu(k, x)
  local C = last(k.out_dims[1])
  local u, g = apart(#x // (2 * C), x, { C, C })
  return ops.silu_mul(k, g, u)
end
function ops.swiglu_dx(k, x, dy)
  local C = last(k.dims[2])
  local u, g = apart(#x // (2 * C), x, { C, C })
  local dg, du = ops.silu_mul_dx(k, g, u, dy)
  return beside(#x // (2 * C), du, dg)
end

-- ---- norms ----

-- The weight of a norm.
local function weight(k, w)
  return k.attr.zero_centered == 1 and map(w, function(v) return 1 + v end) or w
end

function ops.rmsnorm(k, x, w)
  local y, rstd, G = {}, {}, #w
  w = weight(k, w)
  for r = 0, #x // G - 1 do
    local s = 0
    for c = 1, G do s = s + x[r * G + c] ^ 2 end
    rstd[r + 1] = 1 / sqrt(s / G + k.attr.eps)
    for c = 1, G do y[r * G + c] = x[r * G + c] * rstd[r + 1] * w[c] end
  end
  return y, rstd
end

function ops.rmsnorm_dx(k, x, w, rstd, dy)
  local dx, G = {}, #w
  w = weight(k, w)
  for r = 0, #x // G - 1 do
    local s, q = 0, rstd[r + 1]
    for c = 1, G do s = s + dy[r * G + c] * w[c] * x[r * G + c] end
    for c = 1, G do
      dx[r * G + c] = q * (dy[r * G + c] * w[c] - x[r * G + c] * q * q * s / G)
    end
  end
  return dx
end

function ops.rmsnorm_dw(k, x, rstd, dy)
  local G = last(k.out_dims[1])
  local dw = zeros(G)
  for i = 0, #x - 1 do
    dw[i % G + 1] = dw[i % G + 1] + x[i + 1] * rstd[i // G + 1] * dy[i + 1]
  end
  return dw
end

function ops.add_rmsnorm(k, a, b, w)
  local z = ops.add(k, a, b)
  return z, ops.rmsnorm(k, z, w)
end

function ops.rmsnorm_back(k, x, w, rstd, dy, d)
  local dx = ops.rmsnorm_dx(k, x, w, rstd, dy)
  return ops.rmsnorm_dw(k, x, rstd, dy), d and ops.add(k, dx, d) or dx
end

function ops.layernorm(k, x, w, b)
  local y, stats, C = {}, {}, #w
  w = weight(k, w)
  for r = 0, #x // C - 1 do
    local mean, s = 0, 0
    for c = 1, C do mean = mean + x[r * C + c] / C end
    for c = 1, C do s = s + (x[r * C + c] - mean) ^ 2 end
    local rstd = 1 / sqrt(s / C + k.attr.eps)
    stats[2 * r + 1], stats[2 * r + 2] = mean, rstd
    for c = 1, C do y[r * C + c] = (x[r * C + c] - mean) * rstd * w[c] + b[c] end
  end
  return y, stats
end

function ops.layernorm_dx(k, x, w, stats, dy)
  local dx, C = {}, #w
  w = weight(k, w)
  for r = 0, #x // C - 1 do
    local mean, rstd, s, t = stats[2 * r + 1], stats[2 * r + 2], 0, 0
    for c = 1, C do
      local d = dy[r * C + c] * w[c]
      s, t = s + d, t + d * (x[r * C + c] - mean) * rstd
    end
    for c = 1, C do
      local n = (x[r * C + c] - mean) * rstd
      dx[r * C + c] = rstd * (dy[r * C + c] * w[c] - s / C - n * t / C)
    end
  end
  return dx
end

function ops.layernorm_dw(k, x, stats, dy)
  local C = last(k.out_dims[1])
  local dw, db = zeros(C), zeros(C)
  for i = 0, #x - 1 do
    local r, c = i // C, i % C + 1
    dw[c] = dw[c] + (x[i + 1] - stats[2 * r + 1]) * stats[2 * r + 2] * dy[i + 1]
    db[c] = db[c] + dy[i + 1]
  end
  return dw, db
end

-- Numbers of xielu, and what the second is multiplied by.
local function xielu(k, a, b)
  local beta, eps = k.attr.beta, k.attr.eps or 0
  local function below(v)
    local m = v < eps and v or eps
    return exp(m) - 1 - v
  end
  return math.log(1 + exp(a[1])), beta + math.log(1 + exp(b[1])), below, beta, eps
end

function ops.xielu(k, x, a, b)
  local p, n, below, beta = xielu(k, a, b)
  return map(x, function(v) return (v > 0 and p * v * v or n * below(v)) + beta * v end)
end

function ops.xielu_dx(k, x, a, b, dy)
  local p, n, _, beta, eps = xielu(k, a, b)
  return map(x, function(v, i)
    return dy[i] * ((v > 0 and 2 * p * v or n * ((v > eps and 0 or exp(v)) - 1)) + beta)
  end)
end

function ops.xielu_dw(k, x, a, b, dy)
  local _, _, below = xielu(k, a, b)
  local da, db = 0, 0
  for i, v in ipairs(x) do
    if v > 0 then
      da = da + dy[i] * v * v * sigmoid(a[1])
    else
      db = db + dy[i] * below(v) * sigmoid(b[1])
    end
  end
  return { da }, { db }
end

function ops.center(k, x)
  local C = last(k.dims[1])
  return map(x, function(v, i)
    local at, sum = (i - 1) // C * C, 0
    for c = 1, C do sum = sum + x[at + c] end
    return v - sum / C
  end)
end

function ops.gate(k, x, s)
  local D, soft = #x // #s, k.attr.kind == 1
  return map(x, function(v, i)
    local n = s[(i - 1) // D + 1]
    return v * (soft and math.log(1 + exp(n)) or sigmoid(n))
  end)
end

function ops.gate_ds(k, x, s, dy)
  local D, ds, soft = #x // #s, zeros(#s), k.attr.kind == 1
  for i = 1, #x do
    local r = (i - 1) // D + 1
    ds[r] = ds[r] + x[i] * dy[i] * sigmoid(s[r]) * (soft and 1 or sigmoid(-s[r]))
  end
  return ds
end

-- ---- rope ----

local function rope(k, x, pos, width)
  local a, y = k.attr, map(x, function(v) return v end)
  assert(a.rope_factor == 0, "no scaled rope here")
  local D, R = a.head_dim, a.rotary_dim ~= 0 and a.rotary_dim or a.head_dim
  local heads = width // D
  for t = 0, #pos - 1 do
    local by = a.length_scale ~= 0 and 1 + a.length_scale * math.log(1 + pos[t + 1] // a.length) or 1
    for h = 0, heads - 1 do
      local at = (t * heads + h) * D + a.rotary_from
      for i = 0, R // 2 - 1 do
        local angle = pos[t + 1] * a.theta ^ (-2 * i / R)
        if a.inverse ~= 0 then angle = -angle end
        local p, q = at + i + 1, at + i + R // 2 + 1
        if a.interleaved ~= 0 then p, q = at + 2 * i + 1, at + 2 * i + 2 end
        local c, s = math.cos(angle), math.sin(angle)
        y[p], y[q] = by * (x[p] * c - x[q] * s), by * (x[q] * c + x[p] * s)
      end
    end
  end
  return y
end

function ops.rope(k, x, pos) return rope(k, x, pos, last(k.dims[1])) end
function ops.rope_pair(k, a, b, pos)
  return rope(k, a, pos, last(k.dims[1])), rope(k, b, pos, last(k.dims[2]))
end
function ops.rope_qkv(k, x, pos)
  local w = widths(k.out_dims)
  local v, kk, q = apart(#pos, x, { w[3], w[2], w[1] })
  return rope(k, q, pos, w[1]), rope(k, kk, pos, w[2]), v
end
function ops.rope_qkv_dx(k, dq, dk, dv, pos)
  local w = widths(k.dims)
  return beside(#pos, dv, rope(k, dk, pos, w[2]), rope(k, dq, pos, w[1]))
end

-- ---- parts of heads ----

function ops.split_heads(k, x)
  local D, P = k.attr.head_dim, k.attr.head_part
  local rows, H = #x // last(k.dims[1]), last(k.dims[1]) // D
  local shared = last(k.out_dims[2]) == D - P and H > 1
  local y, z = {}, zeros(count(k.out_dims[2]))
  for r = 0, rows - 1 do
    for h = 0, H - 1 do
      for d = 1, D do
        local v = x[(r * H + h) * D + d]
        local to = ((shared and r or r * H + h)) * (D - P) + d - P
        if d <= P then y[#y + 1] = v else z[to] = z[to] + v end
      end
    end
  end
  return y, z
end

function ops.join_heads(k, a, b)
  local D, P = k.attr.head_dim, k.attr.head_part
  local rows, H = #a // last(k.dims[1]), last(k.dims[1]) // P
  local shared = last(k.dims[2]) == D - P
  local y = {}
  for r = 0, rows - 1 do
    for h = 0, H - 1 do
      for d = 1, P do y[#y + 1] = a[(r * H + h) * P + d] end
      for d = 1, D - P do
        y[#y + 1] = b[(shared and r or r * H + h) * (D - P) + d]
      end
    end
  end
  return y
end

-- ---- pieces of tensors ----

-- For each element of piece p of n of a dimension of length L0, of which a piece has L:
-- f(place in the piece, place in the whole or nil).
local function each_of_piece(k, p, L0, L, f)
  local parts = max(k.attr.parts, 1)
  local part, run = L0 // parts, L // parts
  for j = 0, parts - 1 do
    local first, n = min(p * run, part), 0
    n = min(run, part - first)
    local at = k.attr.mirror ~= 0 and j % 2 == 1 and part - run - first or first
    for i = 0, run - 1 do f(j * run + i, i < n and j * part + at + i or nil) end
  end
end

function ops.slice(k, x)
  local d, dims = k.attr.dim + 1, k.dims[1]
  local outer, inner = 1, 1
  for i = 1, d - 1 do outer = outer * dims[i] end
  for i = d + 1, #dims do inner = inner * dims[i] end
  local L0, L, y = dims[d], k.out_dims[1][d], {}
  for o = 0, outer - 1 do
    each_of_piece(k, k.index, L0, L, function(to, from)
      for c = 1, inner do
        y[(o * L + to) * inner + c] = from and x[(o * L0 + from) * inner + c] or 0
      end
    end)
  end
  return y
end

-- f(place in (n,outer,L,inner), place in (outer,L0,inner) or nil)
local function each_of_pack(k, whole, pieces, f)
  local outer, L0, inner, L = whole[1], whole[2], whole[3], pieces[3]
  for p = 0, pieces[1] - 1 do
    for o = 0, outer - 1 do
      each_of_piece(k, p, L0, L, function(to, from)
        for c = 1, inner do
          f(((p * outer + o) * L + to) * inner + c, from and (o * L0 + from) * inner + c)
        end
      end)
    end
  end
end

function ops.pack(k, x)
  local y = {}
  each_of_pack(k, k.dims[1], k.out_dims[1], function(to, from) y[to] = from and x[from] or 0 end)
  return y
end

function ops.unpack(k, x)
  local y = {}
  each_of_pack(k, k.out_dims[1], k.dims[1], function(from, to) if to then y[to] = x[from] end end)
  return y
end

return ops
