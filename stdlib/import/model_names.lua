-- model_names.lua - public names of models: without their owner and what only says how the weights were
-- trained (-Instruct, -Base, a date), and which models have the sizes of others.
local names = {}

-- Models that were trained further from another one, whose sizes they have.
names.same = {
  ["deepseek-r1-distill-qwen-14b"] = "qwen2.5-14b", ["deepseek-r1-distill-qwen-32b"] = "qwen2.5-32b",
  ["llama-guard-2-8b"] = "llama-3-8b", ["llama-guard-3-8b"] = "llama-3.1-8b",
  ["llama-3.1-nemotron-nano-8b"] = "llama-3.1-8b", ["llama-3.1-nemotron-70b"] = "llama-3.1-70b",
  ["deepseek-r1-distill-llama-8b"] = "llama-3.1-8b", ["deepseek-r1-distill-llama-70b"] = "llama-3.1-70b",
  ["minimax-m2.1"] = "minimax-m2", ["minimax-m2.5"] = "minimax-m2", ["minimax-m2.7"] = "minimax-m2",
  ["hermes-3-llama-3.1-8b"] = "llama-3.1-8b", ["hermes-3-llama-3.1-70b"] = "llama-3.1-70b", ["hermes-3-llama-3.2-3b"] = "llama-3.2-3b",
  ["deepseek-math-7b"] = "deepseek-llm-7b", ["openreasoning-nemotron-7b"] = "qwen2.5-7b",
  ["openreasoning-nemotron-14b"] = "qwen2.5-14b", ["openreasoning-nemotron-32b"] = "qwen2.5-32b",
  ["acereason-nemotron-7b"] = "deepseek-r1-distill-qwen-7b",
  ["vicuna-7b-v1.5"] = "llama-2-7b", ["vicuna-13b-v1.5"] = "llama-2-13b",
  ["zephyr-7b-beta"] = "mistral-7b-v0.1", ["zephyr-7b-alpha"] = "mistral-7b-v0.1",
  ["open_llama_3b_v2"] = "open_llama_3b", ["open_llama_7b_v2"] = "open_llama_7b",
  ["glm-z1-9b-0414"] = "glm-4-9b-0414", ["glm-z1-32b"] = "glm-4-32b", ["ring-mini-2.0"] = "ling-mini-2.0",
  ["ring-flash-2.0"] = "ling-flash-2.0", ["ring-1t"] = "ling-1t",
  ["deepseek-v3.1-terminus"] = "deepseek-v3", ["acereason-nemotron-14b"] = "qwen2.5-14b",
  ["supernova-medius"] = "qwen2.5-14b", ["phi-4-reasoning-plus"] = "phi-4-reasoning",
  ["cogito-v1-preview-llama-3b"] = "llama-3.2-3b", ["cogito-v1-preview-llama-8b"] = "llama-3.1-8b",
  ["cogito-v1-preview-llama-70b"] = "llama-3.1-70b", ["cogito-v1-preview-qwen-14b"] = "qwen2.5-14b",
  ["cogito-v1-preview-qwen-32b"] = "qwen2.5-32b",
  ["functiongemma-270m"] = "gemma-3-270m", ["olmo-3.1-32b"] = "olmo-3-32b", ["dialogpt-small"] = "gpt2", ["dialogpt-medium"] = "gpt2-medium", ["dialogpt-large"] = "gpt2-large",
  ["gpt-oss-safeguard-20b"] = "gpt-oss-20b", ["gpt-oss-safeguard-120b"] = "gpt-oss-120b", ["tinyllama_v1.1"] = "tinyllama-1.1b",
  ["deepcoder-14b"] = "qwen2.5-14b",
}
for _, n in ipairs { "0.5b", "1.5b", "3b", "7b", "14b", "32b" } do names.same["qwen2.5-coder-" .. n] = "qwen2.5-" .. n end

local suffixes = {
  "%-%d%d%d%d$", "%-instruct$", "%-base$", "%-chat$", "%-hf$", "%-it$", "%-thinking$", "%-bf16$", "%-fp16$", "%-fp8$",
  "%-reasoning$", "%-think$", "%-preview$", "%-v1$", "%-0324$", "%-pt$", "%-sft$", "%-dpo$",
}

-- What is behind the last slash, but for slashes at the end; read from the end, in one pass.
local function without_owner(name)
  local last = string.match(string.gsub(string.reverse(name), "^/*", "", 1), "^[^/]*")
  return string.reverse(last)
end

-- "llama3.1-8b", "gemma3-4b", as weft's own presets are written: "llama-3.1-8b"; nil: it is not so.
local DASHED = { llama = true, gemma = true, olmo = true, phi = true }
function names.dashed(name)
  local family, rest = string.match(name, "^(%a+)(%d.*)$")
  return DASHED[family] and family .. "-" .. rest or nil
end

-- The name in `known` that a public one stands for, or what is left of it.
function names.short(name, known)
  name = string.lower(without_owner(name))
  name = string.gsub(string.gsub(name, "^meta%-", ""), "%-instruct%-v", "-v")
  name = string.gsub(name, "%-instruct%-1m$", "-1m")
  name = string.gsub(name, "^(mixtral%-8x%d+b)%-v0%.%d$", "%1")
  name = string.gsub(name, "^(olmo%-[23])%-%d%d%d%d%-", "%1-")
  local before
  repeat
    before = name
    for _, suffix in ipairs(suffixes) do
      if known[name] then return name end
      name = string.gsub(name, suffix, "")
    end
  until name == before
  local dashed = names.dashed(name)
  return known[dashed] and dashed or name
end

return names
