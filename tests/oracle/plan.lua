-- plan.lua - one step of an oracle model (-D model=llama); check_oracle sets the mesh.
local weft = require "weft"

return weft.plan {
  model = weft.hf(weft.vars.model),
  mesh = { tp = 1, pp = 1, dp = 1 },
  strategy = { "zero", sequence_parallel = false },
  schedule = "1f1b",
  batch = { global = 8, micro = 1, seq = 16 },
  optimizer = weft.adamw { lr = 1e-3, clip = 0 },
  data = weft.synthetic {},
}
