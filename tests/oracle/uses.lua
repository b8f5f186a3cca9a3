-- uses.lua - parameters with several uses, as `uses` of steps.py computes them: `w` twice in
-- one unit and, inside a sum, in the next; the embedding as table and as head; `n` as the
-- weight of three norms and as a bias.
local weft = require "weft"

local function model(g)
  local hidden = { "hidden", 16 }
  local e = g:param("embed.weight", { { "vocab", 37 }, hidden })
  local w = g:param("w.weight", { hidden, hidden })
  local n = g:param("n.weight", { hidden })
  local function norm(x) return g:rmsnorm(x, n, { eps = 1e-5 }) end
  local x = g:unit("embed", function() return g:embedding(g:tokens(), e) end)
  x = g:layer(0, function()
    local h = g:silu(g:linear(norm(x), w))
    return g:add_bias(g:add(x, g:linear(h, w, { layout = 1 })), n)
  end)
  x = g:layer(1, function()
    local v = g:add(w, g:scale(g:linear(w, w), { scale = 0.5 }))
    return g:add(x, g:linear(norm(x), v))
  end)
  return g:unit("head", function()
    local h = g:linear(norm(x), e, { name = "head" })
    return g:cross_entropy(h, g:labels())
  end)
end

-- optimizers.py has the same numbers.
local optimizers = {
  sgd = function() return weft.sgd { lr = 0.1, clip = 0.5 } end,
  sgd_momentum = function()
    return weft.sgd { lr = 0.05, momentum = 0.9, weight_decay = 0.01, clip = 0.5 }
  end,
  sgd_dampening = function()
    return weft.sgd { lr = 0.1, momentum = 0.8, dampening = 0.4, weight_decay = 0.1, clip = 0.5 }
  end,
  sgd_nesterov = function()
    return weft.sgd { lr = 0.05, momentum = 0.9, nesterov = true, weight_decay = 0.02, clip = 0.5 }
  end,
  adam = function()
    return weft.adam { lr = 1e-2, betas = { 0.9, 0.99 }, weight_decay = 0.1, clip = 0.5 }
  end,
  lion = function() return weft.lion { lr = 1e-3, weight_decay = 0.1, clip = 0.5 } end,
  lion_betas = function()
    return weft.lion { lr = 3e-3, betas = { 0.95, 0.98 }, clip = 0.5 }
  end,
  muon = function() return weft.muon { lr = 1e-2, clip = 0.5 } end,
  muon_rms = function()
    return weft.muon { lr = 5e-3, momentum = 0.8, nesterov = false, ns_steps = 3,
                       ns_coefficients = { 2, -1.5, 0.5 }, adjust_lr = "match_rms_adamw",
                       weight_decay = 0.02, clip = 0.5 }
  end,
  muon_rows = function()
    return weft.muon { lr = 5e-3, nesterov = false, adjust_lr = "spectral_unclamped", adamw_lr_ratio = 0.2,
                       ns_coefficients = {
                         { 4.0848, -6.8946, 2.9270 }, { 3.9505, -6.3029, 2.6377 }, { 3.7418, -5.5913, 2.3037 },
                         { 2.8769, -3.1427, 1.2046 }, { 2.8366, -3.0525, 1.2012 },
                       }, weight_decay = 0, clip = 0.5 }
  end,
  adafactor = function() return weft.adafactor { lr = 0.3, clip = 0.5 } end,
  adafactor_options = function()
    return weft.adafactor { lr = 0.2, beta2_decay = -0.6, eps = { 1e-4, 0.1 }, d = 1.5, weight_decay = 0.1,
                            clip = 0.5 }
  end,
  -- Transformers' with the settings of its Trainer.
  adafactor_trainer = function()
    return weft.adafactor { lr = 0.01, eps = { 1e-15, 1e-3 }, relative_step = false, scale_parameter = false,
                            weight_decay = 0.02, clip = 0.5 }
  end,
  adafactor_clipped = function()
    return weft.adafactor { lr = 0.02, eps = { 1e-15, 1e-3 }, d = 0.25, relative_step = false,
                            scale_parameter = false, clip = 0.5 }
  end,
  adamw_vectors = function()
    return weft.adamw { lr = 1e-2, weight_decay = 2, decay_vectors = true, clip = 0.5 }
  end,
}
local optimizer = optimizers[weft.vars.model]

return weft.plan {
  model = model,
  mesh = { tp = 1, pp = 1, dp = 1 },
  strategy = { "zero", sequence_parallel = false },
  tp_plan = { n = "sequence_parallel" },
  schedule = "1f1b",
  batch = { global = 8, micro = 1, seq = 16 },
  optimizer = optimizer and optimizer() or weft.adamw {
    lr = 1e-3, weight_decay = 0.1, clip = 0.5, betas = { 0.9, 0.95 }, eps = 1e-8,
  },
  data = weft.synthetic {},
}
