-- A NUL would end a name where it stands.
local weft = require "weft"
return weft.plan {
  name     = "a\0b",
  model    = weft.model "llama-tiny",
  batch    = { global = 8, seq = 16 },
  schedule = "1f1b\0zz",
  data     = weft.text { "functions.txt\0.bak" },
  tp_plan  = { ["lm_head\0"] = "colwise" },
}

--> bad_nul.lua:4: error: plan.name: a string of a plan has no control characters
--> bad_nul.lua:7: error: plan.schedule: a string of a plan has no control characters
--> bad_nul.lua:8: error: plan.data[1]: a string of a plan has no control characters
--> bad_nul.lua:9: error: plan.tp_plan: a key of this table has control characters
--> 4 errors
