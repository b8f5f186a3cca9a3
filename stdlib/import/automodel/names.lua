-- names.lua - names of NeMo AutoModel and their names here, read in one direction by weft import and in
-- the other by weft export.
local architectures = use("import/models").architectures
local names = {}

names.torch = { bf16 = "bfloat16", f16 = "float16", f32 = "float32" }

-- Of these Transformers has a config for texts beside one for images and texts.
local OF_TEXTS = { gemma3_text = "Gemma3TextConfig" }

-- Architectures by the class of their configs, as Transformers names it, and the other way. Of two
-- with one class, as Kimi K2 has DeepSeek-V3's, it stands for the first.
names.classes, names.class_of = {}, {}
for _, here in ipairs(keys(architectures)) do
  local class = use("models/" .. here).class
  class = string.gsub(string.gsub(class, "ForCausalLM$", ""), "LMHeadModel$", "") .. "Config"
  class = OF_TEXTS[here] or class
  names.classes[class] = names.classes[class] or here
  names.class_of[here] = class
end

names.PEFT = "nemo_automodel.components._peft.lora.PeftConfig"
names.LOSS = "nemo_automodel.components.loss."

-- Embeddings, which freeze_config names together.
function names.embeddings(architecture)
  return architecture == "gpt2" and { "wte", "wpe" } or { "embed_tokens" }
end

return names
