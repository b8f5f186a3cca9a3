local weft = require "weft"

local function order(s)
  for m = 0, s.microbatches - 1 do
    s:F(0, m)
    s:W(0, m)
    s:I(0, m)
    if m == 1 then s:reduce_grad(0) end
  end
end

return weft.plan {
  model = weft.model "llama-tiny",
  mesh = { pp = 2 },
  batch = { global = 4, seq = 16 },
  schedule = order,
}
--> bad_schedule_order.lua:6: error: plan.schedule: rank 0, step 1: W of microbatch 0 comes before I of microbatch 0 at step 2 (line 7)
--> bad_schedule_order.lua:6: error: plan.schedule: rank 0, step 4: W of microbatch 1 comes before I of microbatch 1 at step 5 (line 7)
--> bad_schedule_order.lua:6: error: plan.schedule: rank 0, step 8: W of microbatch 2 comes before I of microbatch 2 at step 9 (line 7)
--> bad_schedule_order.lua:6: error: plan.schedule: rank 0, step 11: W of microbatch 3 comes before I of microbatch 3 at step 12 (line 7)
--> bad_schedule_order.lua:6: error: plan.schedule: rank 1, step 1: W of microbatch 0 comes before I of microbatch 0 at step 2 (line 7)
--> bad_schedule_order.lua:6: error: plan.schedule: rank 1, step 4: W of microbatch 1 comes before I of microbatch 1 at step 5 (line 7)
--> bad_schedule_order.lua:6: error: plan.schedule: rank 1, step 8: W of microbatch 2 comes before I of microbatch 2 at step 9 (line 7)
--> bad_schedule_order.lua:6: error: plan.schedule: rank 1, step 11: W of microbatch 3 comes before I of microbatch 3 at step 12 (line 7)
--> bad_schedule_order.lua:8: error: plan.schedule: rank 0, step 6: REDUCE_GRAD of chunk 0 comes before W of microbatch 3 at step 11 (line 6)
--> bad_schedule_order.lua:8: error: plan.schedule: rank 1, step 6: REDUCE_GRAD of chunk 0 comes before W of microbatch 3 at step 11 (line 6)
--> 10 errors
