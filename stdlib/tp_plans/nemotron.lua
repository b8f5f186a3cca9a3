-- nemotron.lua - Llama's plan without gates.
local plan = {}
for pattern, style in pairs(require "weft.tp_plans.llama") do plan[pattern] = style end
plan["layers.*.mlp.gate_proj"] = nil
return plan
