-- Experts that ranks share, with strategies that know of none and sizes that do not divide.
local weft = require "weft"

return weft.plan {
  model    = weft.model "mixtral-tiny",
  strategy = "ddp",
  mesh     = {
    dp = 4,
    ep = 2,
    etp = 2,
  },
  moe      = { dispatcher = "deepep" },
  batch    = { global = 4, seq = 64 },
}
--> bad_experts.lua:9: error: plan.mesh.ep: the strategy "ddp" has data parallelism only; for ep use "zero"
--> bad_experts.lua:10: error: plan.mesh.etp: the strategy "ddp" has data parallelism only; for an etp that is not tp use "zero"
--> bad_experts.lua:12: error: plan.moe.dispatcher: "deepep" is not built yet
--> 3 errors
