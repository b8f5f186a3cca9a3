-- precision.lua - number formats of axolotl's recipes. bf16, fp16 and float32 are the type of the model's weights
-- as it is loaded (resolve_dtype of axolotl/utils/config), so that without an adapter, DeepSpeed or FSDP 1 there
-- are no f32 master weights. What is "auto" there is taken for a GPU that has it.
local attention = use "import/axolotl/attention"
local experts = use "import/automodel/experts"
local quote = use "import/quote"
local training = use "import/axolotl/training"
local values = use "import/values"
local precision = {}

-- A switch that may also be "auto", or another word of `words`.
local function switch_or(book, key, words)
  local value = book:value(key)
  if type(value) == "string" and words[value] then return value end
  return values.switch(book, key)
end

-- { compute =, weights =, key = the setting that says it, or nil, full = bf16: full, without autocast }.
function precision.kind(book)
  local bf16 = switch_or(book, "bf16", { auto = true, full = true })
  local half = values.switch(book, "fp16")
  -- A null takes the place of "auto".
  if bf16 == nil then bf16 = not book:leaf "bf16" and "auto" end
  if bf16 == "auto" then bf16 = not half end
  if bf16 then return { compute = "bf16", weights = "bf16", full = bf16 == "full", key = book:value "bf16" ~= nil and "bf16" or nil } end
  if values.switch(book, "bfloat16") then return { compute = "bf16", weights = "bf16", key = "bfloat16" } end
  if half then return { compute = "f16", weights = "f16", key = "fp16" } end
  if values.switch(book, "float16") then return { compute = "f16", weights = "f16", key = "float16" } end
  return { compute = "f32", weights = "f32", key = book:leaf "bf16" and "bf16" }
end

local NAMES = { "bf16", "fp16", "bfloat16", "float16", "float32" }

local function say_names(book, kind)
  if kind.key then book:translated(kind.key, "precision.param_dtype") end
  for _, name in ipairs(NAMES) do
    book:no_effect(name, string.format("the numbers are %s, as the others of these settings say", kind.compute))
  end
  if book:value "tf32" == true and kind.compute == "f32" then
    book:cannot("tf32", "products of f32 are in f32, not in tf32")
  end
  book:no_effect("tf32", "it is about products of f32 alone")
end

-- What of full fine-tuning is f32 without FSDP (loaders/model.py): routers of the name gate, and where neither attention
-- nor Cut Cross Entropy needs another type, embeddings, head and norms.
local function say_f32(book, strategy, config)
  if strategy.version then return end
  local parts = {}
  if experts.has(config) then parts[1] = "routers of the name gate in f32" end
  if attention.takes_f32(attention.of(book)) and not training.cuts_head(book) then
    parts[#parts + 1] = "embeddings, head and norms in f32 with an attn_implementation of sdpa, eager or none"
  end
  if #parts > 0 then book:assume("precision", "all weights are bf16; axolotl has " .. table.concat(parts, ", and ")) end
end

-- Weights are stepped in their own type.
local function put_low_masters(book, plan, kind)
  local from = kind.key and book:leaf(kind.key) or "axolotl's default: weights have this type"
  if kind.weights ~= "bf16" then
    return book:assume("precision", "master weights are f32; there weights are f16, which its scaler of gradients refuses "
                       .. "to step")
  end
  plan:put("precision.master_dtype", quote.text "bf16", from)
  plan:put("precision.grad_dtype", quote.text "bf16", from)
end

-- ---- adapters ----

local AUTOCAST = "peft_autocast_adapter_dtype"
-- Losses whose adapter trl makes, which does not look at the setting.
local OF_TRL = { dpo = true, ipo = true, kto = true }

-- Whether factors of adapters are bf16: trl's DPOTrainer casts what learns beside a quantised base, and axolotl's builder
-- (core/builders/rl.py) all with FSDP 2.
local function casts_factors(book, plan, strategy, loss)
  if loss ~= "dpo" then return false end
  return strategy.version == 2 or plan:has "adapter.base" or values.switch(book, "load_in_8bit") or false
end

-- Whether factors of an adapter are lower than f32, which is PEFT's type of them.
local function has_low_factors(book, plan, kind, strategy, loss)
  local off = book:value(AUTOCAST) == false and not OF_TRL[book:value "rl"]
  if not casts_factors(book, plan, strategy, loss) then return off end
  if kind.weights == "bf16" then
    book:no_effect(AUTOCAST, "factors of adapters are bf16 there: training of pairs casts them")
    return true
  elseif kind.weights == "f16" or strategy.version ~= 2 then
    book:assume("precision", string.format("factors of adapters are f32; training of pairs casts them to %s there",
                                           strategy.version == 2 and "f16" or "bf16"))
  end
  return off
end

-- Of what learns whole beside an adapter, in the type of its base.
local SAVED = { bf16 = "in which they are stepped: less memory there, and small steps are lost", f16 = "which its scaler of gradients refuses to step" }

local function say_factors(book, plan, kind, adapted, low, upcast)
  if adapted and low then book:translated(AUTOCAST, "precision.master_dtype") end
  book:no_effect(AUTOCAST, not adapted and "there is no adapter" or upcast and "FSDP 1 makes factors of adapters f32"
                 or OF_TRL[book:value "rl"] and "trl makes the adapter, with factors in f32, and does not read it"
                 or "factors of adapters are f32, with products in the type of precision")
  if SAVED[kind.weights] and not low and not upcast and plan:has "adapter.modules_to_save" then
    book:assume("adapter.modules_to_save", string.format("these have f32 master weights, gradients and averages; PEFT leaves them in %s, %s",
                                                         kind.weights, SAVED[kind.weights]))
  end
end

-- ---- all ----

-- `strategy`: { name =, version = of FSDP }. With DeepSpeed its file says the types. `o`: { adapted =, loss =, config = }.
function precision.put(book, plan, kind, strategy, o)
  say_names(book, kind)
  if strategy.name == "zero" and strategy.file then
    return book:no_effect("fp8", "it is off, or as without it")
  end
  local from = kind.key and book:leaf(kind.key) or "axolotl's default: auto, of a GPU that has bf16"
  -- FSDP 1 makes f32 of lower types where Accelerate knows of another one to compute in.
  local upcast = strategy.version == 1 and not kind.full
  local as_weights = not o.adapted or not upcast and has_low_factors(book, plan, kind, strategy, o.loss)
  local low = kind.weights ~= "f32" and not upcast and as_weights
  plan:put("precision.param_dtype", quote.text(kind.compute), from)
  if low then put_low_masters(book, plan, kind) end
  if low and not o.adapted and kind.weights == "bf16" then say_f32(book, strategy, o.config) end
  if strategy.name == "fsdp2" and kind.compute == "bf16" then
    plan:put("precision.reduce_dtype", quote.text "bf16", "Accelerate's FSDP sums gradients in it")
  elseif strategy.name == "fsdp2" and kind.compute == "f16" then
    book:assume("precision", "gradients are summed in f32; Accelerate's FSDP sums them in f16")
  end
  say_factors(book, plan, kind, o.adapted, low, upcast)
end

return precision
