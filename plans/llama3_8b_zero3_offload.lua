-- llama3_8b_zero3_offload.lua - Llama 3 8B on four GPUs with ZeRO stage 3: optimizer state
-- and shards of parameters lie in the memory of the host, where the optimizer runs, so
-- that a GPU holds a shard of the gradients, two gathered layers and the activations.
--
--   weft show plans/llama3_8b_zero3_offload.lua memory
--   weft check plans/llama3_8b_zero3_offload.lua --set strategy.offload_param=none
local weft = require "weft"

return weft.plan {
  name      = "llama3-8b-zero3-offload",
  model     = weft.model "llama3-8b",
  cluster   = weft.cluster { nodes = 1, gpus = 4, gpu = "a100-80gb" },
  mesh      = { dp = 4 },
  strategy  = { "zero", stage = 3, offload_optimizer = "cpu", offload_param = "cpu",
                param_persistence_threshold = 100000 },
  recompute = "full",
  precision = "bf16",
  batch     = { global = 32, micro = 1, seq = 8192 },
  optimizer = weft.adamw {
    lr = weft.cosine { max = 2e-5, min = 2e-6, warmup = 100 },
    betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0,
  },
  data      = weft.synthetic {},
  train     = { steps = 1000, seed = 1, log_every = 10 },
}
