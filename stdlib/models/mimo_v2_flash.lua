-- mimo_v2_flash.lua - MiMo-V2-Flash: grouped-query attention with heads of v of their own size, v scaled,
-- a part of each head turning. Five layers of six see a window; these have twice the key-value heads, a
-- sink for each head and a rope of their own. DeepSeek-V3's experts but in the first layer.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"
local moe = require "weft.models.moe"
local rope = require "weft.models.rope"

local mimo = {
  class = "MiMoV2FlashForCausalLM",
  aliases = { num_local_experts = "n_routed_experts" },
  modules = { ["self_attn.sinks"] = { "self_attn.attention_sink_bias" } }, -- of Transformers in memory, and of files
  ropes = true, -- each type of layers has one: see rope.of_type
  -- Of published files: windows are not cut in chunks.
  ignored = config.ignored { "attention_chunk_size" },
}
-- How much of a head turns where a table does not say.
local PART <const> = 0.334
mimo.defaults, mimo.unwritten = decoder.defaults {
  vocab_size = 152576, hidden_size = 4096, intermediate_size = 16384, num_hidden_layers = 48,
  num_attention_heads = 64, num_key_value_heads = 4, head_dim = 192, v_head_dim = 128,
  max_position_embeddings = 131072, rms_norm_eps = 1e-5, attention_bias = false,
  attention_value_scale = 0.707, sliding_window = 129, layer_types = false, mlp_layer_types = false,
  moe_intermediate_size = 2048, num_experts_per_tok = 8, n_routed_experts = 256,
  routed_scaling_factor = 1.0, n_group = 1, topk_group = 1, norm_topk_prob = true,
  output_router_logits = false, sliding_window_size = false,
  rope_parameters = {
    full_attention = { rope_type = "default", rope_theta = 5000000.0, partial_rotary_factor = PART },
    sliding_attention = { rope_type = "default", rope_theta = 10000.0, partial_rotary_factor = PART },
  },
}

mimo.unwritten.sliding_window_size = true

local rules = {
  { "num_key_value_heads", "count" }, { "head_dim", "count" }, { "partial_rotary_factor", "part" },
  { "attention_bias", "boolean" }, { "v_head_dim", "count" }, { "attention_value_scale", "optional_positive" },
  { "sliding_window", "count" }, { "sliding_window_size", "count_or_none" }, { "layer_types", "each", { "full_attention", "sliding_attention" } },
  { "mlp_layer_types", "each", { "dense", "sparse" } }, { "n_routed_experts", "count" },
  { "num_experts_per_tok", "count" }, { "moe_intermediate_size", "count" }, { "n_group", "count" },
  { "topk_group", "count" }, { "norm_topk_prob", "boolean" }, { "routed_scaling_factor", "positive" },
  { "output_router_logits", "only", { false } }, { "rope_parameters", "ropes", "partial" },
}

mimo.head_dim = decoder.head_dim

-- The same config with the keys that Transformers writes: published files count the tokens before a query.
function mimo.canonical(c)
  local before = c.sliding_window_size
  return setmetatable({
    sliding_window = math.type(before) == "integer" and before + 1 or c.sliding_window,
    routed_scaling_factor = c.routed_scaling_factor or 1.0,
    rope_parameters = rope.with_parts(c, PART),
  }, { __index = c })
end

local function slides(_, i) return i > 0 and (i + 1) % 6 ~= 0 end

local function layer_type(c, i)
  return decoder.layer_type(c, i, slides(c, i) and "sliding_attention" or "full_attention")
end

local function attention(g, c, x, name, _, i)
  local kind, hidden = layer_type(c, i), { "hidden", c.hidden_size }
  local d, width, narrow = c.head_dim, c.v_head_dim, kind == "sliding_attention"
  local n, kv = c.num_attention_heads, c.num_key_value_heads * (narrow and 2 or 1)
  local function projected(module, tag, heads, unit)
    return decoder.linear(g, c, x, name .. "." .. module, { tag, heads * unit, unit = unit }, hidden,
                          c.attention_bias)
  end
  local q, k = projected("q_proj", "head", n, d), projected("k_proj", "kv_head", kv, d)
  local v = projected("v_proj", "kv_head", kv, width)
  if c.attention_value_scale then v = g:scale(v, { scale = c.attention_value_scale }) end
  local turn = rope.attributes(rope.of_type(c, kind), d, g:context())
  q, k = g:rope(q, g:positions(), turn), g:rope(k, g:positions(), turn)
  local sinks = narrow and g:param(name .. ".attention_sink_bias", { { "none", n } }, { std = c.initializer_range }) or nil
  local y = g:attention(q, k, v, g:doc_starts(), sinks, {
    head_dim = d, value_dim = width, rate = c.attention_dropout or 0, window = narrow and c.sliding_window or nil,
  })
  return decoder.linear(g, c, y, name .. ".o_proj", hidden, { "head", n * width, unit = width })
end

function mimo.build(g, c)
  return decoder.build(g, mimo.canonical(c), { attention = attention, experts = moe.deepseek })
end

-- Adds a number of heads that the key-value heads of layers with a window do not divide.
local function check_heads(c, problems)
  local i, kv = 0, 2 * c.num_key_value_heads
  while i < c.num_hidden_layers and layer_type(c, i) ~= "sliding_attention" do i = i + 1 end
  if i < c.num_hidden_layers and c.num_attention_heads % kv ~= 0 then
    config.add(problems, "num_attention_heads", "layer %d has a window, and so twice num_key_value_heads: "
               .. "%d do not divide %d", i, kv, c.num_attention_heads)
  end
end

function mimo.check(given)
  local c = mimo.canonical(given)
  local problems = decoder.check(mimo.class, c, rules)
  if not config.sound(problems) then return problems end
  moe.check_types(c, problems)
  moe.check_deepseek(c, problems)
  check_heads(c, problems)
  return problems
end

return mimo
