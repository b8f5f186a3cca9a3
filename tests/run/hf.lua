-- hf.lua - trains on from the weights in the folder -D model=.
local weft = require "weft"

return weft.plan {
  model = weft.hf(weft.vars.model),
  mesh = { tp = 2 },
  batch = { global = 4, micro = 1, seq = 16 },
  data = weft.synthetic {},
  train = { steps = 2, log_every = 1 },
}
