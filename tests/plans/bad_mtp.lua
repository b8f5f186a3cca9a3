-- Layers that predict further tokens where there are none so far behind, or that cannot be.
local weft = require "weft"

return weft.plan {
  model   = weft.model "llama-tiny",
  mtp     = { num_layers = 2, mtp_num_layers = 1, loss_scaling_factor = -1 },
  loss    = { "cross_entropy", per = "sequences", z_loss = -1 },
  adapter = { "lora", rank = 4 },
  batch   = { global = 16, seq = 2 },
}
--> bad_mtp.lua:6: error: plan.mtp.loss_scaling_factor: expected a number of at least 0, got number -1
--> bad_mtp.lua:6: error: plan.mtp.mtp_num_layers: is another name of plan.mtp.num_layers, which is given too
--> bad_mtp.lua:6: error: plan.mtp.num_layers: layers that predict further tokens are not built beside an adapter (leave out mtp, or the adapter)
--> bad_mtp.lua:6: error: plan.mtp.num_layers: further tokens are predicted with a cross entropy that is divided by label tokens alone (leave out mtp, or the loss)
--> bad_mtp.lua:6: error: plan.mtp.num_layers: no token of batch.seq = 2 has one so far behind it
--> bad_mtp.lua:7: error: plan.loss.z_loss: expected a number of at least 0, got number -1
--> 6 errors
