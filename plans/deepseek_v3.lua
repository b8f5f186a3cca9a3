-- deepseek_v3.lua - DeepSeek-V3 on 2,048 GPUs: 16 pipeline stages in both directions, 256
-- experts over 64 ranks, four each, and state of the optimizer cut over all that have the
-- same parameters. Nothing that one rank may send another is more than 1.5 times the mean:
-- rows beyond that are dropped, so that memory is a tenth of what all rows at once would be.
-- Sizes are those of the technical report, which drops no rows, trains in FP8 and keeps more of
-- a layer; in bf16 all of it has to be recomputed.
--
--   weft check plans/deepseek_v3.lua       sizes, memory per rank, proof
--   weft show plans/deepseek_v3.lua memory what it is made of
local weft = require "weft"

return weft.plan {
  name      = "deepseek-v3-h100x2048",
  model     = weft.model "deepseek-v3",
  cluster   = weft.cluster { nodes = 256, gpus = 8, gpu = "h100-sxm" },
  mesh      = { pp = 16, ep = 64 },                -- dp = 2048 / 16 = 128
  strategy  = { "zero", stage = 1 },
  schedule  = "dualpipe_v",
  precision = "bf16",
  recompute = "full",
  moe       = {
    dispatcher = "alltoall", max_tokens_factor = 1.5, drop = true,
    bias_update_rate = 0.001,
  },
  batch     = { global = 15360, micro = 1, seq = 4096 },
  optimizer = weft.adamw {
    lr = weft.cosine { max = 2.2e-4, min = 2.2e-5, warmup = 2000 },
    betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0,
  },
  data      = weft.synthetic {},
  train     = { steps = 100000, seed = 1, log_every = 10 },
}
