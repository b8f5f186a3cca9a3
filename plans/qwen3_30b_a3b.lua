-- qwen3_30b_a3b.lua - Qwen3-30B-A3B on 16 GPUs: 128 experts of which each token has 8. All
-- parameters are gathered where they are needed; experts are cut by ffn over tp. No published
-- layout: NVIDIA's for 16 GPUs is PP 2, EP 8 with 24 stages on each rank, in FP8.
--
--   weft check plans/qwen3_30b_a3b.lua     sizes, memory per rank, proof
--   weft show plans/qwen3_30b_a3b.lua      programs, schedule, memory
local weft = require "weft"

return weft.plan {
  name      = "qwen3-30b-a3b-h100x16",
  model     = weft.model "qwen3-30b-a3b",
  cluster   = weft.cluster { nodes = 2, gpus = 8, gpu = "h100-sxm" },
  mesh      = { tp = 4 },                          -- dp = 16 / 4 = 4
  strategy  = { "fsdp2", sequence_parallel = true },
  precision = "bf16",
  recompute = "full",
  moe       = { aux_loss_coef = 0.001 },
  batch     = { global = 512, micro = 1, seq = 4096 },
  optimizer = weft.adamw {
    lr = weft.cosine { max = 3e-4, min = 3e-5, warmup = 2000 },
    betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0,
  },
  data      = weft.synthetic {},
  train     = { steps = 100000, seed = 1, log_every = 10 },
}
