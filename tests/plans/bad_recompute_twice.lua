-- Given twice is an error also where one of the two says that nothing runs again.
local weft = require "weft"

return weft.plan {
  model     = weft.model "llama-tiny",
  strategy  = { "zero", activation_checkpointing = true },
  recompute = "none",
  batch     = { global = 4, seq = 64 },
}
--> bad_recompute_twice.lua:6: error: plan.strategy.activation_checkpointing: recompute is given twice
--> 1 error
