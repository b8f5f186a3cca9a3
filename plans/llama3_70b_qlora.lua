-- llama3_70b_qlora.lua - an adapter of rank 16 on all linears of Llama 3 70B, on two GPUs: the
-- frozen linears of layers are stored in 4 bits (NF4, QLoRA) and sharded by FSDP2, which gathers
-- them in these 4 bits, layer by layer. Activations of layers are recomputed.
--
--   weft check plans/llama3_70b_qlora.lua                    32.3 GiB on each rank
--   weft show plans/llama3_70b_qlora.lua memory              base, adapter, states, activations
local weft = require "weft"

return weft.plan {
  name      = "llama3-70b-qlora",
  model     = weft.model "llama3-70b",
  cluster   = weft.cluster { nodes = 1, gpus = 2, gpu = "h100-sxm" },
  strategy  = { "fsdp2" },
  adapter   = { "lora", rank = 16, alpha = 32, targets = "all-linear", base = "nf4" },
  recompute = "full",
  precision = "bf16",
  batch     = { global = 16, micro = 1, seq = 4096 },
  optimizer = weft.adamw {
    lr = weft.cosine { max = 1e-4, min = 0, warmup = 100 },
    weight_decay = 0, clip = 1.0,
  },
  data      = weft.synthetic {},
  train     = { steps = 1000, seed = 1, log_every = 10 },
  expect    = { peak_gib = weft.at_most(34) },
}
