-- export.lua - a model's config as Hugging Face's config.json. Keys are those of its
-- configuration classes; what follows from other keys is written out, since a class may
-- have another default for it.
local rope = require "weft.models.rope"

local export = {}

-- Keys that say how rope turns are one table, `rope_parameters` (transformers 5), and
-- `rope_theta` and `rope_scaling`, which earlier ones read.
local rotary = {
  rope_theta = true, rope_scaling = true, rope_parameters = true,
  original_max_position_embeddings = true,
}

local function add_rotary(out, arch, c)
  if arch.ropes then
    out.rope_parameters = rope.keys_by_type(c)
    return
  end
  local p = rope.keys(c)
  out.rope_theta, out.rope_parameters = p.rope_theta, p
  if p.rope_type == "default" then return end
  out.rope_scaling = {}
  for key, value in pairs(p) do
    if key ~= "rope_theta" then out.rope_scaling[key] = value end
  end
end

-- The key by which Hugging Face's class knows one of ours.
local function spelling(arch)
  local names = {}
  for theirs, ours in pairs(arch.aliases) do
    if not names[ours] or theirs < names[ours] then names[ours] = theirs end
  end
  return names
end

-- Classes of transformers take no 1 for 1.0, and no 8.0 for 8.
local function typed(arch, key, value)
  if type(value) ~= "number" then return value end
  if math.type(arch.defaults[key]) == "float" then return value + 0.0 end
  return math.tointeger(value) or value
end

-- The whole config of a model that comes from the plan; `dtype` is as in torch, `null`
-- that of JSON: "none" for a key whose default is not that.
function export.whole(name, arch, given, dtype, null)
  local c, names, out = arch.canonical and arch.canonical(given) or given, spelling(arch), {}
  for key, default in pairs(arch.defaults) do
    local value = c[key]
    if value == false and type(default) ~= "boolean" then value = null end
    if value ~= nil and not rotary[key] and not arch.unwritten[key] then
      out[names[key] or key] = typed(arch, key, value)
    end
  end
  -- `false` stands for "not given" in these.
  for _, key in ipairs { "layer_types", "head_dim", "num_key_value_heads", "sliding_window",
                         "n_inner", "mlp_only_layers", "num_hidden_layers", "layers_block_type",
                         "hybrid_override_pattern" } do
    if not out[key] then out[key] = nil end
  end
  if arch.defaults.rope_theta then
    out.num_key_value_heads = c.num_key_value_heads or c.num_attention_heads
    out.head_dim = arch.head_dim(c)
    add_rotary(out, arch, c)
  end
  -- A class that has it beside the tables reads it there.
  if arch.defaults.original_max_position_embeddings then
    out.original_max_position_embeddings = c.original_max_position_embeddings
  end
  out.architectures = { arch.class }
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
      out[theirs and file[key] == nil and theirs or key] = typed(arch, key, value)
    end
  end
  return out
end

return export
