-- step3p5.lua - Qwen3's attention with its gates; experts and the MLP beside them are cut by ffn.
local plan = {
  ["layers.*.self_attn.g_proj"] = "colwise",
  ["layers.*.moe.gate_proj"] = "colwise", ["layers.*.moe.up_proj"] = "colwise",
  ["layers.*.moe.down_proj"] = "rowwise",
  ["layers.*.share_expert.gate_proj"] = "colwise", ["layers.*.share_expert.up_proj"] = "colwise",
  ["layers.*.share_expert.down_proj"] = "rowwise",
}
for pattern, style in pairs(require "weft.tp_plans.qwen3") do plan[pattern] = style end
return plan
