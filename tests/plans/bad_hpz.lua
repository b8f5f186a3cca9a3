-- A group for parameters that are whole.
local weft = require "weft"

return weft.plan {
  model    = weft.model "llama-tiny",
  strategy = { "zero", stage = 2,
    zero_hpz_partition_size = 2,
    defer_grad_sync = 1,
  },
  mesh     = { dp = 4 },
  batch    = { global = 16, seq = 64 },
}
--> bad_hpz.lua:7: error: plan.strategy.zero_hpz_partition_size: parameters are whole in stage 2 (it needs stage = 3)
--> bad_hpz.lua:8: error: plan.strategy.defer_grad_sync: expected true or false, got number 1
--> 2 errors
