-- optimizer.lua - the optimizer and the learning rate of axolotl's recipes: those of Transformers' Trainer
-- (trainer_optimizer.py, optimization.py), axolotl's own (core/builders/base.py, utils/schedulers.py), and Muon
-- of axolotl-contribs-mit. The Trainer decays neither norms nor biases.
local names = use "import/axolotl/optimizers"
local quote = use "import/quote"
local rates = use "import/axolotl/rates"
local values = use "import/values"
local optimizer = {}

-- ---- kinds ----

local function put_betas(book, plan, first, second, whose)
  local a, b = values.rate(book, "adam_beta1"), values.rate(book, "adam_beta2")
  plan:put("optimizer.betas", quote.value { a or first, b or second }, book:leaf "adam_beta1" or book:leaf "adam_beta2"
           or whose or "Transformers' default")
  book:translated("adam_beta1", "optimizer.betas")
  book:translated("adam_beta2", "optimizer.betas")
end

local function put_eps(book, plan, least)
  local eps = values.positive(book, "adam_epsilon")
  if eps and eps < least then
    book:cannot("adam_epsilon", string.format("it is at least %g here", least))
    eps = least
  end
  if eps then plan:put("optimizer.eps", quote.value(math.min(eps, 1)), book:leaf "adam_epsilon") end
  book:translated("adam_epsilon", "optimizer.eps")
end

local function adam(book, plan, o)
  put_betas(book, plan, 0.9, 0.999)
  put_eps(book, plan, o.kind.builder == "adamw_8bit" and 1e-30 or 0)
end

-- The Trainer takes Adam's betas for Lion, and their defaults.
local function lion(book, plan) put_betas(book, plan, 0.9, 0.999) end

local function sgd() end

-- Transformers' Adafactor, with the switches of its Trainer; see docs/memory.md.
local function adafactor(_, plan)
  plan:put("optimizer.beta2_decay", "-0.8", "Transformers' default")
  plan:put("optimizer.eps", "{ 1e-15, 0.001 }", "Transformers' default: 1e-30 of squares")
  plan:put("optimizer.d", "1", "Transformers' default")
  plan:put("optimizer.relative_step", "false", "Transformers' Trainer")
  plan:put("optimizer.scale_parameter", "false", "Transformers' Trainer")
end

-- Moonlight's: norms and biases are in none of its groups, so that they do not learn there.
local function muon(book, plan, o)
  put_betas(book, plan, 0.95, 0.95, "axolotl's")
  put_eps(book, plan, 0)
  plan:put("optimizer.momentum", "0.95", "axolotl's")
  plan:put("optimizer.adjust_lr", quote.text "match_rms_adamw", "axolotl's")
  if not o.adapted then
    book:assume("optimizer", "norms and biases learn by AdamW; axolotl's Muon leaves them as they are: freeze names them")
  end
end

local PUT = { adamw = adam, adamw_8bit = adam, adam = adam, lion = lion, sgd = sgd, adafactor = adafactor, muon = muon }

-- ---- groups ----

-- Embeddings and the head have a group without decay where axolotl makes groups itself (mixins/optimizer.py).
local function put_groups(book, plan, o, lr, decay)
  local key = book:first("embedding_lr_scale", "embedding_lr")
  local ratio = key and values.positive(book, key)
  if ratio and key == "embedding_lr" then ratio = lr > 0 and ratio / lr or 1 end
  local own = key or o.kind.groups
  if o.adapted and key then
    book:cannot(key, "embeddings are frozen beside an adapter, or are saved with it at its rate")
  elseif own and not o.adapted then
    local parts = { '"embed_tokens"', '"lm_head"' }
    if o.config[1] == "gpt2" then parts = { '"wte"' } end
    if ratio and ratio > 0 and ratio ~= 1 then parts[#parts + 1] = "lr = " .. quote.value(ratio) end
    if decay > 0 then parts[#parts + 1] = "weight_decay = 0" end
    if #parts > 2 then plan:put("groups", "{ { " .. table.concat(parts, ", ") .. " } }", key and book:leaf(key) or "axolotl's groups") end
    if key then book:translated(key, "groups") end
  end
  book:no_effect("embedding_lr", "embedding_lr_scale says it")
  if book:value "lr_groups" ~= nil then
    book:cannot("lr_groups", "modules have one rate here: groups = { { \"layers.*.self_attn.q_proj\", lr = FACTOR } } names those of another, "
                .. "as a factor")
  end
end

-- ---- all ----

local function kind_of(book)
  local key, value = "optimizer", book:value "optimizer"
  if value == nil then return names.find "adamw_torch_fused" end
  local kind, near = names.find(tostring(value))
  if kind then return kind end
  book:refuse(key, string.format("%s is none of axolotl's optimizers%s", quote.shown(value),
                                 near and string.format(" (did you mean %s?)", near) or ""))
  return names.find "adamw_torch"
end

local function say_kind(book, kind)
  if kind.lacks then
    book:cannot("optimizer", kind.lacks)
  else
    book:translated("optimizer", "optimizer")
  end
  if kind.note then book:assume("optimizer", kind.note) end
end

-- States have the type of the weights.
local function put_states(book, plan, o)
  if not plan:has "precision.master_dtype" or o.kind.builder == "adamw_8bit" or o.kind.builder == "adafactor" then return end
  plan:put("optimizer.state_dtype", quote.text "bf16", "the type of the weights")
  if not string.find(tostring(book:value "optimizer" or "fused"), "fused") then
    book:assume("optimizer", "weights in bf16 are rounded once a step, as by PyTorch's fused optimizers; others round each of their "
                .. "operations")
  end
end

local OPTIONS = "an option of the optimizer that weft does not read"

-- `o`: { steps =, config =, adapted =, strategy =, weights = }.
function optimizer.put(book, plan, o)
  local kind = kind_of(book)
  o.kind = kind
  local builder = kind.builder
  if builder == "muon" and plan:source "strategy.offload_policy" == "true" then
    book:cannot("optimizer", "states of Muon stay on the device: the plan has AdamW")
    builder, o.kind = "adamw", { builder = "adamw" }
  end
  if kind.builder == "muon" and (o.strategy.file or o.strategy.version == 1) then
    book:refuse("optimizer", "axolotl's Muon goes neither with DeepSpeed nor with FSDP 1")
  end
  plan:head("optimizer", "weft." .. builder)
  say_kind(book, kind)
  local lr = values.positive(book, "learning_rate")
  if not lr and #book.refused == 0 then book:refuse(book:leaf "learning_rate" and "learning_rate", "a recipe needs a learning_rate") end
  rates.put(book, plan, lr or 0, o.steps)
  PUT[builder](book, plan, o)
  local decay = values.positive(book, "weight_decay") or 0
  plan:put("optimizer.weight_decay", quote.value(decay), book:value "weight_decay" and book:leaf "weight_decay" or "axolotl's default")
  book:translated("weight_decay", "optimizer.weight_decay")
  put_groups(book, plan, o, lr or 0, decay)
  local clip = values.positive(book, "max_grad_norm")
  plan:put("optimizer.clip", quote.value(clip or 1.0), clip and book:leaf "max_grad_norm" or "Transformers' default")
  book:translated("max_grad_norm", "optimizer.clip")
  put_states(book, plan, o)
  if book:value "optim_args" ~= nil then book:cannot("optim_args", OPTIONS) end
  for _, name in ipairs { "adam_beta1", "adam_beta2", "adam_epsilon" } do book:no_effect(name, "the optimizer has no such number") end
end

return optimizer
