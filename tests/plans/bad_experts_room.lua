-- Limits of rows that experts get, two at once, and what would be dropped if there were one.
local weft = require "weft"

return weft.plan {
  model = weft.model "mixtral-tiny",
  mesh  = { dp = 4, ep = 2 },
  moe   = {
    max_tokens_factor = 1.5,
    capacity_factor = 1.25,
  },
  batch = { global = 4, seq = 64 },
}
--> bad_experts_room.lua:8: error: plan.moe.max_tokens_factor: capacity_factor bounds the rows of every expert already (leave out one of them)
--> 1 error
