-- export.lua - a model's config as Hugging Face's config.json. Keys are those of its
-- configuration classes; what follows from other keys is written out, since a class may
-- have another default for it.
local config = require "weft.models.config"
local rope = require "weft.models.rope"

local export = {}

-- Keys that say how rope turns are one table, `rope_parameters` (transformers 5), and
-- `rope_theta` and `rope_scaling`, which earlier ones read.
local rotary = {
  rope_theta = true, rope_scaling = true, rope_parameters = true,
  original_max_position_embeddings = true,
}

-- Whether a part of a head may turn alone: its class has a part of its own, then.
local function may_turn_partly(arch, kind)
  local of = kind and (arch.defaults.rope_parameters or {})[kind]
  return of and of.partial_rotary_factor or not kind and not arch.unwritten.partial_rotary_factor
end

local function add_rotary(out, arch, c)
  if arch.ropes then
    out.rope_parameters = rope.keys_by_type(c)
    for kind, p in pairs(out.rope_parameters) do
      if may_turn_partly(arch, kind) then p.partial_rotary_factor = p.partial_rotary_factor or 1.0 end
    end
    return
  end
  local p = rope.keys(c)
  if may_turn_partly(arch) then
    p.partial_rotary_factor = p.partial_rotary_factor or 1.0
    out.partial_rotary_factor = p.partial_rotary_factor
  end
  out.rope_theta, out.rope_parameters = p.rope_theta, p
  if p.rope_type == "default" then return end
  out.rope_scaling = {}
  for key, value in pairs(p) do
    if key ~= "rope_theta" then out.rope_scaling[key] = value end
  end
end

-- Whether the class knows no such key.
local function of_weft(arch, key) return arch.not_of_files and arch.not_of_files[key] end

-- The names that files have for keys: an alias where the architecture says that it is theirs, or
-- where `file` has it.
local function spelling(arch, file)
  local names = {}
  for theirs, ours in pairs(arch.aliases) do
    local theirs_is_read = arch.files_have_aliases or file and file[theirs] ~= nil
    if theirs_is_read and not of_weft(arch, theirs) and (not names[ours] or theirs < names[ours]) then
      names[ours] = theirs
    end
  end
  return names
end

-- Keys whose default, false, is a switch; of others it says that nothing is given, and classes
-- take no false there.
local switches = {}
for _, key in ipairs {
  "add_cross_attention", "alibi", "attention_bias", "attention_out_bias", "is_encoder_decoder",
  "mamba_proj_bias", "mamba_rms_norm", "mlp_bias", "moe_apply_router_weight_on_input", "norm_topk_prob",
  "output_router_logits", "post_norm", "projectors_bias", "qk_layernorm", "reorder_and_upcast_attn",
  "scale_attn_by_inverse_layer_idx", "swa_attention_sink_enabled", "tie_encoder_decoder",
  "tie_word_embeddings", "torchscript", "use_bias", "use_bidirectional_attention", "use_mrope",
  "use_parallel_residual", "use_qk_norm", "use_sliding_window",
} do switches[key] = true end

-- Whether false is a value of the key, and not the lack of one.
local function is_switch(arch, key) return arch.defaults[key] == true or switches[key] end

-- Numbers with a point whose default is false.
local reals = { attn_logit_softcapping = true, final_logit_softcapping = true }

-- Lists of such numbers.
local lists_of_reals = {
  mlp_multipliers = true, ssm_multipliers = true, swiglu_limits = true, swiglu_limits_shared = true,
  time_step_limit = true,
}

-- Of what is dropped: none is 0, since few classes take null.
local rates = {
  attention_dropout = true, attn_pdrop = true, embd_pdrop = true, embedding_dropout = true, resid_pdrop = true,
  residual_dropout = true,
}

-- Classes of transformers take no 1 for 1.0, and no 8.0 for 8.
local function typed(arch, key, value)
  if type(value) == "table" and lists_of_reals[key] then
    local list = {}
    for i, item in ipairs(value) do list[i] = math.type(item) and item + 0.0 or item or 0.0 end
    return list
  end
  if type(value) ~= "number" then return value end
  if math.type(arch.defaults[key]) == "float" or reals[key] then return value + 0.0 end
  return math.tointeger(value) or value
end

-- Sizes that follow from others where they are not given, which not all classes find.
local function derived(arch, c)
  if not arch.defaults.rope_theta then return {} end
  return { num_key_value_heads = c.num_key_value_heads or c.num_attention_heads, head_dim = arch.head_dim(c) }
end

-- The whole config of a model that comes from the plan; `dtype` is as in torch, `null`
-- that of JSON: "none" for a key whose default is not that. `ids` are those of special tokens, null
-- too: a class would have those of another tokenizer.
function export.whole(name, arch, given, dtype, null, ids)
  local c, names, out = arch.canonical and arch.canonical(given) or given, spelling(arch), {}
  for key, default in pairs(arch.defaults) do
    local value = c[key]
    if value == false and type(default) ~= "boolean" then value = rates[key] and 0.0 or null end
    local says = value or value == false and (default or switches[key])
    if says and not rotary[key] and not arch.unwritten[key] then
      out[names[key] or key] = typed(arch, key, value)
    end
  end
  if arch.defaults.rope_theta then
    for key, value in pairs(derived(arch, c)) do out[key] = value end
    add_rotary(out, arch, c)
  end
  -- A class that has it beside the tables reads it there.
  if arch.defaults.original_max_position_embeddings then
    out.original_max_position_embeddings = c.original_max_position_embeddings
  end
  out.architectures = { arch.class }
  out.model_type = name
  out.torch_dtype, out.dtype = dtype, dtype
  for key, id in pairs(ids) do
    if id ~= null or key ~= arch.needs_id then out[key] = id end
  end
  return out
end

-- What the plan has changed in the config of a folder, with the keys of its file; `given`
-- is that config as it is without the plan, `null` as above.
function export.changes(arch, file, given, c, null)
  local names, sizes, out = spelling(arch, file), derived(arch, c), {}
  for key, value in pairs(c) do
    if not config.same(value, given[key]) then
      if value == false and not is_switch(arch, key) then value = sizes[key] or rates[key] and 0.0 or null end
      local is_read = file[key] ~= nil and not of_weft(arch, key)
      out[is_read and key or names[key] or key] = typed(arch, key, value)
    end
  end
  -- Transformers makes no embedding in which the row that pads is missing.
  local pad = file.pad_token_id
  if c.vocab_size ~= given.vocab_size and math.type(pad) and pad >= c.vocab_size then
    out.pad_token_id = null
  end
  return out
end

return export
