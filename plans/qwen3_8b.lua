-- qwen3_8b.lua - Qwen3 8B on 32 GPUs. Its q and k norms are replicated over tp although
-- every rank sees other heads: their gradients are summed there by rule.
--
--   weft check plans/qwen3_8b.lua          sizes, memory per rank, proof
--   weft show plans/qwen3_8b.lua           programs, schedule, memory
local weft = require "weft"

return weft.plan {
  name      = "qwen3-8b-h100x32",
  model     = weft.model "qwen3-8b",
  cluster   = weft.cluster { nodes = 4, gpus = 8, gpu = "h100-sxm" },
  mesh      = { tp = 4, pp = 2 },                  -- dp = 32 / (4 * 2) = 4
  strategy  = { "zero", sequence_parallel = true },
  tp_plan   = weft.tp_plan "qwen3",
  pp_plan   = { layers = { 19, 17 } },             -- the head costs about two layers
  schedule  = "1f1b",
  precision = "bf16",
  batch     = { global = 256, micro = 1, seq = 4096 },
  optimizer = weft.adamw {
    lr = weft.cosine { max = 3e-4, min = 3e-5, warmup = 2000 },
    betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0,
  },
  data      = weft.synthetic {},
  train     = { steps = 100000, seed = 1, log_every = 10 },
}
