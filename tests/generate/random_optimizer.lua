-- random_optimizer.lua - draws the optimizer of a plan by number: every option that it has,
-- with values at the ends of what is legal, too. `validates`: whether a step may begin before
-- the norm is known, which other fields of the plan decide, and so do they whether its state
-- is on the host (`offloads`). `new_draw` is that of
-- random_draw.lua.
local function rate(weft, d)
  local schedule = d:pick { "number", "number", "constant", "cosine", "linear" }
  local max = d:pick { 1e-2, 1e-3 }
  if schedule == "number" then return max end
  if schedule == "constant" then return weft.constant { max = max, warmup = d:below(4) } end
  return weft[schedule] {
    max = max, min = max * d:pick { 0, 0.1, 1 }, warmup = d:below(3),
    steps = d:pick { 3, 4, 100 },
  }
end

-- Where the second average forgets faster than the first, single steps are so long that
-- what follows depends on the last bit of a gradient.
local betas = { { 0.9, 0.999 }, { 0.9, 0.999 }, { 0.9, 0.95 }, { 0.95, 0.95 }, { 0.5, 0.9 },
                { 0, 0.999 }, { 0, 0 }, { 0.9, 0.999999 }, { 0.999999, 0.999999 } }

-- With what all optimizers have from `o`.
local function sgd(weft, d, o)
  o.betas, o.eps = nil, nil
  o.momentum = d:pick { 0.9, 0.5, 0, 0.99, 1 }
  o.nesterov = o.momentum > 0 and d:maybe(3) or nil
  o.dampening = not o.nesterov and d:pick { 0, 0.1, 0.9, 1 } or nil
  return weft.sgd(o)
end

local function lion(weft, d, o)
  o.eps, o.betas = nil, d:pick { { 0.9, 0.99 }, { 0.95, 0.98 }, { 0.9, 0.99 }, { 0, 0.5 }, { 0.9, 0 } }
  return weft.lion(o)
end

local function adamw_8bit(weft, d, o)
  o.state_dtype, o.stochastic_rounding, o.post_validation = nil, nil, nil
  o.eps = o.eps > 0 and o.eps or nil
  return weft.adamw_8bit(o)
end

-- Decays and betas are those of AdamW, which steps the rest.
local function muon(weft, d, o, new_draw, number)
  o.post_validation = nil
  o.momentum = d:pick { 0.95, 0.95, 0.9, 0.5, 0 }
  o.nesterov = d:pick { true, true, false }
  o.ns_steps = d:pick { 5, 5, 1, 3 }
  o.ns_coefficients = d:maybe(4) and d:pick { { 2, -1.5, 0.5 }, { 1.5, -0.5, 0 } } or nil
  if o.ns_steps == 3 and new_draw(number + 59):maybe(2) then
    o.ns_coefficients = { { 4.0848, -6.8946, 2.927 }, { 3.7418, -5.5913, 2.3037 }, { 1.5, -0.5, 0 } }
  end
  o.adjust_lr = d:pick { "original", "match_rms_adamw", "spectral_unclamped" }
  return weft.muon(o)
end

-- Steps in proportion to parameters, so a rate is larger than others' by their size.
local function adafactor(weft, d, o)
  o.betas, o.state_dtype, o.stochastic_rounding, o.post_validation = nil, nil, nil, nil
  o.beta2_decay = d:pick { -0.8, -0.8, -0.5, -1 }
  o.eps = d:pick { { 1.1920929e-07, 1e-3 }, { 1e-4, 1e-3 }, { 1e-6, 0.1 } }
  o.d = d:pick { 1, 1, 2, 10 }
  o.relative_step = not d:maybe(3)
  o.scale_parameter = not d:maybe(3)
  return weft.adafactor(o)
end

return function(weft, new_draw, number, validates, offloads)
  local d = new_draw(number + 13)
  local small = d:maybe(10)       -- averages in 16 bits
  local o = {
    lr = rate(weft, d),
    betas = d:pick(betas),
    eps = small and d:pick { 1e-8, 1e-6 } or d:pick { 1e-8, 1e-8, 1e-6, 1e-3, 1e-15, 0 },
    weight_decay = d:pick { 0.1, 0.1, 0, 0.01, 1 },
    decay_vectors = new_draw(number + 31):maybe(4) or nil,
    clip = d:pick { 1, 0.1, 1e-3, 100, 0 },
    state_dtype = small and "bf16" or d:pick { "f32", false } or nil,
    stochastic_rounding = small and d:maybe(2) or nil,
  }
  o.post_validation = validates and not d:maybe(4) or nil
  if d:maybe(4) then return sgd(weft, d, o) end
  if d:maybe(4) then return lion(weft, d, o) end
  if new_draw(number + 73):maybe(8) then return weft.adam(o) end
  if new_draw(number + 71):maybe(6) then return adamw_8bit(weft, d, o) end
  if offloads or not new_draw(number + 57):maybe(4) then return weft.adamw(o) end
  if new_draw(number + 79):maybe(3) then return adafactor(weft, new_draw(number + 80), o) end
  return muon(weft, new_draw(number + 58), o, new_draw, number)
end
