-- validate.lua - text with other text for validation, of the file of -D val=.
local weft = require "weft"

local val, deeper = weft.var("val", ""), weft.var("deeper", "")

return weft.plan {
  model = weft.model {
    "llama", num_hidden_layers = 1, hidden_size = 16, num_attention_heads = 4,
    num_key_value_heads = 2, intermediate_size = 24, vocab_size = 128,
  },
  batch = { global = 4, micro = 1, seq = 8 },
  data = weft.text {
    "a.txt",
    val = val ~= "" and weft.text { val, val = deeper ~= "" and weft.text(deeper) or nil } or nil,
  },
}
