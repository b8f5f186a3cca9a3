-- optimizer.lua - the optimizer and the learning rate of DeepSpeed's settings. "auto" and what is not there at all
-- are the Trainer's; of an optimizer that is there DeepSpeed's own defaults count.
local quote = use "import/quote"
local values = use "import/values"
local optimizer = {}

local SHAPES = { WarmupLR = "constant", WarmupDecayLR = "linear", WarmupCosineLR = "cosine" }

-- The rates between which WarmupCosineLR goes are parts of the optimizer's. The others have rates of
-- their own, whose default is not the optimizer's for WarmupDecayLR.
local function put_peak(book, plan, params, kind, lr, from)
  local key = params .. "warmup_max_lr"
  local most = values.positive(book, key)
  if kind == "WarmupCosineLR" then
    local floor = values.positive(book, params .. "cos_min_ratio") or 0.0001
    plan:put("optimizer.lr.max", quote.value(lr), from)
    plan:put("optimizer.lr.min", quote.value(lr * floor), book:leaf(params .. "cos_min_ratio")
             or "DeepSpeed's default: 0.0001 of the rate")
    book:translated(params .. "cos_min_ratio", "optimizer.lr.min")
    book:cannot(key, "WarmupCosineLR has no such parameter")
    return
  end
  if not most and kind == "WarmupDecayLR" and not book:leaf(key) then
    plan:put("optimizer.lr.max", "0.001", "DeepSpeed's default for warmup_max_lr of WarmupDecayLR")
  end
  plan:put("optimizer.lr.max", quote.value(most or lr), most and book:leaf(key) or from)
  book:translated(key, "optimizer.lr.max")
end

local function put_rate(book, plan, lr, from)
  local kind = book:value "scheduler.type"
  local shape = SHAPES[kind]
  if not shape then
    if kind ~= nil then
      book:cannot("scheduler.type", string.format("%s is no shape that weft's learning rates have: the plan has a "
                  .. "constant one", quote.shown(kind)))
    end
    plan:put("optimizer.lr", quote.value(lr), from)
    return
  end
  local params = "scheduler.params."
  book:translated "scheduler.type"
  plan:head("optimizer.lr", "weft." .. shape)
  put_peak(book, plan, params, kind, lr, from)
  book:assume("optimizer.lr", "the rise begins with a share of the rate in the first step; DeepSpeed's scheduler has 0 in "
              .. "the first two, and is two steps behind")
  values.put_whole(book, plan, params .. "warmup_num_steps", "optimizer.lr.warmup", 0)
  if not book:leaf(params .. "warmup_num_steps") then
    plan:put("optimizer.lr.warmup", "1000", "DeepSpeed's default")
  end
  book:translated(params .. "warmup_num_steps", "optimizer.lr.warmup, 0 as \"auto\" without a Trainer")
  if shape ~= "constant" then
    values.put_whole(book, plan, params .. "total_num_steps", "optimizer.lr.steps", 1)
    book:translated(params .. "total_num_steps", "optimizer.lr.steps, \"auto\": all steps")
  end
  for _, name in ipairs { "warmup_min_lr", "warmup_min_ratio" } do
    if (values.positive(book, params .. name) or 0) > 0 then
      book:cannot(params .. name, "the rate rises from 0")
    else
      book:no_effect(params .. name, "the rate rises from 0")
    end
  end
  if book:value(params .. "warmup_type") == "linear" then
    return book:translated(params .. "warmup_type", "optimizer.lr.warmup")
  end
  book:cannot(params .. "warmup_type", "the rate rises with the logarithm of the steps there, here with the steps")
  book:assume("optimizer.lr", "the warmup is linear; DeepSpeed's default is logarithmic")
end

local P = "optimizer.params."

-- The rate and where it is from.
local function rate_of(book)
  local lr, leaf = values.positive(book, P .. "lr"), book:leaf(P .. "lr")
  book:translated(P .. "lr")
  if lr then return lr, leaf end
  if not leaf and book:value "optimizer.type" then return 1e-3, "DeepSpeed's default" end
  book:assume("optimizer.lr", "5e-05, the Trainer's default")
  return 5e-5, "assumed"
end

-- Another one than Adam has no eps.
local function put_adam(book, plan, kind)
  local coupled = values.flag(book, P .. "adam_w_mode") == false and kind ~= "adamw"
  plan:head("optimizer", coupled and "weft.adam" or "weft.adamw")
  if kind ~= nil and kind ~= "adam" and kind ~= "adamw" then
    book:cannot("optimizer.type", string.format("%s is not translated: the plan has AdamW with these numbers",
                                                quote.shown(book:value "optimizer.type")))
  end
  values.put_pair(book, plan, P .. "betas", "optimizer.betas")
  book:no_effect(P .. "betas", "\"auto\": the Trainer's default, which is that of the plan")
  plan:put("optimizer.betas", "{ 0.9, 0.999 }", "Adam's default")
  values.put_positive(book, plan, P .. "eps", "optimizer.eps")
  book:no_effect(P .. "eps", "\"auto\": the Trainer's default, which is that of the plan")
  book:translated(P .. "adam_w_mode", "optimizer")
  -- PyTorch's AdamW decays unless it is told not to.
  local torch = values.flag(book, P .. "torch_adam") and not coupled and not book:leaf(P .. "weight_decay")
  values.put_decay(book, plan, P .. "weight_decay", torch and 0.01 or 0, torch and "torch.optim's default"
                   or "Adam's default")
end

local function put_lion(book, plan)
  plan:head("optimizer", "weft.lion")
  values.put_pair(book, plan, P .. "betas", "optimizer.betas")
  plan:put("optimizer.betas", "{ 0.9, 0.999 }", "the default of DeepSpeed's Lion")
  values.put_decay(book, plan, P .. "weight_decay", 0, "the default of DeepSpeed's Lion")
end

local function put_sgd(book, plan)
  plan:head("optimizer", "weft.sgd")
  values.put_positive(book, plan, P .. "momentum", "optimizer.momentum")
  values.put_positive(book, plan, P .. "dampening", "optimizer.dampening")
  values.put_flag(book, plan, P .. "nesterov", "optimizer.nesterov")
  values.put_decay(book, plan, P .. "weight_decay", 0, "torch.optim's default")
end

local KINDS = { lion = put_lion, sgd = put_sgd }

-- Gradients are clipped to a norm of 1 where nothing is said, which the versions before 0.19.3 did not do.
local function put_clip(book, plan)
  local key = "gradient_clipping"
  local clip, leaf = values.positive(book, key), book:leaf(key)
  plan:put("optimizer.clip", quote.value(clip or 1.0), clip and leaf or leaf and "the Trainer's default"
           or "DeepSpeed's default")
  book:translated(key)
  if not leaf then
    book:assume("optimizer.clip", "gradients are clipped to a norm of 1, DeepSpeed's default since 0.19.3; versions before it "
                .. "clip nothing: gradient_clipping=0 behind the file says that")
  end
end

function optimizer.put(book, plan)
  local kind = book:value "optimizer.type"
  kind = kind ~= nil and string.lower(tostring(kind)) or nil
  local put = KINDS[kind] or put_adam
  put(book, plan, kind)
  put_rate(book, plan, rate_of(book))
  book:translated "optimizer.type"
  for _, name in ipairs { "torch_adam", "fused", "foreach" } do
    book:no_effect(P .. name, "which kernel steps does not change the plan")
  end
  local states = "bf16.bf16_optimizer_states"
  if values.switch(book, states) then
    plan:put("optimizer.state_dtype", quote.text "bf16", book:leaf(states))
    book:translated(states, "optimizer.state_dtype")
  end
  put_clip(book, plan)
end

return optimizer
