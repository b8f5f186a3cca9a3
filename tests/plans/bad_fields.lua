-- Wrong fields of every kind, all reported at once.
local weft = require "weft"

return weft.plan {
  name      = 42,
  model     = weft.model "llama-tiny",
  mesh      = {
    tp = "four",
    pp = 1.5,
    dpp = 2,
  },
  batch     = { gobal = 16, micro = 0,
                seq = 64 },
  shedule   = "1f1b",
  tp_plan   = {
    ["layers.*.mlp.down_proj"] = "row",
    ["lm_head"] = "colwise",
  },
  precision = "fp17",
  optimizer = weft.adamw {
    lr = weft.cosine { max = 1e-3, warmup = -1 },
    betas = { 0.9, 1.5 },
    weight_decay = "none",
  },
  train     = { steps = 0 },
}
--> bad_fields.lua:5: error: plan.name: expected a string, got number 42
--> bad_fields.lua:8: error: plan.mesh.tp: expected a positive integer, got string "four"
--> bad_fields.lua:9: error: plan.mesh.pp: expected a positive integer, got number 1.5
--> bad_fields.lua:10: error: plan.mesh.dpp: unknown field (did you mean "dp"?)
--> bad_fields.lua:12: error: plan.batch.gobal: unknown field (did you mean "global"?)
--> bad_fields.lua:12: error: plan.batch.micro: expected a positive integer, got number 0
--> bad_fields.lua:14: error: plan.shedule: unknown field (did you mean "schedule"?)
--> bad_fields.lua:16: error: plan.tp_plan["layers.*.mlp.down_proj"]: unknown style "row" (did you mean "rowwise"?)
--> bad_fields.lua:19: error: plan.precision: unknown value "fp17" (did you mean "fp16"?)
--> bad_fields.lua:21: error: plan.optimizer.lr.warmup: expected an integer of at least 0, got number -1
--> bad_fields.lua:22: error: plan.optimizer.betas[2]: expected a number from 0 to below 1, got number 1.5
--> bad_fields.lua:23: error: plan.optimizer.weight_decay: expected a number of at least 0, got string "none"
--> bad_fields.lua:25: error: plan.train.steps: expected a positive integer, got number 0
--> 13 errors
