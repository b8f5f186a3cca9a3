-- olmo2.lua - Llama's plan, but for attention: its norms are over all heads together, so that
-- each rank gathers q and k before them.
local plan = {}
for pattern, style in pairs(require "weft.tp_plans.llama") do plan[pattern] = style end
for _, name in ipairs { "q_proj", "k_proj", "v_proj" } do
  plan["layers.*.self_attn." .. name] = "colwise_gather_output"
end
plan["layers.*.self_attn.o_proj"] = "rowwise_split_input"
return plan
