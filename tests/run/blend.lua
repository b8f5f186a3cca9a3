-- blend.lua - text from two files by weight.
local weft = require "weft"

return weft.plan {
  model = weft.model {
    "llama", num_hidden_layers = 1, hidden_size = 16, num_attention_heads = 4,
    num_key_value_heads = 2, intermediate_size = 24, vocab_size = 128,
  },
  batch = { global = 4, micro = 1, seq = 8 },
  data = weft.text { files = { "a.txt", "b.txt" }, weights = { 3, 1 } },
  train = { steps = 2, log_every = 1 },
}
