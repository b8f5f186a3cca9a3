-- flavors.lua - torchtitan's models: a flavor is the arguments of a class, which become
-- keys of a config.json. The flavors that torchtitan ships are below; others come from its
-- Python tables (python.lua), in the same words.
local constructors = use "import/torchtitan/constructors"
local quote = use "import/quote"
local scalar = use "import/scalar"
local flavors = {}

-- What a flavor says that no key of a config does is a note: it is not expressible.
local SOFTMAX = "its routers take a softmax, which weft's deepseek_v3 does not: the plan's take "
  .. "sigmoids, which changes no size and no program"

local function rounded(x, multiple) return (x + multiple - 1) // multiple * multiple end

-- Llama 3 of torchtitan gives the width of an MLP by a factor and what it is a multiple of.
local function llama(a)
  local width = a.hidden_dim
  if not width then
    width = 2 * 4 * a.dim // 3
    if a.ffn_dim_multiplier then width = math.floor(a.ffn_dim_multiplier * width) end
    width = rounded(width, a.multiple_of or 256)
  end
  local r = a.rope_scaling_args
  return { "llama", hidden_size = a.dim, intermediate_size = width, num_hidden_layers = a.n_layers,
    num_attention_heads = a.n_heads, num_key_value_heads = a.n_kv_heads or a.n_heads,
    vocab_size = a.vocab_size or 128256, rms_norm_eps = a.norm_eps or 1e-5,
    rope_theta = a.rope_theta or 10000.0, max_position_embeddings = a.max_seq_len or 131072,
    tie_word_embeddings = a.enable_weight_tying or nil,
    rope_scaling = r.scaling_factor ~= 1 and { rope_type = "llama3", factor = r.scaling_factor,
      low_freq_factor = r.low_freq_factor, high_freq_factor = r.high_freq_factor,
      original_max_position_embeddings = r.original_max_position_embeddings } or nil }
end

-- Whether all experts are chosen among by a softmax, and are all that there is.
local function is_softmax(moe)
  return moe.score_func == "softmax" and moe.num_shared_experts == 0 and moe.route_scale == 1
    and not moe.num_expert_groups
end

local function qwen3(a)
  local c = { "qwen3", hidden_size = a.dim or 1024, intermediate_size = a.hidden_dim or 3072,
    num_hidden_layers = a.n_layers or 28, num_attention_heads = a.n_heads or 16,
    num_key_value_heads = a.n_kv_heads or 8, head_dim = a.head_dim or 128,
    vocab_size = a.vocab_size or 151936, rms_norm_eps = a.norm_eps or 1e-6,
    rope_theta = a.rope_theta or 1000000.0, max_position_embeddings = a.max_seq_len or 40960,
    tie_word_embeddings = a.enable_weight_tying or nil }
  if a.qk_norm == false then return nil, "qk_norm = false: weft's Qwen3 has norms of q and k" end
  if not a.moe_enabled then return c end
  local moe = a.moe_args
  c[1], c.num_experts, c.num_experts_per_tok = "qwen3_moe", moe.num_experts, moe.top_k
  c.moe_intermediate_size, c.norm_topk_prob = a.moe_inter_dim or 768, moe.route_norm
  if not is_softmax(moe) or moe.gate_bias then
    return nil, "weft's Qwen3-MoE has routers with a softmax and without biases, neither groups nor a scale, and no "
      .. "shared experts"
  end
  return c, constructors.refused(moe)
end

local function deepseek(a)
  local moe = a.moe_args
  local rank = a.q_lora_rank or 0
  local c = { "deepseek_v3", hidden_size = a.dim or 2048, intermediate_size = a.inter_dim or 10944,
    moe_intermediate_size = a.moe_inter_dim or 1408, num_hidden_layers = a.n_layers or 27,
    first_k_dense_replace = a.n_dense_layers or 1, num_attention_heads = a.n_heads or 16,
    num_key_value_heads = a.n_heads or 16, vocab_size = a.vocab_size or 102400,
    q_lora_rank = rank ~= 0 and rank, kv_lora_rank = a.kv_lora_rank or 512,
    qk_nope_head_dim = a.qk_nope_head_dim or 128, qk_rope_head_dim = a.qk_rope_head_dim or 64,
    v_head_dim = a.v_head_dim or 128, rms_norm_eps = a.norm_eps or 1e-5,
    rope_theta = a.rope_theta or 10000.0, max_position_embeddings = a.max_seq_len or 163840,
    n_routed_experts = moe.num_experts, n_shared_experts = moe.num_shared_experts,
    num_experts_per_tok = moe.top_k, n_group = moe.num_expert_groups or 1,
    topk_group = moe.num_limited_groups or 1, norm_topk_prob = moe.route_norm,
    routed_scaling_factor = moe.route_scale, num_nextn_predict_layers = 0,
    bias_update_rate = moe.load_balance_coeff,
    rope_scaling = a.rope_factor ~= 1 and { type = "yarn", factor = a.rope_factor or 40.0,
      beta_fast = a.beta_fast or 32.0, beta_slow = a.beta_slow or 1.0, mscale = a.mscale or 1.0,
      mscale_all_dim = a.mscale or 1.0,
      original_max_position_embeddings = a.original_seq_len or 4096 } or nil,
    scaled_above = a.original_seq_len or 4096 }
  if c.first_k_dense_replace >= c.num_hidden_layers then
    c.n_routed_experts = false
    return c
  end
  if moe.gate_bias then return nil, "weft's DeepSeek-V3 has routers without biases of their products" end
  return c, constructors.refused(moe), moe.score_func == "softmax" and SOFTMAX or nil
end

-- Its routers have a bias that follows the load of experts, which Hugging Face's class has not.
local BALANCED = "its routers are balanced by a bias, which weft's gpt_oss does not have, as the public model has "
  .. "none: moe.aux_loss_coef balances them by a loss"

local function gpt_oss(a)
  local moe = a.moe_args
  local c = { "gpt_oss", hidden_size = a.dim or 2880, intermediate_size = a.moe_inter_dim or 2880,
    num_hidden_layers = a.n_layers or 24, num_attention_heads = a.n_heads or 64,
    num_key_value_heads = a.n_kv_heads or 8, head_dim = a.head_dim or 64,
    vocab_size = a.vocab_size or 201088, rms_norm_eps = a.norm_eps or 1e-5,
    sliding_window = a.sliding_window_size or 128, swiglu_limit = a.swiglu_limit or 7.0,
    max_position_embeddings = a.max_seq_len or 131072,
    num_local_experts = moe.num_experts, num_experts_per_tok = moe.top_k }
  if not is_softmax(moe) or not moe.route_norm or moe.gate_bias == false then
    return nil, "weft's gpt_oss has routers with biases and a softmax of those chosen, neither groups nor a scale, and "
      .. "no shared experts"
  end
  return c, constructors.refused(moe), moe.load_balance_coeff > 0 and BALANCED or nil
end

-- Said of a table of one's own; what torchtitan ships says it by a flavor's name.
local DOCUMENTS_APART = "each document attends to itself there (attn_mask_type): packed = { eot = id } says it, and "
  .. "changes no size"

local PLAIN = "depth_init attn_type attn_mask_type eos_id attn_backend use_flex_attn "
  .. "max_batch_size class fuse_qkv expert_parallel_comm_backend"
local LLAMA = "dim n_layers n_heads n_kv_heads vocab_size multiple_of ffn_dim_multiplier norm_eps "
  .. "rope_theta rope_scaling_args max_seq_len hidden_dim enable_weight_tying " .. PLAIN
local QWEN3 = "dim n_layers n_heads n_kv_heads vocab_size head_dim hidden_dim norm_eps rope_theta "
  .. "qk_norm max_seq_len enable_weight_tying moe_enabled moe_inter_dim moe_args " .. PLAIN
local DEEPSEEK = "dim inter_dim moe_inter_dim n_layers n_dense_layers n_heads vocab_size norm_eps "
  .. "moe_args q_lora_rank kv_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim max_seq_len "
  .. "original_seq_len rope_theta rope_factor beta_fast beta_slow mscale " .. PLAIN

local GPT_OSS = "dim n_layers n_heads n_kv_heads head_dim vocab_size moe_inter_dim norm_eps moe_args "
  .. "sliding_window_size swiglu_limit max_seq_len " .. PLAIN

local function words(text)
  local set = {}
  for word in string.gmatch(text, "%S+") do set[word] = true end
  return set
end

-- Classes of arguments by name: what makes a config of them, and which they have.
local classes = {
  TransformerModelArgs = { make = llama, args = words(LLAMA), needs = { "dim", "n_layers", "n_heads" } },
  Llama3ModelArgs = { make = llama, args = words(LLAMA), needs = { "dim", "n_layers", "n_heads" } },
  Qwen3ModelArgs = { make = qwen3, args = words(QWEN3), needs = {} },
  DeepSeekV3ModelArgs = { make = deepseek, args = words(DEEPSEEK), needs = {} },
  GptOssModelArgs = { make = gpt_oss, args = words(GPT_OSS), needs = {} },
}

-- Arguments that may be 0, for none, that are True or False, and that change nothing.
local NONE_AT_ZERO = { q_lora_rank = true, n_dense_layers = true }
local SWITCHES, plain = words "enable_weight_tying qk_norm moe_enabled", words(PLAIN)
local INTEGERS = words "dim multiple_of hidden_dim"

-- Why an argument cannot be what it is; nil: it can.
local function wrong(key, value)
  if plain[key] then return nil end
  if SWITCHES[key] then return type(value) ~= "boolean" and "is neither True nor False" or nil end
  if type(value) ~= "number" then return "is no number" end
  if value < 0 or value == 0 and not NONE_AT_ZERO[key] then return "must be above 0" end
  if INTEGERS[key] and math.type(value) ~= "integer" then return "is no integer" end
end

-- Arguments as torchtitan reads them: without those that are None, and with all of objects. Nil and why not.
local function settled(class, known, args)
  local a = {}
  for _, key in ipairs(keys(args)) do
    if not known.args[key] then
      return nil, string.format("%s has an argument that weft does not know: %s", class, quote.shown(key))
    end
    if args[key] ~= scalar.null then a[key] = args[key] end
  end
  for _, key in ipairs(known.needs) do
    if type(a[key]) ~= "number" then return nil, string.format("%s needs the number %s", class, key) end
  end
  for _, key in ipairs(keys(known.args)) do
    local object, bad = constructors.read(key, a[key])
    if object == false then return nil, string.format("%s: %s", class, bad) end
    local why = not object and a[key] ~= nil and wrong(key, a[key])
    if why then return nil, string.format("%s: %s %s", class, key, why) end
    if object then a[key] = object end
  end
  return a
end

-- The config of an arguments class. Nil and why not; what the config does not say is third.
function flavors.of_class(class, args)
  local known = classes[class]
  if not known then
    return nil, string.format("%s are the arguments of a model that weft does not have", quote.shown(class))
  end
  local a, bad = settled(class, known, args)
  if not a then return nil, bad end
  local config, why, note = known.make(a)
  if why then return nil, string.format("%s: %s", class, why) end
  local apart = a.attn_mask_type == "block_causal" and DOCUMENTS_APART or nil
  return config, nil, note and apart and note .. "; " .. apart or note or apart
end

-- What a config is for sequences of so many tokens (nil: nobody says how many), and what torchtitan has otherwise.
-- Versions up to 0.2, whose settings are TOML, scale positions and scores of DeepSeek-V3 where sequences are longer
-- than what scaling starts from; registries of later versions (`always`) do whatever the length.
function flavors.settle(book, config, length, always)
  local from = config.scaled_above
  config.scaled_above = nil
  if not from then return end
  if config.rms_norm_eps ~= 1e-6 then
    book:assume("model", "norms of latents have an epsilon of 1e-6, whatever the others have")
  end
  if not config.rope_scaling or length and length > from then return end
  local by_length = string.format("scale positions only where sequences have more than %d tokens (original_seq_len)", from)
  if always then
    book:assume("model.rope_scaling", "positions are scaled, as from torchtitan 0.3 on; versions before it " .. by_length)
  elseif not length then
    book:assume("model.rope_scaling", "positions are scaled; versions of torchtitan with such arguments " .. by_length)
  else
    config.rope_scaling = nil
    book:assume("model.rope_scaling", string.format("positions are not scaled: versions of torchtitan with such "
      .. "settings %s, and these have %d", by_length, length))
  end
end

-- ---- what torchtitan ships ----

local function moe(experts, top, more)
  local m = { num_experts = experts, num_shared_experts = 0, top_k = top, score_func = "softmax",
              route_norm = true, score_before_experts = false }
  for key, value in pairs(more or {}) do m[key] = value end
  return m
end

local function small(args)
  args.vocab_size, args.dim, args.n_heads = 2048, 256, 16
  return args
end

local function q(dim, hidden, layers, heads, more)
  local a = { dim = dim, hidden_dim = hidden, n_layers = layers, n_heads = heads }
  for key, value in pairs(more or {}) do a[key] = value end
  return a
end

local function coarse(args, shared)
  args.mscale = 0.7
  args.moe_args.score_func, args.moe_args.route_norm = "softmax", false
  args.moe_args.num_shared_experts = shared
  return args
end

-- Llama 2, which torchtitan had until 2024: its vocabulary, and positions that are not scaled.
local function llama2(dim, layers, heads, more)
  local a = { dim = dim, n_layers = layers, n_heads = heads, vocab_size = 32000, max_seq_len = 4096,
              rope_scaling_args = { scaling_factor = 1 } }
  for key, value in pairs(more or {}) do a[key] = value end
  return a
end

local tied = { enable_weight_tying = true }
local shipped = {
  llama2 = { class = "TransformerModelArgs",
    debugmodel = llama2(256, 8, 16), ["271M"] = llama2(1024, 16, 8), ["1B"] = llama2(2048, 18, 16),
    ["7B"] = llama2(4096, 32, 32), ["13B"] = llama2(5120, 40, 40), ["26B"] = llama2(5120, 80, 40),
    ["70B"] = llama2(8192, 80, 64, { n_kv_heads = 8, ffn_dim_multiplier = 1.3, multiple_of = 4096 }),
  },
  llama3 = { class = "TransformerModelArgs",
    debugmodel = small { n_layers = 6, rope_theta = 500000.0 },
    ["8B"] = { dim = 4096, n_layers = 32, n_heads = 32, n_kv_heads = 8, ffn_dim_multiplier = 1.3,
               multiple_of = 1024, rope_theta = 500000.0 },
    ["70B"] = { dim = 8192, n_layers = 80, n_heads = 64, n_kv_heads = 8, ffn_dim_multiplier = 1.3,
                multiple_of = 4096, rope_theta = 500000.0 },
    ["405B"] = { dim = 16384, n_layers = 126, n_heads = 128, n_kv_heads = 8,
                 ffn_dim_multiplier = 1.2, multiple_of = 4096, rope_theta = 500000.0 },
    ["1B"] = { dim = 2048, n_layers = 16, n_heads = 32, n_kv_heads = 8, ffn_dim_multiplier = 1.5,
               multiple_of = 256, rope_theta = 500000.0, enable_weight_tying = true },
    ["3B"] = { dim = 3072, n_layers = 28, n_heads = 24, n_kv_heads = 8, ffn_dim_multiplier = 1.0,
               multiple_of = 256, rope_theta = 500000.0, enable_weight_tying = true },
  },
  qwen3 = { class = "Qwen3ModelArgs",
    debugmodel = small { n_layers = 8, hidden_dim = 3072, enable_weight_tying = true },
    ["0.6B"] = q(1024, 3072, 28, 16, tied), ["1.7B"] = q(2048, 6144, 28, 16, tied),
    ["4B"] = q(2560, 9728, 36, 32, tied), ["8B"] = q(4096, 12288, 36, 32),
    ["14B"] = q(5120, 17408, 40, 40), ["32B"] = q(5120, 25600, 64, 64),
    debugmodel_moe = small { n_layers = 8, hidden_dim = 3072, moe_enabled = true,
                             moe_inter_dim = 768, moe_args = moe(64, 8) },
    ["30B-A3B"] = q(2048, 6144, 48, 32, { n_kv_heads = 4, moe_enabled = true, moe_inter_dim = 768,
                                          moe_args = moe(128, 8) }),
    ["235B-A22B"] = q(4096, 12288, 94, 64, { n_kv_heads = 4, moe_enabled = true,
      moe_inter_dim = 1536, moe_args = moe(128, 8), rope_theta = 5000000.0 }),
  },
  gpt_oss = { class = "GptOssModelArgs",
    debugmodel = { vocab_size = 2048, dim = 256, n_layers = 4, moe_args = moe(8, 4) },
    ["20b"] = { n_layers = 24, moe_args = moe(32, 4) }, ["120b"] = { n_layers = 36, moe_args = moe(128, 4) },
  },
  deepseek_v3 = { class = "DeepSeekV3ModelArgs",
    debugmodel = coarse(small { inter_dim = 1024, moe_inter_dim = 256, n_layers = 6,
                                moe_args = moe(8, 3) }, 2),
    ["16B"] = coarse({ moe_args = moe(64, 6) }, 2),
    ["236B"] = { dim = 5120, inter_dim = 12288, moe_inter_dim = 1536, n_layers = 60, n_heads = 128,
      q_lora_rank = 1536, moe_args = moe(160, 6, { num_shared_experts = 2, route_norm = false,
        num_expert_groups = 8, num_limited_groups = 3, route_scale = 16.0 }) },
    ["671B"] = { dim = 7168, inter_dim = 18432, moe_inter_dim = 2048, n_layers = 61,
      n_dense_layers = 3, n_heads = 128, vocab_size = 129280, q_lora_rank = 1536,
      moe_args = moe(256, 8, { num_shared_experts = 1, score_func = "sigmoid", route_scale = 2.5,
                               num_expert_groups = 8, num_limited_groups = 4 }) },
  },
}

-- Flavors that say something of attention behind their name, or that differ in kernels.
local VARIANTS = { "_flex_attn", "_flex_flash", "_flex", "_varlen_attn", "_varlen", "_non_fused_qkv" }
-- Of these each document attends to itself.
local DOCUMENTS = { _flex_attn = true, _flex = true, _varlen_attn = true, _varlen = true }

-- Families that weft has no architecture for.
local others = { llama4 = "a Llama 4, with experts and images", flux = "a diffusion model of images",
  qwen3_5 = "a hybrid of linear and full attention, with images",
  qwen35 = "a hybrid of linear and full attention, with images", vlm = "a model of images",
  qwen3_vl = "a model of images", muse_glimmer = "a Muse", kimi = "a Kimi, with images", kimi_vl = "a model of images" }

local function copy(t)
  local c = {}
  for key, value in pairs(t) do c[key] = type(value) == "table" and copy(value) or value end
  return c
end

-- "simple_fsdp.llama3", "llama3_ft" -> "llama3". Nil and what it is if weft lacks it, or nil.
function flavors.family(name)
  name = string.lower(scalar.behind_last(name, "."))
  name = string.gsub(name, "^graph_trainer_", "")
  name = string.gsub(string.gsub(name, "_simple_fsdp$", ""), "_ft$", "")
  if shipped[name] then return name end
  return nil, others[name]
end

-- Names of the flavors of a family.
function flavors.names(family)
  local names = {}
  for _, key in ipairs(keys(shipped[family])) do
    if key ~= "class" then names[#names + 1] = key end
  end
  return names
end

-- The config of a flavor of a family that there is; nil and why not. Then what it does not say,
-- and whether each document attends to itself alone.
function flavors.flavor(family, flavor)
  local plain, documents = flavor, family == "deepseek_v3" and flavor ~= "debugmodel"
  for _, variant in ipairs(VARIANTS) do
    if string.sub(plain, -#variant) == variant and not shipped[family][plain] then
      plain, documents = string.sub(plain, 1, -#variant - 1), documents or DOCUMENTS[variant]
    end
  end
  local args = plain ~= "class" and shipped[family][plain]
  if not args then
    return nil, string.format("is no flavor of %s that weft knows: %s", family,
                              table.concat(flavors.names(family), ", "))
  end
  local config, why, note = flavors.of_class(shipped[family].class, copy(args))
  return config, why, note, documents
end

flavors.families = keys(shipped)

return flavors
