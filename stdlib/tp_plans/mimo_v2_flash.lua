-- mimo_v2_flash.lua - Llama's plan, with sinks that go with heads; every expert is cut by ffn.
local plan = {
  ["layers.*.self_attn.attention_sink_bias"] = "colwise",
  ["layers.*.self_attn"] = "local_params",
  ["layers.*.mlp.experts.gate_up_proj"] = "packed_colwise",
  ["layers.*.mlp.experts.down_proj"] = "rowwise",
}
for pattern, style in pairs(require "weft.tp_plans.llama") do plan[pattern] = style end
return plan
