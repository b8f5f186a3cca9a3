-- gpt2_124m.lua - the step that `weft-bench gpt2` measures.
local weft = require "weft"

return weft.plan {
  model     = weft.model "gpt2-124m",
  mesh      = { world = 1 },
  batch     = { global = 4, micro = 4, seq = 64 },
  optimizer = weft.adamw { lr = 1e-4, betas = { 0.9, 0.999 }, weight_decay = 0 },
  data      = weft.synthetic {},
}
