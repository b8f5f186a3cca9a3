-- optimizer.lua - the optimizer and the learning rate of LLaMA-Factory's arguments, which are those of
-- Transformers' trainer (training_args.py, trainer_optimizer.py, optimization.py).
local file_optimizer = use "import/llamafactory/file_optimizer"
local quote = use "import/quote"
local rate = use "import/llamafactory/rate"
local scalar = use "import/scalar"
local v1 = use "import/llamafactory/v1"
local trainer = use "import/trainer"
local values = use "import/values"

local optimizer = {}

-- ---- which ----

local ADAMW = {}
for name in string.gmatch([[adamw_torch adamw_torch_fused adamw_torch_xla adamw_torch_npu_fused adamw_apex_fused adamw_hf
  paged_adamw_32bit paged_adamw]], "%S+") do ADAMW[name] = true end
local IN_8_BITS = { adamw_bnb_8bit = true, adamw_8bit = true, paged_adamw_8bit = true }
local LION = { lion_32bit = true, paged_lion_32bit = true, lion = true, paged_lion = true }

-- Names that Transformers knows and weft has nothing of, but for other bits of what it has.
local OTHERS = {}
for name in string.gmatch([[adamw_anyprecision adamw_torch_4bit adamw_torch_8bit ademamix adagrad ademamix_8bit lion_8bit
  paged_ademamix_32bit paged_ademamix_8bit paged_lion_8bit rmsprop rmsprop_bnb rmsprop_bnb_8bit rmsprop_bnb_32bit
  galore_adamw galore_adamw_8bit galore_adafactor galore_adamw_layerwise galore_adamw_8bit_layerwise
  galore_adafactor_layerwise lomo adalomo grokadamw schedule_free_radam schedule_free_adamw schedule_free_sgd
  apollo_adamw apollo_adamw_layerwise stable_adamw flash_adamw flash_adam flash_sgd flash_sgdw flash_lion]], "%S+") do
  OTHERS[name] = true
end

-- ---- numbers ----

-- A number from 0 to below 1.
local function beta_of(book, key, usual)
  local value = book:value(key)
  local n = scalar.number(value)
  if value ~= nil and not (n and n >= 0 and n < 1) then
    book:refuse(key, string.format("%s = %s: expected a number from 0 to below 1", key, quote.shown(value)))
    return usual
  end
  return n or usual
end

local function put_betas(book, plan)
  local first, second = beta_of(book, "adam_beta1", 0.9), beta_of(book, "adam_beta2", 0.999)
  plan:put("optimizer.betas", quote.value { first, second }, book:leaf "adam_beta1" or book:leaf "adam_beta2"
           or "Transformers' default")
  for _, key in ipairs { "adam_beta1", "adam_beta2" } do book:translated(key, "optimizer.betas") end
end

local function put_eps(book, plan)
  if values.put_positive(book, plan, "adam_epsilon", "optimizer.eps") == nil then
    plan:put("optimizer.eps", "1e-08", "Transformers' default")
  end
end

local function put_adam(book, plan)
  put_betas(book, plan)
  put_eps(book, plan)
end

-- "momentum=0.9,nesterov=true" of SGD.
local NUMBERS = { momentum = true, dampening = true }
local function put_sgd(book, plan)
  local key, value = "optim_args", book:value "optim_args"
  for word in string.gmatch(type(value) == "string" and value or "", "[^,%s]+") do
    local name, text = string.match(word, "^([%w_]+)=(.*)$")
    local n = scalar.number(text)
    if NUMBERS[name] and n and n >= 0 and n <= 1 then
      plan:put("optimizer." .. name, quote.value(n), book:leaf(key))
    elseif name == "nesterov" then
      plan:put("optimizer.nesterov", tostring(string.lower(text) == "true" or text == "1"), book:leaf(key))
    else
      return book:cannot(key, quote.shown(word) .. " is no option of weft.sgd")
    end
  end
  book:translated(key, "optimizer.momentum")
end

-- LLaMA-Factory's own Muon (third_party/muon): its average is a sum, which is made orthogonal all the same.
local function put_muon(book, plan, m)
  if m.v1 then v1.put_muon(book, plan) end
  plan:put("optimizer.momentum", "0.95", "LLaMA-Factory's")
  plan:put("optimizer.nesterov", "true", "LLaMA-Factory's")
  plan:put("optimizer.ns_steps", "5", "LLaMA-Factory's")
  plan:put("optimizer.adjust_lr", quote.text "match_rms_adamw", "LLaMA-Factory's: 0.2 sqrt(max(A, B))")
  put_adam(book, plan)
  book:translated("use_muon", "optimizer")
  book:no_effect("optim", "use_muon says it")
  book:assume("optimizer", "Muon's iteration is in f32 here, in bf16 there, and its eps is beside another sum: the same matrices to "
              .. "rounding")
  if m.swaps then
    book:assume("optimizer", string.format("Muon steps here; LLaMA-Factory's ends with an error at its first step, as %s puts other "
                                           .. "parameters in the place of those that it knows", m.swaps))
  end
end

-- Where FSDP has one dimension of all.
local function put_flat(book, plan)
  put_adam(book, plan)
  book:translated("use_muon", "optimizer")
  book:no_effect("optim", "use_muon says it")
  book:assume("optimizer", "AdamW: LLaMA-Factory's Muon steps what has two dimensions, and the parameters of FSDP 1 have one")
end

-- ---- the builder ----

-- The builder, and what puts its options.
local function kind_of(book, m)
  local key, name = "optim", book:value "optim"
  if m.bridge then
    for _, one in ipairs { key, "optim_args", "use_muon" } do book:no_effect(one, "below Megatron-Bridge Adam steps, whatever it says") end
    return "weft.adamw", put_adam
  end
  if m.muon then return "weft.muon", put_muon end
  if m.flat then return "weft.adamw", put_flat end
  book:no_effect("use_muon", book:value "use_muon" and "loraplus_lr_ratio says it, which LLaMA-Factory asks for first" or "it is off")
  if name == nil then return "weft.adamw", put_adam end
  local kinds = name == "sgd" and { "weft.sgd", put_sgd } or name == "adafactor" and { "weft.adafactor", trainer.put_adafactor }
    or LION[name] and { "weft.lion", put_betas } or IN_8_BITS[name] and { "weft.adamw_8bit", put_adam }
    or ADAMW[name] and { "weft.adamw", put_adam }
  if kinds then
    book:translated(key, "optimizer")
    return kinds[1], kinds[2]
  elseif OTHERS[name] then
    book:cannot(key, string.format("%s is not in weft: the plan has AdamW with these numbers", quote.shown(name)))
  else
    book:refuse(key, string.format("%s = %s: is no optimizer of Transformers, such as adamw_torch, adamw_8bit, adafactor, lion_32bit "
                                   .. "or sgd", key, quote.shown(name)))
  end
  return "weft.adamw", put_adam
end

-- Norms and biases do not decay, but where all parameters do, as by LLaMA-Factory's Muon.
local function put_decay(book, plan, all)
  local decay = values.positive(book, "weight_decay")
  plan:put("optimizer.weight_decay", quote.value(decay or 0), decay and book:leaf "weight_decay" or "Transformers' default")
  if all and (decay or 0) > 0 then plan:put("optimizer.decay_vectors", "true", "norms and biases decay there, too") end
  book:translated("weight_decay", "optimizer.weight_decay")
end

-- Whether a table of embeddings learns.
local function trains_table(plan)
  local learns = plan:source "adapter.modules_to_save" or ""
  local frozen = plan:source "freeze" or ""
  local all = plan:has "adapter" and learns or frozen
  local found = string.find(all, "embed_tokens", 1, true) or string.find(all, '"wte"', 1, true)
  return plan:has "adapter" == (found ~= nil)
end

-- Transformers registers tables of embeddings with bitsandbytes, but not where LoRA+ makes the optimizer.
local function say_8_bits(book, plan, builder)
  if builder ~= "weft.adamw_8bit" or plan:has "groups" or not trains_table(plan) then return end
  book:assume("optimizer", "averages of tables of embeddings are in 8 bits as all others; Transformers gives these 32 bits: more memory there")
end

-- Whose states have the type of what they step.
local IN_TYPE = { ["weft.adamw"] = true, ["weft.lion"] = true, ["weft.sgd"] = true, ["weft.muon"] = true }

-- Accelerate clips nothing where DeepSpeed steps: what its file does not say is DeepSpeed's default.
local function put_clip(book, plan, ds)
  local key, field = "max_grad_norm", "optimizer.clip"
  local leaf = ds and ds:leaf "gradient_clipping"
  if ds and not leaf then
    plan:put(field, "1.0", "DeepSpeed's default")
    book:no_effect(key, "it does not reach DeepSpeed, whose file has no gradient_clipping: \"auto\" there takes it")
    return ds:assume(field, "gradients are clipped to a norm of 1, DeepSpeed's default since 0.19.3; versions before it clip nothing: "
                     .. "\"auto\" in the file and max_grad_norm = 0 say that")
  end
  local clip = values.positive(book, key)
  plan:put(field, quote.value(clip or 1.0), clip and book:leaf(key) or "Transformers' default")
  book:translated(key, field)
  if ds then ds:translated("gradient_clipping", field) end
end

-- What the arguments say, without an optimizer in DeepSpeed's file.
local function put_own(book, plan, m, steps)
  local builder, put = kind_of(book, m)
  plan:head("optimizer", builder)
  rate.put(book, plan, m, steps)
  put(book, plan, m)
  put_decay(book, plan, m.decays_all or m.flat or builder == "weft.muon")
  say_8_bits(book, plan, builder)
  if not m.pure or not IN_TYPE[builder] then return end
  plan:put("optimizer.state_dtype", quote.text "bf16", "of the type of the parameters")
  if book:value "optim" == "adamw_torch" or m.v1 then
    book:assume("optimizer", "weights in bf16 are rounded once a step, as by PyTorch's fused optimizers; its others round each of "
                .. "their operations")
  end
end

local UNLESS_ADAM = "the optimizer has none"

-- `ds`: DeepSpeed's settings, or nil.
function optimizer.put(book, plan, m, steps, ds)
  if file_optimizer.is_there(ds) then
    file_optimizer.put(ds, book, plan)
    rate.put(book, plan, m, steps)
  else
    put_own(book, plan, m, steps)
  end
  put_clip(book, plan, ds)
  for _, key in ipairs { "adam_beta1", "adam_beta2", "adam_epsilon", "optim_args" } do book:no_effect(key, UNLESS_ADAM) end
end

return optimizer
