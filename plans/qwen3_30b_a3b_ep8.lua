-- qwen3_30b_a3b_ep8.lua - Qwen3-30B-A3B on 8 GPUs, 16 of the 128 experts on each. Tokens go
-- to their experts and back; all other parameters are gathered where they are needed. There
-- is room for twice the mean of the rows that one rank has for another: more end the run.
--
--   weft check plans/qwen3_30b_a3b_ep8.lua sizes, memory per rank, proof
--   weft show plans/qwen3_30b_a3b_ep8.lua  programs, schedule, memory
local weft = require "weft"

return weft.plan {
  name      = "qwen3-30b-a3b-ep8-h100x8",
  model     = weft.model "qwen3-30b-a3b",
  cluster   = weft.cluster { nodes = 1, gpus = 8, gpu = "h100-sxm" },
  mesh      = { ep = 8 },                          -- dp = 8
  strategy  = "fsdp2",
  precision = "bf16",
  recompute = "full",
  moe       = { dispatcher = "alltoall", aux_loss_coef = 0.001, max_tokens_factor = 2 },
  batch     = { global = 256, micro = 1, seq = 4096 },
  optimizer = weft.adamw {
    lr = weft.cosine { max = 3e-4, min = 3e-5, warmup = 2000 },
    betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0,
  },
  data      = weft.synthetic {},
  train     = { steps = 100000, seed = 1, log_every = 10 },
}
