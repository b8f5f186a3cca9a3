-- models.lua - models by their public names: sizes for those whose architecture weft has, and what
-- the others are, for weft.model and for settings of other systems. A name is looked up as
-- model_names.lua shortens it. Sizes (sizes/) are those of the public files, checked against what is named
-- beside each family; --model DIR takes the config.json of a folder instead.
local names = require "weft.import.model_names"
local other_models = require "weft.import.other_models"
local presets = require "weft.presets"
local models = {}

local function copy(t)
  local c = {}
  for key, value in pairs(t) do c[key] = type(value) == "table" and copy(value) or value end
  return c
end

local sizes = {}
for _, family in ipairs { "llama", "qwen", "others" } do
  for name, config in pairs(require("weft.import.sizes." .. family)) do sizes[name] = config end
end
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
