-- precision.lua - number formats of axolotl's recipes. bf16, fp16 and float32 are the type of the model's weights
-- as it is loaded (resolve_dtype of axolotl/utils/config), so that without an adapter, DeepSpeed or FSDP 1 there
-- are no f32 master weights. What is "auto" there is taken for a GPU that has it.
local quote = use "import/quote"
local values = use "import/values"
local precision = {}

-- A switch that may also be "auto", or another word of `words`.
local function switch_or(book, key, words)
  local value = book:value(key)
  if type(value) == "string" and words[value] then return value end
  return values.switch(book, key)
end

-- { compute =, weights =, key = the setting that says it, or nil }. Of bf16: full there is no autocast.
function precision.kind(book)
  local bf16 = switch_or(book, "bf16", { auto = true, full = true })
  local half = values.switch(book, "fp16")
  -- A null takes the place of "auto".
  if bf16 == nil then bf16 = not book:leaf "bf16" and "auto" end
  if bf16 == "auto" then bf16 = not half end
  if bf16 then return { compute = "bf16", weights = "bf16", key = book:value "bf16" ~= nil and "bf16" or nil } end
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

-- Weights are stepped in their own type.
local function put_low_masters(book, plan, kind, strategy)
  local from = kind.key and book:leaf(kind.key) or "axolotl's default: weights have this type"
  if kind.weights ~= "bf16" then
    return book:assume("precision", "master weights are f32; there weights are f16, which its scaler of gradients refuses "
                       .. "to step")
  end
  plan:put("precision.master_dtype", quote.text "bf16", from)
  plan:put("precision.grad_dtype", quote.text "bf16", from)
  if strategy ~= "fsdp2" and not book:value "attn_implementation" and not book:value "flash_attention" then
    book:assume("precision", "all weights are bf16; axolotl keeps those of norms and embeddings in f32 where no "
                .. "attn_implementation but eager or sdpa is asked for")
  end
end

-- Whether factors of adapters are bf16: trl's DPOTrainer casts what learns beside a quantised base, and axolotl's builder
-- (core/builders/rl.py) all with FSDP 2. FSDP 1 makes f32 of it again.
local function casts_factors(book, plan, strategy, loss)
  if loss ~= "dpo" or strategy.version == 1 then return false end
  return strategy.version == 2 or plan:has "adapter.base" or values.switch(book, "load_in_8bit") or false
end

-- `strategy`: { name =, version = of FSDP }. With DeepSpeed its file says the types. `loss`: "dpo", or nil.
function precision.put(book, plan, kind, strategy, adapted, loss)
  say_names(book, kind)
  if strategy.name == "zero" and strategy.file then
    return book:no_effect("fp8", "it is off, or as without it")
  end
  local from = kind.key and book:leaf(kind.key) or "axolotl's default: auto, of a GPU that has bf16"
  local casts = adapted and casts_factors(book, plan, strategy, loss)
  local cast = casts and kind.weights == "bf16"
  if casts and not cast and (kind.weights == "f16" or strategy.version ~= 2) then
    book:assume("precision", string.format("factors of adapters are f32; training of pairs casts them to %s there",
                                           strategy.version == 2 and "f16" or "bf16"))
  end
  local low = cast or kind.weights ~= "f32" and (adapted and book:value "peft_autocast_adapter_dtype" == false
                                                 or not adapted and strategy.version ~= 1)
  plan:put("precision.param_dtype", quote.text(kind.compute), from)
  if low then put_low_masters(book, plan, kind, strategy.name) end
  if strategy.name == "fsdp2" and kind.compute == "bf16" then
    plan:put("precision.reduce_dtype", quote.text "bf16", "Accelerate's FSDP sums gradients in it")
  elseif strategy.name == "fsdp2" and kind.compute == "f16" then
    book:assume("precision", "gradients are summed in f32; Accelerate's FSDP sums them in f16")
  end
  local key = "peft_autocast_adapter_dtype"
  if cast then book:no_effect(key, "factors of adapters are bf16 there: training of pairs casts them") end
  if adapted and low then book:translated(key, "precision.master_dtype") end
  book:no_effect(key, adapted and "factors of adapters are f32, with products in the type of precision" or "there is no adapter")
end

return precision
