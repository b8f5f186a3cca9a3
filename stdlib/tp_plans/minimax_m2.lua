-- minimax_m2.lua - OLMo 2's attention; every expert is cut by ffn. The router is whole.
local plan = {
  ["layers.*.mlp.experts.gate_up_proj"] = "packed_colwise",
  ["layers.*.mlp.experts.down_proj"] = "rowwise",
}
for pattern, style in pairs(require "weft.tp_plans.olmo2") do
  if not pattern:find "mlp" then plan[pattern] = style end
end
return plan
