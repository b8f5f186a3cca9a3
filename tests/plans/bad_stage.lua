-- Options that the stage of the strategy does not know, each said so.
local weft = require "weft"

return weft.plan {
  model    = weft.model "llama-tiny",
  strategy = { "zero", stage = 2,
    bucket_bytes = 1048576,
    overlap_param_gather = true,
    forward_prefetch_depth = 1,
    param_persistence_threshold = 100,
  },
  mesh     = { dp = 4 },
  batch    = { global = 18, seq = 64 },
}
--> bad_stage.lua:7: warning: plan.strategy.bucket_bytes: has no effect in stage 2: gradients are reduced unit by unit
--> bad_stage.lua:9: warning: plan.strategy.forward_prefetch_depth: has no effect in stage 2: parameters are whole
--> bad_stage.lua:10: warning: plan.strategy.param_persistence_threshold: has no effect in stage 2: parameters are whole
--> bad_stage.lua:13: error: plan.batch.global: 18 is not a multiple of batch.micro * dp = 1 * 4 (nearest: 20)
--> 1 error, 3 warnings
