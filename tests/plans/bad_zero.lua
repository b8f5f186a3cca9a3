-- Options of ZeRO under DeepSpeed's names, twice and out of range.
local weft = require "weft"

return weft.plan {
  model    = weft.model "llama-tiny",
  strategy = { "zero", stage = 4,
    bucket_bytes = 1048576,
    reduce_bucket_size = 500000000,
    allgather_bucket_size = 500000000,
    stage3_max_live_parameters = 1000000000,
    offload_optimizer = true,
  },
  mesh     = { dp = 4 },
  batch    = { global = 16, seq = 64 },
}
--> bad_zero.lua:6: error: plan.strategy.stage: expected an integer of at most 3, got number 4
--> bad_zero.lua:8: error: plan.strategy.reduce_bucket_size: is another name of plan.strategy.bucket_bytes, which is given too
--> bad_zero.lua:9: warning: plan.strategy.allgather_bucket_size: has no effect: parameters are gathered in the buckets in which their gradients are reduced (bucket_bytes)
--> bad_zero.lua:10: error: plan.strategy.stage3_max_live_parameters: unknown field (in weft: strategy.forward_prefetch_depth and backward_prefetch_depth, in calls of units)
--> bad_zero.lua:11: error: plan.strategy.offload_optimizer: what is offloaded is shards: it needs stage 1 or more
--> 4 errors, 1 warning
