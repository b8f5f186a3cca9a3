-- interpreter_lists.lua - what the ops of the interpreter share: tensors as flat lists.
local lists = {}

function lists.last(dims) return dims[#dims] end

function lists.map(x, f)
  local y = {}
  for i = 1, #x do y[i] = f(x[i], i) end
  return y
end

function lists.zeros(n)
  local y = {}
  for i = 1, n do y[i] = 0 end
  return y
end

function lists.count(dims)
  local n = 1
  for _, d in ipairs(dims) do n = n * d end
  return n
end

-- c(m,n) = a(m,k) b(k,n); at(i, j) says where an element is.
function lists.product(m, n, depth, a, b)
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

function lists.matrix(x, width) return function(i, j) return x[i * width + j + 1] end end
function lists.turned(x, width) return function(i, j) return x[j * width + i + 1] end end

function lists.first_row(k, V) return k.attr.cut ~= 0 and k.index * V or 0 end

function lists.sigmoid(x) return 1 / (1 + math.exp(-x)) end

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

-- The random word of a token, in a column, in a place of the unit.
function lists.word(k, token, column, place, seed)
  return philox(math.tointeger(token), column // 4, place, k.unit, seed)[column % 4 + 1]
end

-- What an element is multiplied by.
function lists.kept(k, token, column, place, seed)
  local word = lists.word(k, token, column, place, seed)
  return word >= k.attr.rate * 2.0 ^ 32 // 1 and 1 / (1 - k.attr.rate) or 0
end

-- Rows of several lists side by side, and apart.
function lists.beside(rows, ...)
  local y, all = {}, { ... }
  for r = 0, rows - 1 do
    for _, x in ipairs(all) do
      local C = #x // rows
      for c = 1, C do y[#y + 1] = x[r * C + c] end
    end
  end
  return y
end

function lists.apart(rows, x, widths)
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

function lists.widths(dims)
  local w = {}
  for i, d in ipairs(dims) do w[i] = lists.last(d) end
  return w
end

return lists
