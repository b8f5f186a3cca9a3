-- A field under two names of other systems, and a required one under such a name alone.
local weft = require "weft"

return weft.plan {
  model     = weft.model "llama-tiny",
  mtp       = { mtp_num_layers = 1, num_nextn_predict_layers = 2 },
  precision = { grad_accum_dtype = "f32", grad_dtype = "f32" },
  batch     = { global = 16, seq = 64 },
}
--> bad_two_aliases.lua:6: error: plan.mtp.num_nextn_predict_layers: is another name of plan.mtp.mtp_num_layers, which is given too
--> bad_two_aliases.lua:7: error: plan.precision.grad_accum_dtype: is another name of plan.precision.grad_dtype, which is given too
--> 2 errors
