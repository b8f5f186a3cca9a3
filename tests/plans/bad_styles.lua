-- Options of tp_plan's styles.
local weft = require "weft"

return weft.plan {
  model = weft.model "llama-tiny",
  mesh = { tp = 2 },
  batch = { global = 8, seq = 64 },
  tp_plan = weft.extend(weft.tp_plan "llama", {
    ["layers.*.mlp.up_proj"] = { "colwise", gather_output = 1 },
    ["layers.*.mlp.gate_proj"] = { "colwise", split_input = true },
    ["layers.*.mlp.down_proj"] = { "rowwise", gather = true },
    ["layers.*.self_attn.o_proj"] = { 7 },
    ["layers.*.self_attn.q_proj"] = { "colwise", "rowwise" },
  }),
}
--> bad_styles.lua:9: error: plan.tp_plan["layers.*.mlp.up_proj"].gather_output: expected true or false, got number 1
--> bad_styles.lua:10: error: plan.tp_plan["layers.*.mlp.gate_proj"].split_input: is an option of rowwise, not of colwise
--> bad_styles.lua:11: error: plan.tp_plan["layers.*.mlp.down_proj"]: a style has no option "gather" (did you mean "gather_output"?)
--> bad_styles.lua:12: error: plan.tp_plan["layers.*.self_attn.o_proj"]: expected the name of a style, or { "colwise", option = value }, got a table
--> bad_styles.lua:13: error: plan.tp_plan["layers.*.self_attn.q_proj"]: a style is one name and options
--> 5 errors
