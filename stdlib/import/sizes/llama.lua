-- llama.lua - sizes of public models of the classes of Llama, Mistral and Mixtral, by short names.
local decoder = require "weft.import.sizes.decoder"
local presets = require "weft.presets"

local tied = { tie_word_embeddings = true }
local function llama3_scaling(factor)
  return { rope_type = "llama3", factor = factor, low_freq_factor = 1.0, high_freq_factor = 4.0,
           original_max_position_embeddings = 8192 }
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
local function smollm2(sizes, theta)
  return llama(sizes, { tie_word_embeddings = true, rope_theta = theta, max_position_embeddings = 8192 })
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
local function deepseek_coder(sizes)
  return llama(sizes, { rms_norm_eps = 1e-6, rope_theta = 100000.0, max_position_embeddings = 16384,
                        rope_scaling = { rope_type = "linear", factor = 4.0 } })
end
-- Their sizes follow from the published numbers of parameters; the base of rotation is llama's.
local function minicpm5(sizes)
  return llama(sizes, { head_dim = 128, rms_norm_eps = 1e-6, max_position_embeddings = 131072 })
end

-- A text is the name of a preset.
return {
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
  ["minicpm5-1b"] = minicpm5 { 1536, 4608, 24, 16, 2, 130560 },
  ["minicpm5-2b"] = minicpm5 { 2048, 6144, 42, 16, 2, 130560 },
  -- DeepSeek-Coder, a Llama whose positions are scaled linearly, by its config.json.
  ["deepseek-coder-1.3b"] = deepseek_coder { 2048, 5504, 24, 16, 16, 32256 },
  ["deepseek-coder-6.7b"] = deepseek_coder { 4096, 11008, 32, 32, 32, 32256 },
  ["deepseek-coder-33b"] = deepseek_coder { 7168, 19200, 62, 56, 8, 32256 },
}
