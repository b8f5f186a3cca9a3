-- Names of tp_plan's styles that say more than the strategy does.
local weft = require "weft"

return weft.plan {
  model = weft.model "llama-tiny",
  mesh = { tp = 2 },
  strategy = { "zero", loss_parallel = false },
  batch = { global = 8, seq = 64 },
  tp_plan = weft.extend(weft.tp_plan "llama", {
    ["lm_head"] = "colwise_loss_parallel",
    ["layers.*.mlp.down_proj"] = "rowwise_reduce_scatter",
    ["embed_tokens"] = "vocab_reduce_scatter",
    ["layers.*.mlp.up_proj"] = { "colwise", gather_output = true },
  }),
}
--> bad_style_names.lua:10: error: plan.tp_plan["lm_head"]: leaves the logits cut without loss_parallel (set strategy.loss_parallel = true)
--> bad_style_names.lua:11: error: plan.tp_plan["layers.*.mlp.down_proj"]: scatters by sequence without sequence_parallel (set strategy.sequence_parallel = true)
--> bad_style_names.lua:12: error: plan.tp_plan["embed_tokens"]: scatters by sequence without sequence_parallel (set strategy.sequence_parallel = true)
--> 3 errors
