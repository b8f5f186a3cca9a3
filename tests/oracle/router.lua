-- router.lua - as steps.lua, with a loss that balances the experts of each sequence by itself.
local weft = require "weft"

return weft.plan {
  model = weft.hf(weft.vars.model),
  mesh = { tp = 1, pp = 1, dp = 1 },
  strategy = { "zero", sequence_parallel = false },
  schedule = "1f1b",
  batch = { global = 8, micro = 1, seq = 16 },
  optimizer = weft.adamw {
    lr = 1e-3, weight_decay = 0.1, clip = 0.5, betas = { 0.9, 0.95 }, eps = 1e-8,
  },
  moe = { aux_loss_coef = 0.05, aux_loss_sequences = 1 },
  data = weft.synthetic {},
}
