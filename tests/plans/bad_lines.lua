-- Lines of values that are computed: loops, variables, helpers of other files, tables
-- that are filled later, lists.
local weft = require "weft"
local helper = require "lib.helper"

local rules = {}
for _, name in ipairs { "gate", "up" } do
  rules["layers.*.mlp." .. name .. "_proj"] = "column"
end

local batch = { global = 16 }
batch.micro = 2
batch.sequ = 64

local function optimizer()
  return weft.adamw {
    lr = 1e-3,
    eps = -1 }
end

return weft.plan {
  model = weft.model {
    "llama-tiny",
    vocab = 300,
  },
  mesh = helper.mesh(3),
  tp_plan = weft.extend(weft.extend(weft.tp_plan "llama", rules), {
    ["lm_head"] = "colwise",
    ["embed_tokens"] = "vocab",
  }),
  pp_plan = {
    modules = {
      { "embed_tokens",
        "layers.0" },
      { "layers.1", 7,
        "norm" },
    },
  },
  batch = batch,
  optimizer = optimizer(),
  data = weft.text {
    files = { 1, 2 },
    shufle = true,
  },
}
--> bad_lines.lua:8: error: plan.tp_plan["layers.*.mlp.gate_proj"]: unknown style "column" (one of: colwise, rowwise, replicate, sequence_parallel, embedding_rowwise, colwise_rep, rowwise_rep, packed_colwise, packed_rowwise)
--> bad_lines.lua:8: error: plan.tp_plan["layers.*.mlp.up_proj"]: unknown style "column" (one of: colwise, rowwise, replicate, sequence_parallel, embedding_rowwise, colwise_rep, rowwise_rep, packed_colwise, packed_rowwise)
--> bad_lines.lua:13: error: plan.batch.sequ: unknown field (did you mean "seq"?)
--> bad_lines.lua:18: error: plan.optimizer.eps: expected a number from 0 to 1, got number -1
--> bad_lines.lua:24: error: plan.model.vocab: llama models have no such key (did you mean "vocab_size"?)
--> bad_lines.lua:29: error: plan.tp_plan.embed_tokens: unknown style "vocab" (did you mean "vocab_allreduce"?)
--> bad_lines.lua:36: error: plan.pp_plan.modules[2][2]: expected a string, got number 7
--> bad_lines.lua:42: error: plan.data.files[1]: expected a string, got number 1
--> bad_lines.lua:43: error: plan.data.shufle: unknown field (did you mean "shuffle"?)
--> lib/helper.lua:8: error: plan.mesh.dp: expected a positive integer, got string "two"
--> 10 errors
