-- pipeline_64.lua - a deep pipeline for `./dev bench check`: 256 layers on 64 pipeline
-- ranks with 4 stages each and 512 microbatches, 262,144 actions in all.
local weft = require "weft"

return weft.plan {
  name      = "pipeline-64",
  model     = weft.model { "llama3-8b", num_hidden_layers = 256 },
  mesh      = { pp = 64, tp = 8, dp = 2 },
  pp_plan   = { virtual = 4 },
  strategy  = { "zero", sequence_parallel = true },
  schedule  = "interleaved_1f1b",
  precision = "bf16",
  batch     = { global = 1024, micro = 1, seq = 4096 },
  optimizer = weft.adamw { lr = 1e-4 },
  data      = weft.synthetic {},
}
