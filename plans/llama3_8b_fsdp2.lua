-- llama3_8b_fsdp2.lua - Llama 3 8B on the 8 GPUs of one machine as torchtitan's
-- llama3_8b.toml has it: FSDP2 over all ranks, sequences of 8192, bf16 with f32 reductions,
-- and of each layer only the results of products and of attention are kept ("cheap";
-- torchtitan calls that selective, with the option op, and leaves out every second product).
--
--   weft check plans/llama3_8b_fsdp2.lua                        45.2 GiB on each rank
--   weft check plans/llama3_8b_fsdp2.lua --set recompute=none   56.1 GiB
--   weft check plans/llama3_8b_fsdp2.lua --set recompute=full   24.6 GiB
local weft = require "weft"

return weft.plan {
  name      = "llama3-8b-fsdp2",
  model     = weft.model "llama3-8b",
  cluster   = weft.cluster { nodes = 1, gpus = 8, gpu = "h100-sxm" },
  strategy  = { "fsdp2" },
  recompute = "cheap",
  precision = "bf16",
  batch     = { global = 8, micro = 1, seq = 8192 },
  optimizer = weft.adamw {
    lr = weft.linear { max = 3e-4, min = 0, warmup = 200 },
    betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0,
  },
  data      = weft.synthetic {},
  train     = { steps = 1000, seed = 1, log_every = 10 },
  expect    = { peak_gib = weft.at_most(48) },
}
