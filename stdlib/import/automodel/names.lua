-- names.lua - names of NeMo AutoModel and their names here, read in one direction by weft
-- import and in the other by weft export.
local names = {}

names.classes = { Qwen3MoeConfig = "qwen3_moe", Qwen3Config = "qwen3", Qwen2Config = "qwen2",
                  LlamaConfig = "llama", MixtralConfig = "mixtral", GPT2Config = "gpt2",
                  DeepseekV3Config = "deepseek_v3" }

names.torch = { bf16 = "bfloat16", f16 = "float16", f32 = "float32" }

names.class_of = {}
for there, here in next, names.classes do names.class_of[here] = there end

return names
