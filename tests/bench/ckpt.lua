-- A model of 5 M parameters on one rank: its checkpoints have 67 MB.
local weft = require "weft"

return weft.plan {
  model     = weft.model { "llama", hidden_size = 256, num_hidden_layers = 4,
                           num_attention_heads = 8, num_key_value_heads = 8,
                           intermediate_size = 768, vocab_size = 4096 },
  batch     = { global = 2, micro = 2, seq = 64 },
  optimizer = weft.adamw { lr = 1e-4 },
  data      = weft.synthetic {},
}
