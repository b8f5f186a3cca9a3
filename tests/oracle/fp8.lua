-- fp8.lua - linears in fp8 as fp8.py computes them: both layouts, an operand that two linears
-- read, a first linear whose input learns, and a head that stays as it is.
local weft = require "weft"

local function model(g)
  local hidden, ffn = { "hidden", 32 }, { "ffn", 64 }
  local e = g:param("embed.weight", { { "vocab", 48 }, hidden })
  local function norm(x, name) return g:rmsnorm(x, g:param(name, { hidden }), { eps = 1e-5 }) end
  local x = g:unit("embed", function() return g:embedding(g:tokens(), e) end)
  for i = 0, 1 do
    x = g:layer(i, function()
      local p = "layers." .. i .. "."
      local h = norm(x, p .. "norm.weight")
      local gate = g:linear(h, g:param(p .. "gate.weight", { ffn, hidden }))
      local up = g:linear(h, g:param(p .. "up.weight", { ffn, hidden }))
      local y = g:linear(g:silu_mul(gate, up), g:param(p .. "down.weight", { ffn, hidden }), { layout = 1 })
      return g:add(x, y)
    end)
  end
  return g:unit("head", function()
    local h = g:linear(norm(x, "norm.weight"), g:param("lm_head.weight", { { "vocab", 48 }, hidden }))
    return g:cross_entropy(h, g:labels())
  end)
end

return weft.plan {
  model = model,
  mesh = { tp = 1, pp = 1, dp = 1 },
  strategy = { "zero", sequence_parallel = false },
  tp_plan = {
    ["layers.*.gate"] = "colwise", ["layers.*.up"] = "colwise", ["layers.*.down"] = "rowwise",
    ["layers.*.norm"] = "sequence_parallel",
  },
  schedule = "1f1b",
  precision = { "fp8", recipe = "tensorwise" },
  batch = { global = 8, micro = 1, seq = 32 },
  optimizer = weft.adamw {
    lr = 1e-3, weight_decay = 0.1, clip = 0.5, betas = { 0.9, 0.95 }, eps = 1e-8,
  },
  data = weft.synthetic {},
}
