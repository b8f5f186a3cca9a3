-- packed_parts.lua - a model with one tensor that is packed from two parts, and cut over tp, of which
-- something finds a column, a row or a head by its number.
local weft = require "weft"
local kind = weft.var("kind", "head") -- "head", "table", "sinks" or "dropout"
local std = { std = 0.5 }
local heads = kind == "sinks" or kind == "dropout"

local function parts(of) return of and 2 or 1 end
local function packed(of, style) return of and "packed_" .. style or style end

local function attention(g, x)
  local dim = { "head", 16, unit = 4, parts = parts(heads) }
  local q = g:linear(x, g:param("q", { dim, { "hidden", 16 } }, std))
  local starts, sinks
  local a = { head_dim = 4, scale = 0.5 }
  if kind == "sinks" then starts, sinks = g:doc_starts(), g:param("s", { { "head", 4 } }, { std = 2 }) end
  if kind == "dropout" then a.rate, a.site = 0.3, 1 end
  return g:linear(g:attention(q, q, q, starts, sinks, a), g:param("o", { { "hidden", 16 }, dim }, std))
end

local function model(g)
  local t = g:param("t", { { "vocab", 96, parts = parts(kind == "table") }, { "hidden", 16 } }, std)
  local w = g:param("w", { { "vocab", 96, parts = parts(kind == "head") }, { "hidden", 16 } }, std)
  local x = g:unit("embed", function() return g:embedding(g:tokens(), t) end)
  x = g:layer(0, function() return g:add(x, attention(g, x)) end)
  return g:unit("head", function() return g:cross_entropy(g:linear(x, w), g:labels()) end)
end

return weft.plan {
  model = model,
  mesh = { tp = 2 },
  tp_plan = {
    q = packed(heads, "colwise"), o = packed(heads, "rowwise"),
    t = packed(kind == "table", "rowwise"), w = packed(kind == "head", "colwise"),
  },
  batch = { global = 2, micro = 1, seq = 16 },
  optimizer = weft.adamw { lr = 1e-3 },
  data = weft.synthetic {},
  train = { steps = 2 },
  checkpoint = { dir = weft.var("dir", "ck") },
}
