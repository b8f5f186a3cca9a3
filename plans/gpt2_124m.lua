-- gpt2_124m.lua - GPT-2 small with the batch of its well-known reproductions: half a
-- million tokens a step, on eight GPUs of one machine.
--
--   weft check plans/gpt2_124m.lua         sizes, memory per rank, proof
--   weft run plans/gpt2_124m.lua           under a launcher with 8 processes
--
-- The tokens are made up. For real ones replace `data`, for example by
--   weft.tokens { "fineweb/*.bin" }        16-bit tokens of GPT-2's tokenizer
local weft = require "weft"

return weft.plan {
  name      = "gpt2-124m",
  model     = weft.model "gpt2-124m",
  cluster   = weft.cluster { nodes = 1, gpus = 8, gpu = "h100-sxm" },
  mesh      = { dp = 8 },
  strategy  = "ddp",
  precision = "bf16",
  batch     = { global = 512, micro = 16, seq = 1024 },
  optimizer = weft.adamw {
    lr = weft.cosine { max = 6e-4, min = 6e-5, warmup = 700 },
    betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0,
  },
  data      = weft.synthetic {},
  train     = { steps = 19000, seed = 1, log_every = 10 },
}
