-- Rules between fields: the mesh, the model and the batch.
local weft = require "weft"

return weft.plan {
  model = weft.model {
    "llama-tiny",
    num_attention_heads = 8,
    hiden_size = 64,
  },
  mesh  = { world = 24, tp = 3, pp = 2 },
  batch = {
    global = 16,
    micro = 3,
    seq = 64,
  },
}
--> bad_cross.lua:8: error: plan.model.hiden_size: llama models have no such key (did you mean "hidden_size"?)
--> bad_cross.lua:10: error: plan.mesh.tp: 3 does not divide model.num_attention_heads = 8 (tp may be 1, 2, 4 or 8)
--> bad_cross.lua:12: error: plan.batch.global: 16 is not a multiple of batch.micro * dp = 3 * 4 (nearest: 12 or 24)
--> 3 errors
