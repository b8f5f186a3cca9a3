-- base.lua - a plan that runs; check_bad_input changes one thing at a time.
local weft = require "weft"

return weft.plan {
  name = "base",
  model = weft.model {
    "llama", num_hidden_layers = 2, hidden_size = 16, num_attention_heads = 4,
    num_key_value_heads = 2, intermediate_size = 24, vocab_size = 128,
  },
  mesh = { tp = 2, dp = 1 },
  batch = { global = 4, micro = 1, seq = 8 },
  optimizer = weft.adamw { lr = 1e-3 },
  data = weft.synthetic {},
  train = { steps = 3, log_every = 1 },
}
