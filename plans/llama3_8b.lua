-- llama3_8b.lua - Llama 3 8B on the 16 GPUs of two machines: tensor parallelism inside a
-- machine, two pipeline stages, four data-parallel replicas. No published layout.
--
--   weft check plans/llama3_8b.lua         sizes, memory per rank, proof
--   weft show plans/llama3_8b.lua          programs, schedule, memory
local weft = require "weft"

return weft.plan {
  name      = "llama3-8b-h100x16",
  model     = weft.model "llama3-8b",
  cluster   = weft.cluster { nodes = 2, gpus = 8, gpu = "h100-sxm" },
  mesh      = { tp = 2, pp = 2 },                  -- dp = 16 / (2 * 2) = 4
  strategy  = { "zero", sequence_parallel = true },
  tp_plan   = weft.tp_plan "llama",
  schedule  = "1f1b",
  precision = "bf16",
  batch     = { global = 128, micro = 1, seq = 4096 },
  optimizer = weft.adamw {
    lr = weft.cosine { max = 3e-4, min = 3e-5, warmup = 2000 },
    betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0,
  },
  data      = weft.synthetic {},
  train     = { steps = 100000, seed = 1, log_every = 10 },
}
