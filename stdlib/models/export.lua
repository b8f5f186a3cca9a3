-- export.lua - a model's config as Hugging Face's config.json. Keys are those of its
-- configuration classes; what follows from other keys is written out, since a class may
-- have another default for it.
local rope = require "weft.models.rope"

local export = {}

-- For each architecture: the class that transformers makes.
local classes = {
  llama = "LlamaForCausalLM", qwen2 = "Qwen2ForCausalLM", qwen3 = "Qwen3ForCausalLM",
  gpt2 = "GPT2LMHeadModel",
}

-- Keys that say how rope turns are one table, `rope_parameters` (transformers 5), and
-- `rope_theta` and `rope_scaling`, which earlier ones read.
local rotary = {
  rope_theta = true, rope_scaling = true, rope_parameters = true,
  original_max_position_embeddings = true,
}

local function add_rotary(out, c, head_dim)
  local a = rope.attributes(c, head_dim)
  out.rope_theta = a.theta + 0.0
  out.rope_parameters = { rope_theta = a.theta + 0.0, rope_type = "default" }
  if not a.rope_factor then return end
  local p = out.rope_parameters
  p.rope_type, p.factor = "llama3", a.rope_factor + 0.0
  p.low_freq_factor, p.high_freq_factor = a.rope_low + 0.0, a.rope_high + 0.0
  p.original_max_position_embeddings = math.tointeger(a.rope_original)
  out.rope_scaling = {}
  for key, value in pairs(p) do
    if key ~= "rope_theta" then out.rope_scaling[key] = value end
  end
end

-- The key by which Hugging Face's class knows one of ours.
local function spelling(arch)
  local names = {}
  for theirs, ours in pairs(arch.aliases) do names[ours] = theirs end
  return names
end

-- The whole config of a model that comes from the plan; `dtype` is as in torch.
function export.whole(name, arch, c, dtype)
  local names, out = spelling(arch), {}
  for key in pairs(arch.defaults) do
    local value = c[key]
    local said = value ~= nil and (value ~= false or type(arch.defaults[key]) == "boolean")
    if said and not rotary[key] then out[names[key] or key] = value end
  end
  -- `false` stands for "not given" in these.
  for _, key in ipairs { "layer_types", "loss_type", "partial_rotary_factor", "pruned_heads",
                         "is_causal", "use_bidirectional_attention", "head_dim",
                         "num_key_value_heads", "sliding_window", "n_inner" } do
    if not out[key] or key == "is_causal" then out[key] = nil end
  end
  if name ~= "gpt2" then
    out.num_key_value_heads = c.num_key_value_heads or c.num_attention_heads
    out.head_dim = c.head_dim or c.hidden_size // c.num_attention_heads
    add_rotary(out, c, out.head_dim)
  end
  out.architectures = { classes[name] }
  out.model_type = name
  out.torch_dtype, out.dtype = dtype, dtype
  return out
end

local function same(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then return a == b end
  for key, value in pairs(a) do if not same(value, b[key]) then return false end end
  for key in pairs(b) do if a[key] == nil then return false end end
  return true
end

-- What the plan has changed in the config of a folder, with the keys of its file; `given`
-- is that config as it is without the plan.
function export.changes(arch, file, given, c)
  local names, out = spelling(arch), {}
  for key, value in pairs(c) do
    if not same(value, given[key]) then
      local theirs = names[key]
      out[theirs and file[key] == nil and theirs or key] = value
    end
  end
  return out
end

return export
