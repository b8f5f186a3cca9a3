-- custom_model.lua - a model of one's own: a function f(g, config) that adds ops to the
-- graph `g` and returns the loss. This one is a decoder whose attention and MLP read the
-- same norm side by side, with a squared ReLU.
--
--   weft run plans/custom_model.lua        eight virtual ranks, seconds
--   weft verify plans/custom_model.lua     the same on one rank, compared
--
-- Tags ("head", "ffn", ...) say what a dimension means and so which axis may cut it; a
-- tensor-parallel cut of a dimension is a multiple of its `unit`. g:layer opens the units
-- between which the pipeline may be cut.
local weft = require "weft"

local function layer(g, c, i, x)
  local width, d = c.width, c.width // c.heads
  local hidden, heads = { "hidden", width }, { "head", width, unit = d }
  local kv = { "kv_head", width, unit = d }
  local ffn = { "ffn", 4 * width }
  local name = "layers." .. i
  local function linear(h, what, out, into)
    return g:linear(h, g:param(name .. "." .. what .. ".weight", { out, into }))
  end

  local w = g:param(name .. ".norm.weight", { hidden }, { init = "ones" })
  local h = g:rmsnorm(x, w, { eps = 1e-5 })
  local turn = { head_dim = d, theta = 10000.0 }
  local q = g:rope(linear(h, "q", heads, hidden), g:positions(), turn)
  local k = g:rope(linear(h, "k", kv, hidden), g:positions(), turn)
  local v = linear(h, "v", kv, hidden)
  local a = linear(g:attention(q, k, v, { head_dim = d }), "o", hidden, heads)
  local up = g:relu(linear(h, "up", ffn, hidden))
  local m = linear(g:mul(up, up), "down", hidden, ffn)
  return g:add(x, g:add(a, m))
end

local function model(g, c)
  local hidden, vocab = { "hidden", c.width }, { "vocab", c.vocab_size }
  local x = g:unit("embed", function()
    return g:embedding(g:tokens(), g:param("embed.weight", { vocab, hidden }))
  end)
  for i = 0, c.layers - 1 do
    x = g:layer(i, function() return layer(g, c, i, x) end)
  end
  return g:unit("head", function()
    local w = g:param("norm.weight", { hidden }, { init = "ones" })
    local h = g:rmsnorm(x, w, { eps = 1e-5 })
    return g:cross_entropy(g:linear(h, g:param("head.weight", { vocab, hidden })),
                           g:labels())
  end)
end

return weft.plan {
  name      = "custom-model",
  model     = weft.model { model, vocab_size = 256, width = 64, heads = 4, layers = 4 },
  mesh      = { tp = 2, pp = 2, dp = 2 },
  tp_plan   = {
    ["embed"] = "embedding_rowwise", ["head"] = "colwise",
    ["layers.*.q"] = "colwise", ["layers.*.k"] = "colwise", ["layers.*.v"] = "colwise",
    ["layers.*.o"] = "rowwise",
    ["layers.*.up"] = "colwise", ["layers.*.down"] = "rowwise",
  },
  schedule  = "gpipe",
  batch     = { global = 16, micro = 2, seq = 64 },
  optimizer = weft.adamw { lr = 2e-3, clip = 1.0 },
  data      = weft.text { "data/coriolanus.txt" },
  train     = { steps = 200, seed = 1, log_every = 20 },
}
