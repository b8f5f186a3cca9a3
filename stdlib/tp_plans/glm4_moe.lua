-- glm4_moe.lua - Qwen3's attention, DeepSeek-V3's experts.
local plan = {}
for _, name in ipairs { "deepseek_v3", "qwen3" } do
  for pattern, style in pairs(require("weft.tp_plans." .. name)) do
    if not pattern:find "kv_b_proj" and not pattern:find "q_b_proj" then plan[pattern] = style end
  end
end
return plan
