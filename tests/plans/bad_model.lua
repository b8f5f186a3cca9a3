-- The architecture's own checks.
local weft = require "weft"

return weft.plan {
  model = weft.model { "llama", hidden_size = 64, num_attention_heads = 5,
                       num_hidden_layers = 2.5,
                       attention_dropout = 1.5 },
  batch = { global = 8, seq = 64 },
}
--> bad_model.lua:6: error: plan.model.num_hidden_layers: expected a positive integer, got 2.5
--> bad_model.lua:7: error: plan.model.attention_dropout: expected a number from 0 that is below 1, got 1.5
--> 2 errors
