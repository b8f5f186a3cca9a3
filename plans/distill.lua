-- distill.lua - a small Llama learns a play of Shakespeare, byte by byte, from its text and from
-- the probabilities of a wider teacher, a folder of Hugging Face. The teacher's layers lie in the
-- stages of the student's; they are frozen, and cut by tp alike.
--
--   weft run plans/distill.lua
--
-- The loss is half of cross entropy and half of KL(teacher|student) at a temperature of 2.
local weft = require "weft"

return weft.plan {
  model = weft.model {
    "llama", hidden_size = 16, num_hidden_layers = 4, num_attention_heads = 4,
    num_key_value_heads = 2, intermediate_size = 48, vocab_size = 256,
  },
  mesh      = { tp = 2, pp = 2, dp = 2 },
  strategy  = "fsdp2",
  loss      = { "distill", teacher = "data/tiny-llama", alpha = 0.5, temperature = 2 },
  batch     = { global = 16, micro = 2, seq = 128 },
  optimizer = weft.adamw { lr = 3e-3, weight_decay = 0.01, clip = 1.0 },
  data      = weft.text { "data/coriolanus.txt" },
  train     = { steps = 40, seed = 1, log_every = 10 },
}
