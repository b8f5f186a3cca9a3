-- Muon where its matrices are not on the device, its step is to be taken back, or its iteration
-- is not one.
local weft = require "weft"

return weft.plan {
  model     = weft.model "llama-tiny",
  strategy  = { "zero", stage = 1, offload_optimizer = "cpu" },
  optimizer = weft.muon {
    post_validation = true,
    ns_coefficients = { 3, -4 },
    ns_steps = 0,
    adjust_lr = "adam",
  },
  batch     = { global = 16, seq = 64 },
}
--> bad_muon.lua:7: error: plan.strategy.offload_optimizer: muon puts matrices together on the device: its states stay there (leave it out, or give another optimizer)
--> bad_muon.lua:9: error: plan.optimizer.post_validation: a step of whole matrices is not taken back: leave it out, or give another optimizer
--> bad_muon.lua:10: error: plan.optimizer.ns_coefficients: expected three numbers, got 2
--> bad_muon.lua:11: error: plan.optimizer.ns_steps: expected an integer from 1 to 99, got number 0
--> bad_muon.lua:12: error: plan.optimizer.adjust_lr: unknown value "adam" (one of: original, match_rms_adamw, spectral_unclamped)
--> 5 errors
