-- adapter.lua - what learns: LLaMA-Factory's lora, freeze and full as the fields adapter, groups and freeze.
local linears = use("import/automodel/adapter").linears_of
local quote = use "import/quote"
local scalar = use "import/scalar"
local targets = use "import/peft_targets"
local values = use "import/values"

local adapter = {}

-- "q_proj,v_proj", or a list of them, as a list of names; nil: it is none.
local function names_of(book, key)
  local value, list = book:value(key), {}
  if type(value) == "string" then
    for name in string.gmatch(value, "[^,]+") do list[#list + 1] = string.match(name, "^%s*(.-)%s*$") end
  elseif type(value) == "table" then
    for _, name in ipairs(value) do list[#list + 1] = tostring(name) end
  elseif value ~= nil then
    book:refuse(key, string.format("%s = %s: expected names with commas between them", key, quote.shown(value)))
  end
  for _, name in ipairs(list) do
    if not string.find(name, "^[%w_.*-]+$") then
      book:refuse(key, string.format("%s: %s is no name of a module", key, quote.shown(name)))
      return nil
    end
  end
  return #list > 0 and list or nil
end

-- Whether one table is both embeddings and head: a config says it, or its architecture.
local function is_tied(config)
  if config.tie_word_embeddings ~= nil then return config.tie_word_embeddings == true end
  return use("models/" .. config[1]).defaults.tie_word_embeddings == true
end

-- ---- LoRA ----

-- Whether gate and up of experts have twice the rank.
local function put_named(book, plan, config, experts, names)
  local key, found, lacks = "lora_target", targets.of(config, experts), {}
  for _, name in ipairs(names) do
    if not targets.add(found, name) then lacks[#lacks + 1] = quote.shown(name) end
  end
  local any, twice = targets.write(book, plan, found, key, book:leaf(key))
  if not any and #book.refused == 0 then
    book:refuse(key, string.format("names no linear of the model, which has %s", table.concat(targets.linears(config, experts), ", ")))
  end
  targets.say_lacking(book, lacks)
  book:translated(key, "adapter.targets")
  return twice
end

-- All linears but the head, which is what all-linear is. Of models with experts Transformers 5 has their weights as
-- parameters, not as linears. Whether gate and up of experts have twice the rank.
local function put_targets(book, plan, config, experts)
  local key = "lora_target"
  local names = names_of(book, key)
  if not names or #names == 1 and names[1] == "all" then
    local list = experts and linears(config, true)
    plan:put("adapter.targets", list and quote.value(list) or quote.text "all-linear",
             book:leaf(key) or "LLaMA-Factory's default")
    if experts then
      book:assume("adapter.targets", "linears beside the experts, as Transformers 5 has them; before it each expert's are linears, "
                  .. "too: adapter.target_parameters, and so is the router")
    end
  else
    return put_named(book, plan, config, experts, names)
  end
  book:translated(key, "adapter.targets")
end

-- Modules with all their parameters, which learn beside the adapter. Where one table is both embeddings and head
-- there is none of them alone.
local TABLES = { embed_tokens = true, lm_head = true, wte = true }
local function put_saved(book, plan, config)
  local key = "additional_target"
  local names = names_of(book, key)
  if not names then return end
  local saved = {}
  for _, name in ipairs(names) do
    if TABLES[name] and is_tied(config) then
      book:cannot(key, "the table of embeddings is the head's, too, and stays as it is: tie_word_embeddings = false of the model gives "
                  .. "each its own")
    else
      saved[#saved + 1] = name
    end
  end
  if #saved > 0 then plan:put("adapter.modules_to_save", quote.value(saved), book:leaf(key)) end
  book:translated(key, "adapter.modules_to_save")
end

-- disable_dropout_in_model is what the trainers of pairs begin with, but v1's.
local function put_dropout(book, plan, m)
  local key = "lora_dropout"
  local rate = values.rate(book, key)
  if not rate then return book:no_effect(key, "nothing is dropped") end
  if not m.v1 and (m.stage == "dpo" or m.stage == "kto") then
    return book:no_effect(key, "LLaMA-Factory drops nothing in stage " .. m.stage)
  end
  if plan:has "adapter.target_parameters" then
    return book:refuse(key, "adapters of experts, which lora_target names, take no dropout in PEFT: leave it out")
  end
  plan:put("adapter.dropout", quote.value(rate), book:leaf(key))
  book:translated(key, "adapter.dropout")
end

local function put_number(book, plan, key, field, usual, why)
  local n = values.whole(book, key, 1) or usual
  plan:put(field, quote.value(n), book:leaf(key) or why)
  book:translated(key, field)
  return n
end

-- 0 is as if alpha were not given.
local function put_alpha(book, plan, rank)
  local key = "lora_alpha"
  local alpha = values.positive(book, key) or 0
  local leaf = alpha > 0 and book:leaf(key)
  if alpha == 0 then alpha = 2 * rank end
  plan:put("adapter.alpha", quote.value(alpha), leaf or "LLaMA-Factory's default: twice the rank")
  book:translated(key, "adapter.alpha")
  return alpha
end

local function put_switches(book, plan)
  for key, field in pairs { use_rslora = "adapter.rslora", use_dora = "adapter.dora" } do
    if key == "use_dora" and values.flag(book, key) and plan:has "adapter.target_parameters" then
      book:refuse(key, "adapters of experts, which lora_target names, are no DoRA in PEFT: leave it out")
    elseif values.flag(book, key) then
      plan:put(field, "true", book:leaf(key))
      book:translated(key, field)
    end
    book:no_effect(key, "it is off")
  end
end

-- A rate of its own for each B, and for what has one dimension: magnitudes of DoRA.
local MODULES = { q_proj = "self_attn", k_proj = "self_attn", v_proj = "self_attn", o_proj = "self_attn", gate_proj = "mlp",
                  up_proj = "mlp", down_proj = "mlp" }

local function put_plus(book, plan, config, experts, foreign)
  local key = "loraplus_lr_ratio"
  if foreign then book:no_effect(key, foreign) end
  local ratio = not foreign and values.positive(book, key)
  if not ratio then return end
  local names = names_of(book, "lora_target")
  if plan:has "adapter.target_parameters" then
    return book:cannot(key, "groups of the plan take a factor of the rate for adapters of linears, and these are of experts, too")
  end
  if not names or names[1] == "all" then names = linears(config, experts) end
  local patterns = {}
  for _, name in ipairs(names or {}) do
    if not MODULES[name] then
      return book:cannot(key, "groups of the plan take a factor of the rate: of this model's modules each B needs its name in one")
    end
    local module = string.format("layers.*.%s.%s.", MODULES[name], name)
    patterns[#patterns + 1] = module .. "lora_B"
    if plan:has "adapter.dora" then patterns[#patterns + 1] = module .. "lora_magnitude_vector" end
  end
  if #patterns == 0 or ratio == 0 then return book:cannot(key, "the rate of each B is that of all") end
  plan:put("groups", string.format("{ { %s, lr = %s } }", string.sub(quote.value(patterns), 3, -3), quote.value(ratio)), book:leaf(key))
  book:translated(key, "groups")
end

-- A folder below the plan's, of one adapter.
local function put_from(book, plan)
  local key = "adapter_name_or_path"
  local value = book:value(key)
  if value == nil then return end
  if type(value) == "string" and values.folder(value) and not string.find(value, ",") then
    return book:cannot(key, string.format("an adapter begins anew: from = %s of the plan's adapter begins at a folder that is there",
                                          quote.shown(quote.text(value), 250)))
  end
  book:cannot(key, "an adapter begins anew: adapter.from is a folder below the plan's, of one adapter")
end

-- bitsandbytes' NF4 with scales that are quantized, too, which are LLaMA-Factory's defaults.
local function put_base(book, plan)
  local bits = values.whole(book, "quantization_bit", 1)
  local kind, double = book:value "quantization_type" or "nf4", values.flag(book, "double_quantization")
  local method = book:value "quantization_method" or "bnb"
  local all = { "quantization_bit", "quantization_type", "double_quantization", "quantization_method" }
  if not bits then
    for _, key in ipairs(all) do book:no_effect(key, "quantization_bit is not given") end
    return
  end
  if bits == 4 and kind == "nf4" and double ~= false and (method == "bnb" or method == "bitsandbytes") then
    plan:put("adapter.base", quote.text "nf4", book:leaf "quantization_bit")
    for _, key in ipairs(all) do book:translated(key, "adapter.base") end
    return
  end
  for _, key in ipairs(all) do
    book:cannot(key, "the base is stored in 4 bits as NF4 with double quantisation alone (adapter.base): here it has the type of "
                .. "precision")
  end
end

-- Megatron-Bridge is told the rank and alpha alone (train/megatron_bridge/config_builder.py).
local UNTOLD = { "additional_target", "lora_dropout", "use_rslora", "use_dora", "adapter_name_or_path", "quantization_type",
                 "double_quantization", "quantization_method" }
-- Linears beside linear_proj, linear_fc1 and linear_fc2, where queries, keys and values are no linear_qkv.
local OF_BRIDGE = { deepseek_v3 = { "o_proj", "gate_proj", "up_proj", "down_proj" } }

local function put_of_bridge(book, plan, m, config)
  local names = names_of(book, "lora_target")
  if names and names[1] ~= "all" then
    book:no_effect("lora_target", "below Megatron-Bridge linear_qkv, linear_proj, linear_fc1 and linear_fc2 have factors, whatever it says")
  end
  local list = OF_BRIDGE[config[1]] or m.experts and linears(config, true)
  plan:put("adapter.targets", list and quote.value(list) or quote.text "all-linear", "those of LLaMA-Factory below Megatron-Bridge")
  book:translated("lora_target", "adapter.targets")
  book:assume("adapter.targets", "factors beside each of q, k, v, gate and up; Megatron-Bridge's fused linears have one pair for all")
  if m.experts then
    book:assume("adapter.targets", "experts have no factors; Megatron-Bridge's do, as linear_fc1 and linear_fc2 are theirs, too")
  end
  for _, key in ipairs(UNTOLD) do book:no_effect(key, "LLaMA-Factory does not tell Megatron-Bridge of it") end
  if book:value "quantization_bit" ~= nil then
    book:refuse("quantization_bit", "below Megatron-Bridge LLaMA-Factory takes no model that is quantized")
  end
end

local function put_lora(book, plan, m, config, foreign)
  plan:put("adapter.#", quote.text "lora", book:leaf "finetuning_type" or "LLaMA-Factory's default")
  local rank = put_number(book, plan, "lora_rank", "adapter.rank", 8, "LLaMA-Factory's default")
  local alpha = put_alpha(book, plan, rank)
  if m.bridge then
    put_of_bridge(book, plan, m, config)
  else
    if put_targets(book, plan, config, m.experts) then targets.put_twice(plan, rank, alpha) end
    put_saved(book, plan, config)
    put_dropout(book, plan, m)
    put_switches(book, plan)
    put_from(book, plan)
    put_base(book, plan)
  end
  put_plus(book, plan, config, m.experts, foreign)
  book:translated("finetuning_type", "adapter")
  local decay = tonumber(book:value "weight_decay") or 0
  if decay > 0 and plan:has "adapter.dora" then
    book:assume("adapter.dora", "magnitudes of features do not decay; Transformers' trainer lets them decay")
  end
end

-- ---- freeze ----

-- Parts of a layer, by the first step of their names below it.
local PARTS = { llama = { "self_attn", "mlp", "input_layernorm", "post_attention_layernorm" } }
for name in string.gmatch("mistral qwen2 qwen3 qwen3_moe mixtral gemma granite phi3 smollm3 seed_oss ministral", "%S+") do
  PARTS[name] = PARTS.llama
end

-- What stands before and behind the layers.
local function ends_of(config)
  if config[1] == "gpt2" then return { "wte", "wpe", "ln_f" } end
  local list = { "embed_tokens", "norm" }
  if not is_tied(config) then list[#list + 1] = "lm_head" end
  return list
end

local function has(list, name)
  for _, one in ipairs(list or {}) do
    if one == name then return true end
  end
  return false
end

-- Layers that learn, from 0: the last n, the first -n, or, of LLaMA Pro, the last one of n blocks.
local function trained_layers(book, n, layers)
  local trains = {}
  if values.flag(book, "use_llama_pro") and n > 0 and layers % n == 0 then
    for i = layers // n - 1, layers - 1, layers // n do trains[i] = true end
  else
    for i = 0, layers - 1 do trains[i] = n > 0 and i >= layers - n or n < 0 and i < -n end
  end
  return trains
end

-- Adds to a list the parts of a layer but those of `names`, and, with `norms`, but all norms.
local function add_parts(list, layer, parts, names, norms)
  for _, part in ipairs(parts) do
    local learns = has(names, part) or norms and string.find(part, "norm$")
    local modules = norms and part == "self_attn" and { "q_proj", "k_proj", "v_proj", "o_proj" } or {}
    for _, module in ipairs(modules) do
      if not learns then list[#list + 1] = string.format("%s.%s.%s", layer, part, module) end
    end
    if not learns and #modules == 0 then list[#list + 1] = layer .. "." .. part end
  end
end

-- `norms`: whether extra modules have "norm", which LLaMA-Factory finds in the names of all norms.
local function frozen_patterns(book, config, trains, layers, names, norms)
  local extra, list = names_of(book, "freeze_extra_modules"), {}
  for _, name in ipairs(ends_of(config)) do
    if not has(extra, name) then list[#list + 1] = name end
  end
  for i = 0, layers - 1 do
    local layer = (config[1] == "gpt2" and "h." or "layers.") .. i
    if not trains[i] and not norms then
      list[#list + 1] = layer
    elseif not trains[i] or names then
      add_parts(list, layer, PARTS[config[1]], trains[i] and names, norms)
    end
  end
  return list
end

local function put_freeze(book, plan, config)
  local key, which = "freeze_trainable_layers", "freeze_trainable_modules"
  local n = scalar.integer(book:value(key) or 2)
  if not n or n == 0 or math.abs(n) > 1e6 then
    return book:refuse(key, string.format("%s = %s: expected a number of layers; below 0 the first ones", key,
                                          quote.shown(book:value(key))))
  end
  local layers = scalar.integer(config.num_hidden_layers)
  local names, norms = names_of(book, which), has(names_of(book, "freeze_extra_modules"), "norm")
  if names and has(names, "all") then names = nil end
  if not layers or layers > 1000 or (names or norms) and not PARTS[config[1]] then
    book:cannot(key, "freeze of the plan names what does not learn by its modules, which are not known of this model: all of it learns")
    book:cannot("freeze_extra_modules", "see freeze_trainable_layers")
    return book:cannot(which, "see freeze_trainable_layers")
  end
  for _, name in ipairs(names or {}) do
    if not has(PARTS[config[1]], name) then
      return book:refuse(which, string.format("%s is no module of a layer: %s", quote.shown(name),
                                              table.concat(PARTS[config[1]], ", ")))
    end
  end
  local list = frozen_patterns(book, config, trained_layers(book, n, layers), layers, names, norms)
  if #list > 0 then plan:put("freeze", quote.value(list), book:leaf(key) or "LLaMA-Factory's default: the last 2 layers learn") end
  if norms then
    book:translated("freeze_extra_modules", "freeze; norms of all layers learn, too, as LLaMA-Factory finds norm in their names")
  end
  for _, one in ipairs { key, which, "freeze_extra_modules" } do book:translated(one, "freeze") end
  if values.flag(book, "use_llama_pro") then book:no_effect("use_llama_pro", "freeze says which layers learn") end
  book:translated("finetuning_type", "freeze")
end

-- ---- which of them ----

local LORA = { "lora_rank", "lora_alpha", "lora_target", "additional_target", "lora_dropout", "use_rslora", "use_dora",
               "loraplus_lr_ratio", "quantization_bit", "quantization_type", "double_quantization", "quantization_method",
               "adapter_name_or_path" }
local FREEZE = { "freeze_trainable_layers", "freeze_trainable_modules", "freeze_extra_modules" }

-- Below Megatron: mcore_adapter trains all parameters, and so does Megatron-Bridge but in stage sft.
function adapter.settle(book, m)
  if m.bridge and m.stage ~= "pt" and m.stage ~= "sft" then
    book:refuse("stage", "below Megatron-Bridge LLaMA-Factory trains in stages pt and sft alone")
  end
  local key = "finetuning_type"
  if m.bridge and m.kind ~= "full" and m.kind ~= "lora" then
    return book:refuse(key, string.format("%s = %s: below Megatron-Bridge LLaMA-Factory takes full and lora", key, m.kind))
  end
  if not m.megatron or m.kind == "full" or m.bridge and m.stage == "sft" then return end
  m.kind = "full"
  m.whole = (m.bridge and "Megatron-Bridge in stage pt" or "mcore_adapter") .. " trains all parameters"
  book:no_effect(key, m.whole .. ", whatever it says")
  book:assume("adapter", string.format("none: %s%s", m.whole, m.bridge and ""
                                       or "; use_megatron_bridge: true says that Megatron-Bridge trains, which has LoRA in stage sft"))
end

-- `m.kind`: lora, full, freeze or oft. `foreign`: why there is no
-- optimizer of LLaMA-Factory's own, or nil.
function adapter.put(book, plan, m, config, foreign)
  if m.kind == "lora" then
    put_lora(book, plan, m, config, foreign)
  elseif m.kind == "freeze" then
    put_freeze(book, plan, config)
  elseif m.kind == "oft" then
    book:cannot("finetuning_type", "adapters are of low rank: the plan trains all parameters")
    for _, key in ipairs { "quantization_bit", "additional_target" } do
      book:cannot(key, "there is no adapter: the plan trains all parameters")
    end
  else
    book:translated("finetuning_type", "adapter, none: all parameters learn")
  end
  for _, key in ipairs(LORA) do book:no_effect(key, m.whole or "it counts with finetuning_type: lora alone") end
  for _, key in ipairs(FREEZE) do book:no_effect(key, m.whole or "it counts with finetuning_type: freeze alone") end
end

return adapter
