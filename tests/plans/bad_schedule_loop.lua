local weft = require "weft"

local function order(s)
  local mb = 0
  while mb < s.microbatches do mb = mb end
end

return weft.plan {
  model = weft.model "llama-tiny",
  mesh = { pp = 2 },
  batch = { global = 4, seq = 16 },
  schedule = order,
}
--> bad_schedule_loop.lua:5: error: the plan was stopped after 50000000 instructions
