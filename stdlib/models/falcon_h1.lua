-- falcon_h1.lua - Falcon-H1: in each layer attention and a Mamba-2 mixer read the same norm, and
-- both are added to the hidden states; then a gated MLP. Numbers of the config multiply
-- embeddings, keys, what mixers read and give, gates and logits.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"
local mamba2 = require "weft.models.mamba2"

local falcon_h1 = {
  class = "FalconH1ForCausalLM",
  aliases = {},
  packed = mamba2.packed,
  -- Chunks are a way to compute; Hugging Face's class reads none of the others.
  ignored = config.ignored {
    "attn_layer_indices", "mamba_chunk_size", "mamba_use_mlp", "mlp_expansion_factor",
    "num_logits_to_keep", "time_step_floor", "time_step_max", "time_step_min", "use_mamba_kernels",
  },
}
falcon_h1.defaults, falcon_h1.unwritten = decoder.defaults {
  vocab_size = 128000, hidden_size = 4096, intermediate_size = 14336, num_hidden_layers = 32,
  num_attention_heads = 32, num_key_value_heads = 8, max_position_embeddings = 8192,
  rms_norm_eps = 1e-5, attention_bias = false, mlp_bias = false, projectors_bias = false,
  mamba_d_ssm = 1024, mamba_expand = 2, mamba_n_heads = 128, mamba_d_head = "auto", mamba_n_groups = 1,
  mamba_d_state = 256, mamba_d_conv = 4, mamba_conv_bias = true, mamba_proj_bias = false,
  mamba_norm_before_gate = true, mamba_rms_norm = false, time_step_limit = false,
  lm_head_multiplier = 1.0, embedding_multiplier = 1.0, mlp_multipliers = false,
  key_multiplier = 1.0, attention_out_multiplier = 1.0, attention_in_multiplier = 1.0,
  ssm_multipliers = false, ssm_in_multiplier = 1.0, ssm_out_multiplier = 1.0,
}

falcon_h1.head_dim = decoder.head_dim

local function scaled(g, x, by) return by ~= 1 and g:scale(x, { scale = by }) or x end

local function inner(c) return c.mamba_d_ssm or c.mamba_expand * c.hidden_size end

-- Shortest and longest step. Infinity is no limit, as a number or as Transformers 5 writes it, a table.
local function limits(c)
  local from, to = table.unpack(c.time_step_limit or {})
  return from or 0, math.type(to) and to < math.huge and to or 0
end

local function mixers(g, c, x, name, o, i)
  local shortest, longest = limits(c)
  local scales = c.ssm_multipliers or { 1, 1, 1, 1, 1 }
  local norm = c.mamba_rms_norm and (c.mamba_norm_before_gate and "before" or "gated")
  local y = mamba2.mixer(g, scaled(g, x, c.ssm_in_multiplier), (name:gsub("self_attn$", "mamba")), {
    hidden = c.hidden_size, heads = c.mamba_n_heads, head_dim = inner(c) // c.mamba_n_heads,
    groups = c.mamba_n_groups, state = c.mamba_d_state, kernel = c.mamba_d_conv,
    bias = c.mamba_proj_bias, out_bias = c.projectors_bias, conv_bias = c.mamba_conv_bias,
    eps = c.rms_norm_eps, norm = norm, std = c.initializer_range, shortest = shortest,
    longest = longest, scales = scales,
  })
  local z = decoder.attention(g, c, scaled(g, x, c.attention_in_multiplier), name, o, i)
  return g:add(scaled(g, y, c.ssm_out_multiplier), scaled(g, z, c.attention_out_multiplier))
end

function falcon_h1.build(g, c)
  local gate, down = table.unpack(c.mlp_multipliers or { 1, 1 })
  return decoder.build(g, c, {
    qkv_bias = c.attention_bias, out_bias = c.attention_bias, mlp_bias = c.mlp_bias,
    key_scale = c.key_multiplier, attention = mixers,
    norms = { "input_layernorm", false, "pre_ff_layernorm", false },
    names = { mlp = "feed_forward", norm = "final_layernorm" },
    glu = function(_, x, up) return g:silu_mul(scaled(g, x, gate), up) end, mlp_scale = down,
    embedding_multiplier = c.embedding_multiplier, logits_scale = c.lm_head_multiplier,
  })
end

-- ---- checks ----

local rules = {
  { "attention_bias", "boolean" }, { "mlp_bias", "boolean" }, { "projectors_bias", "boolean" },
  { "mamba_d_ssm", "optional_count" }, { "mamba_expand", "count" }, { "mamba_n_heads", "count" }, { "mamba_n_groups", "count" },
  { "mamba_d_state", "count" }, { "mamba_d_conv", "count" }, { "mamba_conv_bias", "boolean" },
  { "mamba_proj_bias", "boolean" }, { "mamba_norm_before_gate", "boolean" },
  { "mamba_rms_norm", "boolean" }, { "embedding_multiplier", "positive" },
  { "key_multiplier", "positive" }, { "attention_in_multiplier", "positive" },
  { "attention_out_multiplier", "positive" }, { "ssm_in_multiplier", "positive" },
  { "ssm_out_multiplier", "positive" }, { "lm_head_multiplier", "positive" },
}
config.dense(falcon_h1, rules)

local function check_numbers(c, problems, key, n)
  local list = c[key]
  if not list then return end
  local ok = type(list) == "table" and #list == n
  for i = 1, ok and n or 0 do ok = ok and type(list[i]) == "number" end
  if not ok then config.add(problems, key, "expected %d numbers", n) end
end

function falcon_h1.check(c)
  local problems = decoder.check(falcon_h1.class, c, rules)
  if not config.sound(problems) then return problems end
  local width, heads = inner(c), c.mamba_n_heads
  if width % heads ~= 0 then
    config.add(problems, "mamba_n_heads", "%d does not divide mamba_d_ssm = %d", heads, width)
  elseif c.mamba_d_head ~= "auto" and c.mamba_d_head ~= width // heads then
    config.add(problems, "mamba_d_head", "%s of %d heads, but mamba_d_ssm = %d",
               tostring(c.mamba_d_head), heads, width)
  end
  mamba2.check(c, problems, config.add, "mamba_n_heads", "mamba_n_groups")
  check_numbers(c, problems, "mlp_multipliers", 2)
  check_numbers(c, problems, "ssm_multipliers", 5)
  local limit = c.time_step_limit
  local low, high = table.unpack(type(limit) == "table" and limit or {})
  if limit and (not math.type(low) or type(high) == "string" or math.type(high) and low > high) then
    config.add(problems, "time_step_limit", "expected the shortest and the longest step")
  end
  return problems
end

return falcon_h1
