-- apertus.lua - Qwen3's plan without gates. Each rank has the numbers of the activation, which are
-- read by its own features: their gradients are summed over tp.
local plan = { ["layers.*.mlp.act_fn"] = "replicate" }
for pattern, style in pairs(require "weft.tp_plans.qwen3") do plan[pattern] = style end
plan["layers.*.mlp.gate_proj"] = nil
return plan
