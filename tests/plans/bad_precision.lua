-- Types of numbers that contradict each other, and options without an effect.
local weft = require "weft"

return weft.plan {
  model    = weft.model "llama-tiny",
  strategy = { "fsdp2",
    autocast_dtype = "f16",
    mp_policy = {
      param_dtype = "bf16",
      reduce_dtype = "f16",
      output_dtype = "f16",
      cast_forward_inputs = 1,
      init_scale = 8,
    },
  },
  batch    = { global = 16, seq = 64 },
}
--> bad_precision.lua:7: error: plan.strategy.autocast_dtype: ops compute in one type: this one is f16, param_dtype is bf16 (give param_dtype alone; precision.master_dtype says what the optimizer steps)
--> bad_precision.lua:10: error: plan.strategy.mp_policy.reduce_dtype: unknown value "f16" (did you mean "bf16"?)
--> bad_precision.lua:11: error: plan.strategy.mp_policy.output_dtype: logits have param_dtype = "bf16", and the loss is computed from them in f32 (leave it out)
--> bad_precision.lua:12: error: plan.strategy.mp_policy.cast_forward_inputs: expected true or false, got number 1
--> bad_precision.lua:13: error: plan.strategy.mp_policy.init_scale: gradients of bf16 are not scaled; param_dtype = "f16" needs a loss scale
--> 5 errors
