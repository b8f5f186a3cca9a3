-- presets.lua - configurations by name. Each is what weft.model takes: an architecture
-- and keys of config.json; what is missing comes from the architecture's defaults. The
-- tiny ones have a vocabulary of bytes and run anywhere.

local llama31_scaling = {
  rope_type = "llama3", factor = 8.0, low_freq_factor = 1.0, high_freq_factor = 4.0,
  original_max_position_embeddings = 8192,
}

local olmo3_scaling = {
  rope_type = "yarn", factor = 8.0, original_max_position_embeddings = 8192, beta_fast = 32.0,
  beta_slow = 1.0, attention_factor = 1.2079441541679836,
}

-- One value in each fourth layer from the first on, and another one in the others.
local function fourths(layers, one, other)
  local list = {}
  for i = 1, layers do list[i] = i % 4 == 1 and one or other end
  return list
end

-- 0 for each layer but for some of them, from 0.
local function zeros(layers, but)
  local list = {}
  for i = 1, layers do list[i] = but[i - 1] or 0.0 end
  return list
end

local function laguna(layers, sizes, heads, factor, fast, attention)
  local c = {
    "laguna", vocab_size = 100352, num_hidden_layers = layers, num_attention_heads = 48,
    num_attention_heads_per_layer = fourths(layers, 48, heads), num_key_value_heads = 8, head_dim = 128,
    num_experts = 256, moe_routed_scaling_factor = 2.5, sliding_window = 512, max_position_embeddings = 8192 * factor,
    layer_types = fourths(layers, "full_attention", "sliding_attention"),
    rope_parameters = {
      full_attention = {
        rope_type = "yarn", rope_theta = 500000.0, partial_rotary_factor = 0.5, factor = factor + 0.0,
        original_max_position_embeddings = 8192, beta_fast = fast, beta_slow = 1.0, attention_factor = attention,
      },
      sliding_attention = { rope_type = "default", rope_theta = 10000.0, partial_rotary_factor = 1.0 },
    },
  }
  for key, value in pairs(sizes) do c[key] = value end
  return c
end

return {
  ["laguna-xs-2.1"] = laguna(40, {
    hidden_size = 2048, intermediate_size = 8192, num_experts_per_tok = 8, moe_intermediate_size = 512,
    shared_expert_intermediate_size = 512 }, 64, 32, 64.0, 1.3465735902799727),
  ["laguna-s-2.1"] = laguna(48, {
    hidden_size = 3072, intermediate_size = 12288, num_experts_per_tok = 10, moe_intermediate_size = 1024,
    shared_expert_intermediate_size = 1024 }, 72, 128, 32.0, 1.4852030263919618),
  ["step-3.5-flash"] = {
    "step3p5", vocab_size = 128896, hidden_size = 4096, intermediate_size = 11264, num_hidden_layers = 45,
    num_attention_heads = 64, num_sliding_attention_heads = 96, num_key_value_heads = 8, head_dim = 128,
    layer_types = fourths(45, "full_attention", "sliding_attention"), sliding_window = 512,
    max_position_embeddings = 262144, moe_router_scaling_factor = 3.0,
    swiglu_limits = zeros(45, { [43] = 7.0, [44] = 7.0 }), swiglu_limits_shared = zeros(45, { [44] = 16.0 }),
    rope_parameters = {
      full_attention = {
        rope_type = "llama3", rope_theta = 5000000.0, partial_rotary_factor = 0.5, factor = 2.0, low_freq_factor = 1.0,
        high_freq_factor = 32.0, original_max_position_embeddings = 131072,
      },
      sliding_attention = { rope_type = "default", rope_theta = 10000.0, partial_rotary_factor = 1.0 },
    },
  },
  ["llama3-8b"] = {
    "llama", vocab_size = 128256, hidden_size = 4096, intermediate_size = 14336,
    num_hidden_layers = 32, num_attention_heads = 32, num_key_value_heads = 8,
    max_position_embeddings = 8192, rms_norm_eps = 1e-5, rope_theta = 500000.0,
  },
  ["llama3-70b"] = {
    "llama", vocab_size = 128256, hidden_size = 8192, intermediate_size = 28672,
    num_hidden_layers = 80, num_attention_heads = 64, num_key_value_heads = 8,
    max_position_embeddings = 8192, rms_norm_eps = 1e-5, rope_theta = 500000.0,
  },
  ["llama3-405b"] = {
    "llama", vocab_size = 128256, hidden_size = 16384, intermediate_size = 53248,
    num_hidden_layers = 126, num_attention_heads = 128, num_key_value_heads = 8,
    max_position_embeddings = 131072, rms_norm_eps = 1e-5, rope_theta = 500000.0,
    rope_scaling = llama31_scaling,
  },
  ["llama3.2-1b"] = {
    "llama", vocab_size = 128256, hidden_size = 2048, intermediate_size = 8192,
    num_hidden_layers = 16, num_attention_heads = 32, num_key_value_heads = 8,
    head_dim = 64, max_position_embeddings = 131072, rms_norm_eps = 1e-5,
    rope_theta = 500000.0, tie_word_embeddings = true,
    rope_scaling = {
      rope_type = "llama3", factor = 32.0, low_freq_factor = 1.0, high_freq_factor = 4.0,
      original_max_position_embeddings = 8192,
    },
  },
  ["qwen2-0.5b"] = {
    "qwen2", vocab_size = 151936, hidden_size = 896, intermediate_size = 4864,
    num_hidden_layers = 24, num_attention_heads = 14, num_key_value_heads = 2,
    max_position_embeddings = 131072, rms_norm_eps = 1e-6, rope_theta = 1000000.0,
    tie_word_embeddings = true,
  },
  ["qwen3-8b"] = {
    "qwen3", vocab_size = 151936, hidden_size = 4096, intermediate_size = 12288,
    num_hidden_layers = 36, num_attention_heads = 32, num_key_value_heads = 8,
    head_dim = 128, max_position_embeddings = 40960, rms_norm_eps = 1e-6,
    rope_theta = 1000000.0,
  },
  ["mistral-7b"] = { -- the first version
    "mistral", vocab_size = 32000, hidden_size = 4096, intermediate_size = 14336,
    num_hidden_layers = 32, num_attention_heads = 32, num_key_value_heads = 8,
    max_position_embeddings = 32768, rms_norm_eps = 1e-5, sliding_window = 4096,
  },
  ["olmo3-7b"] = {
    "olmo3", vocab_size = 100278, hidden_size = 4096, intermediate_size = 11008,
    num_hidden_layers = 32, num_attention_heads = 32, num_key_value_heads = 32,
    max_position_embeddings = 65536, rms_norm_eps = 1e-6, rope_scaling = olmo3_scaling,
  },
  ["olmo3-32b"] = {
    "olmo3", vocab_size = 100278, hidden_size = 5120, intermediate_size = 27648,
    num_hidden_layers = 64, num_attention_heads = 40, num_key_value_heads = 8,
    max_position_embeddings = 65536, rms_norm_eps = 1e-6, rope_scaling = olmo3_scaling,
  },
  ["gemma-2b"] = {
    "gemma", hidden_size = 2048, intermediate_size = 16384, num_hidden_layers = 18,
    num_attention_heads = 8, num_key_value_heads = 1,
  },
  ["gemma-7b"] = { "gemma" },
  ["gemma2-2b"] = { "gemma2" },
  ["gemma2-9b"] = {
    "gemma2", hidden_size = 3584, intermediate_size = 14336, num_hidden_layers = 42,
    num_attention_heads = 16, num_key_value_heads = 8,
  },
  ["gemma2-27b"] = {
    "gemma2", hidden_size = 4608, intermediate_size = 36864, num_hidden_layers = 46,
    num_attention_heads = 32, num_key_value_heads = 16, head_dim = 128,
    query_pre_attn_scalar = 144,
  },
  ["gemma3-270m"] = {
    "gemma3_text", vocab_size = 262144, hidden_size = 640, intermediate_size = 2048,
    num_hidden_layers = 18, num_attention_heads = 4, num_key_value_heads = 1,
    max_position_embeddings = 32768, sliding_window = 512,
  },
  ["gemma3-1b"] = {
    "gemma3_text", vocab_size = 262144, hidden_size = 1152, intermediate_size = 6912,
    num_hidden_layers = 26, num_attention_heads = 4, num_key_value_heads = 1,
    max_position_embeddings = 32768, sliding_window = 512,
  },
  ["deepseek-v3"] = {
    "deepseek_v3", vocab_size = 129280, hidden_size = 7168, intermediate_size = 18432,
    moe_intermediate_size = 2048, num_hidden_layers = 61, num_attention_heads = 128,
    n_routed_experts = 256, max_position_embeddings = 163840, rope_theta = 10000.0,
    rope_scaling = {
      type = "yarn", factor = 40.0, beta_fast = 32.0, beta_slow = 1.0, mscale = 1.0,
      mscale_all_dim = 1.0, original_max_position_embeddings = 4096,
    },
  },
  ["gpt-oss-20b"] = { "gpt_oss", num_hidden_layers = 24, num_local_experts = 32 },
  ["gpt-oss-120b"] = { "gpt_oss" },
  ["moonlight-16b-a3b"] = {
    "deepseek_v3", vocab_size = 163840, hidden_size = 2048, intermediate_size = 11264,
    moe_intermediate_size = 1408, num_hidden_layers = 27, num_attention_heads = 16,
    num_key_value_heads = 16,
    q_lora_rank = false, n_routed_experts = 64, num_experts_per_tok = 6,
    n_shared_experts = 2, first_k_dense_replace = 1, n_group = 1, topk_group = 1,
    routed_scaling_factor = 2.446, num_nextn_predict_layers = 0, max_position_embeddings = 8192, rope_theta = 50000.0,
    rms_norm_eps = 1e-5,
  },
  ["kimi-k2"] = {
    "kimi_k2", vocab_size = 163840, hidden_size = 7168, intermediate_size = 18432,
    moe_intermediate_size = 2048, num_hidden_layers = 61, num_attention_heads = 64,
    num_key_value_heads = 64,
    n_routed_experts = 384, num_experts_per_tok = 8, n_shared_experts = 1,
    first_k_dense_replace = 1, n_group = 1, topk_group = 1, routed_scaling_factor = 2.827,
    num_nextn_predict_layers = 0, max_position_embeddings = 131072, rope_theta = 50000.0,
    rope_scaling = {
      type = "yarn", factor = 32.0, beta_fast = 1.0, beta_slow = 1.0, mscale = 1.0,
      mscale_all_dim = 1.0, original_max_position_embeddings = 4096,
    },
  },
  ["mixtral-8x7b"] = {
    "mixtral", vocab_size = 32000, hidden_size = 4096, intermediate_size = 14336,
    num_hidden_layers = 32, num_attention_heads = 32, num_key_value_heads = 8,
    num_local_experts = 8, num_experts_per_tok = 2, max_position_embeddings = 32768,
    rms_norm_eps = 1e-5, rope_theta = 1000000.0,
  },
  ["qwen3-30b-a3b"] = {
    "qwen3_moe", vocab_size = 151936, hidden_size = 2048, intermediate_size = 6144,
    moe_intermediate_size = 768, num_hidden_layers = 48, num_attention_heads = 32,
    num_key_value_heads = 4, head_dim = 128, num_experts = 128, num_experts_per_tok = 8,
    norm_topk_prob = true, max_position_embeddings = 40960, rms_norm_eps = 1e-6,
    rope_theta = 1000000.0,
  },
  ["qwen3-235b-a22b"] = {
    "qwen3_moe", vocab_size = 151936, hidden_size = 4096, intermediate_size = 12288,
    moe_intermediate_size = 1536, num_hidden_layers = 94, num_attention_heads = 64,
    num_key_value_heads = 4, head_dim = 128, num_experts = 128, num_experts_per_tok = 8,
    norm_topk_prob = true, max_position_embeddings = 40960, rms_norm_eps = 1e-6,
    rope_theta = 1000000.0,
  },
  ["gpt2-124m"] = {
    "gpt2", vocab_size = 50257, hidden_size = 768, num_hidden_layers = 12,
    num_attention_heads = 12, max_position_embeddings = 1024,
  },

  ["llama-tiny"] = {
    "llama", vocab_size = 256, hidden_size = 128, intermediate_size = 384,
    num_hidden_layers = 4, num_attention_heads = 8, num_key_value_heads = 4,
    max_position_embeddings = 1024, rms_norm_eps = 1e-5,
  },
  ["qwen2-tiny"] = {
    "qwen2", vocab_size = 256, hidden_size = 128, intermediate_size = 384,
    num_hidden_layers = 4, num_attention_heads = 8, num_key_value_heads = 4,
    max_position_embeddings = 1024, tie_word_embeddings = true,
  },
  ["qwen3-tiny"] = {
    "qwen3", vocab_size = 256, hidden_size = 128, intermediate_size = 384,
    num_hidden_layers = 4, num_attention_heads = 8, num_key_value_heads = 4,
    head_dim = 32, max_position_embeddings = 1024,
  },
  ["mixtral-tiny"] = {
    "mixtral", vocab_size = 256, hidden_size = 128, intermediate_size = 192,
    num_hidden_layers = 4, num_attention_heads = 8, num_key_value_heads = 4,
    num_local_experts = 8, num_experts_per_tok = 2, max_position_embeddings = 1024,
  },
  ["qwen3-moe-tiny"] = {
    "qwen3_moe", vocab_size = 256, hidden_size = 128, intermediate_size = 384,
    moe_intermediate_size = 64, num_hidden_layers = 4, num_attention_heads = 8,
    num_key_value_heads = 4, head_dim = 32, num_experts = 16, num_experts_per_tok = 4,
    norm_topk_prob = true, max_position_embeddings = 1024,
  },
  ["gpt-oss-tiny"] = {
    "gpt_oss", vocab_size = 256, hidden_size = 128, intermediate_size = 96,
    num_hidden_layers = 4, num_attention_heads = 8, num_key_value_heads = 4, head_dim = 32,
    num_local_experts = 8, num_experts_per_tok = 2, max_position_embeddings = 1024,
    sliding_window = 64, rope_scaling = { rope_type = "default" },
  },
  ["gemma2-tiny"] = {
    "gemma2", vocab_size = 256, hidden_size = 128, intermediate_size = 384,
    num_hidden_layers = 4, num_attention_heads = 4, num_key_value_heads = 2, head_dim = 32,
    query_pre_attn_scalar = 32, max_position_embeddings = 1024, sliding_window = 64,
  },
  ["gemma3-tiny"] = {
    "gemma3_text", vocab_size = 256, hidden_size = 128, intermediate_size = 384,
    num_hidden_layers = 6, num_attention_heads = 4, num_key_value_heads = 1, head_dim = 32,
    query_pre_attn_scalar = 32, max_position_embeddings = 1024, sliding_window = 64,
  },
  ["gpt2-tiny"] = {
    "gpt2", vocab_size = 256, hidden_size = 128, num_hidden_layers = 4,
    num_attention_heads = 8, max_position_embeddings = 1024,
  },
}
