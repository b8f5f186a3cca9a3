-- model.lua - the architecture that Megatron's arguments describe, as the field `model` of a plan:
-- one of weft's architectures, or, where none is the same, a function of the plan (function.lua).
local activation = use "import/megatron/activation"
local func = use "import/megatron/function"
local layers_of = use "import/megatron/layers"
local model_field = use "import/model_field"
local models = use "import/models"
local quote = use "import/quote"
local recipe = use "import/megatron/recipe"
local refused = use "import/megatron/refused"
local scalar = use "import/scalar"
local values = use "import/values"
local windows = use "import/megatron/windows"
local model = {}

local function on(book, key) return values.flag(book, key) == true end

-- ---- sizes ----

local function normalization(book, m)
  local value = book:value "normalization" or "LayerNorm"
  local known = { LayerNorm = "layernorm", RMSNorm = "rmsnorm" }
  m.norm = known[value]
  if not m.norm then
    book:refuse("normalization", string.format("%s: expected LayerNorm or RMSNorm", quote.shown(value)))
    return
  end
  m.eps = values.positive(book, "norm_epsilon") or 1e-5
end

local function positions(book, m)
  local value = book:value "position_embedding_type" or "learned_absolute"
  if on(book, "use_rotary_position_embeddings") then value = "rope" end
  -- "rotary" is BigScience's name for all of rope.
  local known = { learned_absolute = "learned", rope = "rope", rotary = "rope", none = "none" }
  m.position = known[value]
  if not m.position then
    return book:refuse("position_embedding_type", string.format(
      "%s: weft has learned_absolute, rope and none", quote.shown(value)))
  end
  m.theta = values.positive(book, "rotary_base") or 10000
  m.turning = values.positive(book, "rotary_percent") or 1
  m.interleaved = on(book, "rotary_interleaved")
  m.without = layers_of.without_positions(book, m)
  local stretch = values.positive(book, "rotary_seq_len_interpolation_factor")
  if stretch and stretch > 1 then m.scaling = { rope_type = "linear", factor = stretch } end
  if on(book, "use_rope_scaling") then
    m.scaling = { rope_type = "llama3", factor = values.positive(book, "rope_scaling_factor") or 8.0,
                  low_freq_factor = 1.0, high_freq_factor = 4.0, original_max_position_embeddings = 8192 }
  end
end

local VOCABULARIES = { TikTokenizer = 131072, Llama2Tokenizer = 32000, GPT2BPETokenizer = 50257,
                       Llama3Tokenizer = 128256 }

-- The number of tokens, and where it is from; nil: nobody says.
local function tokens_of(book)
  local n = values.whole(book, "vocab_size", 1)
  if n and book:value "tokenizer_type" == "NullTokenizer" then return n + 1, book:leaf "vocab_size" end
  if n then return n, book:leaf "vocab_size" end
  local tokenizer = book:value "tokenizer_model"
  if type(tokenizer) == "string" then
    local config = models.find(tokenizer)
    if config and config.vocab_size then return config.vocab_size, book:leaf "tokenizer_model" end
  end
  local kind = book:value "tokenizer_type"
  if VOCABULARIES[kind] then return VOCABULARIES[kind], book:leaf "tokenizer_type" end
  if kind == nil and (book:leaf "vocab_file" or book:leaf "merge_file") then
    return 50257, book:leaf(book:leaf "vocab_file" and "vocab_file" or "merge_file")
  end
end

local function vocabulary(book, m)
  local padded = values.whole(book, "padded_vocab_size", 1)
  if padded then
    m.vocab = padded
    book:translated("padded_vocab_size", "model's vocabulary")
    for _, key in ipairs { "vocab_size", "make_vocab_size_divisible_by" } do
      book:no_effect(key, "--padded-vocab-size says the rows of the vocabulary")
    end
    return
  end
  local n, from = tokens_of(book)
  if not n then
    n = 50257
    book:assume("model.vocab_size", "GPT-2's 50257 tokens: the settings do not say the size of the tokenizer's "
                .. "vocabulary; --set vocab-size=N says another")
  elseif from.key ~= "vocab_size" then
    book:assume("model.vocab_size", string.format("%d, that of %s; --set vocab-size=N says another", n,
                                                  quote.shown(from.given)))
  end
  local multiple = (values.whole(book, "make_vocab_size_divisible_by", 1) or 128) * (m.tp or 1)
  m.vocab = (n + multiple - 1) // multiple * multiple
  if from then book:translated(from.key, "model's vocabulary, padded to a multiple of " .. multiple) end
  book:translated("make_vocab_size_divisible_by", string.format("model's vocabulary: %d tokens are %d rows", n,
                                                                m.vocab))
end

-- -1 stands for what the checkpoint says.
local function need(book, key)
  local from_checkpoint = book:value(key) == -1
  local n = not from_checkpoint and values.whole(book, key, 1)
  if not n and (from_checkpoint or not book:leaf(key)) then
    local flag = string.gsub(key, "_", "-")
    local whence = from_checkpoint and key or on(book, "use_checkpoint_args") and "use_checkpoint_args" or nil
    book:refuse(whence, string.format("the settings do not say --%s%s: give it by --set %s=N, or a model by --model "
      .. "NAME", flag, whence and ", which comes from a checkpoint" or "", flag))
  end
  return n
end

local function heads(book, m)
  m.kv_heads = m.heads
  local leaf = book:leaf "num_query_groups"
  -- Arguments have a switch for it; Megatron-Bridge has the number alone.
  if on(book, "group_query_attention") or (leaf and string.find(leaf.given, "^model%.")) then
    m.kv_heads = values.whole(book, "num_query_groups", 1) or (leaf and m.heads) or 1
  elseif book:value "attention_head_type" == "multiquery" then
    m.kv_heads = 1
    book:translated("attention_head_type", "model, with one head of keys and values")
  else
    book:no_effect("num_query_groups", "without --group-query-attention each head has its own keys")
  end
  m.head_dim = values.whole(book, "kv_channels", 1)
  if not m.head_dim then
    m.head_dim = m.hidden // m.heads
    if m.hidden % m.heads ~= 0 then
      book:refuse("num_attention_heads", string.format("%d heads do not divide hidden-size = %d", m.heads,
                                                       m.hidden))
    end
  end
end

local function mla(book, m)
  if not on(book, "multi_latent_attention") then return end
  m.mla = {
    q = values.whole(book, "q_lora_rank", 1), kv = values.whole(book, "kv_lora_rank", 1) or 32,
    nope = values.whole(book, "qk_head_dim", 1) or 128,
    rope = values.whole(book, "qk_pos_emb_head_dim", 1) or 64, v = values.whole(book, "v_head_dim", 1) or 128,
    factor = values.positive(book, "rotary_scaling_factor") or 1,
    mscale = values.positive(book, "mscale") or 1, all = values.positive(book, "mscale_all_dim") or 0,
    yarn = (book:value "rope_type" or "yarn") == "yarn",
  }
end

local KEYS = { "num_layers", "hidden_size", "num_attention_heads", "ffn_hidden_size", "num_query_groups",
  "group_query_attention", "kv_channels", "normalization", "norm_epsilon", "position_embedding_type",
  "use_rotary_position_embeddings", "rotary_base", "rotary_percent", "rotary_interleaved", "use_rope_scaling",
  "rope_scaling_factor", "rotary_seq_len_interpolation_factor", "swiglu", "squared_relu", "activation_func", "gated_linear_unit", "no_bias_gelu_fusion",
  "disable_bias_linear", "add_bias_linear", "add_qkv_bias", "qk_layernorm", "untie_embeddings_and_output_weights",
  "share_embeddings_and_output_weights", "init_method_std", "max_position_embeddings", "multi_latent_attention",
  "q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim", "rotary_scaling_factor",
  "mscale", "mscale_all_dim", "rope_type", "hidden_dropout", "attention_dropout", "no_rope_freq" }

model.keys = KEYS

-- All that the arguments say of the model; nil if it is refused.
local function described(book, tp)
  local before = #book.refused
  local m = { tp = tp, layers = need(book, "num_layers"), hidden = need(book, "hidden_size"),
              heads = need(book, "num_attention_heads") }
  if not (m.layers and m.hidden and m.heads) then return nil end
  m.bias = not on(book, "disable_bias_linear") and book:value "add_bias_linear" ~= false
  m.qkv_bias = on(book, "add_qkv_bias")
  m.qk_norm = on(book, "qk_layernorm")
  m.tied = not on(book, "untie_embeddings_and_output_weights")
    and book:value "share_embeddings_and_output_weights" ~= false
  m.std = values.positive(book, "init_method_std") or 0.02
  m.drops, m.attention_drops = values.rate(book, "hidden_dropout"), values.rate(book, "attention_dropout")
  normalization(book, m)
  positions(book, m)
  activation.read(book, m)
  m.ffn = values.whole(book, "ffn_hidden_size", 1) or activation.usual_ffn(m)
  m.max = values.whole(book, "max_position_embeddings", 1) or values.whole(book, "seq_length", 1) or 2048
  heads(book, m)
  mla(book, m)
  layers_of.experts(book, m)
  windows.read(book, m)
  vocabulary(book, m)
  if #book.refused > before then return nil end
  return m
end

-- ---- as one of weft's architectures ----

local function common(arch, m)
  return { arch, vocab_size = m.vocab, hidden_size = m.hidden, num_hidden_layers = m.layers,
           num_attention_heads = m.heads, intermediate_size = m.ffn, max_position_embeddings = m.max,
           initializer_range = m.std, tie_word_embeddings = m.tied }
end

local function gpt2(m)
  if m.position ~= "learned" or m.norm ~= "layernorm" or not m.bias or m.act ~= "gelu" or m.experts
    or m.kv_heads ~= m.heads or m.head_dim * m.heads ~= m.hidden or m.qk_norm or m.mla or m.window then
    return nil
  end
  local c = common("gpt2", m)
  c.layer_norm_epsilon, c.activation_function = m.eps, m.erf and "gelu" or "gelu_new"
  c.embd_pdrop, c.resid_pdrop, c.attn_pdrop = m.drops, m.drops, m.attention_drops
  return c
end

local function is_llama(m)
  return m.position == "rope" and m.turning == 1 and not m.interleaved and m.norm == "rmsnorm" and not m.bias
    and m.act == "swiglu" and not m.drops
end

local function rotary(c, m)
  c.rms_norm_eps, c.rope_theta, c.rope_scaling = m.eps, m.theta, m.scaling
  c.attention_dropout = m.attention_drops
  return c
end

-- Layers without positions between those with them.
local function smollm3(m)
  if not m.without or not is_llama(m) or m.experts or m.mla or m.qkv_bias or m.qk_norm or m.window
    or m.head_dim * m.heads ~= m.hidden then
    return nil
  end
  local c = rotary(common("smollm3", m), m)
  c.num_key_value_heads, c.no_rope_layers = m.kv_heads, {}
  for i = 1, m.layers do c.no_rope_layers[i] = m.without[i] and 0 or 1 end
  return c
end

local function llama(m)
  if not is_llama(m) or m.experts or m.mla or (m.qkv_bias and m.qk_norm) then return nil end
  local plain = m.window and (#m.window.full > 0 and "ministral" or "mistral") or "llama"
  local c = rotary(common(m.qkv_bias and "qwen2" or m.qk_norm and "qwen3" or plain, m), m)
  c.num_key_value_heads, c.head_dim = m.kv_heads, m.head_dim
  windows.put(c, m)
  return c
end

local function mixtral(m)
  local e = m.experts
  if not is_llama(m) or m.mla or not e or e.score ~= "softmax" or e.shared or e.scale ~= 1
    or m.qkv_bias or e.bias or m.window then
    return nil
  end
  local c
  if m.qk_norm then
    c = rotary(common("qwen3_moe", m), m)
    c.num_experts, c.num_experts_per_tok, c.moe_intermediate_size = e.n, e.topk, e.width
    c.norm_topk_prob, c.head_dim = e.normed, m.head_dim
    if #e.dense > 0 then c.mlp_only_layers = e.dense end
  elseif #e.dense == 0 and e.normed then
    c = rotary(common("mixtral", m), m)
    if m.head_dim * m.heads ~= m.hidden then c.head_dim = m.head_dim end
    c.num_local_experts, c.num_experts_per_tok, c.intermediate_size = e.n, e.topk, e.width
  else
    return nil
  end
  c.num_key_value_heads = m.kv_heads
  return c
end

-- Both scales as Hugging Face's keys say them; without one of all elements Megatron multiplies what turns by
-- 0.1 * mscale * ln(factor) + 1, which these keys have as attention_factor, and leaves the softmax as it is.
local function yarn(a)
  local scaling = { type = "yarn", factor = a.factor, beta_fast = 32.0, beta_slow = 1.0,
                    original_max_position_embeddings = 4096 }
  if a.all > 0 and a.mscale > 0 then
    scaling.mscale, scaling.mscale_all_dim = a.mscale, a.all
  elseif a.all > 0 or a.mscale ~= 1 then
    local function grown(by) return a.factor <= 1 and 1 or 0.1 * by * math.log(a.factor) + 1 end
    scaling.attention_factor = grown(a.mscale) / grown(a.all)
    scaling.mscale_all_dim = a.all > 0 and a.all or nil
  end
  return scaling
end

local function deepseek(book, m)
  if not m.mla then return nil end
  local e, a = m.experts, m.mla
  local function no(key, why)
    book:refuse(book:leaf(key) and key or "multi_latent_attention", why)
  end
  if m.drops then
    return no("hidden_dropout", "weft's model with latent attention (deepseek_v3) drops in attention alone")
  end
  if not is_llama(m) then
    return no("multi_latent_attention", "weft's model with latent attention (deepseek_v3) has rope, RMSNorm, "
              .. "--swiglu and --disable-bias-linear")
  end
  if m.window then return no("window_size", "weft's latent attention (deepseek_v3) has no window") end
  if not m.qk_norm then
    return no("multi_latent_attention", "weft's latent attention has norms of its latents: --qk-layernorm")
  end
  local c = common("deepseek_v3", m)
  c.rms_norm_eps, c.rope_theta, c.attention_dropout = m.eps, m.theta, m.attention_drops
  if m.eps ~= 1e-6 then book:assume("model", "norms of latents have an epsilon of 1e-6, whatever the others have") end
  c.num_key_value_heads, c.q_lora_rank, c.kv_lora_rank = m.heads, a.q or false, a.kv
  c.qk_nope_head_dim, c.qk_rope_head_dim, c.v_head_dim = a.nope, a.rope, a.v
  c.num_nextn_predict_layers, c.n_routed_experts = 0, false
  if a.yarn and a.factor ~= 1 then c.rope_scaling = yarn(a) end
  if not e then return c end
  local first = layers_of.first_dense(e)
  if not first then
    return no("moe_layer_freq", "weft's deepseek_v3 has experts in all layers but the first ones")
  end
  if e.score ~= "sigmoid" then
    return no("moe_router_score_function", "weft's deepseek_v3 chooses experts by sigmoids")
  end
  if e.shared and e.shared % e.width ~= 0 then
    return no("moe_shared_expert_intermediate_size", "a shared expert is as wide as a number of experts in "
              .. "weft's deepseek_v3")
  end
  c.first_k_dense_replace, c.n_routed_experts, c.num_experts_per_tok = first, e.n, e.topk
  c.moe_intermediate_size, c.norm_topk_prob, c.routed_scaling_factor = e.width, e.normed, e.scale
  c.n_shared_experts = e.shared and e.shared // e.width or false
  local grouped = e.groups and not layers_of.groups_in_plan(c, e)
  c.n_group, c.topk_group = grouped and e.groups or 1, grouped and e.topk_group or 1
  return c
end

local function say_initial(book, m)
  if m.position ~= "learned" or m.norm ~= "layernorm" then
    book:assume("model", "what goes back onto the residual stream begins with the same spread as all weights; "
                .. "Megatron divides it by the root of twice the layers")
  end
end

local function all_keys()
  local all = {}
  for _, list in ipairs { KEYS, layers_of.keys, windows.keys } do table.move(list, 1, #list, #all + 1, all) end
  return all
end

-- What the arguments say of the model does not count.
local function say_all(book, why)
  for _, key in ipairs(all_keys()) do book:no_effect(key, why) end
  for _, row in ipairs(refused.rows) do book:no_effect(row[1], why) end
  book:no_effect("vocab_size", why)
  book:no_effect("make_vocab_size_divisible_by", why)
end

-- The same of a config that a name stands for.
local function of_config(config)
  local m = { arch = config[1], layers = scalar.integer(config.num_hidden_layers) }
  if not (config.num_experts or config.num_local_experts or config.n_routed_experts) then return m end
  m.experts = { dense = config.mlp_only_layers or {}, shared = config.n_shared_experts,
                bias = config[1] == "deepseek_v3" }
  for i = 0, (config.first_k_dense_replace or 0) - 1 do m.experts.dense[#m.experts.dense + 1] = i end
  return m
end

-- Puts plan.model. Returns { hidden =, layers =, experts =, ... } or nil; the ledger has why.
function model.put(book, plan, options, tp)
  if options.model then
    local config = model_field.put(plan, book, { changes = {} }, options.model)
    say_all(book, "--model says which model the plan has")
    return config and of_config(config)
  end
  local key, name = recipe.name(book)
  if key then
    local config = recipe.put(book, plan, key, name, all_keys())
    return config and of_config(config)
  end
  if refused.refuse(book) then return nil end
  local m = described(book, tp)
  if not m then return nil end
  local config = smollm3(m)
  if m.without and not config then
    return book:refuse("no_rope_freq", "layers without positions are those of weft's smollm3: rope, RMSNorm, --swiglu, "
                       .. "--disable-bias-linear, and neither experts nor windows, norms of queries or biases of theirs")
  end
  config = config or gpt2(m) or llama(m) or mixtral(m)
  if not config and m.mla then
    config = deepseek(book, m)
    if not config then return nil end
  end
  local from = book:leaf "num_layers"
  if config then
    say_initial(book, m)
    model_field.write(plan, config, nil, from)
  elseif not func.put(book, plan, m, from) then
    return nil
  end
  m.arch = config and config[1] or "function"
  for _, one in ipairs(KEYS) do book:translated(one, "model") end
  for _, one in ipairs(windows.keys) do book:translated(one, "model") end
  return m
end

return model
