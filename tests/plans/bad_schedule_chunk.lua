local weft = require "weft"

local function order(s)
  for m = 0, s.microbatches - 1 do
    s:F(1, m)
  end
end

return weft.plan {
  model = weft.model "llama-tiny",
  mesh = { pp = 2 },
  batch = { global = 4, seq = 16 },
  schedule = order,
}
--> bad_schedule_chunk.lua:5: error: plan.schedule: chunk 1 does not exist: there are 1, counted from 0
--> 1 error
