-- What is known but not built yet says so.
local weft = require "weft"

return weft.plan {
  model     = weft.model "llama-tiny",
  strategy  = "fsdp2",
  mesh      = { tp = 2, cp = 2 },
  cp        = { comm = "ring" },
  schedule  = "DualPipe",
  precision = { param_dtype = "fp8" },
  moe       = { router_dtype = "f64" },
  tp_plan   = { ["layers.*.mlp"] = "module_allgather" },
  batch     = { global = 4, seq = 64 },
  expect    = { peak_gib = weft.at_most(80) },
}
--> bad_later.lua:9: error: plan.schedule: "DualPipe" is not built yet (zbv, dualpipe_v, v_half and v_min are built)
--> bad_later.lua:10: error: plan.precision.param_dtype: "fp8" is not built yet ("bf16", "f16" and "f32" are built; products in fp8 are precision = "fp8", or { "fp8", param_dtype = "f32" })
--> bad_later.lua:11: error: plan.moe.router_dtype: "f64" is not built yet ("f32" is built)
--> bad_later.lua:12: error: plan.tp_plan["layers.*.mlp"]: the style "module_allgather" is not built yet
--> 4 errors
