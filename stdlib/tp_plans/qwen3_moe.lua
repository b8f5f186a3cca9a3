-- qwen3_moe.lua - Qwen3's plan; every expert is cut by ffn, as an MLP is. The router is
-- whole.
local plan = {
  ["layers.*.mlp.experts.gate_up_proj"] = "packed_colwise",
  ["layers.*.mlp.experts.down_proj"] = "rowwise",
}
for pattern, style in pairs(require "weft.tp_plans.qwen3") do plan[pattern] = style end
return plan
