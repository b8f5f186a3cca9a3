-- ranks_64.lua - a small model on 64 ranks: tp = 4, pp = 4, dp = 4.
local weft = require "weft"

return weft.plan {
  model = weft.model {
    "llama", num_hidden_layers = 4, hidden_size = 32, num_attention_heads = 8,
    num_key_value_heads = 4, intermediate_size = 64, vocab_size = 64,
    initializer_range = 0.1,
  },
  mesh = { tp = 4, pp = 4, dp = 4 },
  strategy = { "zero", sequence_parallel = true },
  schedule = "1f1b",
  batch = { global = 32, micro = 1, seq = 16 },
  optimizer = weft.adamw { lr = 1e-3 },
  data = weft.synthetic {},
  train = { steps = 2, log_every = 1 },
}
