-- llama3_405b_16k.lua - the sizes with which Llama 3 405B was trained on 16,384 GPUs (the paper's
-- table 4): TP 8, PP 16, DP 128, 16 million tokens a step. Layers are spread 7, 14 x 8, 7: the
-- first stage also holds the embedding and the last one the head. The schedule is plain 1f1b,
-- whose bubble with 16 microbatches is half of the step: 9.1 s by weft sim. The paper's ranks
-- have several stages each; with four it is 5.9 s, and 400 TFLOP/s, as published, are 6.5 s.
-- Optimizer state is cut over dp (ZeRO stage 1), and what only moves data is computed again
-- in backward; with everything replicated and kept the worst rank needs 114 GiB.
--
--   weft sim plans/llama3_405b_16k.lua --set schedule=interleaved_1f1b \
--     --set 'pp_plan={ virtual = 4, balance = "cost" }'
--   weft check plans/llama3_405b_16k.lua             59.7 GiB on the worst rank
--   weft check plans/llama3_405b_16k.lua --set strategy.stage=0 --set recompute=none
--   weft check plans/llama3_405b_16k.lua --set 'strategy={"fsdp2", sequence_parallel=true}'
local weft = require "weft"

return weft.plan {
  name      = "llama3-405b-h100x16384",
  model     = weft.model "llama3-405b",
  cluster   = weft.cluster { nodes = 2048, gpus = 8, gpu = "h100-sxm" },
  mesh      = { tp = 8, pp = 16 },                 -- dp = 16384 / (8 * 16) = 128
  strategy  = { "zero", stage = 1, sequence_parallel = true },
  recompute = "cheap",
  tp_plan   = weft.tp_plan "llama",
  schedule  = "1f1b",
  precision = "bf16",
  batch     = { global = 2048, micro = 1, seq = 8192 },
  optimizer = weft.adamw {
    lr = weft.cosine { max = 8e-5, min = 8e-7, warmup = 8000 },
    betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0,
  },
  data      = weft.synthetic {},
  train     = { steps = 1200000, seed = 1, log_every = 10 },
  expect    = { peak_gib = weft.at_most(77) },
}
