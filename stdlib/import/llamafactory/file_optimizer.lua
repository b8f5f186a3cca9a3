-- file_optimizer.lua - the optimizer that DeepSpeed's file has beside the arguments. Transformers
-- (integrations/deepspeed.py) then makes none of its own: DeepSpeed steps all parameters alike, and what the file leaves
-- open has DeepSpeed's defaults. The learning rate follows the arguments all the same.
local quote = use "import/quote"
local values = use "import/values"

local file_optimizer = {}

local P = "optimizer.params."

function file_optimizer.is_there(ds) return ds ~= nil and ds:value "optimizer.type" ~= nil end

-- ---- kinds ----

local function put_betas(ds, plan)
  values.put_pair(ds, plan, P .. "betas", "optimizer.betas")
  plan:put("optimizer.betas", "{ 0.9, 0.999 }", "DeepSpeed's default")
end

local function put_adam(ds, plan, kind)
  local coupled = values.flag(ds, P .. "adam_w_mode") == false and kind ~= "adamw"
  plan:head("optimizer", coupled and "weft.adam" or "weft.adamw")
  if kind ~= "adam" and kind ~= "adamw" then
    ds:cannot("optimizer.type", string.format("%s is not translated: the plan has AdamW with these numbers",
                                              quote.shown(ds:value "optimizer.type")))
  end
  put_betas(ds, plan)
  values.put_positive(ds, plan, P .. "eps", "optimizer.eps")
  plan:put("optimizer.eps", "1e-08", "DeepSpeed's default")
  ds:translated(P .. "adam_w_mode", "optimizer")
  -- PyTorch's AdamW decays unless it is told not to.
  local torch = values.flag(ds, P .. "torch_adam") and not coupled and not ds:leaf(P .. "weight_decay")
  return torch and 0.01 or 0
end

local function put_lion(ds, plan)
  plan:head("optimizer", "weft.lion")
  put_betas(ds, plan)
  return 0
end

local function put_sgd(ds, plan)
  plan:head("optimizer", "weft.sgd")
  values.put_positive(ds, plan, P .. "momentum", "optimizer.momentum")
  values.put_positive(ds, plan, P .. "dampening", "optimizer.dampening")
  values.put_flag(ds, plan, P .. "nesterov", "optimizer.nesterov")
  return 0
end

local KINDS = { lion = put_lion, sgd = put_sgd }

-- ---- the field ----

local IGNORED = { "optim", "optim_args", "use_muon", "adam_beta1", "adam_beta2", "adam_epsilon", "weight_decay",
                  "use_galore", "use_apollo", "use_badam", "use_adam_mini" }

-- Before the learning rate, whose peak is the file's.
function file_optimizer.put(ds, book, plan)
  local kind = string.lower(tostring(ds:value "optimizer.type"))
  local decay = (KINDS[kind] or put_adam)(ds, plan, kind)
  values.put_decay(ds, plan, P .. "weight_decay", decay, "DeepSpeed's default")
  ds:translated("optimizer.type", "optimizer")
  for _, name in ipairs { "torch_adam", "fused", "foreach" } do
    ds:no_effect(P .. name, "which kernel steps does not change the plan")
  end
  local lr = values.positive(ds, P .. "lr")
  plan:put("optimizer.lr.max", quote.value(lr or 0.001), lr and ds:leaf(P .. "lr") or "DeepSpeed's default")
  ds:translated(P .. "lr", "optimizer.lr")
  if not lr then book:no_effect("learning_rate", "the optimizer of DeepSpeed's file has a rate of its own, 0.001 as it gives none") end
  for _, key in ipairs(IGNORED) do
    book:no_effect(key, "DeepSpeed's file has an optimizer, which steps: \"auto\" there alone takes the arguments' numbers")
  end
end

return file_optimizer
