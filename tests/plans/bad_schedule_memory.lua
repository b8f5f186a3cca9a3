local weft = require "weft"

local function order(s)
  local kept = {}
  for i = 1, 1e12 do kept[i] = ("x"):rep(1000) .. i end
end

return weft.plan {
  model = weft.model "llama-tiny",
  mesh = { pp = 2 },
  batch = { global = 4, seq = 16 },
  schedule = order,
}
--> bad_schedule_memory.lua: error: the plan needs more than its limit of 256 MiB of memory
