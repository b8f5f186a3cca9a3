-- model.lua - a model as torchtitan has it: a flavor that torchtitan ships, or the arguments of its classes,
-- as a table in Python that import/torchtitan/flavors.lua reads.
local flavors = use "import/torchtitan/flavors"
local shown = use "shown"
local model = {}

local FAMILY = { llama = "llama3", qwen3 = "qwen3", qwen3_moe = "qwen3", deepseek_v3 = "deepseek_v3" }

-- Why torchtitan has no such model; nil: it has.
function model.refused(f)
  if FAMILY[f.architecture] then return nil end
  return f.architecture .. ": torchtitan has llama, qwen3, qwen3_moe and deepseek_v3"
end

-- Shipped flavors with these sizes; whether all else is the same shows when they are read again.
function model.shipped(f)
  local list, c = {}, f.config
  for _, name in ipairs(flavors.names(FAMILY[f.architecture])) do
    local other = flavors.flavor(FAMILY[f.architecture], name)
    if other and other[1] == f.architecture and other.hidden_size == c.hidden_size
      and other.num_hidden_layers == c.num_hidden_layers and other.vocab_size == c.vocab_size then
      list[#list + 1] = name
    end
  end
  return list
end

-- ---- arguments of classes ----

local function add(list, name, value) list[#list + 1] = { name, value } end

-- The width of Llama's MLP is a multiple of a number, at least so wide as a factor says.
local function add_width(list, c)
  local width, usual = c.intermediate_size, 2 * 4 * c.hidden_size // 3
  add(list, "multiple_of", width)
  if usual > width then add(list, "ffn_dim_multiplier", width / (usual + 1)) end
end

local function add_decoder(list, c)
  add(list, "dim", c.hidden_size)
  add(list, "n_layers", c.num_hidden_layers)
  add(list, "n_heads", c.num_attention_heads)
  add(list, "vocab_size", c.vocab_size)
  add(list, "norm_eps", c.rms_norm_eps)
  add(list, "rope_theta", c.rope_theta)
  add(list, "max_seq_len", c.max_position_embeddings)
end

local classes = {}

function classes.llama(c)
  local list, scaling = {}, type(c.rope_scaling) == "table" and c.rope_scaling or {}
  add_decoder(list, c)
  add(list, "n_kv_heads", c.num_key_value_heads or c.num_attention_heads)
  add_width(list, c)
  if c.tie_word_embeddings then add(list, "enable_weight_tying", true) end
  local args = { class = "RoPEScalingArgs" }
  add(args, "scaling_factor", scaling.rope_type == "llama3" and scaling.factor or 1.0)
  if scaling.rope_type == "llama3" then
    add(args, "low_freq_factor", scaling.low_freq_factor)
    add(args, "high_freq_factor", scaling.high_freq_factor)
    add(args, "original_max_position_embeddings", scaling.original_max_position_embeddings)
  end
  add(list, "rope_scaling_args", args)
  list.class, list.module = "TransformerModelArgs", "torchtitan.models.llama3.model.args"
  list.imports = { "RoPEScalingArgs" }
  return list
end

function classes.qwen3(c)
  local list = {}
  add_decoder(list, c)
  add(list, "n_kv_heads", c.num_key_value_heads or c.num_attention_heads)
  add(list, "head_dim", c.head_dim or c.hidden_size // c.num_attention_heads)
  add(list, "hidden_dim", c.intermediate_size)
  if c.tie_word_embeddings then add(list, "enable_weight_tying", true) end
  list.class, list.module = "Qwen3ModelArgs", "torchtitan.models.qwen3.model.args"
  return list
end

local function moe_args(experts, topk, shared, more)
  local args = { class = "MoEArgs" }
  add(args, "num_experts", experts)
  add(args, "top_k", topk)
  add(args, "num_shared_experts", shared)
  add(args, "score_before_experts", false) -- what comes of experts is multiplied, not what goes into them
  for _, pair in ipairs(more) do add(args, pair[1], pair[2]) end
  return args
end

function classes.qwen3_moe(c)
  local list = classes.qwen3(c)
  add(list, "moe_enabled", true)
  add(list, "moe_inter_dim", c.moe_intermediate_size)
  add(list, "moe_args", moe_args(c.num_experts, c.num_experts_per_tok, 0, {
    { "score_func", "softmax" }, { "route_norm", c.norm_topk_prob == true }, { "load_balance_coeff", "none" } }))
  list.moe = true
  return list
end

function classes.deepseek_v3(c, rate)
  local list, scaling = {}, type(c.rope_scaling) == "table" and c.rope_scaling or {}
  add_decoder(list, c)
  add(list, "inter_dim", c.intermediate_size)
  add(list, "moe_inter_dim", c.moe_intermediate_size)
  add(list, "n_dense_layers", c.n_routed_experts and c.first_k_dense_replace or c.num_hidden_layers)
  add(list, "q_lora_rank", c.q_lora_rank or 0)
  add(list, "kv_lora_rank", c.kv_lora_rank)
  add(list, "qk_nope_head_dim", c.qk_nope_head_dim)
  add(list, "qk_rope_head_dim", c.qk_rope_head_dim)
  add(list, "v_head_dim", c.v_head_dim)
  add(list, "rope_factor", scaling.factor or 1.0)
  if scaling.factor then
    add(list, "beta_fast", scaling.beta_fast)
    add(list, "beta_slow", scaling.beta_slow)
    add(list, "mscale", scaling.mscale)
    add(list, "original_seq_len", scaling.original_max_position_embeddings)
  end
  local more = { { "score_func", "sigmoid" }, { "route_norm", c.norm_topk_prob == true },
                 { "route_scale", c.routed_scaling_factor }, { "load_balance_coeff", rate > 0 and rate or "none" } }
  if (c.n_group or 1) > 1 then
    more[#more + 1] = { "num_expert_groups", c.n_group }
    more[#more + 1] = { "num_limited_groups", c.topk_group }
  end
  if c.n_routed_experts then
    add(list, "moe_args", moe_args(c.n_routed_experts, c.num_experts_per_tok, c.n_shared_experts or 0, more))
    list.moe = true
  end
  list.class, list.module = "DeepSeekV3ModelArgs", "torchtitan.models.deepseek_v3.model.args"
  return list
end

-- ---- Python ----

local function literal(v, indent)
  if v == true or v == false then return v and "True" or "False" end
  if v == "none" then return "None" end
  if type(v) == "string" then return '"' .. v .. '"' end
  if math.type(v) == "integer" then return tostring(v) end
  if type(v) == "number" then
    local short = string.format("%.15g", v)
    if tonumber(short) ~= v then short = string.format("%.17g", v) end
    return string.find(short, "[.e]") and short or short .. ".0"
  end
  local lines = { v.class .. "(" }
  for _, pair in ipairs(v) do
    lines[#lines + 1] = string.format("%s    %s=%s,", indent, pair[1], literal(pair[2], indent .. "    "))
  end
  lines[#lines + 1] = indent .. ")"
  return table.concat(lines, "\n")
end

-- The name of a flavor of one's own.
function model.name_of(f)
  local name = string.gsub(f.facts.name, "[^%w_.-]", "_")
  return name ~= "" and name or "plan"
end

-- The text of a file in Python with the flavor, and its family.
function model.python(f)
  local list = classes[f.architecture](f.config, f.value["moe.bias_update_rate"] or 0)
  local imports = { list.class }
  for _, one in ipairs(list.imports or {}) do imports[#imports + 1] = one end
  local lines = { "# Arguments of the model " .. shown(model.name_of(f)) .. ", made by weft export: torchtitan has them in the table",
    "# of flavors of its family.", string.format("from %s import %s", list.module, table.concat(imports, ", ")) }
  if list.moe then lines[#lines + 1] = "from torchtitan.models.moe import MoEArgs" end
  lines[#lines + 1] = ""
  lines[#lines + 1] = string.format("%s_args = {", FAMILY[f.architecture])
  lines[#lines + 1] = string.format("    \"%s\": %s,", model.name_of(f), literal(list, "    "))
  lines[#lines + 1] = "}"
  return table.concat(lines, "\n") .. "\n"
end

function model.family(f) return FAMILY[f.architecture] end

return model
