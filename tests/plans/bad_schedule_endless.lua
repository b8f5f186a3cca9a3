local weft = require "weft"

local function order(s)
  while true do
    s:F(0, 0)
  end
end

return weft.plan {
  model = weft.model "llama-tiny",
  mesh = { pp = 2 },
  batch = { global = 4, seq = 16 },
  schedule = order,
}
--> bad_schedule_endless.lua:5: error: plan.schedule: the schedule of rank 0 has more than 128 actions
--> 1 error
