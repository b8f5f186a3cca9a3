-- gpt_7b_zero.lua - a GPT of 7.5 billion parameters as in the table of the paper on ZeRO
-- (Rajbhandari et al. 2020, table 1): what a rank keeps of parameters, gradients and
-- optimizer state under each stage, with parameters and gradients in 2 bytes. A vocabulary
-- of 60,089 makes it 7,500,001,280 parameters.
--
--   weft show plans/gpt_7b_zero.lua memory -D stage=1 --set mesh.dp=64
local weft = require "weft"

return weft.plan {
  name      = "gpt-7.5b-zero",
  model     = weft.model { "gpt2-124m", hidden_size = 4096, num_hidden_layers = 36,
                           num_attention_heads = 32, vocab_size = 60089 },
  mesh      = { dp = 64 },
  strategy  = { "zero", stage = weft.var("stage", 3) },
  precision = { param_dtype = "bf16", grad_dtype = "bf16" },
  batch     = { global = 64, micro = 1, seq = 1024 },
  data      = weft.synthetic {},
}
