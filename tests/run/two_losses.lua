-- two_losses.lua - a model of bytes with two cross entropies, of which one has rows that are cut by
-- sequence over tp and the other has not; D order: which of them comes first.
local weft = require "weft"
local order = weft.var("order", 1)

local function model(g)
  local std = { std = 0.5 }
  local size = { { "vocab", 256 }, { "hidden", 16 } }
  local table, w, u = g:param("t", size, std), g:param("w", size, std), g:param("u", size, std)
  local norm = g:param("n", { { "hidden", 16 } }, { init = "ones" })
  local x = g:unit("embed", function() return g:embedding(g:tokens(), table) end)
  x = g:layer(0, function()
    local q = g:linear(x, g:param("q", { { "head", 16, unit = 4 }, { "hidden", 16 } }, std))
    local o = g:param("o", { { "hidden", 16 }, { "head", 16, unit = 4 } }, std)
    return g:add(x, g:linear(g:attention(q, q, q, { head_dim = 4 }), o))
  end)
  return g:unit("head", function()
    local function whole() return g:cross_entropy(g:linear(x, w), g:labels()) end
    local function cut() return g:cross_entropy(g:linear(g:rmsnorm(x, norm, { eps = 1e-5 }), u), g:labels()) end
    local first, second = order == 1 and whole or cut, order == 1 and cut or whole
    local a = first()
    return g:add(a, second())
  end)
end

return weft.plan {
  model = model,
  mesh = { tp = 2 },
  tp_plan = { q = "colwise", o = "rowwise", n = "sequence_parallel" },
  batch = { global = 2, micro = 1, seq = 16 },
  optimizer = weft.adamw { lr = 1e-3 },
  data = weft.text { "a.txt" },
  train = { steps = 1 },
  checkpoint = { dir = "two" },
}
