-- qwen2_moe.lua - Qwen2's attention; every expert, and the MLP beside them, is cut by ffn. The router
-- and the gate of that MLP are whole.
local plan = {
  ["layers.*.mlp.experts.gate_up_proj"] = "packed_colwise",
  ["layers.*.mlp.experts.down_proj"] = "rowwise",
  ["layers.*.mlp.shared_expert.gate_proj"] = "colwise",
  ["layers.*.mlp.shared_expert.up_proj"] = "colwise",
  ["layers.*.mlp.shared_expert.down_proj"] = "rowwise",
}
for pattern, style in pairs(require "weft.tp_plans.qwen2") do plan[pattern] = style end
return plan
