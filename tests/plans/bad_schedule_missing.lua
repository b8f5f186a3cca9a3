local weft = require "weft"

local function order(s)
  for m = 0, s.microbatches - 1 do
    s:F(0, m)
  end
  for m = 0, s.microbatches - 2 do
    s:I(0, m)
    if m > 0 then s:W(0, m) end
  end
end

return weft.plan {
  model = weft.model "llama-tiny",
  mesh = { pp = 2 },
  batch = { global = 4, seq = 16 },
  schedule = order,
}
--> bad_schedule_missing.lua:5: error: plan.schedule: rank 0, step 3: F of microbatch 3 has no backward: B, or I and W, is missing
--> bad_schedule_missing.lua:5: error: plan.schedule: rank 1, step 3: F of microbatch 3 has no backward: B, or I and W, is missing
--> bad_schedule_missing.lua:8: error: plan.schedule: rank 0, step 4: I of microbatch 0 has no W
--> bad_schedule_missing.lua:8: error: plan.schedule: rank 1, step 4: I of microbatch 0 has no W
--> 4 errors
