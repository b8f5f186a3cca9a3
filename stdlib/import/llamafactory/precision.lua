-- precision.lua - the number formats of LLaMA-Factory's arguments, what runs again in the backward, and what the
-- head computes in pieces.
local quote = use "import/quote"
local v1 = use "import/llamafactory/v1"
local values = use "import/values"

local precision = {}

-- ---- formats ----

-- Autocast over parameters in f32 (model/adapter.py): what learns has f32 master weights and f32 gradients. FSDP sums
-- gradients in the type that computes, as Accelerate sets it.
local function put_autocast(book, plan, kind, key, strategy)
  local from = book:leaf(key)
  book:translated(key, "precision")
  if strategy ~= "fsdp2" then return plan:put("precision.param_dtype", quote.text(kind), from) end
  plan:put("precision.param_dtype", quote.text(kind), from)
  local field = kind == "bf16" and "precision.reduce_dtype" or "precision.grad_dtype"
  plan:put(field, quote.text(kind), "Accelerate's FSDP sums gradients in it")
end

-- Parameters that learn, their gradients and averages in bf16.
local function put_pure(book, plan)
  local from = book:leaf "pure_bf16"
  for _, field in ipairs { "param_dtype", "master_dtype", "grad_dtype" } do
    plan:put("precision." .. field, quote.text "bf16", from)
  end
  book:translated("pure_bf16", "precision.master_dtype")
end

-- Who makes what learns f32 in spite of pure_bf16, as the end of a sentence; nil: nobody.
local function f32_by(m, strategy, ds)
  if m.megatron then return "Megatron has f32 master weights: it is not read there" end
  if m.kind == "lora" or m.kind == "oft" then return "PEFT makes factors f32" end
  if ds and m.zero > 0 then return "ZeRO has f32 master weights" end
  if not m.bf16 and not m.fp16 then return nil end
  if ds then return "DeepSpeed has f32 master weights beside bf16 and fp16" end
  return strategy == "fsdp2" and "Accelerate makes what learns under FSDP f32 where bf16 or fp16 is given" or nil
end

-- A base in bf16 below factors in f32 (autocast_adapter_dtype of PEFT), whose gradients and averages are f32, too.
local function put_pure_base(book, plan)
  plan:put("precision.param_dtype", quote.text "bf16", book:leaf "pure_bf16")
  book:translated("pure_bf16", "precision")
  book:assume("precision", "what learns has f32 master weights, gradients and averages, as PEFT makes factors f32 where the base is in "
              .. "bf16; there they compute in f32, too, and what additional_target names learns in bf16")
end

-- Neither bf16 nor fp16: what learns is f32, and so is all that computes, unless the base of an adapter has the type of
-- its files.
local function put_plain(book, plan, m)
  if m.kind == "full" or m.kind == "freeze" then
    if m.kind == "freeze" then
      book:assume("precision", "f32: frozen layers compute in the type of their files there, as neither bf16 nor fp16 is given")
    end
    return plan:put("precision.param_dtype", quote.text "f32", "neither bf16 nor fp16")
  end
  plan:put("precision.param_dtype", quote.text "bf16", "the type of most public weights")
  book:assume("precision", "bf16: neither bf16 nor fp16 is given, so the base computes in the type of its files, and factors "
              .. "in f32 there")
end

local RECIPE = { auto = true, torchao = true }

-- LLaMA-Factory asks torchao for rowwise scales (train/fp8_utils.py), of linears but the head.
local function put_fp8(book, plan, m)
  local key, by = "fp8", "fp8_backend"
  if not m.fp8 then
    book:no_effect(key, "it is off")
    return book:no_effect(by, "fp8 is off")
  end
  if not m.bf16 then
    book:cannot(key, "products in fp8 are beside bf16: precision is as without it")
    return book:cannot(by, "see fp8")
  end
  local backend = book:value(by) or "auto"
  if not RECIPE[backend] then
    book:cannot(by, string.format("%s scales operands by their history, or otherwise than weft: products are in bf16",
                                  quote.shown(backend)))
    return book:cannot(key, "see fp8_backend")
  end
  plan:put("precision.#", quote.text "fp8", book:leaf(key))
  plan:put("precision.recipe", quote.text "rowwise", "LLaMA-Factory's, of torchao")
  book:translated(key, "precision")
  book:translated(by, "precision.recipe")
  book:assume("precision.recipe", "rowwise, which LLaMA-Factory asks for; versions of Accelerate that do not take what it asks for "
              .. "have tensorwise scales")
end

-- Megatron-Bridge is told mixed_precision alone (train/megatron_bridge/config_builder.py), and has f32 master weights
-- and gradients.
local function put_of_bridge(book, plan, m)
  local key = "mixed_precision"
  local name = tostring(book:value(key) or "bf16_mixed")
  local kind = string.find(name, "bf16", 1, true) and "bf16" or string.find(name, "fp16", 1, true) and "f16"
  if not kind then
    return book:refuse(key, string.format("%s = %s: expected bf16_mixed, fp16_mixed, or a name of Megatron-Bridge's with one of them",
                                          key, quote.shown(name)))
  end
  plan:put("precision.param_dtype", quote.text(kind), book:leaf(key) or "LLaMA-Factory's default below Megatron-Bridge")
  if string.find(name, "fp8", 1, true) then
    book:cannot(key, string.format("products are in %s: precision = \"fp8\" has recipes", kind))
  end
  book:translated(key, "precision")
  for _, one in ipairs { "bf16", "fp16", "pure_bf16", "fp8", "fp8_backend" } do
    book:no_effect(one, "below Megatron-Bridge mixed_precision says it")
  end
  m.pure = false
end

-- `ds`: DeepSpeed's settings, which have put theirs already, or nil.
function precision.put(book, plan, m, strategy, ds)
  if m.bf16 and m.fp16 then
    return book:refuse("fp16", "fp16 and bf16 are both true, which Transformers refuses")
  end
  if m.bridge then return put_of_bridge(book, plan, m) end
  put_fp8(book, plan, m)
  local by = m.pure and f32_by(m, strategy, ds)
  if by then m.pure = false end
  if m.v1 and not ds then
    v1.put_precision(book, plan, m, strategy)
  elseif m.pure then
    put_pure(book, plan)
    book:no_effect("bf16", "pure_bf16 says it")
  elseif ds then
    if by and not m.bf16 and not m.fp16 then book:translated("pure_bf16", "precision, of what computes alone, as " .. by) end
    for _, key in ipairs { "bf16", "fp16" } do book:translated(key, "precision, by DeepSpeed's settings") end
  elseif m.bf16 or m.fp16 then
    put_autocast(book, plan, m.bf16 and "bf16" or "f16", m.bf16 and "bf16" or "fp16", strategy)
    if m.fp16 and m.kind == "lora" then
      book:assume("precision", "what is frozen is stored in f16, in which it computes; there in the type of its files")
    end
  elseif by and not m.megatron then
    put_pure_base(book, plan)
  else
    put_plain(book, plan, m)
  end
  book:no_effect("bf16", "it is off")
  book:no_effect("fp16", "it is off")
  book:no_effect("pure_bf16", by or "it is off")
end

-- ---- recompute ----

local GRANULARITY = { full = "full", selective = "selective" }

local function put_granularity(book, plan)
  local key, value = "recompute_granularity", book:value "recompute_granularity"
  if value ~= nil and not GRANULARITY[value] then
    return book:refuse(key, string.format("%s = %s: expected full or selective", key, quote.shown(value)))
  elseif value ~= nil then
    plan:put("recompute", quote.text(value), book:leaf(key))
    book:translated(key, "recompute")
  end
  for _, name in ipairs { "disable_gradient_checkpointing", "gradient_checkpointing" } do
    book:no_effect(name, "recompute_granularity says what runs again in Megatron")
  end
end

-- Layers run again unless that is switched off, whatever Transformers' own argument says; that switches it on, too.
function precision.put_recompute(book, plan, m)
  if m.megatron then return put_granularity(book, plan) end
  local off = values.flag(book, "disable_gradient_checkpointing")
  local on = values.flag(book, "gradient_checkpointing")
  if not off then
    plan:put("recompute", quote.text "full", book:leaf "disable_gradient_checkpointing" or "LLaMA-Factory's default")
    book:translated("disable_gradient_checkpointing", "recompute")
    book:no_effect("gradient_checkpointing", "LLaMA-Factory has it on")
  elseif on then
    plan:put("recompute", quote.text "full", book:leaf "gradient_checkpointing")
    book:translated("gradient_checkpointing", "recompute")
    book:no_effect("disable_gradient_checkpointing", "gradient_checkpointing has it on")
  end
  book:translated("disable_gradient_checkpointing", "recompute, none")
  book:no_effect("gradient_checkpointing", "it is off")
end

-- ---- the head in pieces ----

local F32 = quote.text "f32"

local function caps_logits(config)
  local cap = config.final_logit_softcapping
  if cap == nil then cap = use("models/" .. config[1]).defaults.final_logit_softcapping end
  return cap and true or false
end

-- Liger's head and cross entropy are one kernel in stages pt and sft, and never have the logits of all rows.
function precision.put_liger(book, plan, m, config)
  local key = "enable_liger_kernel"
  if not values.flag(book, key) then return book:no_effect(key, "it is off") end
  local saved = (plan:source "adapter.targets" or "") .. (plan:source "adapter.modules_to_save" or "")
  if m.stage ~= "pt" and m.stage ~= "sft" or m.own_loss then
    return book:no_effect(key, "which kernels compute does not change the plan; this loss needs the logits")
  elseif (plan:source "precision.grad_dtype" or F32) ~= F32 or string.find(saved, "lm_head", 1, true) or caps_logits(config) then
    return book:cannot(key, "the same numbers; the logits are in memory here, as loss_chunks needs gradients in f32 of a head that "
                       .. "has no adapter and caps nothing: more memory")
  end
  plan:put("loss_chunks", quote.text "auto", book:leaf(key))
  book:translated(key, "loss_chunks")
end

return precision
