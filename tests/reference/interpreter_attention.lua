-- interpreter_attention.lua - attention, whole and in pieces of the sequence; see interpreter_ops.lua.
local exp, log, max = math.exp, math.log, math.max
local lists = interpreter_lists
local last, zeros, kept = lists.last, lists.zeros, lists.kept
local ops = interpreter_ops
local attention = {}

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

function attention.attention(k, q, kk, v, ...)
  local more, sinks = operands(k, ...)
  return attend(k, q, kk, v, more[1], sinks)
end
function attention.attention_sinks_dw(k, sinks, o, lse, dy)
  local H = last(k.dims[3])
  local ds, E = zeros(#sinks), last(k.dims[2]) // H
  for row = 0, #lse - 1 do
    local h = k.heads_index * H + row % H + 1
    local p = exp(sinks[h] - lse[row + 1])
    for d = 1, E do ds[h] = ds[h] - p * o[row * E + d] * dy[row * E + d] end
  end
  return ds
end
function attention.attention_dx(k, q, kk, v, o, lse, dy, ...)
  return attend_dx(k, q, kk, v, o, lse, dy, operands(k, ...)[1])
end
function attention.attention_part(k, q, kk, v, ...)
  local more, sinks = operands(k, ...)
  k.ring = true
  if k.attr.step == 0 then return attend(k, q, kk, v, more[1], sinks) end
  return attend(k, q, kk, v, more[3], nil, more[1], more[2])
end
function attention.attention_part_dx(k, q, kk, v, o, lse, dy, ...)
  local more = operands(k, ...)
  k.ring = true
  local first = k.attr.step == 0
  local dq, dk, dv = attend_dx(k, q, kk, v, o, lse, dy, first and more[1] or more[2])
  return first and dq or ops.add(k, dq, more[1]), dk, dv
end

return attention
