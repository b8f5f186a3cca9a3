-- plan.lua - the plan of the pictures here: four pipeline ranks and eight microbatches.
-- `./dev docs` draws each schedule of the library:
--
--   weft show schedule docs/schedules/plan.lua --set schedule=zbv --svg zbv.svg
local weft = require "weft"

return weft.plan {
  model = weft.model { "llama-tiny", num_hidden_layers = 8 },
  mesh  = { pp = 4, dp = 1 },
  batch = { global = 8, seq = 16 },
}
