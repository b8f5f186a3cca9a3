-- phi.lua - Llama's plan, with other names and an MLP without a gate; the head's bias is cut with it.
local plan = {
  ["layers.*.self_attn.dense"] = "rowwise",
  ["layers.*.mlp.fc1"] = "colwise", ["layers.*.mlp.fc2"] = "rowwise",
}
for pattern, style in pairs(require "weft.tp_plans.llama") do
  if not pattern:find "mlp" and not pattern:find "o_proj" then plan[pattern] = style end
end
return plan
