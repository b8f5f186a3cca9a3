-- data.lua - reads the file of -D file=, of the kind of -D kind=.
local weft = require "weft"

return weft.plan {
  model = weft.model {
    "llama", num_hidden_layers = 1, hidden_size = 16, num_attention_heads = 4,
    num_key_value_heads = 2, intermediate_size = 24, vocab_size = 128,
  },
  mesh = { tp = 2 },
  batch = { global = 4, micro = 1, seq = 8 },
  data = weft[weft.vars.kind] { weft.vars.file },
  train = { steps = 2, log_every = 1 },
}
