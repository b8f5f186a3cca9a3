-- laguna.lua - Qwen3's attention with its gates, DeepSeek-V3's experts, and beside them an MLP of another name.
local plan = { ["layers.*.self_attn.g_proj"] = "colwise" }
for pattern, style in pairs(require "weft.tp_plans.glm4_moe") do
  plan[(pattern:gsub("shared_experts", "shared_expert"))] = style
end
return plan
