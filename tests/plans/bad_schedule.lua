local weft = require "weft"

local function order(s)
  for mb = 0, s.microbatches do
    s:F(0, mb)
  end
end

return weft.plan {
  model = weft.model "llama-tiny",
  batch = { global = 2, seq = 16 },
  schedule = order,
}
--> bad_schedule.lua:5: error: plan.schedule: microbatch 2 does not exist: there are 2, counted from 0
--> 1 error
