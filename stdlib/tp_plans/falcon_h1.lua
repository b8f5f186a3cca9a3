-- falcon_h1.lua - Llama's plan, and that of Nemotron-H's mixers beside attention. A model with one
-- group of heads (mamba_n_groups) takes tp = 1, or a plan that leaves mixers whole.
local plan, mixers = {}, require "weft.tp_plans.nemotron_h"
for pattern, style in pairs(require "weft.tp_plans.llama") do
  plan[(pattern:gsub("%.mlp%.", ".feed_forward."))] = style
end
for _, part in ipairs { "z_proj", "x_proj", "B_proj", "C_proj", "dt_proj", "x_conv", "B_conv",
                        "C_conv", "dt_bias", "A_log", "D", "norm", "out_proj" } do
  plan["layers.*.mamba." .. part] = mixers["layers.*.mixer." .. part]
end
return plan
