-- llama3_70b.lua - Llama 3 70B on 64 GPUs: TP 8 inside a machine, four pipeline stages of
-- 20 layers, two data-parallel replicas. No published layout: plans/llama3_70b_64xh100.lua has one.
--
--   weft check plans/llama3_70b.lua        sizes, memory per rank, proof
--   weft show plans/llama3_70b.lua         programs, schedule, memory
local weft = require "weft"

return weft.plan {
  name      = "llama3-70b-h100x64",
  model     = weft.model "llama3-70b",
  cluster   = weft.cluster { nodes = 8, gpus = 8, gpu = "h100-sxm" },
  mesh      = { tp = 8, pp = 4 },                  -- dp = 64 / (8 * 4) = 2
  strategy  = { "zero", sequence_parallel = true },
  tp_plan   = weft.tp_plan "llama",
  schedule  = "1f1b",
  precision = "bf16",
  batch     = { global = 256, micro = 1, seq = 4096 },
  optimizer = weft.adamw {
    lr = weft.cosine { max = 1.5e-4, min = 1.5e-5, warmup = 2000 },
    betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0,
  },
  data      = weft.synthetic {},
  train     = { steps = 100000, seed = 1, log_every = 10 },
}
