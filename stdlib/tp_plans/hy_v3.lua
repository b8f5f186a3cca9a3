-- hy_v3.lua - Qwen3's attention, DeepSeek-V3's experts, and beside them an MLP of another name.
local plan = {}
for pattern, style in pairs(require "weft.tp_plans.glm4_moe") do
  plan[(pattern:gsub("shared_experts", "shared_mlp"))] = style
end
return plan
