-- dpo.lua - direct preference optimisation of a small Llama against a frozen copy of itself, on
-- two pipeline stages of two tensor-parallel ranks: the reference's layers lie beside those that
-- learn, and both heads on the last stage.
--
--   weft show stages plans/dpo.lua
--   weft run plans/dpo.lua
--
-- The data are random, so nothing is preferred: the loss begins at log 2 = 0.6931. With pairs of
-- your own:
--
--   data   = weft.chat { "pairs.jsonl", format = "preference", template = "chatml" },
--   packed = { size = 64, alone = true },
local weft = require "weft"

return weft.plan {
  model = weft.model {
    "llama", hidden_size = 64, num_hidden_layers = 4, num_attention_heads = 4,
    num_key_value_heads = 2, intermediate_size = 128, vocab_size = 256,
  },
  mesh      = { tp = 2, pp = 2 },
  schedule  = "1f1b",
  loss      = { "dpo", beta = 0.1 },
  batch     = { global = 8, micro = 2, seq = 64 },       -- four pairs
  optimizer = weft.adamw { lr = 1e-4, weight_decay = 0 },
  data      = weft.synthetic {},
  train     = { steps = 4 },
}
