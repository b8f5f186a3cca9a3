-- llama3_8b_hsdp.lua - Llama 3 8B on four machines with HSDP: parameters, gradients and
-- state are cut over the eight GPUs of a machine and copied over the machines, so that
-- parameters are gathered inside of a machine only.
--
--   weft show plans/llama3_8b_hsdp.lua comm          what crosses between machines
local weft = require "weft"

return weft.plan {
  name      = "llama3-8b-hsdp",
  model     = weft.model "llama3-8b",
  cluster   = weft.cluster { nodes = 4, gpus = 8, gpu = "h100-sxm" },
  mesh      = { dp = 32, dp_replicate = 4 },
  strategy  = "fsdp2",
  recompute = "cheap",
  precision = "bf16",
  batch     = { global = 64, micro = 1, seq = 8192 },
  optimizer = weft.adamw {
    lr = weft.cosine { max = 3e-4, min = 3e-5, warmup = 200 },
    betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0,
  },
  data      = weft.synthetic {},
  train     = { steps = 1000, seed = 1, log_every = 10 },
}
