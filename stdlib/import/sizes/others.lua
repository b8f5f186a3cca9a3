-- others.lua - sizes of public models of all other families, by short names.
local decoder = require "weft.import.sizes.decoder"

local tied = { tie_word_embeddings = true }
-- Of models whose class can drop, and whose file was not seen.
local UNSEEN_RATES = "rates of dropout are in its config.json alone, which --model DIR reads: nothing is dropped here"

-- Numbers that embeddings, scores, branches and logits are multiplied by or divided by. `rate`: what of the
-- scores its file drops.
local function granite(sizes, rate, theta, positions)
  local small = sizes[1] == 2048
  local c = decoder("granite", sizes, {
    embedding_multiplier = 12.0, attention_multiplier = small and 0.015625 or 0.0078125, residual_multiplier = 0.22,
    logits_scaling = small and 8.0 or 16.0, tie_word_embeddings = true, rms_norm_eps = 1e-5,
    rope_theta = theta, max_position_embeddings = positions or 131072 })
  c.attention_dropout, c.note = rate or nil, not rate and UNSEEN_RATES or nil
  return c
end
local function olmo2(sizes)
  return decoder("olmo2", sizes, { rms_norm_eps = 1e-6, rope_theta = 500000.0,
                                   max_position_embeddings = 4096 })
end
local function glm45(sizes, more)
  local c = decoder("glm4_moe", sizes, more)
  c.head_dim, c.attention_bias, c.rope_theta = 128, true, 1000000.0
  c.num_nextn_predict_layers = 0
  return c
end
-- GLM-4 of 2024; the later one is glm4, whose large size has no biases.
local function glm4(arch, sizes, more)
  local c = decoder(arch, sizes, more)
  c.head_dim = 128
  return c
end
-- Ling 2.0: GLM-4.5's attention with norms over heads, DeepSeek-V3's experts in groups.
local function ling(sizes, more)
  local c = decoder("glm4_moe", sizes, more)
  c.head_dim, c.use_qk_norm, c.rms_norm_eps, c.rope_theta = 128, true, 1e-6, 600000.0
  c.n_routed_experts, c.n_group, c.topk_group, c.routed_scaling_factor = 256, 8, 4, 2.5
  c.max_position_embeddings, c.num_nextn_predict_layers = 32768, 0
  c.bias_update_rate = 0 -- where GLM-4.5's is not
  c.note = "Ling 2.0 has the layers of glm4_moe; names in its files differ"
  return c
end
-- Nemotron Nano 2 and Nemotron 3: hidden, feed-forward, heads, key-value heads, heads with a state, their
-- size, the pattern. Their config.json, of which the numbers of parameters follow: 8.89 B, 12.3 B, 31.6 B, ...
local function nemotron_h(sizes, more)
  local c = { "nemotron_h", hidden_size = sizes[1], intermediate_size = sizes[2], num_attention_heads = sizes[3],
              num_key_value_heads = sizes[4], mamba_num_heads = sizes[5], mamba_head_dim = sizes[6],
              hybrid_override_pattern = sizes[7], head_dim = 128, vocab_size = 131072,
              max_position_embeddings = more and 262144 or 131072 }
  for key, value in pairs(more or {}) do c[key] = value end
  return c
end
-- Experts of Nemotron 3: how many, of a token, their width, that of the shared one, and of the latent.
local function nemotron_experts(all, each, width, shared, latent, scale)
  return { n_routed_experts = all, num_experts_per_tok = each, moe_intermediate_size = width,
           moe_shared_expert_intermediate_size = shared, moe_latent_size = latent, routed_scaling_factor = scale }
end
local NANO3 = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
local SUPER = "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME"
local ULTRA = "MEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*"
  .. "EMEMEMEM*EMEMEMEME"
local function nano3()
  return nemotron_h({ 2688, 1856, 32, 2, 64, 64, NANO3 }, nemotron_experts(128, 6, 1856, 3712, nil, 2.5))
end
-- Falcon-H1: its multipliers are in its config.json alone.
local function falcon_h1(sizes, d, heads, size, groups, state)
  local c = decoder("falcon_h1", sizes, {
    head_dim = d, mamba_d_ssm = heads * size, mamba_n_heads = heads, mamba_d_head = size,
    mamba_n_groups = groups, mamba_d_state = state, rope_theta = 100000000000.0, rms_norm_eps = 1e-5,
    max_position_embeddings = d == 64 and 16384 or 262144 })
  c.note = "multipliers of Falcon-H1 are in its config.json alone: weft.hf reads them"
  return c
end
-- With the dropout of its files, which is that of Transformers' class.
local function gpt2(hidden, layers, heads)
  return { "gpt2", vocab_size = 50257, hidden_size = hidden, num_hidden_layers = layers,
           num_attention_heads = heads, max_position_embeddings = 1024,
           attn_pdrop = 0.1, embd_pdrop = 0.1, resid_pdrop = 0.1 }
end
local function cerebras(hidden, layers, heads)
  local c = gpt2(hidden, layers, heads)
  c.max_position_embeddings, c.activation_function = 2048, "gelu"
  c.attn_pdrop, c.embd_pdrop, c.resid_pdrop, c.note = nil, nil, nil, UNSEEN_RATES
  return c
end
-- Cohere 2.
local function command(sizes)
  return decoder("cohere2", sizes, { logit_scale = 0.25, rope_theta = 50000.0 })
end
local function starcoder2(sizes, theta, shared)
  return decoder("starcoder2", sizes, { rope_theta = theta, sliding_window = 4096,
    max_position_embeddings = 16384, tie_word_embeddings = shared,
    attention_dropout = 0.1, residual_dropout = 0.1, embedding_dropout = 0.1 })
end
local function phi(sizes, part, rate)
  return decoder("phi", sizes, { partial_rotary_factor = part, max_position_embeddings = 2048, resid_pdrop = rate })
end
-- Ministral 3 and Devstral 2: scaled from `length` positions on, by `factor`; queries grow by `growth`.
local function ministral3(sizes, theta, factor, length, growth, more)
  local c = decoder("ministral3", sizes, more)
  c.head_dim, c.max_position_embeddings = 128, math.tointeger(factor * length)
  c.rope_parameters = { rope_type = "yarn", rope_theta = theta, factor = factor, mscale = 1.0, mscale_all_dim = 1.0,
                        beta_fast = 32.0, beta_slow = 1.0, original_max_position_embeddings = length,
                        llama_4_scaling_beta = growth }
  return c
end
-- Those that see images, too.
local function ministral3_text(...)
  local c = ministral3(...)
  c.note = "the text model alone, which sees no images; its files have it under another prefix"
  return c
end

-- A text is the name of a preset.
return {
  -- DeepSeek-V3 by the defaults of Transformers' class, Moonlight and Kimi K2 by torchtitan's flavors.
  ["deepseek-v3"] = "deepseek-v3",
  ["deepseek-r1"] = "deepseek-v3",
  ["deepseek-v3.1"] = "deepseek-v3",
  ["moonlight-16b-a3b"] = "moonlight-16b-a3b",
  ["kimi-k2"] = "kimi-k2",
  -- gpt-oss by its config.json, weights in bf16.
  ["gpt-oss-20b"] = "gpt-oss-20b", ["gpt-oss-120b"] = "gpt-oss-120b",
  -- Granite by its technical report, OLMo 2 by its model cards, Phi-4 and GLM-4.5 by published
  -- scripts and totals, the others by the defaults of Transformers' classes.
  ["granite-3.0-2b"] = granite({ 2048, 8192, 40, 32, 8, 49155 }, 0.1, 10000.0, 4096),
  ["granite-3.0-8b"] = granite({ 4096, 12800, 40, 32, 8, 49155 }, nil, 10000.0, 4096),
  ["granite-3.1-2b"] = granite({ 2048, 8192, 40, 32, 8, 49155 }, nil, 5000000.0),
  ["granite-3.1-8b"] = granite({ 4096, 12800, 40, 32, 8, 49155 }, 0.1, 10000000.0),
  ["granite-3.2-2b"] = granite({ 2048, 8192, 40, 32, 8, 49155 }, nil, 5000000.0),
  ["granite-3.2-8b"] = granite({ 4096, 12800, 40, 32, 8, 49155 }, nil, 10000000.0),
  ["granite-3.3-2b"] = granite({ 2048, 8192, 40, 32, 8, 49159 }, nil, 10000000.0),
  ["granite-3.3-8b"] = granite({ 4096, 12800, 40, 32, 8, 49159 }, 0.0, 10000000.0),
  ["olmo-2-1b"] = olmo2 { 2048, 8192, 16, 16, 16, 100352 },
  ["olmo-2-7b"] = olmo2 { 4096, 11008, 32, 32, 32, 100352 },
  ["olmo-2-13b"] = olmo2 { 5120, 13824, 40, 40, 40, 100352 },
  ["olmo-2-32b"] = olmo2 { 5120, 27648, 64, 40, 8, 100352 },
  ["olmo-3-7b"] = "olmo3-7b",
  ["olmo-3-32b"] = "olmo3-32b",
  ["phi-4"] = decoder("phi3", { 5120, 17920, 40, 40, 10, 100352 },
    { max_position_embeddings = 16384, original_max_position_embeddings = 16384,
      rope_theta = 250000.0 }),
  ["phi-4-reasoning"] = decoder("phi3", { 5120, 17920, 40, 40, 10, 100352 },
    { max_position_embeddings = 32768, original_max_position_embeddings = 32768, rope_theta = 500000.0 }),
  ["phi-3-mini-4k"] = decoder("phi3", { 3072, 8192, 32, 32, 32, 32064 }, { sliding_window = 2047 }),
  ["phi-3-medium-4k"] = decoder("phi3", { 5120, 17920, 40, 40, 10, 32064 }, { sliding_window = 2047 }),
  ["smollm3-3b"] = decoder("smollm3", { 2048, 11008, 36, 16, 4, 128256 },
    { tie_word_embeddings = true, rope_theta = 5000000.0, max_position_embeddings = 65536 }),
  ["mimo-v2-flash"] = decoder("mimo_v2_flash", { 4096, 16384, 48, 64, 4, 152576 }),
  ["laguna-xs-2.1"] = "laguna-xs-2.1", ["laguna-s-2.1"] = "laguna-s-2.1", ["step-3.5-flash"] = "step-3.5-flash",
  ["seed-oss-36b"] = decoder("seed_oss", { 5120, 27648, 64, 80, 8, 155136 },
    { head_dim = 128, rope_theta = 10000000.0, attention_dropout = 0.0, residual_dropout = 0.0, note = UNSEEN_RATES }),
  ["ernie-4.5-0.3b"] = decoder("ernie4_5", { 1024, 3072, 18, 16, 2, 103424 }),
  ["glm-4.5"] = glm45({ 5120, 12288, 92, 96, 8, 151552 },
    { moe_intermediate_size = 1536, n_routed_experts = 160, first_k_dense_replace = 3,
      routed_scaling_factor = 2.5, use_qk_norm = true }),
  ["glm-4.5-air"] = glm45({ 4096, 10944, 46, 96, 8, 151552 },
    { moe_intermediate_size = 1408, n_routed_experts = 128, first_k_dense_replace = 1 }),
  ["glm-4-9b"] = glm4("glm", { 4096, 13696, 40, 32, 2, 151552 }),
  ["glm-4-9b-0414"] = glm4("glm4", { 4096, 13696, 40, 32, 2, 151552 },
    { rms_norm_eps = 1e-5, max_position_embeddings = 32768 }),
  ["glm-4-32b"] = glm4("glm4", { 6144, 23040, 61, 48, 2, 151552 },
    { rms_norm_eps = 1e-5, max_position_embeddings = 32768, attention_bias = false }),
  ["ling-mini-2.0"] = ling({ 2048, 5120, 20, 16, 4, 157184 },
    { moe_intermediate_size = 512, first_k_dense_replace = 1 }),
  ["ling-flash-2.0"] = ling({ 4096, 9216, 32, 32, 4, 157184 },
    { moe_intermediate_size = 1024, first_k_dense_replace = 1 }),
  ["ling-1t"] = ling({ 8192, 18432, 80, 64, 8, 157184 },
    { moe_intermediate_size = 2048, first_k_dense_replace = 4 }),
  ["minimax-m2"] = decoder("minimax_m2", { 3072, 1536, 62, 48, 8, 200064 }, { rotary_dim = 64 }),
  ["hy3"] = decoder("hy_v3", { 4096, 13312, 80, 64, 8, 120832 }, { num_experts = 192 }),
  ["glm-4.7-flash"] = decoder("glm4_moe_lite", { 2048, 10240, 47, 20, 20, 154880 }, { n_routed_experts = 64 }),
  ["c4ai-command-r7b-12"] = command { 4096, 14336, 32, 32, 8, 256000 },
  ["c4ai-command-a-03"] = command { 12288, 36864, 64, 96, 8, 256000 },
  ["starcoder2-3b"] = starcoder2({ 3072, 12288, 30, 24, 2, 49152 }, 999999.4420358813, true),
  ["starcoder2-7b"] = starcoder2({ 4608, 18432, 32, 36, 4, 49152 }, 1000000.0, true),
  ["starcoder2-15b"] = starcoder2({ 6144, 24576, 40, 48, 4, 49152 }, 100000.0, false),
  ["phi-1"] = phi({ 2048, 8192, 24, 32, 32, 51200 }, 0.5), ["phi-1_5"] = phi({ 2048, 8192, 24, 32, 32, 51200 }, 0.5),
  ["phi-2"] = phi({ 2560, 10240, 32, 32, 32, 51200 }, 0.4, 0.1),
  ["ministral-3-3b"] = ministral3_text({ 3072, 9216, 26, 32, 8, 131072 }, 1000000.0, 16.0, 16384, 0.1, tied),
  ["ministral-3-8b"] = ministral3_text({ 4096, 14336, 34, 32, 8, 131072 }, 1000000.0, 16.0, 16384, 0.1),
  ["ministral-3-14b"] = ministral3_text({ 5120, 16384, 40, 32, 8, 131072 }, 1000000000.0, 16.0, 16384, 0.1),
  ["devstral-small-2-24b"] = ministral3_text({ 5120, 32768, 40, 32, 8, 131072 }, 100000000.0, 48.0, 8192, 0.1),
  ["devstral-2-123b"] = ministral3({ 12288, 28672, 88, 96, 8, 131072 }, 1000000.0, 64.0, 4096, 0.0),
  -- Gemma by its config.json; from Gemma 3's 4B on they have images.
  ["gemma-2b"] = "gemma-2b", ["gemma-7b"] = "gemma-7b",
  ["gemma-1.1-2b"] = "gemma-2b", ["gemma-1.1-7b"] = "gemma-7b",
  ["gemma-2-2b"] = "gemma2-2b", ["gemma-2-9b"] = "gemma2-9b", ["gemma-2-27b"] = "gemma2-27b",
  ["gemma-3-270m"] = "gemma3-270m", ["gemma-3-1b"] = "gemma3-1b",
  ["nvidia-nemotron-nano-9b-v2"] = nemotron_h { 4480, 15680, 40, 8, 128, 80,
    "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-" },
  ["nvidia-nemotron-nano-12b-v2"] = nemotron_h { 5120, 20480, 40, 8, 128, 80,
    "M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M-" },
  ["nvidia-nemotron-3-nano-30b-a3b"] = nano3(), ["nvidia-nemotron-3.5-lightning-30b-a3b"] = nano3(),
  ["nvidia-nemotron-3-super-120b-a12b"] = nemotron_h({ 4096, 2688, 32, 2, 128, 64, SUPER },
    nemotron_experts(512, 22, 2688, 5376, 1024, 5.0)),
  ["nvidia-nemotron-3-ultra-550b-a55b"] = nemotron_h({ 8192, 5120, 64, 2, 256, 64, ULTRA },
    nemotron_experts(512, 22, 5120, 10240, 2048, 5.0)),
  ["falcon-h1-0.5b"] = falcon_h1({ 1024, 2048, 36, 8, 2, 32784 }, 64, 24, 64, 1, 128),
  ["falcon-h1-7b"] = falcon_h1({ 3072, 12288, 44, 12, 2, 130048 }, 128, 24, 128, 1, 256),
  ["falcon-h1-34b"] = falcon_h1({ 5120, 21504, 72, 20, 4, 261120 }, 128, 32, 128, 2, 256),
  -- GPT-2 by OpenAI's published sizes.
  ["gpt2"] = gpt2(768, 12, 12),
  ["gpt2-medium"] = gpt2(1024, 24, 16),
  ["gpt2-large"] = gpt2(1280, 36, 20),
  ["gpt2-xl"] = gpt2(1600, 48, 25),
  ["distilgpt2"] = gpt2(768, 6, 12),
  ["cerebras-gpt-111m"] = cerebras(768, 10, 12), ["cerebras-gpt-256m"] = cerebras(1088, 14, 17),
  ["cerebras-gpt-590m"] = cerebras(1536, 18, 12), ["cerebras-gpt-1.3b"] = cerebras(2048, 24, 16),
  ["cerebras-gpt-2.7b"] = cerebras(2560, 32, 32), ["cerebras-gpt-6.7b"] = cerebras(4096, 32, 32),
  ["cerebras-gpt-13b"] = cerebras(5120, 40, 40),
}
