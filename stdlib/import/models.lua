-- models.lua - models by their public names: sizes for those whose architecture weft has, and what
-- the others are, for weft.model and for settings of other systems. A name is looked up as
-- model_names.lua shortens it. Sizes are those of the public
-- files, checked against what is named beside each family; --model DIR takes the config.json of a
-- folder instead.
local names = require "weft.import.model_names"
local other_models = require "weft.import.other_models"
local presets = require "weft.presets"
local models = {}

local function copy(t)
  local c = {}
  for key, value in pairs(t) do c[key] = type(value) == "table" and copy(value) or value end
  return c
end

local function llama3_scaling(factor)
  return { rope_type = "llama3", factor = factor, low_freq_factor = 1.0, high_freq_factor = 4.0,
           original_max_position_embeddings = 8192 }
end

-- hidden, feed-forward, layers, heads, key-value heads, vocabulary; what else there is.
local function decoder(arch, sizes, more)
  local c = { arch, hidden_size = sizes[1], intermediate_size = sizes[2],
              num_hidden_layers = sizes[3], num_attention_heads = sizes[4],
              num_key_value_heads = sizes[5], vocab_size = sizes[6] }
  for key, value in pairs(more or {}) do c[key] = value end
  return c
end

local function llama(sizes, more)
  local c = decoder("llama", sizes, more)
  c.rms_norm_eps = c.rms_norm_eps or 1e-5
  return c
end
local function mistral(sizes, more)
  local c = decoder("mistral", sizes, more)
  c.rms_norm_eps, c.sliding_window = 1e-5, c.sliding_window or false
  return c
end
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
local function deepseek_coder(sizes)
  return llama(sizes, { rms_norm_eps = 1e-6, rope_theta = 100000.0, max_position_embeddings = 16384,
                        rope_scaling = { rope_type = "linear", factor = 4.0 } })
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
-- Their sizes follow from the published numbers of parameters; the base of rotation is llama's.
local function minicpm5(sizes)
  return llama(sizes, { head_dim = 128, rms_norm_eps = 1e-6, max_position_embeddings = 131072 })
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

local function smollm2(sizes, theta)
  return llama(sizes, { tie_word_embeddings = true, rope_theta = theta, max_position_embeddings = 8192 })
end
local function llama31(name, factor)
  local c = {}
  for key, value in pairs(presets[name]) do c[key] = value end
  c.max_position_embeddings, c.rope_scaling = 131072, llama3_scaling(factor)
  return c
end
-- Llama 3.1 and Mistral NeMo, made narrower or less deep.
local function minitron(sizes)
  return llama(sizes, { head_dim = 128, rope_theta = 500000.0, max_position_embeddings = 131072,
                        rope_scaling = llama3_scaling(8.0) })
end
local function qwen2(sizes, more)
  local c = decoder("qwen2", sizes, more)
  c.rms_norm_eps, c.rope_theta = c.rms_norm_eps or 1e-6, c.rope_theta or 1000000.0
  c.max_position_embeddings = c.max_position_embeddings or 32768
  return c
end
-- Llama of 2023.
local function llama1(sizes)
  return llama(sizes, { max_position_embeddings = 2048, rms_norm_eps = 1e-6 })
end
local function codellama(sizes)
  return llama(sizes, { max_position_embeddings = 16384, rope_theta = 1000000.0 })
end
local function falcon3(sizes, positions)
  return llama(sizes, { head_dim = 256, rope_theta = 1000042.0, max_position_embeddings = positions,
                        rms_norm_eps = 1e-6 })
end
local function qwen2_math(sizes, positions, shared)
  return qwen2(sizes, { rope_theta = 10000.0, max_position_embeddings = positions, tie_word_embeddings = shared })
end
local function qwen3_coder(sizes, width, experts)
  return decoder("qwen3_moe", sizes,
    { head_dim = 128, moe_intermediate_size = width, num_experts = experts, num_experts_per_tok = 8,
      norm_topk_prob = true, max_position_embeddings = 262144, rms_norm_eps = 1e-6, rope_theta = 10000000.0 })
end
local function qwen3(sizes, more)
  local c = decoder("qwen3", sizes, more)
  c.head_dim, c.rms_norm_eps, c.rope_theta = 128, 1e-6, 1000000.0
  c.max_position_embeddings = 40960
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
local function qwen2_moe(sizes, more)
  local c = decoder("qwen2_moe", sizes, more)
  c.rope_theta, c.num_experts = 1000000.0, c.num_experts or 60
  return c
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

local tied = { tie_word_embeddings = true }
-- Qwen2.5 from 14B on, and with a million positions.
local wide = { rms_norm_eps = 1e-5 }
local long = { rms_norm_eps = 1e-5, rope_theta = 10000000.0, max_position_embeddings = 1010000 }

-- A text is the name of a preset.
local sizes = {
  -- Llama, Falcon 3, TinyLlama, Mistral 7B and Mixtral: litgpt's table, which follows each config.json.
  ["llama-2-7b"] = llama({ 4096, 11008, 32, 32, 32, 32000 }, { max_position_embeddings = 4096 }),
  ["llama-2-13b"] = llama({ 5120, 13824, 40, 40, 40, 32000 }, { max_position_embeddings = 4096 }),
  ["llama-2-70b"] = llama({ 8192, 28672, 80, 64, 8, 32000 }, { max_position_embeddings = 4096 }),
  ["llama-3-8b"] = "llama3-8b",
  ["llama-3-70b"] = "llama3-70b",
  ["llama-3.1-8b"] = llama31("llama3-8b", 8.0),
  ["llama-3.1-70b"] = llama31("llama3-70b", 8.0),
  ["llama-3.3-70b"] = llama31("llama3-70b", 8.0),
  ["llama-3.1-405b"] = "llama3-405b",
  ["llama-3.2-1b"] = "llama3.2-1b",
  ["llama-3.2-3b"] = llama({ 3072, 8192, 28, 24, 8, 128256 },
    { head_dim = 128, rope_theta = 500000.0, max_position_embeddings = 131072,
      tie_word_embeddings = true, rope_scaling = llama3_scaling(32.0) }),
  ["tinyllama-1.1b"] = llama { 2048, 5632, 22, 32, 4, 32000 },
  -- SmolLM2, by the config.json of the 135M and litgpt's table.
  ["smollm2-135m"] = smollm2({ 576, 1536, 30, 9, 3, 49152 }, 100000.0),
  ["smollm2-360m"] = smollm2({ 960, 2560, 32, 15, 5, 49152 }, 100000.0),
  ["smollm2-1.7b"] = smollm2({ 2048, 8192, 24, 32, 32, 49152 }, 130000.0),
  -- Seed-Coder, by the config.json of the base model.
  ["seed-coder-8b"] = llama({ 4096, 14336, 32, 32, 8, 155136 },
    { rope_theta = 500000.0, max_position_embeddings = 32768, rms_norm_eps = 1e-6 }),
  ["falcon3-1b"] = falcon3({ 2048, 8192, 18, 8, 4, 131072 }, 4096),
  ["falcon3-3b"] = falcon3({ 3072, 9216, 22, 12, 4, 131072 }, 32768),
  ["falcon3-7b"] = falcon3({ 3072, 23040, 28, 12, 4, 131072 }, 32768),
  ["falcon3-10b"] = falcon3({ 3072, 23040, 40, 12, 4, 131072 }, 32768),
  -- Llama of 2023, by its paper; Open Llama and Code Llama by litgpt's table.
  ["llama-7b"] = llama1 { 4096, 11008, 32, 32, 32, 32000 },
  ["llama-13b"] = llama1 { 5120, 13824, 40, 40, 40, 32000 },
  ["llama-30b"] = llama1 { 6656, 17920, 60, 52, 52, 32000 },
  ["llama-65b"] = llama1 { 8192, 22016, 80, 64, 64, 32000 },
  ["open_llama_3b"] = llama1 { 3200, 8640, 26, 32, 32, 32000 },
  ["open_llama_7b"] = llama1 { 4096, 11008, 32, 32, 32, 32000 },
  ["open_llama_13b"] = llama1 { 5120, 13824, 40, 40, 40, 32000 },
  ["codellama-7b"] = codellama { 4096, 11008, 32, 32, 32, 32016 },
  ["codellama-13b"] = codellama { 5120, 13824, 40, 40, 40, 32016 },
  ["codellama-34b"] = codellama { 8192, 22016, 48, 64, 8, 32000 },
  ["codellama-70b"] = codellama { 8192, 28672, 80, 64, 8, 32016 },
  ["codellama-7b-python"] = codellama { 4096, 11008, 32, 32, 32, 32000 },
  ["codellama-13b-python"] = codellama { 5120, 13824, 40, 40, 40, 32000 },
  -- By published sizes, whose numbers of parameters they give.
  ["smollm-135m"] = llama({ 576, 1536, 30, 9, 3, 49152 }, tied),
  ["smollm-360m"] = llama({ 960, 2560, 32, 15, 5, 49152 }, tied),
  ["smollm-1.7b"] = llama({ 2048, 8192, 24, 32, 32, 49152 }, tied),
  ["solar-10.7b-v1.0"] = llama({ 4096, 14336, 48, 32, 8, 32000 }, { max_position_embeddings = 4096 }),
  ["deepseek-llm-7b"] = llama({ 4096, 11008, 30, 32, 32, 102400 },
    { max_position_embeddings = 4096, rms_norm_eps = 1e-6 }),
  ["deepseek-llm-67b"] = llama({ 8192, 22016, 95, 64, 8, 102400 },
    { max_position_embeddings = 4096, rms_norm_eps = 1e-6 }),
  ["llama-68m"] = llama({ 768, 3072, 2, 12, 12, 32000 }, { max_position_embeddings = 2048, rms_norm_eps = 1e-6 }),
  ["llama-160m"] = llama({ 768, 3072, 12, 12, 12, 32000 }, { max_position_embeddings = 2048, rms_norm_eps = 1e-6 }),
  ["llama-3.1-minitron-4b-width"] = minitron { 3072, 9216, 32, 32, 8, 128256 },
  ["llama-3.1-minitron-4b-depth"] = minitron { 4096, 14336, 16, 32, 8, 128256 },
  ["eurollm-1.7b"] = llama({ 2048, 5632, 24, 16, 8, 128000 }, { max_position_embeddings = 4096 }),
  ["eurollm-9b"] = llama({ 4096, 12288, 42, 32, 8, 128000 }, { max_position_embeddings = 4096 }),
  ["yi-1.5-6b"] = llama({ 4096, 11008, 32, 32, 4, 64000 },
    { rope_theta = 5000000.0, max_position_embeddings = 4096, rms_norm_eps = 1e-6 }),
  ["yi-1.5-34b"] = llama({ 7168, 20480, 60, 56, 8, 64000 },
    { rope_theta = 5000000.0, max_position_embeddings = 4096, rms_norm_eps = 1e-6 }),
  ["yi-6b"] = llama({ 4096, 11008, 32, 32, 4, 64000 }, { rope_theta = 5000000.0, max_position_embeddings = 4096 }),
  ["yi-1.5-9b"] = llama({ 4096, 11008, 48, 32, 4, 64000 },
    { rope_theta = 5000000.0, max_position_embeddings = 4096, rms_norm_eps = 1e-6 }),
  -- By published copies of its config.json, which do not have rms_norm_eps.
  ["yi-34b"] = llama({ 7168, 20480, 60, 56, 8, 64000 },
    { rope_theta = 5000000.0, max_position_embeddings = 4096 }),
  -- The first version has a window.
  ["mistral-7b-v0.1"] = mistral({ 4096, 14336, 32, 32, 8, 32000 },
    { max_position_embeddings = 32768, sliding_window = 4096 }),
  ["openhermes-2.5-mistral-7b"] = mistral({ 4096, 14336, 32, 32, 8, 32002 },
    { max_position_embeddings = 32768, sliding_window = 4096 }),
  ["mistral-7b-v0.2"] = mistral({ 4096, 14336, 32, 32, 8, 32000 },
    { max_position_embeddings = 32768, rope_theta = 1000000.0 }),
  ["mistral-7b-v0.3"] = mistral({ 4096, 14336, 32, 32, 8, 32768 },
    { max_position_embeddings = 32768, rope_theta = 1000000.0 }),
  -- By its model card.
  ["mistral-nemo"] = mistral({ 5120, 14336, 40, 32, 8, 131072 },
    { head_dim = 128, max_position_embeddings = 131072, rope_theta = 1000000.0 }),
  ["mathstral-7b-v0.1"] = mistral({ 4096, 14336, 32, 32, 8, 32768 },
    { max_position_embeddings = 32768, rope_theta = 1000000.0, sliding_window = 4096 }),
  ["codestral-22b-v0.1"] = mistral({ 6144, 16384, 56, 48, 8, 32768 },
    { max_position_embeddings = 32768, rope_theta = 1000000.0 }),
  ["mistral-small"] = mistral({ 6144, 16384, 56, 48, 8, 32768 },
    { max_position_embeddings = 32768, rope_theta = 1000000.0 }),
  ["mistral-nemo-minitron-8b"] = mistral({ 4096, 11520, 40, 32, 8, 131072 },
    { head_dim = 128, max_position_embeddings = 8192, rope_theta = 1000000.0 }),
  ["mistral-large"] = mistral({ 12288, 28672, 88, 96, 8, 32768 },
    { max_position_embeddings = 32768, rope_theta = 1000000.0 }),
  ["mistral-small-24b"] = mistral({ 5120, 32768, 40, 32, 8, 131072 },
    { head_dim = 128, max_position_embeddings = 32768, rope_theta = 100000000.0 }),
  ["ministral-8b"] = mistral({ 4096, 12288, 36, 32, 8, 131072 },
    { head_dim = 128, max_position_embeddings = 32768, rope_theta = 100000000.0, sliding_window = 32768 }),
  ["mixtral-8x7b"] = "mixtral-8x7b",
  ["mixtral-8x22b"] = decoder("mixtral", { 6144, 16384, 56, 48, 8, 32768 },
    { num_local_experts = 8, num_experts_per_tok = 2, max_position_embeddings = 65536,
      rms_norm_eps = 1e-5, rope_theta = 1000000.0 }),
  -- Qwen: litgpt's table, Qwen3 also by torchtitan's flavors.
  ["qwen2-0.5b"] = "qwen2-0.5b",
  ["qwen2-1.5b"] = qwen2({ 1536, 8960, 28, 12, 2, 151936 }, tied),
  ["qwen2-7b"] = qwen2 { 3584, 18944, 28, 28, 4, 152064 },
  ["qwen2-72b"] = qwen2({ 8192, 29568, 80, 64, 8, 152064 }, wide),
  ["qwen2-72b-instruct"] = qwen2 { 8192, 29568, 80, 64, 8, 152064 },
  -- Qwen1.5 by Pai-Megatron-Patch's sizes.
  ["qwen1.5-0.5b"] = qwen2({ 1024, 2816, 24, 16, 16, 151936 }, tied),
  ["qwen1.5-1.8b"] = qwen2 { 2048, 5504, 24, 16, 16, 151936 },
  ["qwen1.5-4b"] = qwen2({ 2560, 6912, 40, 20, 20, 151936 }, { rope_theta = 5000000.0 }),
  ["qwen1.5-7b"] = qwen2 { 4096, 11008, 32, 32, 32, 151936 },
  ["qwen1.5-14b"] = qwen2 { 5120, 13696, 40, 40, 40, 152064 },
  ["qwen1.5-32b"] = qwen2 { 5120, 27392, 64, 40, 8, 152064 },
  ["qwen1.5-72b"] = qwen2 { 8192, 24576, 80, 64, 64, 152064 },
  ["qwen1.5-110b"] = qwen2 { 8192, 49152, 80, 64, 8, 152064 },
  ["qwen2.5-math-1.5b"] = qwen2_math({ 1536, 8960, 28, 12, 2, 151936 }, 4096, true),
  ["qwen2.5-math-7b"] = qwen2_math({ 3584, 18944, 28, 28, 4, 152064 }, 4096),
  ["qwen2.5-math-72b"] = qwen2_math({ 8192, 29568, 80, 64, 8, 152064 }, 4096),
  ["deepseek-r1-distill-qwen-1.5b"] = qwen2_math({ 1536, 8960, 28, 12, 2, 151936 }, 131072),
  ["deepseek-r1-distill-qwen-7b"] = qwen2_math({ 3584, 18944, 28, 28, 4, 152064 }, 131072),
  ["qwen2.5-0.5b"] = qwen2({ 896, 4864, 24, 14, 2, 151936 }, tied),
  ["qwen2.5-1.5b"] = qwen2({ 1536, 8960, 28, 12, 2, 151936 }, tied),
  ["qwen2.5-3b"] = qwen2({ 2048, 11008, 36, 16, 2, 151936 }, tied),
  ["qwen2.5-7b"] = qwen2 { 3584, 18944, 28, 28, 4, 152064 },
  ["qwen2.5-7b-1m"] = qwen2({ 3584, 18944, 28, 28, 4, 152064 }, long),
  ["qwen2.5-14b-1m"] = qwen2({ 5120, 13824, 48, 40, 8, 152064 }, long),
  ["qwen2.5-14b"] = qwen2({ 5120, 13824, 48, 40, 8, 152064 }, wide),
  ["qwen2.5-32b"] = qwen2({ 5120, 27648, 64, 40, 8, 152064 }, wide),
  ["qwen2.5-72b"] = qwen2({ 8192, 29568, 80, 64, 8, 152064 }, wide),
  ["qwen2.5-32b-instruct"] = qwen2 { 5120, 27648, 64, 40, 8, 152064 },
  ["qwen2.5-72b-instruct"] = qwen2 { 8192, 29568, 80, 64, 8, 152064 },
  ["qwq-32b"] = qwen2({ 5120, 27648, 64, 40, 8, 152064 }, wide),
  ["qwen3-0.6b"] = qwen3({ 1024, 3072, 28, 16, 8, 151936 }, tied),
  ["qwen3-1.7b"] = qwen3({ 2048, 6144, 28, 16, 8, 151936 }, tied),
  ["qwen3-4b"] = qwen3({ 2560, 9728, 36, 32, 8, 151936 }, tied),
  ["qwen3-8b"] = "qwen3-8b",
  ["qwen3-14b"] = qwen3 { 5120, 17408, 40, 40, 8, 151936 },
  ["qwen3-32b"] = qwen3 { 5120, 25600, 64, 64, 8, 151936 },
  ["qwen3-30b-a3b"] = "qwen3-30b-a3b",
  ["qwen3-coder-30b-a3b"] = qwen3_coder({ 2048, 6144, 48, 32, 4, 151936 }, 768, 128),
  ["qwen3-coder-480b-a35b"] = qwen3_coder({ 6144, 8192, 62, 96, 8, 151936 }, 2560, 160),
  ["qwen3-235b-a22b"] = "qwen3-235b-a22b",
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
  ["qwen1.5-moe-a2.7b"] = qwen2_moe({ 2048, 5632, 24, 16, 16, 151936 }, { max_position_embeddings = 8192 }),
  ["qwen2-57b-a14b"] = qwen2_moe({ 3584, 18944, 28, 28, 4, 151936 },
    { num_experts = 64, num_experts_per_tok = 8, moe_intermediate_size = 2560, shared_expert_intermediate_size = 20480 }),
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
  ["minicpm5-1b"] = minicpm5 { 1536, 4608, 24, 16, 2, 130560 },
  ["minicpm5-2b"] = minicpm5 { 2048, 6144, 42, 16, 2, 130560 },
  -- DeepSeek-Coder, a Llama whose positions are scaled linearly, by its config.json.
  ["deepseek-coder-1.3b"] = deepseek_coder { 2048, 5504, 24, 16, 16, 32256 },
  ["deepseek-coder-6.7b"] = deepseek_coder { 4096, 11008, 32, 32, 32, 32256 },
  ["deepseek-coder-33b"] = deepseek_coder { 7168, 19200, 62, 56, 8, 32256 },
  -- GPT-2 by OpenAI's published sizes.
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
for name, of in pairs(names.same) do sizes[name] = sizes[of] end

-- Later versions have other weights and the same sizes.
for _, n in ipairs { "4.6", "4.7" } do
  sizes["glm-" .. n] = copy(sizes["glm-4.5"])
  sizes["glm-" .. n].max_position_embeddings = 202752
end

-- Qwen3 of July 2025 has other frequencies and more positions; by litgpt's table.
local dated = { ["qwen3-4b"] = 5000000.0, ["qwen3-30b-a3b"] = 10000000.0, ["qwen3-235b-a22b"] = 5000000.0 }

-- Of a public name: the table that weft.model takes and, if there is one, the name of the
-- preset that it is. Else nil and what the model is, or nil and nil.
function models.find(name)
  local short = names.short(name, sizes)
  local found = sizes[short]
  if not found and (presets[name] or presets[short]) then
    found = presets[name] and name or short
  end
  if not found and string.find(short, "^mistral%-7b%-v0%.2") then found = sizes["mistral-7b-v0.2"] end
  if not found and string.find(short, "^tinyllama%-1%.1b") then found = sizes["tinyllama-1.1b"] end
  local theta = string.find(name, "%-2507") and dated[short]
  if found and theta then
    local config = copy(type(found) == "string" and presets[found] or found)
    config.rope_theta, config.max_position_embeddings = theta, 262144
    return config
  end
  if type(found) == "string" then return copy(presets[found]), found end
  if found then return copy(found) end
  return nil, other_models.kind(names.dashed(short) or short)
end

-- The same without what a config says of training, for weft.model, which has no place for it; what is to
-- be known of the model comes third.
local ASIDE = { "note", "bias_update_rate", "router_aux_loss_coef", "torch_dtype", "dtype" }
function models.plain(name)
  local config, kind = models.find(name)
  if not config then return nil, kind end
  local note = config.note
  for _, key in ipairs(ASIDE) do config[key] = nil end
  return config, nil, note
end

-- Names of the same family as a name that is none, "a, b, c": those that begin like it, nil: there are none.
local shown = 16
function models.family(name)
  name = string.lower(name)
  for _, pattern in ipairs { "^[^/]*/?(%a+%-?[%d.]*)", "^[^/]*/?(%a+)" } do
    local begin, list = string.match(string.find(name, "/", 1, true) and name or "/" .. name, pattern), {}
    for _, of in ipairs { presets, sizes } do
      for known in pairs(of) do
        if begin and string.sub(known, 1, #begin) == begin and not list[known] then
          list[#list + 1], list[known] = known, true
        end
      end
    end
    if #list > 0 then
      table.sort(list)
      local more = #list > shown and ", ..." or ""
      return table.concat(list, ", ", 1, math.min(#list, shown)) .. more
    end
  end
end

models.architectures = {}
for _, name in ipairs {
  "apertus", "arcee", "cohere2", "deepseek_v3", "ernie4_5", "falcon_h1", "gemma", "gemma2", "gemma3_text", "glm", "glm4", "glm4_moe", "glm4_moe_lite", "gpt2",
  "gpt_oss", "granite", "hy_v3", "kimi_k2", "laguna", "llama", "minimax_m2", "mimo_v2_flash", "ministral", "ministral3",
  "mistral", "mixtral", "nemotron", "nemotron_h",
  "olmo2", "olmo3", "phi", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "seed_oss", "smollm3", "starcoder2", "step3p5",
} do models.architectures[name] = true end

return models
