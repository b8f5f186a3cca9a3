local weft = require "weft"

local function order(s)
  for m = 0, s.microbatches - 1 do
    s:F(0, m)
    s:B(0, m)
  end
  if s.rank == 1 then
    s:F(0, 2)
    s:W(0, 3)
  end
end

return weft.plan {
  model = weft.model "llama-tiny",
  mesh = { pp = 2 },
  batch = { global = 4, seq = 16 },
  schedule = order,
}
--> bad_schedule_twice.lua:9: error: plan.schedule: rank 1, step 8: F of microbatch 2 is emitted twice, first at step 4 (line 5)
--> bad_schedule_twice.lua:10: error: plan.schedule: rank 1, step 9: W of microbatch 3 does what B of microbatch 3 at step 7 (line 6) does: a backward is one B, or an I and a W
--> 2 errors
