-- qwen3_moe_layer.lua - one layer of Qwen3-30B-A3B, 8192 tokens a step on one GPU: what
-- tests/gpu/sass.py asks which of its products are on tensor cores.
--
--   weft show tests/gpu/qwen3_moe_layer.lua program 0 > program.txt
--   tests/gpu/sass.py products program.txt
local weft = require "weft"

return weft.plan {
  name      = "qwen3-moe-layer",
  model     = weft.model {
    "qwen3_moe", hidden_size = 2048, num_hidden_layers = 1, num_attention_heads = 32,
    num_key_value_heads = 4, head_dim = 128, num_experts = 128, num_experts_per_tok = 8,
    moe_intermediate_size = 768, vocab_size = 151936, norm_topk_prob = true,
  },
  mesh      = { dp = 1 },
  precision = "bf16",
  batch     = { global = 2, micro = 2, seq = 4096 },
  optimizer = weft.adamw { lr = 1e-4 },
  data      = weft.synthetic {},
  train     = { steps = 20, seed = 1 },
}
