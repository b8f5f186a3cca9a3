-- A chunk may not compute while its parameters are resharded.
local weft = require "weft"

local function order(s)
  s:unshard(0)
  for m = 0, s.microbatches - 1 do
    s:F(0, m)
    s:reshard(0)
    s:B(0, m)
    s:unshard(0)
  end
end

return weft.plan {
  model = weft.model "llama-tiny",
  mesh = { dp = 2 },
  strategy = "fsdp2",
  batch = { global = 4, seq = 16 },
  schedule = order,
}
--> bad_schedule_reshard.lua:9: error: plan.schedule: rank 0, step 3: B of microbatch 0 comes after the RESHARD of its chunk at step 2 (line 8)
--> 1 error
