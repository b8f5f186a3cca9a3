-- A model of 9 M parameters on one rank: its checkpoints have 110 MB.
local weft = require "weft"

return weft.plan {
  model     = weft.model { "llama", hidden_size = 256, num_hidden_layers = 6,
                           num_attention_heads = 8, num_key_value_heads = 8,
                           intermediate_size = 768, vocab_size = 8192 },
  batch     = { global = 2, micro = 2, seq = 128 },
  optimizer = weft.adamw { lr = 1e-4 },
  data      = weft.synthetic {},
}
