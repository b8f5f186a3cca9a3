-- packed.lua - documents of m.bin and m.idx, whole in sequences of -D seq=; -D global= of
-- them are a step.
local weft = require "weft"
local v = weft.vars

return weft.plan {
  model = weft.model {
    "llama", num_hidden_layers = 2, hidden_size = 16, num_attention_heads = 4,
    num_key_value_heads = 2, intermediate_size = 24, vocab_size = 128,
  },
  mesh = { tp = 2 },
  batch = { global = v.global, micro = 1, seq = v.seq },
  optimizer = weft.adamw { lr = 1e-2 },
  packed = { size = v.seq },
  data = weft.tokens { "m", shuffle = false },
  train = { steps = 4, log_every = 1 },
}
