-- SmolLM-135M on three tensor-parallel ranks, for the speed of loading.
local weft = require "weft"

return weft.plan {
  name = "smollm-135m-tp3",
  model = weft.model {
    "llama", vocab_size = 49152, hidden_size = 576, intermediate_size = 1536,
    num_hidden_layers = 30, num_attention_heads = 9, num_key_value_heads = 3,
    max_position_embeddings = 2048, rms_norm_eps = 1e-5, tie_word_embeddings = true,
  },
  mesh = { tp = 3 },
  batch = { global = 6, micro = 1, seq = 32 },
}
