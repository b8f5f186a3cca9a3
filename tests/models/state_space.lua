-- state_space.lua - a small model with layers of all kinds of Nemotron-H, or of Falcon-H1; check_state_space
-- runs it on meshes. -D mesh=tp,dp,pp,cp,ep  -D packed=true  -D family=falcon_h1  -D cut=true
local weft = require "weft"

local n = {}
for size in weft.var("mesh", "1,1,1,1,1"):gmatch "%d+" do n[#n + 1] = math.tointeger(size) end
local families = {
  nemotron_h = { "nemotron_h", vocab_size = 64, hidden_size = 24, intermediate_size = 32,
                 hybrid_override_pattern = "ME*M-M", num_attention_heads = 4, num_key_value_heads = 2,
                 head_dim = 8, mamba_num_heads = 4, mamba_head_dim = 6, n_groups = 2, ssm_state_size = 8,
                 n_routed_experts = 4, num_experts_per_tok = 2, moe_intermediate_size = 8,
                 moe_shared_expert_intermediate_size = 16, moe_latent_size = 12 },
  falcon_h1 = { "falcon_h1", vocab_size = 64, hidden_size = 24, intermediate_size = 32,
                num_hidden_layers = 2, num_attention_heads = 4, num_key_value_heads = 2, head_dim = 8,
                mamba_d_ssm = 24, mamba_n_heads = 4, mamba_n_groups = 2, mamba_d_state = 8,
                mamba_rms_norm = true, ssm_multipliers = { 0.5, 1, 2, 1, 0.5 } },
}

-- Mixers of Falcon-H1 between groups of heads, which its own plan leaves whole.
local cut, of = {}, require "weft.tp_plans.nemotron_h"
for pattern, style in pairs(require "weft.tp_plans.falcon_h1") do cut[pattern] = style end
for _, part in ipairs { "z_proj", "x_proj", "B_proj", "C_proj", "dt_proj", "x_conv", "B_conv", "C_conv",
                        "dt_bias", "A_log", "D", "norm", "out_proj" } do
  cut["layers.*.mamba." .. part] = of["layers.*.mixer." .. part]
end

return weft.plan {
  model = weft.model(families[weft.var("family", "nemotron_h")]),
  mesh = { tp = n[1], dp = n[2], pp = n[3], cp = n[4], ep = n[5] },
  tp_plan = weft.var("cut", "false") == "true" and cut or nil,
  strategy = { "fsdp2" },
  batch = { global = 4, micro = 1, seq = 80 },
  packed = weft.var("packed", "false") == "true" and { eot = 0 } or nil,
  optimizer = weft.adamw { lr = 1e-3 },
  data = weft.synthetic {},
}
