-- small.lua - the least that has every part of a plan: for check_api.c, check_no_memory.c.
local weft = require "weft"

return weft.plan {
  model     = weft.model { "llama", hidden_size = 16, intermediate_size = 24,
                           num_hidden_layers = 2, num_attention_heads = 2,
                           num_key_value_heads = 2, vocab_size = 30 },
  mesh      = { tp = 2, pp = 2 },
  batch     = { global = 4, micro = 1, seq = 8 },
  optimizer = weft.adamw { lr = 1e-2, clip = 1 },
  data      = weft.synthetic {},
  train     = { steps = 4, seed = 7 },
}
