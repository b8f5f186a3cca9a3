-- adapter.lua - LoRA and QLoRA of axolotl's recipes, which are PEFT's, as the field adapter; see
-- axolotl/loaders/adapter.py.
local experts = use "import/automodel/experts"
local quote = use "import/quote"
local targets = use "import/peft_targets"
local scalar = use "import/scalar"
local values = use "import/values"
local adapter = {}

local function list_of(value)
  if value == nil then return {} end
  return type(value) == "table" and value or { value }
end

-- ---- targets ----

-- A regular expression of all layers and their linears by name, as recipes have it:
-- model.layers.[\d]+.(mlp|self_attn).(up|down|q)_proj; nil: another one.
local function names_of(pattern)
  local layer, names = string.match(pattern, "layers\\?%.(%S-)\\?%.%(?[%a_|]+%)?\\?%.%(([%a|]+)%)_proj%$?$")
  if layer ~= "[\\d]+" and layer ~= "\\d+" and layer ~= "[0-9]+" and layer ~= ".*" then return nil end
  local list = {}
  for name in string.gmatch(names, "%a+") do list[#list + 1] = name .. "_proj" end
  return list
end

-- Names that the settings give, and which setting does; "all-linear": all linears of layers.
local function asked(book)
  local key = "lora_target_modules"
  local value = book:value(key)
  if type(value) == "string" and string.lower(value) == "all-linear" then return "all-linear", key end
  if type(value) == "string" and string.find(value, "[%^$()%[%]|\\*+]") then
    local names = names_of(value)
    if names then return names, key end
    book:cannot(key, "a regular expression of names: the plan has all linears of layers, and adapter.targets takes lists of patterns")
    return "all-linear"
  end
  return list_of(value), key
end

local function put_all(book, found, names)
  book:translated("lora_target_linear", "adapter.targets")
  for _, name in ipairs(names) do targets.add(found, name) end
end

-- Weights of experts that are named as such.
local function put_parameters(book, found, has_experts)
  local key = "lora_target_parameters"
  for _, name in ipairs(list_of(book:value(key))) do
    local last = scalar.behind_last(tostring(name), ".")
    if has_experts and (last == "gate_up_proj" or last == "down_proj") then
      found.params[#found.params + 1] = tostring(name)
    else
      book:cannot(key, string.format("%s is no weight of experts, which alone have an adapter as parameters", quote.shown(name)))
    end
  end
  book:translated(key, "adapter.target_parameters")
end

-- Whether gate and up of experts have twice the rank.
local function put_targets(book, plan, config, has_experts)
  local key = "lora_target_modules"
  local names, from = asked(book)
  local found = targets.of(config, has_experts)
  found.leaf = book:leaf "lora_target_parameters"
  put_parameters(book, found, has_experts)
  local all = values.switch(book, "lora_target_linear") or names == "all-linear"
  if names == "all-linear" then names = {} end
  if all and not has_experts and #names == 0 and #found.params == 0 then
    plan:put("adapter.targets", quote.text "all-linear", book:leaf "lora_target_linear" or book:leaf(key))
    book:translated("lora_target_linear", "adapter.targets")
    book:translated(key, "adapter.targets")
    return false
  end
  if all then put_all(book, found, targets.linears(config, has_experts)) end
  local lacks = {}
  for _, name in ipairs(names) do
    if type(name) ~= "string" then
      book:refuse(key, "expected a list of names of linears, or a text")
    elseif not targets.add(found, name) then
      lacks[#lacks + 1] = quote.shown(name)
    end
  end
  local any, twice = targets.write(book, plan, found, key, book:leaf(from or key) or book:leaf "lora_target_linear")
  if not any and #book.refused == 0 then
    book:refuse(book:leaf(key) and key or "adapter", string.format("names no linear of the model, which has %s",
                                                                  table.concat(targets.linears(config, has_experts), ", ")))
  else
    targets.say_lacking(book, lacks)
  end
  book:translated(key, "adapter.targets")
  book:no_effect("lora_target_linear", "it is off")
  return twice
end

-- ---- ranks ----

-- PEFT's regular expressions of modules are names in most recipes: those are patterns of weft's.
local function put_pattern(book, plan, prefix, field)
  for _, leaf in ipairs(book.leaves) do
    local name = string.match(leaf.key, "^" .. prefix .. "%.(.+)$")
    local n = name and values.whole(book, leaf.key, 1)
    if n and string.find(name, "^[%w_.]+$") then
      plan:entry("adapter." .. field, name, quote.value(n), leaf)
      book:translated(leaf.key, "adapter." .. field)
    elseif n then
      book:cannot(leaf.key, "a regular expression of names: adapter." .. field .. " takes patterns")
    end
  end
end

local function put_rank(book, plan, twice)
  local rank, alpha = values.whole(book, "lora_r", 1), values.positive(book, "lora_alpha")
  for key, n in pairs { lora_r = rank or 0, lora_alpha = alpha or 0 } do
    if n == 0 and #book.refused == 0 then book:refuse(book:leaf(key) and key, key .. ": an adapter needs a number above 0") end
  end
  rank, alpha = rank or 1, alpha or 1
  plan:put("adapter.rank", quote.value(rank), book:leaf "lora_r")
  plan:put("adapter.alpha", quote.value(alpha), book:leaf "lora_alpha")
  book:translated("lora_r", "adapter.rank")
  book:translated("lora_alpha", "adapter.alpha")
  if twice then targets.put_twice(plan, rank, alpha) end
  put_pattern(book, plan, "lora_rank_pattern", "rank_pattern")
  put_pattern(book, plan, "lora_alpha_pattern", "alpha_pattern")
end

-- ---- what else ----

-- As PEFT reads it after axolotl's change: what adapters of experts read is not dropped.
-- trl's trainer of pairs drops nothing (DPOConfig.disable_dropout).
local function put_dropout(book, plan, loss)
  local key, n = "lora_dropout", values.rate(book, "lora_dropout")
  if not n then return book:no_effect(key, "nothing is dropped") end
  if loss == "dpo" then return book:no_effect(key, "trl's DPO turns dropout off") end
  if plan:has "adapter.target_parameters" and book:value "lora_target_parameters" ~= nil then
    return book:refuse(key, "lora_target_parameters go with a lora_dropout of 0 alone")
  elseif plan:has "adapter.target_parameters" then
    return book:cannot(key, "nothing is dropped where experts have adapters; axolotl drops what the others read")
  end
  plan:put("adapter.dropout", quote.value(n), book:leaf(key))
  book:translated(key, "adapter.dropout")
end

local function put_flag(book, plan, key, field)
  if values.switch(book, key) then
    plan:put("adapter." .. field, "true", book:leaf(key))
    return book:translated(key, "adapter." .. field)
  end
  book:no_effect(key, "it is off")
end

local function is_tied(config)
  local tied = config.tie_word_embeddings
  if tied == nil then tied = use("models/" .. config[1]).defaults.tie_word_embeddings end
  return tied
end

local SAVED = { embed_tokens = true, lm_head = true, norm = true, input_layernorm = true, post_attention_layernorm = true }

local function put_saved(book, plan, config)
  local key, list = "lora_modules_to_save", {}
  for _, name in ipairs(list_of(book:value(key))) do
    if (name == "lm_head" or name == "embed_tokens") and is_tied(config) then
      book:cannot(key, "the head reads the table of embeddings, of which PEFT makes copies that learn apart: neither learns here")
    elseif SAVED[name] then
      list[#list + 1] = name
    else
      book:cannot(key, string.format("%s: adapter.modules_to_save names modules of the model", quote.shown(name)))
    end
  end
  if #list == 0 then return end
  plan:put("adapter.modules_to_save", quote.value(list), book:leaf(key))
  book:translated(key, "adapter.modules_to_save")
end

local BNB = "bnb_config_kwargs."
local OTHER_BITS = "weights are stored in 4 bits as NF4 with double quantisation alone (adapter.base): the plan's base is not quantised"

-- Of adapter: qlora alone; bitsandbytes' NF4 with double quantisation unless bnb_config_kwargs say otherwise.
local function put_base(book, plan, config)
  local qlora = book:value "adapter" == "qlora"
  local four, eight = values.switch(book, "load_in_4bit"), values.switch(book, "load_in_8bit")
  if qlora and (eight or not four) then
    return book:refuse(eight and "load_in_8bit" or "adapter", "adapter: qlora goes with load_in_4bit: true, and not with load_in_8bit")
  end
  if eight then
    book:cannot("load_in_8bit", "weights are stored in 4 bits as NF4 (adapter.base) or as precision says, not in 8: more memory")
  end
  if not qlora then
    return book:no_effect("load_in_4bit", four and "adapter: qlora alone quantises the base there" or "it is off")
  end
  local kind, twice = book:value(BNB .. "bnb_4bit_quant_type") or "nf4", values.switch(book, BNB .. "bnb_4bit_use_double_quant")
  local fits = kind == "nf4" and twice ~= false and config[1] ~= "gpt2"
  for _, name in ipairs { "bnb_4bit_quant_type", "bnb_4bit_use_double_quant" } do
    if fits then book:translated(BNB .. name, "adapter.base") else book:cannot(BNB .. name, OTHER_BITS) end
  end
  if not fits then return book:cannot("load_in_4bit", OTHER_BITS) end
  plan:put("adapter.base", quote.text "nf4", book:leaf "load_in_4bit")
  book:translated("load_in_4bit", "adapter.base")
  if config[1] == "falcon_h1" then
    book:assume("adapter.base", "out_proj of mixers is in 4 bits, too, which axolotl leaves out")
  end
end

local function say_rest(book)
  local init = book:value "peft_init_lora_weights"
  if init ~= nil and init ~= true and init ~= "true" then
    book:cannot("peft_init_lora_weights", "factors begin as PEFT's default has it: A uniform in +-1/sqrt(in), B at 0")
  end
  if book:value "lora_model_dir" ~= nil then
    book:cannot("lora_model_dir", string.format("a run begins at an adapter by adapter.from = %s, once it is there",
                                                quote.shown(quote.value(tostring(book:value "lora_model_dir")))))
  end
  if book:value "lora_fan_in_fan_out" == true then book:no_effect("lora_fan_in_fan_out", "how weights lie is the model's") end
end

local NONE = "there is no adapter"

-- Without one the settings of adapters are of no use.
local function say_none(book)
  for _, leaf in ipairs(book.leaves) do
    if string.find(leaf.key, "^lora_") and not string.find(leaf.key, "_kernel$") or string.find(leaf.key, "^peft_") then
      book:no_effect(leaf.key, NONE)
    end
  end
  for _, key in ipairs { "load_in_4bit", "load_in_8bit" } do
    if values.switch(book, key) then
      book:refuse(key, key .. " goes with an adapter alone, as there")
    else
      book:no_effect(key, "it is off")
    end
  end
end

-- Whether the plan trains an adapter. `loss`: "dpo", or nil.
function adapter.put(book, plan, config, loss)
  local kind = book:value "adapter"
  if kind == nil or kind == false then
    say_none(book)
    return false
  elseif kind ~= "lora" and kind ~= "qlora" then
    book:cannot("adapter", string.format("%s is no LoRA: the plan trains all parameters", quote.shown(kind)))
    return false
  end
  local has_experts = experts.has(config)
  plan:put("adapter.#", quote.text "lora", book:leaf "adapter")
  book:translated("adapter", "adapter")
  put_rank(book, plan, put_targets(book, plan, config, has_experts))
  put_dropout(book, plan, loss)
  put_flag(book, plan, "peft_use_dora", "dora")
  put_flag(book, plan, "peft_use_rslora", "rslora")
  put_saved(book, plan, config)
  put_base(book, plan, config)
  say_rest(book)
  return true
end

return adapter
