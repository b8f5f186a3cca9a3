-- changed.lua - keys that a plan writes on top of a file's, or of a preset's. Both may say the same thing by
-- several keys, of which one counts: Transformers 5 writes rope_parameters and layer_types, and takes these
-- before rope_theta and max_window_layers. A key of the plan counts, by whatever key the file says it.
local config = require "weft.models.config"
local rope = require "weft.models.rope"

local changed = {}

local function copy(t)
  local out = {}
  for key, value in pairs(type(t) == "table" and t or {}) do out[key] = value end
  return out
end

-- Keys about positions.
local ROTARY = { "rope_theta", "rope_scaling", "rope_parameters", "rope_local_base_freq", "partial_rotary_factor",
                 "rotary_dim", "original_max_position_embeddings" }

local function has_keys(t)
  for _ in pairs(type(t) == "table" and t or {}) do return true end
  return false
end

-- ---- one rope ----

-- Keys of a table that stand beside it, too: the table's count.
local BESIDE = { "rope_theta", "partial_rotary_factor" }

-- A table that the plan writes has from the one before what it does not say itself.
local function carry(t, before, written)
  for _, key in ipairs(BESIDE) do
    if t[key] == nil and not written[key] then t[key] = before[key] end
  end
end

-- Queries of some models grow, whatever scales their rope.
local function carry_growth(t, before)
  if before.llama_4_scaling_beta == nil then return end
  for _, key in ipairs { "llama_4_scaling_beta", "original_max_position_embeddings" } do
    if t[key] == nil then t[key] = before[key] end
  end
end

-- What is left of a table where nothing scales.
local function unscaled(before)
  local t = { rope_type = "default", rope_theta = before.rope_theta,
              partial_rotary_factor = before.partial_rotary_factor }
  carry_growth(t, before)
  return t
end

-- Puts numbers that the plan has beside tables into those that have them.
local function put_beside(c, t, written)
  for _, key in ipairs { "rope_theta", "partial_rotary_factor", "original_max_position_embeddings" } do
    if written[key] and t[key] ~= nil then t[key] = c[key] or nil end
  end
end

-- MiniMax says how much of a head turns by a share, or by a number of elements.
local function one_share(c, before, written)
  if written.rotary_dim and not written.partial_rotary_factor then
    c.partial_rotary_factor, before.partial_rotary_factor = false, nil
  elseif written.partial_rotary_factor and not written.rotary_dim then
    c.rotary_dim = false
  end
end

-- The table of the plan, by its key; nil: it has none, or one that says nothing.
local function new_table(c, written)
  for _, key in ipairs { "rope_scaling", "rope_parameters" } do
    if written[key] and has_keys(c[key]) then return key end
  end
end

local function one_rope(base, c, written)
  local before = copy(has_keys(base.rope_scaling) and base.rope_scaling or base.rope_parameters)
  local key = new_table(c, written)
  if c.rotary_dim ~= nil then one_share(c, before, written) end
  if key then
    local t = copy(c[key])
    if key == "rope_scaling" then
      carry(t, copy(written.rope_parameters and c.rope_parameters), written)
      carry_growth(t, before)
    end
    carry(t, before, written)
    c.rope_scaling, c.rope_parameters = false, false
    c[key] = t
  elseif written.rope_scaling or written.rope_parameters and has_keys(base.rope_parameters) then
    c.rope_scaling, c.rope_parameters = false, has_keys(before) and unscaled(before)
  end
  for _, name in ipairs { "rope_scaling", "rope_parameters" } do
    if name ~= key and type(c[name]) == "table" then
      local t = copy(c[name])
      put_beside(c, t, written)
      if written.rotary_dim then t.partial_rotary_factor = before.partial_rotary_factor end
      c[name] = t
    end
  end
  local long = key and c[key].original_max_position_embeddings
  if long and c.original_max_position_embeddings and not written.original_max_position_embeddings then
    c.original_max_position_embeddings = long
  end
end

-- ---- a rope for each type of layers ----

-- What a key beside tables is called in them.
local function name_in_table(key) return key == "rope_local_base_freq" and "rope_theta" or key end

-- The types whose rope rope_theta is of; the other one of Gemma's has rope_local_base_freq.
local function types_of(arch, key)
  if key == "rope_local_base_freq" then return { "sliding_attention" } end
  return arch.defaults.rope_local_base_freq and { "full_attention" } or rope.TYPES
end

-- Puts a number that the plan has beside tables, by `key`, into those that have one, `name`, but for those of
-- the plan: where they differ, it is of none.
local function put_number(arch, tables, own, key, name, value)
  local first, of = nil, {}
  for _, kind in ipairs(types_of(arch, key)) do
    local has = copy(tables[kind])[name]
    if has ~= nil and copy(own[kind])[name] == nil then
      if first ~= nil and has ~= first then return end
      first, of[#of + 1] = has, kind
    end
  end
  for _, kind in ipairs(of) do tables[kind][name] = value end
end

local function ropes(arch, base, c, written)
  local own = written.rope_parameters and copy(c.rope_parameters) or {}
  if not has_keys(own) and not has_keys(base.rope_parameters) then return end
  local from, tables = arch.canonical and arch.canonical(base) or base, copy(own)
  for _, kind in ipairs(rope.TYPES) do
    local before = rope.of_type(from, kind).rope_parameters
    if has_keys(own[kind]) then
      tables[kind] = copy(own[kind])
      carry(tables[kind], before, {})
    elseif has_keys(before) then
      tables[kind] = before
    end
  end
  if written.rope_scaling then
    local full = copy(tables.full_attention)
    tables.full_attention = has_keys(c.rope_scaling) and copy(c.rope_scaling) or unscaled(full)
    carry(tables.full_attention, full, {})
  end
  for _, key in ipairs { "rope_theta", "rope_local_base_freq", "partial_rotary_factor",
                         "original_max_position_embeddings" } do
    if written[key] and type(c[key]) == "number" then
      put_number(arch, tables, own, key, name_in_table(key), c[key])
    end
  end
  c.rope_parameters, c.rope_scaling = tables, false
end

-- ---- lists ----

-- Keys that say how layers are where no list does, and that list.
local LISTS = {
  max_window_layers = "layer_types", sliding_window_pattern = "layer_types",
  no_rope_layer_interval = "no_rope_layers", moe_layers_enum = "mlp_layer_types",
  hybrid_override_pattern = "layers_block_type", attention_other_setting = "num_sliding_attention_heads",
  sliding_window = "sliding_window_size",
}
-- Lists with an item for each layer.
local PER_LAYER = { "layer_types", "layers_block_type", "mlp_layer_types", "no_rope_layers",
                    "num_attention_heads_per_layer" }

local function has_window(types)
  for _, kind in ipairs(type(types) == "table" and types or {}) do
    if kind == "sliding_attention" then return true end
  end
  return false
end

-- Drops lists of the file that say otherwise than the plan.
local function drop_lists(arch, base, c, written)
  for key, list in pairs(LISTS) do
    if written[key] and c[key] and c[list] and not written[list] then
      c[list] = false
      if key == "hybrid_override_pattern" and not written.num_hidden_layers then
        c.num_hidden_layers = type(c[key]) == "string" and #c[key]
      end
    end
  end
  local asks = written.use_sliding_window and c.use_sliding_window
    or written.sliding_window and c.sliding_window and not base.sliding_window
  local refuses = written.use_sliding_window and not c.use_sliding_window and has_window(c.layer_types)
  if refuses and not written.layer_types then c.layer_types = false end
  if asks and c.layer_types and not written.layer_types and not has_window(c.layer_types) then
    c.layer_types = false
  end
end

-- Fewer layers are the first of those that a file lists.
local function cut_lists(c, written)
  local n = written.num_hidden_layers and c.num_hidden_layers
  if math.type(n) ~= "integer" or n < 1 then return end
  for _, key in ipairs(PER_LAYER) do
    if type(c[key]) == "table" and not written[key] then c[key] = config.first_items(c[key], n) end
  end
end

-- `base` is the config without the plan's keys, `c` with them, `written` the set of these.
function changed.settle(arch, base, c, written)
  for _, key in ipairs { "rope_scaling", "rope_parameters" } do
    if c[key] and type(c[key]) ~= "table" then return end -- checks say so
  end
  local says = false
  for _, key in ipairs(ROTARY) do says = says or written[key] end
  if says and arch.ropes then ropes(arch, base, c, written)
  elseif says and arch.defaults.rope_theta then one_rope(base, c, written) end
  drop_lists(arch, base, c, written)
  cut_lists(c, written)
end

-- ---- keys that nothing reads ----

-- Adds a key that the plan changes where another one says the same.
local function add(problems, key, ...)
  config.add(problems, key, "changes nothing: %s", string.format(...))
end

-- Numbers beside tables that all have another one.
local function add_ropes(arch, c, written, problems)
  local keys = { "rope_theta", "partial_rotary_factor", arch.defaults.rope_local_base_freq and "rope_local_base_freq" }
  for _, key in ipairs(keys) do
    local read, name = not written[key] or c[key] == false, name_in_table(key)
    local place, value
    for _, kind in ipairs(arch.ropes and types_of(arch, key) or { false }) do
      local of = kind and rope.of_type(c, kind) or c
      local t, at = rope.parameters(of)
      if t[name] == nil or t[name] == c[key] then read = true else place, value = at, t[name] end
    end
    if not read then add(problems, key, "%s.%s is %s", place, name, value) end
  end
end

-- Why no layer has a window, and the key that says so; nil: some may.
local function without_window(arch, c)
  local listed = arch.types_decide and has_window(c.layer_types)
  if arch.defaults.use_sliding_window ~= nil and not c.use_sliding_window and not listed then
    return "use_sliding_window is false", "use_sliding_window"
  elseif not c.sliding_window then
    return "there is no sliding_window", "sliding_window"
  elseif type(c.layer_types) == "table" and not has_window(c.layer_types) then
    return "layer_types has no sliding_attention", "layer_types"
  end
end

local function add_windows(arch, base, c, written, problems)
  if arch.defaults.sliding_window == nil or arch.unwritten.sliding_window then return end
  local why, by = without_window(arch, c)
  if not why or written[by] then return end
  local asks = {
    sliding_window = c.sliding_window and c.sliding_window ~= base.sliding_window,
    max_window_layers = c.max_window_layers ~= base.max_window_layers,
    layer_types = has_window(c.layer_types), use_sliding_window = c.use_sliding_window,
  }
  for _, key in ipairs { "layer_types", "max_window_layers", "sliding_window", "use_sliding_window" } do
    if written[key] and asks[key] then add(problems, key, "%s, and no layer has a window", why) end
  end
end

-- Keys that the plan changes, and of which the file, or the preset, says otherwise by a key that counts.
function changed.unread(arch, base, c, written)
  local problems = {}
  if arch.defaults.rope_theta then add_ropes(arch, c, written, problems) end
  add_windows(arch, base, c, written, problems)
  local function overruled(key, by, says)
    if written[key] and c[key] ~= base[key] and c[by] and not written[by] then add(problems, key, says, by) end
  end
  overruled("num_attention_heads", "num_attention_heads_per_layer", "%s has the heads of each layer")
  overruled("mamba_expand", "mamba_d_ssm", "%s is the width of the mixer")
  overruled("partial_rotary_factors", "rope_parameters", "%s has the factor of each type of layers")
  return problems
end

return changed
