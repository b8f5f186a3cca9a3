-- optimizer.lua - the optimizer and the learning rate of NeMo AutoModel recipes.
local adafactor = use "import/automodel/adafactor"
local dion = use "import/automodel/dion"
local quote = use "import/quote"
local rates = use "import/rates"
local scalar = use "import/scalar"
local values = use "import/values"

local ADAM = { ["torch.optim.Adam"] = true, ["torch.optim.AdamW"] = true }

-- Without a decay both of PyTorch's are the same.
local function builder(book)
  local decay = tonumber(book:value "optimizer.weight_decay") or 0
  return book:value "optimizer._target_" == "torch.optim.Adam" and decay > 0 and "weft.adam" or "weft.adamw"
end

local function put_kind(book)
  local key = "optimizer._target_"
  local value = book:value(key)
  if value == nil then return end
  local name = scalar.behind_last(tostring(value), ".")
  if ADAM[value] or name == "FusedAdam" or name == "FlashAdamW" or name == "AdamW" then
    book:translated(key, "optimizer")
  else
    book:cannot(key, string.format("%s is not in weft: the plan has AdamW with these numbers",
                                   quote.shown(name)))
  end
end

-- Steps of the rise to the full rate: as given, or AutoModel's share of all steps, which without
-- max_steps are those of the epochs, and so of the data: then a share of those that the plan has.
local function put_warmup(book, plan, steps)
  local key, field = "lr_scheduler.lr_warmup_steps", "optimizer.lr.warmup"
  local given = values.put_whole(book, plan, key, field, 0)
  if given then return given end
  local n = math.min(1000, (steps or values.USUAL_STEPS) // 10)
  plan:put(field, quote.value(n), "AutoModel's default: a tenth of the steps, at most 1000")
  if not steps then
    book:assume(field, string.format("%d, a tenth of the %d steps assumed: AutoModel takes a tenth of those "
                                     .. "of all epochs, at most 1000", n, values.USUAL_STEPS))
  end
  return n
end

local L = "lr_scheduler."

-- Where the rate goes from its maximum, and until which step.
local function put_fall(book, plan, shape, lr, steps)
  if shape == "constant" then return book:no_effect(L .. "min_lr", "the rate is constant") end
  rates.put_least(book, plan, L .. "min_lr", tonumber(string.format("%.9g", lr / 100)),
                  "AutoModel's default: 1 % of lr")
  if shape == "inverse_sqrt" then
    local at = values.whole(book, L .. "lr_decay_steps", 1)
    return rates.end_of_root(book, L .. "lr_decay_steps", at, steps)
  end
  if values.put_whole(book, plan, L .. "lr_decay_steps", "optimizer.lr.steps", 1) == nil and steps then
    plan:put("optimizer.lr.steps", quote.value(steps), "AutoModel's default: all steps")
  end
  if shape ~= "wsd" then return end
  local decay = values.whole(book, L .. "wsd_decay_steps", 1)
  if not decay then
    return book:refuse(L .. "lr_decay_style", "WSD needs wsd_decay_steps, the steps in which the rate falls")
  end
  rates.put_fall(book, plan, decay, L .. "wsd_decay_steps", L .. "lr_wsd_decay_style")
end

local function say_rise(book, warmup)
  local key = L .. "init_lr"
  local first = values.positive(book, key)
  if warmup == 0 then
    book:no_effect(key, "there is no warmup")
  elseif first == 0 then
    book:translated(key, "optimizer.lr, which rises from 0")
  elseif first then
    book:cannot(key, "the rate rises from 0, not from this")
  else
    book:assume("optimizer.lr", "AutoModel's warmup rises from a tenth of lr, here it is from 0")
  end
end

local function put_rate(book, plan, lr, steps)
  local key = "optimizer.lr"
  if not book:has "lr_scheduler" then
    plan:put("optimizer.lr", quote.value(lr), book:value(key) and book:leaf(key) or "the default of the optimizer's class")
    return book:translated(key, "optimizer.lr")
  end
  local style_key, style = book:first(L .. "lr_decay_style", L .. "schedule")
  local shape = rates.shapes[style or "cosine"]
  if not shape then
    return book:refuse(style_key, string.format("%s: expected constant, linear, cosine, inverse-square-root "
                       .. "or WSD", quote.shown(style)))
  end
  book:translated(style_key or key, "optimizer.lr")
  plan:head("optimizer.lr", "weft." .. shape)
  values.put_positive(book, plan, L .. "max_lr", "optimizer.lr.max")
  plan:put("optimizer.lr.max", quote.value(lr), book:value(key) and book:leaf(key) or "the default of the optimizer's class")
  book:translated(key, "optimizer.lr.max")
  put_fall(book, plan, shape, lr, steps)
  local warmup = put_warmup(book, plan, steps)
  if shape == "inverse_sqrt" and warmup == 0 then
    plan:put("optimizer.lr.timescale", "1", "there is no warmup")
    book:assume("optimizer.lr", "without a warmup the rate is that of AutoModel one step later")
  end
  say_rise(book, warmup)
end

local STATES = { ["torch.float32"] = "f32", ["torch.bfloat16"] = "bf16" }

local function put_adam(book, plan)
  values.put_pair(book, plan, "optimizer.betas", "optimizer.betas")
  plan:put("optimizer.betas", "{ 0.9, 0.999 }", "Adam's default")
  for _, key in ipairs { "optimizer.eps", "optimizer.epsilon" } do
    local eps = values.positive(book, key)
    if eps then plan:put("optimizer.eps", quote.value(eps), book:leaf(key)) end
    book:translated(key, "optimizer.eps")
  end
  put_kind(book)
end

-- What the class of the optimizer has without lr; nil: none, or the field has it already.
local function usual_rate(book, target, factored)
  if not target then
    return book:assume("optimizer.lr", "weft's default: the settings do not say it")
  end
  if factored then return nil end
  return target == "dion.Muon" and 5e-4 or 1e-3
end

-- `config`: of the model; `experts`: whether it has some.
local function put_optimizer(book, plan, steps, config, experts)
  local target = book:value "optimizer._target_"
  local muon, adamw = target == "dion.Muon", target == "torch.optim.AdamW"
  local factored = adafactor.of(book)
  plan:head("optimizer", muon and "weft.muon" or factored and "weft.adafactor" or builder(book))
  local lr = values.positive(book, "optimizer.lr") or usual_rate(book, target, factored)
  if lr then put_rate(book, plan, lr, steps) end
  if muon then
    dion.put(book, plan, lr, config, experts)
  elseif factored then
    adafactor.put(book, plan)
  else
    put_adam(book, plan)
  end
  values.put_decay(book, plan, "optimizer.weight_decay", adamw and 0.01 or 0,
                   adamw and "AdamW's default" or factored and "Adafactor's default" or "Adam's default")
  local clip = values.positive(book, "clip_grad_norm.max_norm")
  plan:put("optimizer.clip", quote.value(clip or 1.0), book:leaf "clip_grad_norm.max_norm"
           or "AutoModel's default")
  book:translated "clip_grad_norm.max_norm"
  local state = STATES[book:value "optimizer.exp_avg_dtype"]
  if factored then return end
  if state and state == STATES[book:value "optimizer.exp_avg_sq_dtype"] then
    plan:put("optimizer.state_dtype", quote.text(state), book:leaf "optimizer.exp_avg_dtype")
    book:translated "optimizer.exp_avg_dtype"
    book:translated "optimizer.exp_avg_sq_dtype"
  elseif plan:has "precision.master_dtype" and (muon or string.find(tostring(target), "^torch%.optim")) then
    plan:put("optimizer.state_dtype", quote.text "bf16", (muon and "dion" or "torch.optim") .. ": the type of the weights")
    if book:value "optimizer.fused" ~= true then
      book:assume("optimizer", "weights in bf16 are rounded once a step, as by PyTorch's fused optimizers; its others "
                  .. "round each of their operations")
    end
  end
end

return { put = put_optimizer }
