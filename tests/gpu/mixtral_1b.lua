-- mixtral_1b.lua - a Mixtral of 1.83 billion parameters on one GPU, of which a token meets 0.62:
-- 8 experts in each layer, 2 of them chosen. Two sequences of 4096 tokens a step, in bf16 with f32
-- master weights, gradients and moments. No token is dropped, and no loss balances the experts:
-- what tests/gpu/race.py compares with PyTorch has neither.
--
--   weft show tests/gpu/mixtral_1b.lua memory --device cuda
--   weft run tests/gpu/mixtral_1b.lua --device cuda --steps 20
--
-- tests/gpu/race.py gives it weights and tokens below a folder of --data:
--   -D weights=NAME   a folder as of Hugging Face      -D tokens=NAME   raw 16-bit ids
local weft = require "weft"
local weights, tokens = weft.var("weights", ""), weft.var("tokens", "")

return weft.plan {
  name      = "mixtral-1b",
  model     = weights ~= "" and weft.hf(weights)
              or weft.hf { "mixtral_1b", weights = false },
  mesh      = { dp = 1 },
  precision = weft.var("precision", "bf16"),
  moe       = { aux_loss_coef = 0, z_loss_coef = 0 },
  batch     = { global = 2, micro = 2, seq = 4096 },
  optimizer = weft.adamw {
    lr = 1e-4, betas = { 0.9, 0.95 }, eps = 1e-8, weight_decay = 0.1, clip = 1.0,
  },
  data      = tokens ~= "" and weft.tokens { tokens, shuffle = false }
              or weft.synthetic {},
  train     = { steps = 20, seed = 1, log_every = 1 },
}
