-- llama3_70b_64xh100.lua - Llama 3 70B on 64 GPUs of 80 GB in the layout that NVIDIA publishes
-- for FP8 (Megatron-Bridge 25.09: 10.12 s a step): TP 4 with sequence parallelism, PP 8 with
-- five chunks of two layers on each rank, sequences of 8192. Two data-parallel replicas share
-- the optimizer's state (Megatron's distributed optimizer, ZeRO stage 1): without that the
-- first rank needs 90.5 GiB. In bf16, as the file has it, weft sim says 14.5 s, in fp8 11.6 s.
--
-- NVIDIA's layout for BF16 (dgxc-benchmarking 24.11.1: 14.72 s) is TP 4, PP 4, CP 2 with as
-- many chunks of four layers: 14.3 s by weft sim, and 62.7 GiB.
--
--   weft sim plans/llama3_70b_64xh100.lua --set precision=fp8
--   weft sim plans/llama3_70b_64xh100.lua --set 'mesh={ tp = 4, pp = 4, cp = 2 }'
--   weft check plans/llama3_70b_64xh100.lua                 77.1 GiB on the worst rank
--   weft check plans/llama3_70b_64xh100.lua --set strategy.stage=0
--   weft show plans/llama3_70b_64xh100.lua memory           by class
local weft = require "weft"

return weft.plan {
  name      = "llama3-70b-nvidia",
  model     = weft.model "llama3-70b",
  cluster   = weft.cluster { nodes = 8, gpus = 8, gpu = "h100-sxm" },
  mesh      = { tp = 4, pp = 8 },                  -- dp = 64 / (4 * 8) = 2
  strategy  = { "zero", stage = 1, sequence_parallel = true },
  tp_plan   = weft.tp_plan "llama",
  pp_plan   = { virtual = 5 },
  schedule  = "interleaved_1f1b",
  precision = "bf16",
  batch     = { global = 128, micro = 1, seq = 8192 },
  optimizer = weft.adamw {
    lr = weft.cosine { max = 1.5e-4, min = 1.5e-5, warmup = 2000 },
    betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0,
  },
  data      = weft.synthetic {},
  train     = { steps = 100000, seed = 1, log_every = 10 },
  expect    = { peak_gib = weft.at_most(78) },
}
