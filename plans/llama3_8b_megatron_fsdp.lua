-- llama3_8b_megatron_fsdp.lua - Llama 3 8B on eight GPUs under Megatron's FSDP: tensor
-- parallelism in pairs, parameters, gradients and state cut over the other four.
--
--   weft check plans/llama3_8b_megatron_fsdp.lua
--   weft check plans/llama3_8b_megatron_fsdp.lua --set strategy.zero_dp_strategy=optim
local weft = require "weft"

return weft.plan {
  name      = "llama3-8b-megatron-fsdp",
  model     = weft.model "llama3-8b",
  cluster   = weft.cluster { nodes = 1, gpus = 8, gpu = "h100-sxm" },
  mesh      = { tp = 2, dp = 4 },
  strategy  = { "megatron_fsdp", zero_dp_strategy = "optim_grads_params" },
  recompute = "cheap",
  precision = "bf16",
  batch     = { global = 32, micro = 1, seq = 8192 },
  optimizer = weft.adamw {
    lr = weft.cosine { max = 3e-4, min = 3e-5, warmup = 200 },
    betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0,
  },
  data      = weft.synthetic {},
  train     = { steps = 1000, seed = 1, log_every = 10 },
}
