-- deepseek_v3.lua - DeepSeek-V3: multi-head latent attention. Queries, and keys with
-- values, go through a narrow latent with a norm of its own; of each head of q and k one
-- part has no rotation, and the other one, for k the same for all heads, has all of it.
-- Heads of v have a size of their own.
--
-- But for the first few layers each has experts, chosen by sigmoids and a bias among those
-- of the best groups, and beside them one MLP for all tokens.
local config = require "weft.models.config"
local decoder = require "weft.models.decoder"
local moe = require "weft.models.moe"
local rope = require "weft.models.rope"

local deepseek_v3 = {
  class = "DeepseekV3ForCausalLM",
  peft = moe.peft,
  aliases = {
    num_mtp_layers = "num_nextn_predict_layers", num_local_experts = "n_routed_experts",
  },
  -- Training of DeepSeek's own, which Hugging Face's class does not read: losses of routers
  -- are those of plan.moe, and how many ranks share experts is mesh.ep.
  ignored = config.ignored { "aux_loss_alpha", "ep_size", "seq_aux" },
}
local keys = {
  vocab_size = 129280, hidden_size = 7168, intermediate_size = 18432,
  num_hidden_layers = 61, num_attention_heads = 128, num_key_value_heads = 128,
  max_position_embeddings = 4096, q_lora_rank = 1536, kv_lora_rank = 512,
  qk_nope_head_dim = 128, qk_rope_head_dim = 64, v_head_dim = 128,
  rope_interleave = true, attention_bias = false, first_k_dense_replace = 3,
  num_nextn_predict_layers = 1, n_routed_experts = 256, n_shared_experts = 1,
  moe_intermediate_size = 2048, num_experts_per_tok = 8, n_group = 8, topk_group = 4,
  norm_topk_prob = true, routed_scaling_factor = 2.5, moe_layer_freq = 1,
  scoring_func = "sigmoid", topk_method = "noaux_tc", output_router_logits = false,
  qk_head_dim = false,
}
deepseek_v3.defaults, deepseek_v3.unwritten = decoder.defaults(keys)
deepseek_v3.unwritten.qk_head_dim = true

-- The part of a head that turns.
function deepseek_v3.head_dim(c) return c.qk_rope_head_dim end

-- Norms of latents do not read rms_norm_eps.
local latent_eps = 1e-6

local function latent(g, c, x, name, size)
  return decoder.linear(g, c, x, name, { "none", size }, { "hidden", c.hidden_size },
                        c.attention_bias)
end

local function latent_norm(g, c, x, name, size)
  return decoder.norm(g, c, x, name, { "none", size }, latent_eps)
end

local function queries(g, c, x, name, heads)
  if not c.q_lora_rank then
    return decoder.linear(g, c, x, name .. ".q_proj", heads, { "hidden", c.hidden_size })
  end
  local q = latent(g, c, x, name .. ".q_a_proj", c.q_lora_rank)
  q = latent_norm(g, c, q, name .. ".q_a_layernorm", c.q_lora_rank)
  return decoder.linear(g, c, q, name .. ".q_b_proj", heads, { "none", c.q_lora_rank })
end

-- Attributes of g:rope for the last part of heads of so many elements.
local function turn(g, c, head_dim)
  local a = rope.attributes(c, c.qk_rope_head_dim, g:context())
  a.head_dim, a.rotary_dim = head_dim, c.qk_rope_head_dim
  a.rotary_from = head_dim - c.qk_rope_head_dim
  a.interleaved = c.rope_interleave and 1 or 0
  return a
end

local function attention(g, c, x, name)
  local n, nope, d = c.num_attention_heads, c.qk_nope_head_dim, c.qk_rope_head_dim
  local rank, v_dim, positions = c.kv_lora_rank, c.v_head_dim, g:positions()
  local q = queries(g, c, x, name, { "head", n * (nope + d), unit = nope + d })
  q = g:rope(q, positions, turn(g, c, nope + d))
  local both = latent(g, c, x, name .. ".kv_a_proj_with_mqa", rank + d)
  local kv, k_rope = g:split_heads(both, { head_dim = rank + d, head_part = rank })
  kv = latent_norm(g, c, kv, name .. ".kv_a_layernorm", rank)
  kv = decoder.linear(g, c, kv, name .. ".kv_b_proj",
                      { "head", n * (nope + v_dim), unit = nope + v_dim },
                      { "none", rank })
  local k, v = g:split_heads(kv, { head_dim = nope + v_dim, head_part = nope })
  k_rope = g:rope(k_rope, positions, turn(g, c, d))
  k = g:join_heads(k, k_rope, { head_dim = nope + d, head_part = nope })
  local o = g:attention(q, k, v, g:doc_starts(), {
    head_dim = nope + d, value_dim = v_dim, rate = c.attention_dropout or 0,
    scale = rope.softmax_scale(c) / math.sqrt(nope + d),
  })
  return decoder.linear(g, c, o, name .. ".o_proj", { "hidden", c.hidden_size },
                        { "head", n * v_dim, unit = v_dim }, c.attention_bias)
end

function deepseek_v3.build(g, c)
  return decoder.build(g, c, { attention = attention, experts = moe.deepseek })
end

local rules = {
  { "qk_head_dim", "optional_count" }, { "q_lora_rank", "optional_count" }, { "kv_lora_rank", "count" },
  { "qk_nope_head_dim", "count" }, { "qk_rope_head_dim", "count" },
  { "v_head_dim", "count" }, { "rope_interleave", "boolean" },
  { "attention_bias", "boolean" }, { "moe_layer_freq", "only", { 1 } },
  { "output_router_logits", "only", { false } },
  { "scoring_func", "only", { "sigmoid" } }, { "topk_method", "only", { "noaux_tc" } },
}
for _, rule in ipairs(moe.deepseek_rules) do rules[#rules + 1] = rule end

-- Sizes that Hugging Face's class finds from others.
local function check_sizes(c, problems)
  local turning, whole = c.qk_rope_head_dim, c.qk_nope_head_dim + c.qk_rope_head_dim
  if c.qk_head_dim and c.qk_head_dim ~= whole then
    config.add(problems, "qk_head_dim", "%d is not qk_nope_head_dim + qk_rope_head_dim = %d",
               c.qk_head_dim, whole)
  end
  if c.head_dim and c.head_dim ~= turning and c.head_dim ~= whole then
    config.add(problems, "head_dim", "%d is neither qk_rope_head_dim = %d nor that and "
               .. "qk_nope_head_dim, %d", c.head_dim, turning, whole)
  end
end

local function check(class, c, all)
  local problems, sound = decoder.check_keys(class, c, all)
  if not sound then return problems end
  check_sizes(c, problems)
  local heads = c.num_attention_heads
  if (c.num_key_value_heads or heads) ~= heads then
    config.add(problems, "num_key_value_heads",
               "%d is not num_attention_heads = %d: each head has its own keys",
               c.num_key_value_heads, heads)
  end
  if c.qk_rope_head_dim % 2 ~= 0 then
    config.add(problems, "qk_rope_head_dim", "must be even, got %d", c.qk_rope_head_dim)
  end
  moe.check_types(c, problems)
  moe.check_deepseek(c, problems)
  return problems
end

function deepseek_v3.check(c) return check(deepseek_v3.class, c, rules) end

-- An architecture of these layers with other defaults; `own` are rules in the place of those of
-- the same keys.
function deepseek_v3.like(class, changes, own)
  local d, all, taken = {}, {}, {}
  for _, t in ipairs { keys, changes } do for key, value in pairs(t) do d[key] = value end end
  for _, rule in ipairs(own) do all[#all + 1], taken[rule[1]] = rule, true end
  for _, rule in ipairs(rules) do if not taken[rule[1]] then all[#all + 1] = rule end end
  local arch = {
    class = class, aliases = deepseek_v3.aliases, ignored = deepseek_v3.ignored, peft = moe.peft,
    head_dim = deepseek_v3.head_dim, build = deepseek_v3.build,
    check = function(c) return check(class, c, all) end,
  }
  arch.defaults, arch.unwritten = decoder.defaults(d)
  arch.unwritten.qk_head_dim = true
  return arch
end

return deepseek_v3
