-- step3p5.lua - Step-3.5-Flash: Qwen3's attention with norms by 1 + w and a gate for each head; windows, a
-- number of heads and a rope of their own in some layers, of which a part of each head may turn; sigmoid
-- experts in some, and beside them an MLP. Gates and rows of some layers are clamped.
--
-- Parameters have the names of the published files; Transformers has those of experts as one, elsewhere.
local checks = require "weft.models.checks"
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"
local moe = require "weft.models.moe"
local rope = require "weft.models.rope"

local step = {
  class = "Step3p5ForCausalLM",
  aliases = {
    num_attention_groups = "num_key_value_heads", moe_num_experts = "n_routed_experts",
    num_local_experts = "n_routed_experts", moe_top_k = "num_experts_per_tok", share_expert_dims = "share_expert_dim",
  },
  needs_id = "pad_token_id", -- the class takes no null for it
  ropes = true, -- each type of layers has one: see rope.of_type
  -- Sizes of heads of layers with windows are in num_sliding_attention_heads, in files in a table beside others.
  ignored = config.ignored { "max_seq_len", "need_fp32_gate", "per_layer_config", "mtp_layer_types",
                             "mtp_mlp_layer_types" },
}
step.defaults, step.unwritten = decoder.defaults {
  vocab_size = 128815, hidden_size = 4096, intermediate_size = 11264, num_hidden_layers = 45,
  num_attention_heads = 64, num_key_value_heads = 8, head_dim = 128, max_position_embeddings = 128000,
  rms_norm_eps = 1e-5, attention_bias = false, mlp_bias = false, sliding_window = false, layer_types = false,
  num_sliding_attention_heads = false, gating = true, query_pre_attn_scalar = false, mlp_layer_types = false,
  n_routed_experts = 288, num_experts_per_tok = 8, moe_intermediate_size = 1280, share_expert_dim = 1280,
  moe_router_scaling_factor = 1.0, swiglu_limits = false, swiglu_limits_shared = false,
  num_nextn_predict_layers = 0, output_router_logits = false,
  attention_other_setting = false, moe_layers_enum = false, partial_rotary_factors = false,
  yarn_only_types = false,
}

-- Keys of the published files, which Transformers reads, too, and does not write.
local OLD = { "attention_other_setting", "moe_layers_enum", "partial_rotary_factors", "yarn_only_types" }
for _, key in ipairs(OLD) do step.unwritten[key] = true end

local rules = {
  { "head_dim", "count" }, { "attention_bias", "boolean" }, { "mlp_bias", "boolean" },
  { "sliding_window", "optional_count" },
  { "layer_types", "each", { "full_attention", "sliding_attention" } }, { "gating", "only", { true, "per-head" } },
  { "num_sliding_attention_heads", "optional_count" }, { "query_pre_attn_scalar", "optional_positive" },
  { "mlp_layer_types", "each", { "dense", "sparse" } }, { "n_routed_experts", "count" },
  { "num_experts_per_tok", "count" }, { "moe_intermediate_size", "count" }, { "share_expert_dim", "count" },
  { "moe_router_scaling_factor", "positive" }, { "swiglu_limits", "limits" }, { "swiglu_limits_shared", "limits" },
  { "num_nextn_predict_layers", "layers" }, { "output_router_logits", "only", { false } },
  { "yarn_only_types", "each", { "full_attention" } }, { "rope_parameters", "ropes", "partial" },
}

step.head_dim = decoder.head_dim

-- A rule for keys of the config that are of a type of which canonical makes nothing; nil: there is none.
local function malformed(c)
  if math.type(c.num_hidden_layers) ~= "integer" or c.num_hidden_layers > 10000 then
    return { "num_hidden_layers", "count" }
  end
  for _, key in ipairs { "layer_types", "mlp_layer_types", "partial_rotary_factors" } do
    if c[key] and type(c[key]) ~= "table" then return { key, "each", {} } end
  end
end

-- The same config with the keys that Transformers writes, if it is sound. Lists of published files have items for layers that
-- predict further tokens, too.
function step.canonical(c)
  if malformed(c) then return c end
  local n, types, other = c.num_hidden_layers, {}, c.attention_other_setting
  for i = 1, n do types[i] = c.layer_types and c.layer_types[i] or "full_attention" end
  local ropes, scaling = rope.by_type(c, types)
  return setmetatable({
    layer_types = c.layer_types and #c.layer_types < n and c.layer_types or types, mlp_layer_types = moe.types(c, 3),
    num_sliding_attention_heads = c.num_sliding_attention_heads or type(other) == "table" and other.num_attention_heads
      or c.num_attention_heads,
    query_pre_attn_scalar = c.query_pre_attn_scalar or math.type(c.head_dim) and c.head_dim,
    swiglu_limits = config.first_items(c.swiglu_limits, n),
    swiglu_limits_shared = config.first_items(c.swiglu_limits_shared, n),
    rope_parameters = ropes, rope_scaling = scaling, rope_theta = 10000.0,
  }, { __index = c })
end

-- Of layer i, from 0.
local function limit_of(limits, i) return limits and limits[i + 1] end

local function experts(c, layer)
  if moe.is_dense(c, layer) then return nil end
  return {
    experts = c.n_routed_experts, topk = c.num_experts_per_tok, width = c.moe_intermediate_size,
    hidden = c.hidden_size, std = c.initializer_range, score = "sigmoid", bias = "router_bias", norm = true,
    scale = c.moe_router_scaling_factor, mlp = moe.gated_apart(limit_of(c.swiglu_limits, layer)), module = "moe",
    shared = c.share_expert_dim, beside = "share_expert",
  }
end

local function kind_of(c, i) return decoder.layer_type(c, i, "full_attention") end

function step.build(g, given)
  local c = step.canonical(given)
  return decoder.build(g, c, {
    qk_norm = "heads", norm = decoder.centered_norm, qkv_bias = c.attention_bias, out_bias = c.attention_bias,
    mlp_bias = c.mlp_bias, attention_scale = c.query_pre_attn_scalar ^ -0.5, rope_type = kind_of,
    heads = function(_, i)
      return kind_of(c, i) == "sliding_attention" and c.num_sliding_attention_heads or c.num_attention_heads
    end,
    head_gate = function() return "head" end, gate_kind = "sigmoid",
    window = decoder.window_by_type(function() return false end), experts = experts,
    glu = function(_, gate, up, _, i) return moe.clamped(g, gate, up, limit_of(c.swiglu_limits_shared, i)) end,
  })
end

-- Adds a type of layers that rope_parameters has no table for, while it has others: the class takes none of
-- them then.
local function check_tables(given, c, problems)
  for i, kind in ipairs(rope.is_given(given.rope_parameters) and c.layer_types or {}) do
    if not given.rope_parameters[kind] then
      return config.add(problems, "rope_parameters", "has no table for %s, the type of layer %d", kind, i - 1)
    end
  end
end

function step.check(given)
  local rule = malformed(given)
  if rule then return config.check(step.class, given, { rule }) end
  local c = step.canonical(given)
  local problems = decoder.check(step.class, c, rules)
  if not config.sound(problems) then return problems end
  moe.check_types(c, problems)
  moe.check_choices(c, problems, "n_routed_experts")
  moe.check_enum(given, problems)
  config.check_items(c, problems, { "swiglu_limits", "swiglu_limits_shared" }, "limits")
  check_tables(given, c, problems)
  config.check_items(given, problems, { "rope_theta", "partial_rotary_factors" }, "numbers")
  checks.heads_of_some(c, problems, "num_sliding_attention_heads")
  return problems
end

return step
