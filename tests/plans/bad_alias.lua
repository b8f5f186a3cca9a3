local weft = require "weft"

return weft.plan {
  model      = weft.model { "gpt2", n_embd = 64, hidden_size = 64, n_head = 3 },
  precision  = "f32",
  mp_policy  = "bf16",
  strategy   = { "zero", tp_plan = { lm_head = "colwise" } },
  tp_plan    = { lm_head = "colwise" },
  batch      = { global = 8, seq = 64 },
}
--> bad_alias.lua:4: error: plan.model.n_embd: is another name of plan.model.hidden_size, which is given too
--> bad_alias.lua:6: error: plan.mp_policy: is another name of plan.precision, which is given too
--> bad_alias.lua:8: error: plan.tp_plan: tp_plan is given twice
--> 3 errors
