local weft = require "weft"

local function order(s)
  -- Rank 1 takes the microbatches in the opposite order.
  for m = 0, s.microbatches - 1 do
    local mb = s.rank == 0 and m or s.microbatches - 1 - m
    s:F(0, mb)
    s:B(0, mb)
  end
end

return weft.plan {
  model = weft.model "llama-tiny",
  mesh = { pp = 2 },
  batch = { global = 4, seq = 16 },
  schedule = order,
}
--> bad_schedule_deadlock.lua:8: error: plan.schedule: deadlock, these actions wait for each other:
-->   rank 0, step 1 (line 8): B of microbatch 0 waits for B of microbatch 0 of rank 1, step 7 (line 8)
-->   rank 1, step 0 (line 7): F of microbatch 3 waits for F of microbatch 3 of rank 0, step 6 (line 7)
--> 1 error
