-- starcoder2.lua - Llama's plan, with an MLP of other names and without a gate.
local plan = { ["layers.*.mlp.c_fc"] = "colwise", ["layers.*.mlp.c_proj"] = "rowwise" }
for pattern, style in pairs(require "weft.tp_plans.llama") do
  if not pattern:find "mlp" then plan[pattern] = style end
end
return plan
