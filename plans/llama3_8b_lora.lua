-- llama3_8b_lora.lua - an adapter of rank 16 on all linears of Llama 3 8B, on one GPU of 80 GB:
-- the frozen base is there in bf16, and nothing but the adapter has gradients and states.
-- Activations of layers are recomputed.
--
--   weft check plans/llama3_8b_lora.lua                      18.5 GiB
--   weft show plans/llama3_8b_lora.lua memory                base, adapter, states, activations
local weft = require "weft"

return weft.plan {
  name      = "llama3-8b-lora",
  model     = weft.model "llama3-8b",
  cluster   = weft.cluster { nodes = 1, gpus = 1, gpu = "h100-sxm" },
  adapter   = { "lora", rank = 16, alpha = 32, targets = "all-linear" },
  recompute = "full",
  precision = "bf16",
  batch     = { global = 16, micro = 1, seq = 4096 },
  optimizer = weft.adamw {
    lr = weft.cosine { max = 1e-4, min = 0, warmup = 100 },
    weight_decay = 0, clip = 1.0,
  },
  data      = weft.synthetic {},
  train     = { steps = 1000, seed = 1, log_every = 10 },
  expect    = { peak_gib = weft.at_most(20) },
}
