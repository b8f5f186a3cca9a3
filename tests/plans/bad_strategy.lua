-- What Megatron's FSDP does not go with, and options that are not its own.
local weft = require "weft"

return weft.plan {
  model    = weft.model "llama-tiny",
  strategy = { "megatron_fsdp",
    sequence_parallel = true,
    zero_dp_strategy = "optim_gradients",
    grad_reduce_in_fp32 = false,
    nccl_ub = true,
    fsdp_double_buffer = 2,
    bucket_size = 40000000,
  },
  precision = { reduce_dtype = "bf16" },
  mesh     = { tp = 2, pp = 2, dp = 4, dp_replicate = 2 },
  batch    = { global = 16, seq = 64 },
}
--> bad_strategy.lua:7: error: plan.strategy.sequence_parallel: "megatron_fsdp" has no sequence parallelism; "fsdp2" and "zero" have
--> bad_strategy.lua:8: error: plan.strategy.zero_dp_strategy: unknown value "optim_gradients" (did you mean "optim_grads"?)
--> bad_strategy.lua:9: error: plan.strategy.grad_reduce_in_fp32: asks for sums in f32, but precision.reduce_dtype is bf16 (give one of them)
--> bad_strategy.lua:10: warning: plan.strategy.nccl_ub: has no effect: buffers are registered by the backend NCCL only
--> bad_strategy.lua:11: error: plan.strategy.fsdp_double_buffer: expected true or false, got number 2
--> bad_strategy.lua:12: error: plan.strategy.bucket_size: unknown field (weft's name is strategy.bucket_bytes)
--> bad_strategy.lua:15: error: plan.mesh.pp: the strategy "megatron_fsdp" has no pipeline and no experts; for pp use "fsdp2" or "zero"
--> bad_strategy.lua:15: error: plan.mesh.dp_replicate: the strategy "megatron_fsdp" treats all of dp alike; for copies of shards use "fsdp2" or "zero"
--> 7 errors, 1 warning
