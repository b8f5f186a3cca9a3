local weft = require "weft"

return weft.plan {
  mesh = { tp = 2 },
  batch = {
    micro = 1,
  },
}
--> bad_missing.lua:3: error: plan.model: this field is required (the network: weft.model, weft.hf or a function f(g, config))
--> bad_missing.lua:5: error: plan.batch.global: this field is required (sequences of a step, all ranks)
--> bad_missing.lua:5: error: plan.batch.seq: this field is required (tokens of a sequence)
--> 3 errors
