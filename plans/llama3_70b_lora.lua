-- llama3_70b_lora.lua - an adapter of rank 16 on all linears of Llama 3 70B, on the 8 GPUs of
-- one machine: FSDP2 over all ranks gathers the frozen base in bf16, layer by layer, and
-- nothing but the adapter has gradients and states. Activations of layers are recomputed.
--
--   weft check plans/llama3_70b_lora.lua                     29.0 GiB on each rank
--   weft show plans/llama3_70b_lora.lua memory               base, adapter, states, activations
local weft = require "weft"

return weft.plan {
  name      = "llama3-70b-lora",
  model     = weft.model "llama3-70b",
  cluster   = weft.cluster { nodes = 1, gpus = 8, gpu = "h100-sxm" },
  strategy  = { "fsdp2" },
  adapter   = { "lora", rank = 16, alpha = 32, targets = "all-linear" },
  recompute = "full",
  precision = "bf16",
  batch     = { global = 64, micro = 1, seq = 4096 },
  optimizer = weft.adamw {
    lr = weft.cosine { max = 1e-4, min = 0, warmup = 100 },
    weight_decay = 0, clip = 1.0,
  },
  data      = weft.synthetic {},
  train     = { steps = 1000, seed = 1, log_every = 10 },
  expect    = { peak_gib = weft.at_most(32) },
}
