-- qwen.lua - sizes of public models of the Qwen families, by short names.
local decoder = require "weft.import.sizes.decoder"

local tied = { tie_word_embeddings = true }
-- Qwen2.5 from 14B on, and with a million positions.
local wide = { rms_norm_eps = 1e-5 }
local long = { rms_norm_eps = 1e-5, rope_theta = 10000000.0, max_position_embeddings = 1010000 }

local function qwen2(sizes, more)
  local c = decoder("qwen2", sizes, more)
  c.rms_norm_eps, c.rope_theta = c.rms_norm_eps or 1e-6, c.rope_theta or 1000000.0
  c.max_position_embeddings = c.max_position_embeddings or 32768
  return c
end
local function qwen2_math(sizes, positions, shared)
  return qwen2(sizes, { rope_theta = 10000.0, max_position_embeddings = positions, tie_word_embeddings = shared })
end
local function qwen3(sizes, more)
  local c = decoder("qwen3", sizes, more)
  c.head_dim, c.rms_norm_eps, c.rope_theta = 128, 1e-6, 1000000.0
  c.max_position_embeddings = 40960
  return c
end
local function qwen3_coder(sizes, width, experts)
  return decoder("qwen3_moe", sizes,
    { head_dim = 128, moe_intermediate_size = width, num_experts = experts, num_experts_per_tok = 8,
      norm_topk_prob = true, max_position_embeddings = 262144, rms_norm_eps = 1e-6, rope_theta = 10000000.0 })
end
local function qwen2_moe(sizes, more)
  local c = decoder("qwen2_moe", sizes, more)
  c.rope_theta, c.num_experts = 1000000.0, c.num_experts or 60
  return c
end

-- A text is the name of a preset.
return {
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
  -- Experts of these by the defaults of Transformers' class.
  ["qwen1.5-moe-a2.7b"] = qwen2_moe({ 2048, 5632, 24, 16, 16, 151936 }, { max_position_embeddings = 8192 }),
  ["qwen2-57b-a14b"] = qwen2_moe({ 3584, 18944, 28, 28, 4, 151936 },
    { num_experts = 64, num_experts_per_tok = 8, moe_intermediate_size = 2560, shared_expert_intermediate_size = 20480 }),
}
