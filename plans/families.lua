-- families.lua - a published model of each family, on as many nodes of eight GPUs as it needs to train
-- with FSDP2.
--
--   weft check plans/families.lua -D family=gemma2
local weft = require "weft"

-- hidden, feed-forward, layers, heads, key-value heads, vocabulary; other keys, and how many nodes.
local function sizes(family, n, more)
  local c = { family, hidden_size = n[1], intermediate_size = n[2], num_hidden_layers = n[3],
              num_attention_heads = n[4], num_key_value_heads = n[5], vocab_size = n[6] }
  for key, value in pairs(more or {}) do c[key] = value end
  return c
end

local rows = {
  cohere2 = { sizes("cohere2", { 4096, 14336, 32, 32, 8, 256000 },             -- Command R7B
                    { logit_scale = 0.25, rope_theta = 50000.0 }) },
  deepseek_v3 = { "moonlight-16b-a3b", nodes = 2 },
  ernie4_5 = { sizes("ernie4_5", { 1024, 3072, 18, 16, 2, 103424 }) },         -- 0.3B
  gemma = { "gemma-7b" }, gemma2 = { "gemma2-9b" }, gemma3_text = { "gemma3-1b" },
  glm = { sizes("glm", { 4096, 13696, 40, 32, 2, 151552 }, { head_dim = 128 }) },   -- GLM-4-9B
  glm4 = { sizes("glm4", { 4096, 13696, 40, 32, 2, 151552 }, { head_dim = 128 }) }, -- GLM-4-9B-0414
  glm4_moe = { sizes("glm4_moe", { 4096, 10944, 46, 96, 8, 151552 },           -- GLM-4.5-Air
                     { head_dim = 128, attention_bias = true, num_nextn_predict_layers = 0 }),
               nodes = 8 },
  glm4_moe_lite = { { "glm4_moe_lite" }, nodes = 4 },                          -- GLM-4.7-Flash
  gpt2 = { "gpt2-124m", seq = 1024 },
  gpt_oss = { "gpt-oss-20b", nodes = 2 },
  granite = { sizes("granite", { 4096, 12800, 40, 32, 8, 49155 },              -- Granite 3.1 8B
                    { attention_multiplier = 0.0078125, logits_scaling = 16.0,
                      embedding_multiplier = 12.0, residual_multiplier = 0.22,
                      tie_word_embeddings = true }) },
  apertus = { sizes("apertus", { 4096, 21504, 32, 32, 8, 131072 }) },            -- Apertus-8B
  arcee = { sizes("arcee", { 2560, 18432, 36, 20, 4, 128004 }, { head_dim = 128 }) }, -- AFM-4.5B
  hy_v3 = { { "hy_v3" }, nodes = 16 },                                         -- Hunyuan 3
  kimi_k2 = { "kimi-k2", nodes = 64, ep = 64, seq = 1024 },
  laguna = { "laguna-s-2.1", nodes = 16, ep = 8 },
  llama = { "llama3-8b" },
  mimo_v2_flash = { { "mimo_v2_flash" }, nodes = 32, ep = 8 },                 -- MiMo-V2-Flash
  minimax_m2 = { sizes("minimax_m2", { 3072, 1536, 62, 48, 8, 200064 }, { rotary_dim = 64 }), nodes = 16 },
  ministral = { sizes("ministral", { 4096, 12288, 36, 32, 8, 131072 }, { head_dim = 128 }) },
  ministral3 = { { "ministral3" } },                                           -- Ministral 3 8B, text
  mistral = { "mistral-7b" }, mixtral = { "mixtral-8x7b", nodes = 4 },
  nemotron = { sizes("nemotron", { 3072, 9216, 32, 24, 8, 256000 }, { head_dim = 128 }) }, -- Minitron 4B
  nemotron_h = { { "nemotron_h", hidden_size = 4480, intermediate_size = 15680, num_attention_heads = 40, -- Nano 9B v2
                   mamba_head_dim = 80, hybrid_override_pattern = "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-" },
                 nodes = 2 },
  falcon_h1 = { sizes("falcon_h1", { 3072, 12288, 44, 12, 2, 130048 },         -- Falcon-H1 7B
                      { head_dim = 128, mamba_d_ssm = 3072, mamba_n_heads = 24, rope_theta = 1e11 }), nodes = 2 },
  olmo2 = { sizes("olmo2", { 4096, 11008, 32, 32, 32, 100352 }, { rope_theta = 500000.0 }) }, -- 7B
  olmo3 = { "olmo3-7b" },
  phi = { sizes("phi", { 2560, 10240, 32, 32, 32, 51200 }, { partial_rotary_factor = 0.4 }), seq = 2048 }, -- Phi-2
  phi3 = { sizes("phi3", { 5120, 17920, 40, 40, 10, 100352 },                  -- Phi-4
                 { max_position_embeddings = 16384, rope_theta = 250000.0 }), nodes = 2 },
  qwen2 = { sizes("qwen2", { 3584, 18944, 28, 28, 4, 152064 }, { rope_theta = 1000000.0 }) }, -- 2.5 7B
  qwen2_moe = { { "qwen2_moe" }, nodes = 2 },                                  -- Qwen1.5-MoE-A2.7B
  qwen3 = { "qwen3-8b" }, qwen3_moe = { "qwen3-30b-a3b", nodes = 4 },
  seed_oss = { sizes("seed_oss", { 5120, 27648, 64, 80, 8, 155136 }), nodes = 4 },
  smollm3 = { sizes("smollm3", { 2048, 11008, 36, 16, 4, 128256 }, { tie_word_embeddings = true }) },
  starcoder2 = { sizes("starcoder2", { 4608, 18432, 32, 36, 4, 49152 }, { sliding_window = 4096 }) }, -- 7B
  step3p5 = { "step-3.5-flash", nodes = 32, ep = 8 },
}

local family = weft.var("family", "gemma2")
local function names()
  local list = {}
  for name in pairs(rows) do list[#list + 1] = name end
  table.sort(list)
  return table.concat(list, ", ")
end
local row = rows[family] or error("no row for the family " .. family .. ": " .. names())
local nodes = row.nodes or 1

return weft.plan {
  name      = family .. "-h100x" .. 8 * nodes,
  model     = weft.model(row[1]),
  cluster   = weft.cluster { nodes = nodes, gpus = 8, gpu = "h100-sxm" },
  mesh      = { ep = row.ep or 1 },
  strategy  = { "fsdp2", defer_fsdp_grad_sync = false },
  precision = "bf16",
  recompute = "full",
  batch     = { global = 16 * nodes, micro = 1, seq = row.seq or 4096 },
  optimizer = weft.adamw {
    lr = weft.cosine { max = 2e-5, min = 2e-6, warmup = 100 }, betas = { 0.9, 0.95 },
    weight_decay = 0.1, clip = 1.0,
  },
  data      = weft.synthetic {},
  train     = { steps = 1000 },
}
