-- qwen3.lua - Llama's plan. The norms of q and k work on whole heads, so every rank holds
-- them; their gradients, from the rank's own heads only, are summed over tp.
local plan = {
  ["layers.*.self_attn.q_norm"] = "replicate",
  ["layers.*.self_attn.k_norm"] = "replicate",
}
for pattern, style in pairs(require "weft.tp_plans.llama") do plan[pattern] = style end
return plan
