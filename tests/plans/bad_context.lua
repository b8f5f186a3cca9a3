-- What does not fit to the ranks that share sequences.
local weft = require "weft"

return weft.plan {
  model    = weft.model "llama-tiny",
  mesh     = { cp = 4, dp = 6 },
  strategy = { "fsdp2", reshard_after_forward = 6 },
  cp       = { comm = "a2a+p2p", heads_size = 3 },
  batch    = { global = 6, seq = 64 },
}
--> bad_context.lua:7: error: plan.strategy.reshard_after_forward: 6 is not a multiple of cp = 4: a group has whole sequences (the smallest one is 4)
--> bad_context.lua:8: error: plan.cp.heads_size: 3 does not divide mesh.cp = 4 (it may be 1, 2 or 4)
--> 2 errors
