-- llama_1b.lua - a dense Llama of 1.11 billion parameters on one GPU, two sequences of 4096
-- tokens a step: what tests/gpu.sh measures. In bf16 with f32 master weights, gradients and
-- moments.
--
--   weft show tests/gpu/llama_1b.lua memory --device cuda
--   weft run tests/gpu/llama_1b.lua --device cuda --steps 20
--
-- tests/gpu/race.py gives it weights and tokens below a folder of --data:
--   -D weights=NAME   a folder as of Hugging Face      -D tokens=NAME   raw 16-bit ids
local weft = require "weft"
local weights, tokens = weft.var("weights", ""), weft.var("tokens", "")

return weft.plan {
  name      = "llama-1b",
  model     = weights ~= "" and weft.hf(weights)
              or weft.hf { "llama_1b", weights = false },
  mesh      = { dp = 1 },
  precision = weft.var("precision", "bf16"),
  batch     = { global = 2, micro = 2, seq = 4096 },
  optimizer = weft.adamw {
    lr = 1e-4, betas = { 0.9, 0.95 }, eps = 1e-8, weight_decay = 0.1, clip = 1.0,
  },
  data      = tokens ~= "" and weft.tokens { tokens, shuffle = false }
              or weft.synthetic {},
  train     = { steps = 20, seed = 1, log_every = 1 },
}
