-- A model of 29 M parameters on one rank: its checkpoints have 350 MB.
local weft = require "weft"

return weft.plan {
  model     = weft.model { "llama", hidden_size = 512, num_hidden_layers = 8,
                           num_attention_heads = 8, num_key_value_heads = 8,
                           intermediate_size = 1024, vocab_size = 8192 },
  batch     = { global = 4, micro = 4, seq = 128 },
  optimizer = weft.adamw { lr = 1e-4 },
  data      = weft.synthetic {},
}
