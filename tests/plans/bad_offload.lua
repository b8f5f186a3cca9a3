-- Offloading without shards, and an optimizer that steps too early for it.
local weft = require "weft"

return weft.plan {
  model     = weft.model "llama-tiny",
  strategy  = { "zero", stage = 2, offload_param = "cpu", offload_optimizer = "cpu" },
  optimizer = weft.adamw { post_validation = true },
  mesh      = { dp = 1 },
  batch     = { global = 16, seq = 64 },
}
--> bad_offload.lua:6: error: plan.strategy.offload_param: what is offloaded is shards: it needs stage 3
--> bad_offload.lua:6: warning: plan.strategy.offload_param: one rank has all of each parameter: there are no shards, and only optimizer state is offloaded
--> bad_offload.lua:7: error: plan.optimizer.post_validation: an optimizer that runs on the host (strategy.offload_param) does not step before it knows the norm
--> 2 errors, 1 warning
