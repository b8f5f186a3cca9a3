-- interpreter_ops.lua - the ops of dense models, each as the program's "kernels" say what it
-- means. An op gets k (attributes, index, dims of operands, out_dims of results) and its
-- operands as flat lists, and gives its results as flat lists.
local exp, log, sqrt, max, min = math.exp, math.log, math.sqrt, math.max, math.min
local ops = {}

local function last(dims) return dims[#dims] end

local function map(x, f)
  local y = {}
  for i = 1, #x do y[i] = f(x[i], i) end
  return y
end

local function zeros(n)
  local y = {}
  for i = 1, n do y[i] = 0 end
  return y
end

local function count(dims)
  local n = 1
  for _, d in ipairs(dims) do n = n * d end
  return n
end

-- c(m,n) = a(m,k) b(k,n); at(i, j) says where an element is.
local function product(m, n, depth, a, b)
  local c = {}
  for i = 0, m - 1 do
    for j = 0, n - 1 do
      local s = 0
      for l = 0, depth - 1 do s = s + a(i, l) * b(l, j) end
      c[i * n + j + 1] = s
    end
  end
  return c
end

local function matrix(x, width) return function(i, j) return x[i * width + j + 1] end end
local function turned(x, width) return function(i, j) return x[j * width + i + 1] end end

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

local function first_row(k, V) return k.attr.cut ~= 0 and k.index * V or 0 end

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

-- Philox4x32-10 of a counter and a key of 64 bits.
local function philox(c0, c1, c2, c3, key)
  local k0, k1 = key & 0xffffffff, key >> 32
  for _ = 1, 10 do
    local p0, p1 = c0 * 0xd2511f53, c2 * 0xcd9e8d57
    c0, c1, c2, c3 = p1 >> 32 ~ c1 ~ k0, p1 & 0xffffffff, p0 >> 32 ~ c3 ~ k1, p0 & 0xffffffff
    k0, k1 = k0 + 0x9e3779b9 & 0xffffffff, k1 + 0xbb67ae85 & 0xffffffff
  end
  return { c0, c1, c2, c3 }
end

-- What an element is multiplied by: of a token, in a column, in a place of the unit.
local function kept(k, token, column, place, seed)
  local word = philox(math.tointeger(token), column // 4, place, k.unit, seed)[column % 4 + 1]
  return word >= k.attr.rate * 2.0 ^ 32 // 1 and 1 / (1 - k.attr.rate) or 0
end

function ops.dropout(k, x, token)
  local C, a = last(k.dims[1]), k.attr
  local first, site, seed = a.cut ~= 0 and k.index * C or 0, a.site // 1 | 0, a.seed // 1 | 0
  return map(x, function(v, i)
    return v * kept(k, token[(i - 1) // C + 1], first + (i - 1) % C, site, seed)
  end)
end

-- ---- activations: the function and its slope ----

local function sigmoid(x) return 1 / (1 + exp(-x)) end
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

-- Rows of several lists side by side, and apart.
local function beside(rows, ...)
  local y, all = {}, { ... }
  for r = 0, rows - 1 do
    for _, x in ipairs(all) do
      local C = #x // rows
      for c = 1, C do y[#y + 1] = x[r * C + c] end
    end
  end
  return y
end

local function apart(rows, x, widths)
  local out, at, width = {}, 1, #x // rows
  for n, C in ipairs(widths) do
    local y = {}
    for r = 0, rows - 1 do
      for c = 0, C - 1 do y[#y + 1] = x[r * width + at + c] end
    end
    out[n], at = y, at + C
  end
  return table.unpack(out)
end

local function widths(dims)
  local w = {}
  for i, d in ipairs(dims) do w[i] = last(d) end
  return w
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

-- ---- rope ----

local function rope(k, x, pos, width)
  local a, y = k.attr, map(x, function(v) return v end)
  assert(a.rope_factor == 0, "no scaled rope here")
  local D, R = a.head_dim, a.rotary_dim ~= 0 and a.rotary_dim or a.head_dim
  local heads = width // D
  for t = 0, #pos - 1 do
    for h = 0, heads - 1 do
      local at = (t * heads + h) * D + a.rotary_from
      for i = 0, R // 2 - 1 do
        local angle = pos[t + 1] * a.theta ^ (-2 * i / R)
        if a.inverse ~= 0 then angle = -angle end
        local p, q = at + i + 1, at + i + R // 2 + 1
        if a.interleaved ~= 0 then p, q = at + 2 * i + 1, at + 2 * i + 2 end
        local c, s = math.cos(angle), math.sin(angle)
        y[p], y[q] = x[p] * c - x[q] * s, x[q] * c + x[p] * s
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

-- ---- attention ----

-- The positions of the tokens of piece r of n of a sequence of so many.
local function positions(all, n, r, zigzag)
  local out, runs = {}, zigzag and { r, 2 * n - 1 - r } or { r }
  local length = all // (n * #runs)
  for _, run in ipairs(runs) do
    for i = 0, length - 1 do out[#out + 1] = run * length + i end
  end
  return out
end

-- What a call of attention is about: sizes, and who sees whom: sees(b, i, j) for query i
-- and key j of a sequence.
local function attention_of(k, starts)
  local a, f = k.attr, {}
  assert(a.parts == 0, "no documents that are cut here")
  f.D = a.head_dim
  f.E = a.value_dim ~= 0 and a.value_dim or f.D
  f.B, f.T, f.S = k.dims[1][1], k.dims[1][2], k.dims[2][2]
  f.H, f.K = k.dims[1][3] // f.D, k.dims[2][3] // f.D
  local n, zigzag = max(a.n, 1), a.mirror ~= 0
  local whole = k.ring and f.S * n or f.S
  local at = positions(whole, n, n > 1 and k.index or 0, zigzag)
  local from = positions(whole, 1, 0, false)
  if k.ring then from = positions(whole, n, (k.index - a.step) % n, zigzag) end
  function f.sees(b, i, j)
    local start = starts and starts[b * f.T + i + 1] or 0
    if a.window ~= 0 then start = max(start, at[i + 1] - a.window + 1) end
    return from[j + 1] <= at[i + 1] and from[j + 1] >= start
  end
  -- What a query's probability of a key is multiplied by.
  local site, seed = a.site // 1 | 0, (a.seed // 1 | 0) + math.mininteger
  function f.keeps(b, i, j, h)
    if a.rate == 0 then return 1 end
    return kept(k, k.numbers[b * f.T + i + 1], from[j + 1],
      site * 65536 + k.heads_index * f.H + h, seed)
  end
  function f.q(b, i, h) return ((b * f.T + i) * f.H + h) * f.D end
  function f.o(b, i, h) return ((b * f.T + i) * f.H + h) * f.E end
  function f.k(b, j, h) return ((b * f.S + j) * f.K + h * f.K // f.H) * f.D end
  function f.v(b, j, h) return ((b * f.S + j) * f.K + h * f.K // f.H) * f.E end
  function f.each(fn)
    for b = 0, f.B - 1 do
      for i = 0, f.T - 1 do
        for h = 0, f.H - 1 do fn(b, i, h, (b * f.T + i) * f.H + h + 1) end
      end
    end
  end
  return f
end

local function dot(x, i, y, j, n)
  local s = 0
  for d = 1, n do s = s + x[i + d] * y[j + d] end
  return s
end

-- A score, capped, and what its gradient is multiplied by.
local function capped(k, x)
  local c = k.attr.soft_cap
  if c == 0 then return x, 1 end
  local share = 1 - 2 / (exp(2 * x / c) + 1)
  return c * share, 1 - share * share
end

-- o0, lse0: of the keys that were seen before, or nil.
local function attend(k, q, kk, v, starts, sinks, o0, lse0)
  local f, o, lse = attention_of(k, starts), {}, {}
  f.each(function(b, i, h, row)
    local sink = sinks and not lse0 and sinks[k.heads_index * f.H + h + 1]
    local sum, most, s = 0, lse0 and lse0[row] or sink or -math.huge, {}
    for j = 0, f.S - 1 do
      if f.sees(b, i, j) then
        s[j] = capped(k, dot(q, f.q(b, i, h), kk, f.k(b, j, h), f.D) * k.attr.scale)
        most = max(most, s[j])
      end
    end
    local to = f.o(b, i, h)
    local was = lse0 and exp(lse0[row] - most) or sink and exp(sink - most) or 0
    for d = 1, f.E do o[to + d] = o0 and was * o0[to + d] or 0 end
    sum = was
    for j, x in pairs(s) do
      local p, from = exp(x - most), f.v(b, j, h)
      sum, p = sum + p, p * f.keeps(b, i, j, h)
      for d = 1, f.E do o[to + d] = o[to + d] + p * v[from + d] end
    end
    for d = 1, f.E do o[to + d] = o[to + d] / sum end
    lse[row] = most + log(sum)
  end)
  return o, lse
end

local function attend_dx(k, q, kk, v, o, lse, dy, starts)
  local f = attention_of(k, starts)
  local dq, dk, dv = zeros(#q), zeros(#kk), zeros(#v)
  f.each(function(b, i, h, row)
    local qi, oi = f.q(b, i, h), f.o(b, i, h)
    local less = dot(dy, oi, o, oi, f.E)
    for j = 0, f.S - 1 do
      if f.sees(b, i, j) then
        local kj, vj = f.k(b, j, h), f.v(b, j, h)
        local x, by = capped(k, dot(q, qi, kk, kj, f.D) * k.attr.scale)
        local p = exp(x - lse[row])
        local m = f.keeps(b, i, j, h)
        local ds = p * (m * dot(dy, oi, v, vj, f.E) - less) * k.attr.scale * by
        for d = 1, f.D do
          dq[qi + d], dk[kj + d] = dq[qi + d] + ds * kk[kj + d], dk[kj + d] + ds * q[qi + d]
        end
        for d = 1, f.E do dv[vj + d] = dv[vj + d] + p * m * dy[oi + d] end
      end
    end
  end)
  return dq, dk, dv
end

-- Operands without the last one, token_numbers, where something is dropped; and the sinks
-- behind the others, the only one with one dimension.
local function operands(k, ...)
  local list, sinks = { ... }, nil
  if k.attr.rate ~= 0 then k.numbers = table.remove(list) end
  local before = #k.dims - select("#", ...)
  if #list > 0 and #k.dims[before + #list] == 1 then sinks = table.remove(list) end
  return list, sinks
end

function ops.attention(k, q, kk, v, ...)
  local more, sinks = operands(k, ...)
  return attend(k, q, kk, v, more[1], sinks)
end
function ops.attention_sinks_dw(k, sinks, o, lse, dy)
  local H = last(k.dims[3])
  local ds, E = zeros(#sinks), last(k.dims[2]) // H
  for row = 0, #lse - 1 do
    local h = k.heads_index * H + row % H + 1
    local p = exp(sinks[h] - lse[row + 1])
    for d = 1, E do ds[h] = ds[h] - p * o[row * E + d] * dy[row * E + d] end
  end
  return ds
end
function ops.attention_dx(k, q, kk, v, o, lse, dy, ...)
  return attend_dx(k, q, kk, v, o, lse, dy, operands(k, ...)[1])
end
function ops.attention_part(k, q, kk, v, ...)
  local more, sinks = operands(k, ...)
  k.ring = true
  if k.attr.step == 0 then return attend(k, q, kk, v, more[1], sinks) end
  return attend(k, q, kk, v, more[3], nil, more[1], more[2])
end
function ops.attention_part_dx(k, q, kk, v, o, lse, dy, ...)
  local more = operands(k, ...)
  k.ring = true
  local first = k.attr.step == 0
  local dq, dk, dv = attend_dx(k, q, kk, v, o, lse, dy, first and more[1] or more[2])
  return first and dq or ops.add(k, dq, more[1]), dk, dv
end

-- ---- cross entropy ----

-- The first column here among those of the vocabulary, and how many of the model's are.
local function columns(k, V)
  local first = first_row(k, V)
  return first, max(0, min(V, k.attr.vocab - first))
end

function ops.ce_max(k, l)
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

function ops.ce_sum(k, l, labels, m)
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

function ops.ce_stats(k, l, labels)
  local m = ops.ce_max(k, l)
  return m, ops.ce_sum(k, l, labels, m)
end

function ops.ce_shift(k, s, m, most, labels)
  local first, n = columns(k, k.attr.n)
  local y = {}
  for r = 0, #labels - 1 do
    local d = m[r + 1] - most[r + 1]
    y[2 * r + 1] = n > 0 and s[2 * r + 1] * exp(d) or 0
    y[2 * r + 2] = label_here(labels[r + 1], first, n) and s[2 * r + 2] + d or 0
  end
  return y
end

function ops.ce_loss(k, s, labels)
  local sum = 0
  for r = 0, #labels - 1 do
    if labels[r + 1] ~= -100 then sum = sum + log(s[2 * r + 1]) - s[2 * r + 2] end
  end
  return { sum }
end

function ops.ce_dx(k, l, labels, m, s, g)
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

function ops.ce_losses(k, s, labels)
  return map(labels, function(label, r)
    return label ~= -100 and log(s[2 * r - 1]) - s[2 * r] or 0
  end)
end

function ops.label_mask(k, labels)
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

function ops.row_sums(k, x) return sums(x, #x // last(k.dims[1])) end
function ops.sum_all(k, x) return sums(x, 1) end

function ops.spread(k, dy)
  local n, dx = 1, {}
  for _, d in ipairs(k.out_dims[1]) do n = n * d end
  for i = 1, n do dx[i] = dy[(i - 1) // (n // #dy) + 1] end
  return dx
end

function ops.split_pairs(k, x)
  local a, b = {}, {}
  for i = 1, #x // 2 do a[i], b[i] = x[2 * i - 1], x[2 * i] end
  return a, b
end

function ops.join_pairs(k, a, b)
  local x = {}
  for i = 1, #a do x[2 * i - 1], x[2 * i] = a[i], b[i] end
  return x
end

local function ratio(a, b) return b == 0 and 0 or a / b end
function ops.divide(k, a, b) return map(a, function(v, i) return ratio(v, b[i]) end) end
function ops.divide_db(k, b, y, dy)
  return map(b, function(v, i) return -ratio(y[i] * dy[i], v) end)
end
function ops.offset(k, x) return map(x, function(v) return v + k.attr.scale end) end
function ops.exponential(k, x) return map(x, function(v) return exp(v) end) end
function ops.log_sigmoid(k, x)
  return map(x, function(v) return math.min(v, 0) - log(1 + exp(-math.abs(v))) end)
end
function ops.log_sigmoid_dx(k, x, dy)
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

function ops.divergence_sums(k, x, y, labels, mx, sx, my, sy)
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

function ops.divergence_rows(k, d)
  local y = {}
  for r = 1, #d // 2 do y[r] = d[2 * r - 1] end
  return y
end

function ops.divergence_dx(k, x, y, labels, mx, sx, my, sy, d, g)
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

function ops.linear_ce_stats(k, x, w, labels)
  local l, of = logits(k, x, w)
  return ops.ce_stats(of, l, labels)
end

function ops.linear_ce_dw(k, x, w, ...)
  local l, of = logits(k, x, w)
  local dims = { k.dims[1], of.dims[1] }
  return ops.linear_dw(setmetatable({ dims = dims }, { __index = k }), x, ops.ce_dx(of, l, ...))
end

function ops.linear_ce_dx(k, x, w, ...)
  local l, of = logits(k, x, w)
  local shapes = { dims = of.dims, out_dims = { k.dims[1] } }
  return ops.linear_dx(setmetatable(shapes, { __index = k }), ops.ce_dx(of, l, ...), w)
end

function ops.linear_ce_back(k, ...)
  return ops.linear_ce_dw(k, ...), ops.linear_ce_dx(k, ...)
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
