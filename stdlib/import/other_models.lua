-- other_models.lua - what public models are that weft has no architecture for, by how their names begin,
-- or by what is in them.
local other_models = {}

local LONGROPE = "a Phi with longrope, whose factors are in its config.json alone: weft.hf reads them"

local begins = {
  { "gpt-j", "a GPT-J" }, { "gpt4all-j", "a GPT-J" }, { "gpt-neox", "a GPT-NeoX" }, { "pythia", "a GPT-NeoX" },
  { "gpt-neo", "a GPT-Neo" }, { "bloom", "a BLOOM" }, { "opt-", "an OPT" }, { "mpt-", "an MPT" },
  { "dbrx", "a DBRX" }, { "mamba", "a Mamba" }, { "jamba", "a hybrid of Mamba and attention" },
  { "bamba", "a hybrid of Mamba and attention" }, { "falcon-mamba", "a Mamba" },
  { "falcon-", "a Falcon" }, { "stablelm", "a StableLM" }, { "stable-code", "a StableLM" },
  { "minicpm", "a MiniCPM" }, { "internlm", "an InternLM" },
  { "chatglm", "a ChatGLM" }, { "exaone", "an EXAONE" }, { "jais", "a Jais" },
  { "powermoe", "a Granite with experts" }, { "orion", "an Orion" }, { "aquila", "an Aquila" },
  { "kimi-k3", "a Kimi K3" }, { "hy-mt", "a Hunyuan" },
  { "wizardcoder", "a StarCoder" },
  { "deepseek-v2", "a DeepSeek-V2" }, { "deepseek-coder-v2", "a DeepSeek-V2" },
  { "deepseek-moe", "a DeepSeek-MoE" },
  { "llama-3_3-nemotron", "a Llama whose layers differ" }, { "llama-3_1-nemotron", "a Llama whose layers differ" },
  { "phi-3-mini-128k", LONGROPE }, { "phi-3-medium-128k", LONGROPE },
  { "kimi-k2.5", "a Kimi K2, with images" },
  { "gemma-3n", "a Gemma 3n, with images and sound" }, { "gemma-3", "a Gemma 3, with images" },
  { "gemma", "a Gemma" }, { "diffusiongemma", "a Gemma" },
  { "phi-4-mini", LONGROPE }, { "phi-3.5", LONGROPE }, { "phi", "a Phi" },
  { "glm-4.7-flash", "a GLM with latent attention" }, { "glm", "a GLM" },
  { "qwen3-next", "a hybrid of linear and full attention" },
  { "qwen3.5", "a hybrid of linear and full attention, with images" },
  { "qwen3.6", "a hybrid of linear and full attention, with images" },
  { "qwen3.8", "a hybrid of linear and full attention, with images" },
  { "qwen-image", "a diffusion model of images" }, { "flux", "a diffusion model of images" },
  { "hunyuanvideo", "a diffusion model of videos" }, { "wan", "a diffusion model of videos" },
  { "deepseek-v3.2", "a DeepSeek-V3.2, with sparse attention" }, { "ltx", "a diffusion model of videos" },
  { "deepseek-v32", "a DeepSeek-V3.2, with sparse attention" }, { "mistral-small-4", "a Mistral 4, with images" },
  { "nemotron-flash", "a hybrid of Mamba and attention" },
  { "nemotron-labs-diffusion", "a masked diffusion model" },
  { "deepseek-v4", "a DeepSeek-V4" }, { "kimi-linear", "a hybrid of linear and full attention" },
  { "minimax", "a MiniMax" }, { "mimo", "a MiMo" }, { "step-3", "a Step" },
  { "olmo", "an OLMo" }, { "granite", "a Granite" },
  { "starcoder", "a StarCoder" }, { "baichuan", "a Baichuan" }, { "ernie", "an ERNIE with experts, or of an earlier version" },
  { "c4ai-command", "a Cohere" }, { "ling-", "a Bailing-MoE" }, { "llada", "a masked diffusion model" },
  { "devstral", "a Mistral 3, with images" },
  { "mistral-small-3", "a Mistral 3, with images" },
  { "mistral-medium-3", "a Mistral 3, with images" },
  { "t5", "an encoder and a decoder" }, { "llava", "a model of images" },
  { "llama-4", "a Llama 4, with experts and images" },
  { "lfm2", "a hybrid of convolutions and attention" },
  { "muse", "a Muse, with images" }, { "inkling", "an Inkling, with images" }, { "hy3", "a Hunyuan" }, { "hunyuan", "a Hunyuan" },
}
-- Of families that weft has, whose names begin as those of another: their sizes are in no table here.
local ours = { "falcon-h1" }
local within = {
  { "%-vl%-", "a model of images" }, { "%-vl$", "a model of images" },
  { "omni", "a model of images and sound" }, { "audio", "a model of sound" }, { "vision", "a model of images" },
  { "multimodal", "a model of images and sound" }, { "embed", "an encoder" },
}

-- "a Gemma", of a name in small letters without its owner; nil: it is not known.
function other_models.kind(name)
  for _, begin in ipairs(ours) do
    if string.sub(name, 1, #begin) == begin then return nil end
  end
  for _, other in ipairs(within) do
    if string.find(name, other[1]) then return other[2] end
  end
  for _, other in ipairs(begins) do
    if string.sub(name, 1, #other[1]) == other[1] then return other[2] end
  end
end

return other_models
