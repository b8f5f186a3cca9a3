-- falcon_h1.lua - Llama's plan. Mixers are whole on each rank: the published models have one group
-- of heads or two, and tp could cut them between groups only. A plan with more of them may
-- name their parts as nemotron_h.lua does.
local plan = {}
for pattern, style in pairs(require "weft.tp_plans.llama") do
  plan[(pattern:gsub("%.mlp%.", ".feed_forward."))] = style
end
return plan
