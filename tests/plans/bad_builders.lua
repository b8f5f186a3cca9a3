-- Builders that are called with wrong values record them and go on.
local weft = require "weft"

return weft.plan {
  model     = weft.model "lama3-8b",
  cluster   = weft.cluster "dgx",
  tp_plan   = weft.tp_plan "lama",
  schedule  = { "1f1b", chunks = 2 },
  strategy  = { "zero", sequence_paralel = true },
  optimizer = weft.adamw(3e-4),
  data      = weft.adamw { lr = 1 },
  batch     = { global = 8, seq = 64 },
}
--> bad_builders.lua:5: error: plan.model: there is no model "lama3-8b" (did you mean "llama3-8b"?)
--> bad_builders.lua:6: error: plan.cluster: there is no GPU "dgx" (known: a100-40gb, a100-80gb, b200, b300, gb200-nvl72, gb300-nvl72, h100-500w, h100-pcie, h100-sxm, h200, h800, mi300x, v100; of another one give figures: gpu = { name = "dgx", memory_gib = ..., bf16 = ..., ... })
--> bad_builders.lua:7: error: plan.tp_plan: there is no tp_plan "lama" (did you mean "llama"?)
--> bad_builders.lua:8: error: plan.schedule.chunks: this schedule has no options (weft's name is pp_plan.virtual)
--> bad_builders.lua:9: error: plan.strategy.sequence_paralel: unknown field (did you mean "sequence_parallel"?)
--> bad_builders.lua:10: error: plan.optimizer: weft.adamw takes a table, got number (write weft.adamw { NAME = VALUE })
--> bad_builders.lua:11: error: plan.data: expected weft.synthetic, weft.text, weft.tokens, weft.chat, got weft.adamw
--> 7 errors
