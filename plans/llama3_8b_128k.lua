-- Llama 3 8B on sequences of 131,072 tokens: 64 H100 in 8 machines, tensor parallel in
-- halves of a machine, the sequence over 16 groups of them. Keys and values are gathered.
local weft = require "weft"

return weft.plan {
  model     = weft.model "llama3-8b",
  cluster   = weft.cluster { "h100-sxm", nodes = 8 },
  mesh      = { tp = 4, cp = 16 },
  cp        = { comm = "allgather", balance = "zigzag" },
  strategy  = { "fsdp2", sequence_parallel = true },
  recompute = "selective",
  precision = "bf16",
  batch     = { global = 8, micro = 1, seq = 131072 },
  optimizer = weft.adamw { lr = weft.cosine { max = 3e-5, min = 3e-6, warmup = 200 } },
  data      = weft.synthetic {},
  train     = { steps = 1000 },
}
