-- nemotron_h.lua - Nemotron-H, Nemotron Nano 2 and Nemotron 3 (Nano, Super, Ultra): each layer is
-- a norm and one of a Mamba-2 mixer, attention without positions, an MLP of squared ReLU, or
-- experts of it, as a pattern says: M, *, - and E. Experts may read a projection of the hidden
-- states onto fewer features (moe_latent_size).
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"
local mamba2 = require "weft.models.mamba2"
local moe = require "weft.models.moe"

local nemotron_h = {
  class = "NemotronHForCausalLM",
  aliases = {
    num_local_experts = "n_routed_experts", layer_types = "layers_block_type",
    norm_eps = "layer_norm_epsilon", mamba_d_conv = "conv_kernel", mamba_n_groups = "n_groups",
    mamba_dt_min = "time_step_min", mamba_conv_bias = "use_conv_bias",
  },
  not_of_files = { norm_eps = true }, -- which files have beside layer_norm_epsilon
  modules = { model = { "backbone" } }, -- of Transformers in memory, and of files
  packed = mamba2.packed,
  -- Hugging Face's class reads none of them: steps have no upper limit, and the lower one is
  -- time_step_min; chunks are a way to compute; the others say how parameters begin.
  ignored = config.ignored {
    "chunk_size", "expand", "mamba_chunk_size", "mamba_dt_init_floor", "mamba_dt_limit",
    "mamba_dt_max", "mamba_expand", "mamba_proj_bias", "mamba_ssm_cache_dtype",
    "moe_shared_expert_overlap", "mtp_hybrid_override_pattern", "mtp_layers_block_type",
    "num_logits_to_keep", "num_nextn_predict_layers", "num_query_groups",
    "rescale_prenorm_residual", "residual_in_fp32", "rms_norm_eps", "rope_theta", "time_step_floor",
    "time_step_limit", "time_step_max", "use_mamba_kernels",
  },
}
nemotron_h.defaults, nemotron_h.unwritten = config.defaults {
  vocab_size = 131072, hidden_size = 4096, num_hidden_layers = false, layers_block_type = false,
  hybrid_override_pattern = false, tie_word_embeddings = false,
  num_attention_heads = 32, num_key_value_heads = 8, head_dim = 128,
  max_position_embeddings = 4096, attention_bias = false, attention_dropout = 0.0,
  intermediate_size = 21504, mlp_hidden_act = "relu2", mlp_bias = false,
  ssm_state_size = 128, mamba_num_heads = 128, mamba_head_dim = 64, mamba_hidden_act = "silu",
  n_groups = 8, conv_kernel = 4, use_conv_bias = true, use_bias = false, time_step_min = 0.001,
  n_routed_experts = 8, n_shared_experts = 1, num_experts_per_tok = 2,
  moe_intermediate_size = 7688, moe_shared_expert_intermediate_size = 7688,
  moe_latent_size = false, n_group = 1, topk_group = 1, norm_topk_prob = true,
  routed_scaling_factor = 1.0, output_router_logits = false, hidden_dropout = 0.0,
  initializer_range = 0.02, layer_norm_epsilon = 1e-5,
}

-- The kind of a layer by its sign, and by the names that files have.
local KINDS = {
  M = "mamba", ["*"] = "attention", ["-"] = "mlp", E = "moe", mamba = "mamba",
  linear_attention = "mamba", attention = "attention", full_attention = "attention",
  mlp = "mlp", moe = "moe",
}
local DEFAULT = { "mamba", "moe", "attention", "mlp" }

-- What the layers are: a list of kinds; a key that says none, or nil and what is wrong.
local function layers(c)
  if c.layers_block_type then
    local kinds = {}
    for i, name in ipairs(c.layers_block_type) do
      kinds[i] = KINDS[name]
      if not kinds[i] or #tostring(name) < 2 then
        return nil, "layers_block_type", string.format("layer %d is none of linear_attention, "
          .. "full_attention, mlp and moe: %s", i - 1, tostring(name))
      end
    end
    return kinds
  end
  local pattern, kinds = c.hybrid_override_pattern, {}
  if not pattern then return DEFAULT end
  for i = 1, #pattern do
    kinds[i] = KINDS[pattern:sub(i, i)]
    if not kinds[i] then
      return nil, "hybrid_override_pattern", string.format("layer %d is none of M (Mamba), * "
        .. "(attention), - (MLP) and E (experts): %s", i - 1, pattern:sub(i, i))
    end
  end
  return kinds
end

-- `weft verify` makes models smaller: of n layers the first of each kind, then the first of all.
local function kept(kinds, n)
  if not n or n >= #kinds then return kinds end
  local keeps, seen, out = {}, {}, {}
  for pass = 1, 2 do
    for i, kind in ipairs(kinds) do
      if n > 0 and not keeps[i] and (pass == 2 or not seen[kind]) then
        keeps[i], seen[kind], n = true, true, n - 1
      end
    end
  end
  for i, kind in ipairs(kinds) do if keeps[i] then out[#out + 1] = kind end end
  return out
end

function nemotron_h.head_dim(c) return c.head_dim end

local function squared_relu(g, x)
  local y = g:relu(x)
  return g:mul(y, y)
end

local function mlp(g, c, x, name, width)
  local hidden, ffn = { "hidden", c.hidden_size }, { "ffn", width }
  local up = decoder.linear(g, c, x, name .. ".up_proj", ffn, hidden, c.mlp_bias)
  return decoder.linear(g, c, squared_relu(g, up), name .. ".down_proj", hidden, ffn, c.mlp_bias)
end

-- ---- experts ----

local function expert_mlp(into)
  return function(g, name, o)
    local expert, ffn, init = { "expert", o.experts }, { "ffn", o.width }, { std = o.std }
    local up = g:param(name .. ".up_proj", { expert, ffn, { "hidden", into } }, init)
    local down = g:param(name .. ".down_proj", { expert, { "hidden", into }, ffn }, init)
    return function(rows, offsets)
      local h = squared_relu(g, g:grouped_linear(rows, up, offsets))
      return g:grouped_linear(h, down, offsets)
    end
  end
end

local function experts(g, c, x, name)
  local latent, hidden = c.moe_latent_size, { "hidden", c.hidden_size }
  local grouped = c.topk_group < c.n_group
  local o = {
    experts = c.n_routed_experts, topk = c.num_experts_per_tok, width = c.moe_intermediate_size,
    hidden = c.hidden_size, std = c.initializer_range, score = "sigmoid",
    bias = "gate.e_score_correction_bias", norm = c.norm_topk_prob,
    groups = grouped and c.n_group or 0, topk_group = grouped and c.topk_group or 0,
    scale = c.routed_scaling_factor, mlp = expert_mlp(latent or c.hidden_size),
  }
  if latent then
    local narrow = { "none", latent }
    o.enter = function(h)
      return decoder.linear(g, c, h, name .. ".fc1_latent_proj", narrow, hidden, c.mlp_bias)
    end
    o.leave = function(y)
      return decoder.linear(g, c, y, name .. ".fc2_latent_proj", hidden, narrow, c.mlp_bias)
    end
  end
  local y, loss = moe.block(g, x, name, o)
  local shared = mlp(g, c, x, name .. ".shared_experts", c.moe_shared_expert_intermediate_size)
  return g:add(y, shared), loss
end

-- ---- layers ----

local ATTENTION = { turns = function() return false end }

local mixers = {}
function mixers.attention(g, c, x, name) return decoder.attention(g, c, x, name, ATTENTION) end
function mixers.mlp(g, c, x, name) return mlp(g, c, x, name, c.intermediate_size) end
mixers.moe = experts
function mixers.mamba(g, c, x, name)
  return mamba2.mixer(g, x, name, {
    hidden = c.hidden_size, heads = c.mamba_num_heads, head_dim = c.mamba_head_dim,
    groups = c.n_groups, state = c.ssm_state_size, kernel = c.conv_kernel, bias = c.use_bias,
    out_bias = c.use_bias, conv_bias = c.use_conv_bias, eps = c.layer_norm_epsilon, norm = "gated",
    std = c.initializer_range, shortest = c.time_step_min,
  })
end

local function norm(g, c, x, name)
  return decoder.norm(g, c, x, name, { "hidden", c.hidden_size }, c.layer_norm_epsilon)
end

local function vocabulary(g, c, name)
  return g:param(name, { { "vocab", c.vocab_size }, { "hidden", c.hidden_size } },
                 { std = c.initializer_range })
end

function nemotron_h.build(g, c)
  local extra
  if g:mtp() > 0 then
    error("mtp: the modules that Nemotron predicts further tokens with are not built", 0)
  end
  local x = g:unit("embeddings", function()
    return decoder.noisy(g, g:embedding(g:tokens(), vocabulary(g, c, "backbone.embeddings.weight")))
  end)
  for i, kind in ipairs(kept(layers(c), c.num_hidden_layers)) do
    local name = "backbone.layers." .. i - 1
    x, extra = g:layer(i - 1, function()
      local y, loss = mixers[kind](g, c, norm(g, c, x, name .. ".norm"), name .. ".mixer")
      return g:add(x, y), moe.sum(g, extra, loss)
    end)
  end
  x = g:unit("norm_f", function() return norm(g, c, x, "backbone.norm_f") end)
  return g:unit("lm_head", function()
    local loss = g:loss(g:linear(x, vocabulary(g, c, "lm_head.weight")))
    return moe.sum(g, loss, extra)
  end)
end

-- ---- checks ----

local rules = {
  { "vocab_size", "count" }, { "hidden_size", "count" }, { "num_hidden_layers", "optional_count" },
  { "tie_word_embeddings", "only", { false } }, { "num_attention_heads", "count" },
  { "num_key_value_heads", "count" }, { "head_dim", "count" },
  { "max_position_embeddings", "count" }, { "attention_bias", "only", { false } },
  { "attention_dropout", "rate" }, { "hidden_dropout", "only", { 0.0, 0, false } },
  { "intermediate_size", "count" }, { "mlp_hidden_act", "only", { "relu2" } },
  { "mlp_bias", "boolean" }, { "ssm_state_size", "count" }, { "mamba_num_heads", "count" },
  { "mamba_head_dim", "count" }, { "mamba_hidden_act", "only", { "silu", "swish" } },
  { "n_groups", "count" }, { "conv_kernel", "count" }, { "use_conv_bias", "boolean" },
  { "use_bias", "boolean" }, { "time_step_min", "positive" }, { "n_routed_experts", "count" },
  { "n_shared_experts", "only", { 1 } }, { "num_experts_per_tok", "count" },
  { "moe_intermediate_size", "count" }, { "moe_shared_expert_intermediate_size", "count" },
  { "moe_latent_size", "optional_count" }, { "n_group", "count" }, { "topk_group", "count" },
  { "norm_topk_prob", "boolean" }, { "routed_scaling_factor", "positive" },
  { "output_router_logits", "only", { false } }, { "initializer_range", "positive" },
  { "layer_norm_epsilon", "positive" },
}

local function check_layers(c, problems)
  if c.hybrid_override_pattern and type(c.hybrid_override_pattern) ~= "string" then
    return config.add(problems, "hybrid_override_pattern", "expected a string of M, *, - and E")
  end
  if c.layers_block_type and type(c.layers_block_type) ~= "table" then
    return config.add(problems, "layers_block_type", "expected a list of types")
  end
  local kinds, key, wrong = layers(c)
  if not kinds then return config.add(problems, key, "%s", wrong) end
  if c.num_hidden_layers and c.num_hidden_layers ~= #kinds then
    config.add(problems, "num_hidden_layers", "%d, but the pattern has %d layers",
               c.num_hidden_layers, #kinds)
  end
end

function nemotron_h.check(c)
  local problems = config.check(nemotron_h.class, c, rules)
  if not config.sound(problems) then return problems end
  check_layers(c, problems)
  mamba2.check(c, problems, config.add, "mamba_num_heads", "n_groups")
  if c.num_attention_heads % c.num_key_value_heads ~= 0 then
    config.add(problems, "num_key_value_heads", "%d does not divide num_attention_heads = %d",
               c.num_key_value_heads, c.num_attention_heads)
  end
  moe.check_deepseek(c, problems)
  return problems
end

return nemotron_h
