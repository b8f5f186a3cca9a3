-- mixtral_8x7b.lua - Mixtral 8x7B on 64 GPUs. Every rank has all experts of its layers, cut
-- by ffn over tp as an MLP is; the loss of the routers balances them. It is no published
-- layout: weft sim says 4.3 s a step, and 3.0 s for that of Megatron-LM's benchmarks, PP 4 and
-- EP 8 with eight stages on each rank (here with room for 1.5 times the mean of the rows):
--
--   weft sim plans/mixtral_8x7b.lua --set 'mesh={ pp = 4, ep = 8 }' --set pp_plan.virtual=8 \
--     --set schedule=interleaved_1f1b \
--     --set 'moe={ dispatcher = "alltoall", max_tokens_factor = 1.5, drop = true }'
--
--   weft check plans/mixtral_8x7b.lua      sizes, memory per rank, proof
--   weft show plans/mixtral_8x7b.lua       programs, schedule, memory
local weft = require "weft"

return weft.plan {
  name      = "mixtral-8x7b-h100x64",
  model     = weft.model "mixtral-8x7b",
  cluster   = weft.cluster { nodes = 8, gpus = 8, gpu = "h100-sxm" },
  mesh      = { tp = 8, pp = 4 },                  -- dp = 64 / (8 * 4) = 2
  strategy  = { "zero", stage = 1, sequence_parallel = true },
  schedule  = "1f1b",
  precision = "bf16",
  moe       = { aux_loss_coef = 0.02 },
  batch     = { global = 256, micro = 1, seq = 4096 },
  optimizer = weft.adamw {
    lr = weft.cosine { max = 3e-4, min = 3e-5, warmup = 2000 },
    betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0,
  },
  data      = weft.synthetic {},
  train     = { steps = 100000, seed = 1, log_every = 10 },
}
