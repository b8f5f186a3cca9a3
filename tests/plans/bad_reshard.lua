-- Groups that do not fit the ranks, and options that are no numbers of them.
local weft = require "weft"

return weft.plan {
  model    = weft.model "llama-tiny",
  strategy = { "fsdp2", reshard_after_forward = 3, forward_prefetch_depth = -1 },
  mesh     = { dp = 8, dp_replicate = 2 },
  batch    = { global = 16, seq = 64 },
}
--> bad_reshard.lua:6: error: plan.strategy.forward_prefetch_depth: expected an integer from 0 to 64, got number -1
--> bad_reshard.lua:6: error: plan.strategy.reshard_after_forward: 3 does not divide dp_shard = 4 (a group may have 1, 2 or 4 ranks)
--> 2 errors
