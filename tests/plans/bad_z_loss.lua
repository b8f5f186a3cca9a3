-- A z-loss is of tokens.
local weft = require "weft"

return weft.plan {
  model = weft.model "llama-tiny",
  loss  = { "cross_entropy", per = "sequences", z_loss = 1e-4 },
  batch = { global = 16, seq = 64 },
}
--> bad_z_loss.lua:6: error: plan.loss.z_loss: is built for a loss that is divided by label tokens (per = "tokens")
--> 1 error
