-- What cannot run again says why.
local weft = require "weft"

return weft.plan {
  model     = weft.model "llama-tiny",
  strategy  = { "zero", keep_gathered = 1, activation_checkpointing = true },
  recompute = { "none", "layers.*.mlp", 7 },
  batch     = { global = 4, seq = 64 },
}
--> bad_recompute.lua:6: error: plan.strategy.activation_checkpointing: recompute is given twice
--> bad_recompute.lua:6: error: plan.strategy.keep_gathered: expected true or false, got number 1
--> bad_recompute.lua:7: error: plan.recompute[1]: "none" is nothing that could run again
--> bad_recompute.lua:7: error: plan.recompute[3]: expected a word or a pattern, got number 7
--> 4 errors
