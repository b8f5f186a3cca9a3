-- adapter.lua - peft and freeze_config of NeMo AutoModel as the fields adapter and freeze.
local names = use "import/automodel/names"
local quote = use "import/quote"
local scalar = use "import/scalar"
local values = use "import/values"

-- ---- which linears ----

local ATTENTION = { "q_proj", "k_proj", "v_proj", "o_proj" }
local ALL = { "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj" }
-- Linears of models with others than Llama's: some have several of them as one module, which has one
-- adapter.
local OF = {
  gpt2 = { "c_attn", "c_proj", "c_fc" }, phi3 = { "qkv_proj", "o_proj", "gate_up_proj", "down_proj" },
  glm = { "q_proj", "k_proj", "v_proj", "o_proj", "gate_up_proj", "down_proj" },
  phi = { "q_proj", "k_proj", "v_proj", "dense", "fc1", "fc2" },
  falcon_h1 = { "in_proj", "out_proj", "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj" },
  nemotron_h = { "in_proj", "out_proj", "q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj" },
  starcoder2 = { "q_proj", "k_proj", "v_proj", "o_proj", "c_fc", "c_proj" },
}
OF.glm4 = OF.glm
-- Linears beside the experts in AutoModel's own models of this kind: with shared experts or dense
-- layers those of MLPs, too. The router is none, and all experts of a layer are a module of another
-- class, which a pattern names and "all linears" does not.
local BESIDE = { qwen3_moe = ATTENTION, minimax_m2 = ATTENTION, gpt_oss = ATTENTION, glm4_moe = ALL, hy_v3 = ALL }
local EXPERTS = { "experts.gate_up_proj", "experts.down_proj" }
-- Transformers' class, which AutoModel takes of models that it has none of, or where it is told to.
local HF_BESIDE = { qwen2_moe = { "q_proj", "k_proj", "v_proj", "o_proj", "shared_expert.gate_proj",
                                  "shared_expert.up_proj", "shared_expert.down_proj", "shared_expert_gate" } }
local LATENT = { deepseek_v3 = true, kimi_k2 = true, glm4_moe_lite = true }

-- Latent attention: queries may go straight from the hidden features.
local function of_latents(config)
  local rank = config.q_lora_rank
  if rank == nil then rank = use("models/" .. config[1]).defaults.q_lora_rank end
  local rest = { "kv_a_proj_with_mqa", "kv_b_proj", "o_proj", "gate_proj", "up_proj", "down_proj" }
  return table.move(rest, 1, #rest, rank and 3 or 2, rank and { "q_a_proj", "q_b_proj" } or { "q_proj" })
end

-- Nemotron-H: experts may read a latent.
local function of_hybrid(config)
  local list = table.move(OF.nemotron_h, 1, #OF.nemotron_h, 1, {})
  if config.moe_latent_size then list[#list + 1], list[#list + 2] = "fc1_latent_proj", "fc2_latent_proj" end
  return list
end

local function linears_of(config, experts)
  if config[1] == "nemotron_h" then return of_hybrid(config) end
  if LATENT[config[1]] then return of_latents(config) end
  if experts then return BESIDE[config[1]] or HF_BESIDE[config[1]] end
  if config[1] == "gpt2" then return nil end -- Transformers has no linears there
  return OF[config[1]] or ALL
end

-- Those of them that "*_proj" names.
local function projections_of(config, experts)
  local some = {}
  for _, name in ipairs(linears_of(config, experts) or {}) do
    if string.find(name, "_proj$") then some[#some + 1] = name end
  end
  return #some > 0 and some or nil
end

local function is_linear(config, experts, name)
  if LATENT[config[1]] then
    for _, one in ipairs(of_latents(config)) do
      if one == name then return true end
    end
    return false
  end
  for _, one in ipairs(OF[config[1]] or experts and (BESIDE[config[1]] or ATTENTION) or ALL) do
    if one == name then return true end
  end
  return false
end

-- All linears, with the head, where each is one module on both sides; nil: there are others.
local function all_linears(config, experts)
  local linears = linears_of(config, experts)
  if not linears then return nil end
  return table.move(linears, 1, #linears, 1, { [#linears + 1] = "lm_head" })
end

-- A pattern of AutoModel, whose "*" stands for any text, as patterns of weft, and weights of experts;
-- nil: there are none that name the same.
local function targets_of(pattern, config, experts)
  if type(pattern) ~= "string" then return nil end
  if pattern == "*" then
    local all = all_linears(config, experts)
    return all, all and experts and not HF_BESIDE[config[1]] and EXPERTS
  end
  if pattern == "*_proj" or pattern == "*.*_proj" then
    if config[1] == "gpt2" then return { "c_proj" } end
    return projections_of(config, experts)
  end
  local module = string.match(pattern, "^model%.layers%.%*%.([%w_.]+)$")
  local path = module or string.match(pattern, "^%*%.([%w_.]+)$") or string.match(pattern, "^%*?([%w_.]+)$")
  if not path or not is_linear(config, experts, scalar.behind_last(path, ".")) then return nil end
  return { module and "layers.*." .. module or path }
end

local function list_of(value) return type(value) == "table" and value or { value } end

-- All linears, with the head, but for those that a list of "*.NAME" leaves out; nil: it has other
-- patterns, names no linear, or the head alone.
local function all_but(patterns, config, experts)
  local all, left = all_linears(config, experts), {}
  for _, pattern in ipairs(patterns) do
    local name = string.match(tostring(pattern), "^%*%.([%w_]+)$")
    if not all or not name then return nil end
    left[name] = true
  end
  local some = {}
  for _, name in ipairs(all or {}) do
    if left[name] then left[name] = nil else some[#some + 1] = name end
  end
  return next(left) == nil and all and #some < #all and some[#some] == "lm_head" and some or nil
end

-- Experts have a part of the rank, if that is asked for, and the same alpha.
local function put_experts(book, plan, config, key)
  local scaling = "peft.moe_rank_scaling"
  plan:put("adapter.target_parameters", quote.value(EXPERTS), book:leaf(key))
  if not values.flag(book, scaling) then return end
  local chosen = config.num_experts_per_tok or use("models/" .. config[1]).defaults.num_experts_per_tok
  local rank = (values.whole(book, "peft.dim", 1) or 8) // chosen
  if rank < 1 then return book:cannot(scaling, "leaves experts no rank") end
  plan:put("adapter.rank_pattern", quote.value { [EXPERTS[1]] = rank, [EXPERTS[2]] = rank }, book:leaf(scaling))
  book:translated(scaling, "adapter.rank_pattern: the rank of experts")
end

-- All linears of layers if the settings name none, or leave out the head alone.
local function put_targets(book, plan, config, experts)
  local prefix, targets, of_experts = "peft.", {}, false
  local all, named, left = prefix .. "match_all_linear", prefix .. "target_modules", prefix .. "exclude_modules"
  local every = book:value(all) == true and all_linears(config, experts)
  if every then
    plan:put("adapter.targets", quote.value(every), book:leaf(all))
    book:translated(all, "adapter.targets")
    for _, key in ipairs { named, left } do book:no_effect(key, "peft.match_all_linear says it") end
    return
  end
  if book:value(all) then
    book:cannot(all, "linears that are fused and those of other models with experts get none here")
  end
  book:no_effect(all, "as it is in weft")
  for _, pattern in ipairs(list_of(book:value(named))) do
    local same, weights = targets_of(pattern, config, experts)
    of_experts = of_experts or weights
    if not same then
      book:cannot(named, string.format("%s names modules that no pattern of adapter.targets does, "
        .. "of this model", quote.shown(pattern)))
    end
    for _, target in ipairs(same or {}) do targets[#targets + 1] = target end
  end
  local but = #targets == 0 and all_but(list_of(book:value(left)), config, experts)
  if but then
    plan:put("adapter.targets", quote.value(but), book:leaf(left))
    book:no_effect("peft.moe_rank_scaling", "it is about experts, which have no adapter")
    return book:translated(left, "adapter.targets")
  end
  for _, pattern in ipairs(list_of(book:value(left))) do
    if not string.find(tostring(pattern), "^%*?%.?lm_head%*?$") then
      book:cannot(left, "adapter.targets names the linears that get one: these get one, too")
    end
  end
  if #targets > 0 then
    plan:put("adapter.targets", quote.value(targets), book:leaf(named))
    if of_experts then put_experts(book, plan, config, named) end
    book:no_effect("peft.moe_rank_scaling", "it is about experts, which have no adapter")
    book:no_effect(left, "adapter.targets says it")
    return book:translated(named, "adapter.targets")
  end
  plan:put("adapter.targets", quote.text "all-linear", book:leaf(named) or book:leaf(left) or book:leaf(all))
  book:translated(left, "adapter.targets, which leaves out the head")
end

-- ---- peft ----

-- What is as it is in weft for one value.
local SAME = {
  { "lora_A_init", "kaiming", "factors begin uniform in +-1/sqrt(in), as PEFT's" },
}

local function put_rest(book)
  for _, row in ipairs(SAME) do
    local key, usual, change = "peft." .. row[1], row[2], row[3]
    if book:value(key) == usual then
      book:no_effect(key, "as it is in weft")
    elseif book:value(key) ~= nil then
      book:cannot(key, change)
    end
  end
  if not book:value "peft.lora_A_init" then
    book:assume("adapter", "factors begin uniform in +-1/sqrt(in); AutoModel's as normal numbers (Xavier's), of which the "
                .. "root of the mean square is sqrt(2 / (in + rank))")
  end
end

-- Of what A reads, or, as AutoModel has it if nothing is said, of what B gives. Adapters of experts
-- drop nothing in weft.
local function put_dropout(book, plan)
  local drops, position = values.rate(book, "peft.dropout"), "peft.dropout_position"
  local experts = plan:has "adapter.target_parameters"
  if drops and not experts then
    plan:put("adapter.dropout", quote.value(drops), book:leaf "peft.dropout")
    if book:value(position) ~= "pre" then
      plan:put("adapter.dropout_position", quote.text "post", book:leaf(position) or "AutoModel's default")
    end
  end
  for _, name in ipairs { "dropout", "dropout_position" } do
    local key = "peft." .. name
    if drops and not experts then book:translated(key, "adapter." .. name) end
    if drops and experts then book:cannot(key, "adapters of experts drop nothing") end
    book:no_effect(key, "nothing is dropped")
  end
end

local function put_dora(book, plan)
  local on = values.flag(book, "peft.use_dora")
  if on then plan:put("adapter.dora", "true", book:leaf "peft.use_dora") end
  if on then book:translated "peft.use_dora" end
  book:no_effect("peft.use_dora", "as it is in weft")
end

-- bitsandbytes' NF4 with scales that are quantized, too, of a base that an adapter is on; its
-- defaults are not assumed.
local function put_base(book, plan, adapted)
  local prefix, other = "quantization.", "weights are stored in 4 bits as NF4 with double "
    .. "quantisation alone (adapter.base), and under an adapter"
  if not values.flag(book, prefix .. "load_in_4bit") then return end
  local nf4 = book:value(prefix .. "bnb_4bit_quant_type") == "nf4"
    and values.flag(book, prefix .. "bnb_4bit_use_double_quant")
  for _, name in ipairs { "load_in_4bit", "bnb_4bit_quant_type", "bnb_4bit_use_double_quant" } do
    local key = prefix .. name
    if adapted and nf4 then
      book:translated(key, "adapter.base")
    elseif book:value(key) ~= nil then
      book:cannot(key, other)
    end
  end
  if not (adapted and nf4) then return end
  plan:put("adapter.base", quote.text "nf4", book:leaf(prefix .. "load_in_4bit"))
  book:no_effect(prefix .. "bnb_4bit_compute_dtype", "products are in the type of precision")
end

local function put_number(book, plan, name, field, usual)
  local key = "peft." .. name
  local n = values.whole(book, key, 1) or usual
  plan:put(field, quote.value(n), book:leaf(key) or "AutoModel's default")
  book:translated(key, field)
end

-- Whether the plan trains an adapter.
local function put_peft(book, plan, config, experts)
  if not book:has "peft" or book:leaf "peft" then return false end
  local class = book:value "peft._target_"
  if class and not string.find(tostring(class), "%f[%w]PeftConfig$") then return false end
  plan:put("adapter.#", quote.text "lora", book:leaf "peft._target_")
  book:translated "peft._target_"
  put_number(book, plan, "dim", "adapter.rank", 8)
  put_number(book, plan, "alpha", "adapter.alpha", 32)
  put_targets(book, plan, config, experts)
  put_dropout(book, plan)
  put_dora(book, plan)
  put_rest(book)
  return true
end

-- ---- freeze_config ----

local function put_freeze(book, plan, config, adapted)
  for _, name in ipairs { "freeze_embeddings", "freeze_language_model" } do
    local key = "freeze_config." .. name
    local on = values.flag(book, key)
    if on ~= nil and (adapted or not on) then
      book:no_effect(key, adapted and "with an adapter the model is frozen" or "it trains")
    elseif on and name == "freeze_embeddings" then
      plan:put("freeze", quote.value(names.embeddings(config[1])), book:leaf(key))
      book:translated(key, "freeze")
    elseif on then
      book:cannot(key, "nothing would be left that learns: the plan trains it")
    end
  end
end

local adapter = {}

-- Names of the linears of a model's layers that Transformers' class has as modules; nil: it has none.
adapter.linears_of = linears_of

function adapter.put(book, plan, config, experts)
  local adapted = put_peft(book, plan, config, experts)
  put_base(book, plan, adapted)
  put_freeze(book, plan, config, adapted)
end

return adapter
