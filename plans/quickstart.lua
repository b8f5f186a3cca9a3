-- quickstart.lua - trains a small Llama on a play of Shakespeare, byte by byte, on eight
-- virtual ranks of this machine: 2 pipeline stages x 2 data-parallel x 2 tensor-parallel,
-- with sequence parallelism. Under a minute on two cores.
--
--   weft run plans/quickstart.lua          trains; the loss falls from 5.6 to about 1.6
--   weft show plans/quickstart.lua         what every rank does, holds and sends
--   weft verify plans/quickstart.lua       the same steps on one rank, compared
--
-- A model that knew only how often each byte occurs would stay at 3.29.
local weft = require "weft"

return weft.plan {
  name      = "quickstart",
  model     = weft.model "llama-tiny",
  mesh      = { tp = 2, pp = 2, dp = 2 },
  strategy  = { "zero", sequence_parallel = true },
  tp_plan   = weft.tp_plan "llama",
  schedule  = "1f1b",
  batch     = { global = 16, micro = 2, seq = 128 },
  optimizer = weft.adamw {
    lr = weft.cosine { max = 3e-3, min = 3e-4, warmup = 10 },
    betas = { 0.9, 0.95 }, weight_decay = 0.1, clip = 1.0,
  },
  data      = weft.text { "data/coriolanus.txt" },
  train     = { steps = 400, seed = 1, log_every = 20 },
}
