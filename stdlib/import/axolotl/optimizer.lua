-- optimizer.lua - the optimizer and the learning rate of axolotl's recipes: those of Transformers' Trainer
-- (trainer_optimizer.py, optimization.py), axolotl's own (core/builders/base.py, utils/schedulers.py), and Muon
-- of axolotl-contribs-mit. The Trainer decays neither norms nor biases.
local experts = use "import/automodel/experts"
local names = use "import/axolotl/optimizers"
local quote = use "import/quote"
local rates = use "import/axolotl/rates"
local trainer = use "import/trainer"
local values = use "import/values"
local optimizer = {}

-- ---- kinds ----

-- Of an optimizer of axolotl's own they count together alone.
local function put_betas(book, plan, o, first, second, whose)
  local a, b = values.rate(book, "adam_beta1"), values.rate(book, "adam_beta2")
  local from = (a or b) and (book:leaf "adam_beta1" or book:leaf "adam_beta2")
  if o.kind.own and (not a or not b) then
    for _, key in ipairs { "adam_beta1", "adam_beta2" } do
      book:no_effect(key, "adam_beta1 and adam_beta2 count together alone: the optimizer has its own")
    end
    a, b, from = nil, nil, nil
  end
  plan:put("optimizer.betas", quote.value { a or first, b or second }, from or whose or "Transformers' default")
  book:translated("adam_beta1", "optimizer.betas")
  book:translated("adam_beta2", "optimizer.betas")
end

local function put_eps(book, plan, least, usual)
  local eps = values.positive(book, "adam_epsilon")
  if eps and eps < least then
    book:cannot("adam_epsilon", string.format("it is at least %g here", least))
    eps = least
  end
  local from = eps and book:leaf "adam_epsilon" or "the optimizer's default"
  eps = eps or usual
  if eps then plan:put("optimizer.eps", quote.value(math.min(eps, 1)), from) end
  book:translated("adam_epsilon", "optimizer.eps")
end

local function adam(book, plan, o)
  put_betas(book, plan, o, 0.9, o.kind.beta2 or 0.999, o.kind.beta2 and "the optimizer's default")
  put_eps(book, plan, o.kind.builder == "adamw_8bit" and 1e-30 or 0, o.kind.eps)
end

-- The Trainer takes Adam's betas for its Lion, and their defaults.
local function lion(book, plan, o) put_betas(book, plan, o, 0.9, o.kind.beta2 or 0.999, o.kind.beta2 and "the optimizer's default") end

local function sgd() end

local COEFFICIENTS = {
  { 4.0848, -6.8946, 2.927 }, { 3.9505, -6.3029, 2.6377 }, { 3.7418, -5.5913, 2.3037 },
  { 2.8769, -3.1427, 1.2046 }, { 2.8366, -3.0525, 1.2012 },
}

-- Of more than one rank (muon/dist_muon.py): dion's, with its defaults.
local function dist_muon(book, plan, o)
  put_betas(book, plan, o, 0.9, 0.95, "axolotl's, of several ranks")
  put_eps(book, plan, 0)
  plan:put("optimizer.momentum", "0.95", "axolotl's, of several ranks")
  plan:put("optimizer.nesterov", "false", "axolotl's, of several ranks")
  plan:put("optimizer.ns_coefficients", quote.value(COEFFICIENTS), "dion's")
  plan:put("optimizer.ns_eps", "1e-08", "axolotl's, of several ranks")
  plan:put("optimizer.adjust_lr", quote.text "spectral_unclamped", "axolotl's, of several ranks")
  if experts.has(o.config) and not o.adapted then
    book:assume("optimizer", "gate and up of an expert are stepped apart; Transformers has them as one matrix")
  end
  book:assume("optimizer", "the iteration is in f32, of averages 1 - momentum times those of axolotl, whose products are in bf16 and whose "
              .. "epsilon is added to a norm: steps of matrices agree within some percent. On one rank axolotl has another Muon")
end

-- Moonlight's, of one rank: norms and biases are in none of its groups, so that they do not learn there.
local function muon(book, plan, o)
  if o.world > 1 then return dist_muon(book, plan, o) end
  put_betas(book, plan, o, 0.95, 0.95, "axolotl's")
  put_eps(book, plan, 0)
  plan:put("optimizer.momentum", "0.95", "axolotl's")
  plan:put("optimizer.adjust_lr", quote.text "match_rms_adamw", "axolotl's")
  if not o.adapted then
    book:assume("optimizer", "norms and biases learn by AdamW; axolotl's Muon leaves them as they are: freeze names them")
  elseif plan:has "adapter.dora" then
    book:assume("adapter.dora", "magnitudes of features learn by AdamW; axolotl's Muon leaves them as they are")
  end
end

local PUT = { adamw = adam, adamw_8bit = adam, adam = adam, lion = lion, sgd = sgd, adafactor = trainer.put_adafactor, muon = muon }

-- ---- groups ----

-- Whether a module learns whole beside an adapter.
local function saves(plan, name) return string.find(plan:source "adapter.modules_to_save" or "", name, 1, true) ~= nil end

local EMBEDDING_RATES = { "embedding_lr_scale", "embedding_lr" }

-- Embeddings and the head have a group without decay where axolotl makes groups itself (mixins/optimizer.py).
local function put_groups(book, plan, o, lr, decay)
  local muon = o.kind.builder == "muon"
  if o.kind.one_group and decay > 0 then
    plan:put("optimizer.decay_vectors", "true", "all parameters are in one group there")
  end
  for _, name in ipairs(EMBEDDING_RATES) do
    if o.kind.one_group or muon then book:no_effect(name, "the optimizer makes its own groups, of one rate") end
  end
  local key = not o.kind.one_group and not muon and book:first(table.unpack(EMBEDDING_RATES)) or nil
  local ratio = key and values.positive(book, key)
  if ratio and key == "embedding_lr" then ratio = lr > 0 and ratio / lr or 1 end
  local own = key or o.kind.groups or muon and o.world > 1
  if own and o.adapted and decay > 0 and (saves(plan, "embed_tokens") or saves(plan, "lm_head")) then
    book:assume("groups", "embeddings and a head in adapter.modules_to_save decay; they are in a group without decay there")
  end
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

-- Vectors of no norm and no bias decay there.
local function say_magnitudes(book, plan, o)
  local still = o.kind.builder == "muon" and o.world == 1
  if plan:has "adapter.dora" and not plan:has "optimizer.decay_vectors" and not still then
    book:assume("adapter.dora", "magnitudes of features do not decay; Transformers' trainer lets them decay")
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

local function say_kind(book, plan, o, kind)
  if kind.lacks then
    book:cannot("optimizer", kind.lacks)
  else
    book:translated("optimizer", "optimizer")
  end
  if kind.note then book:assume("optimizer", kind.note) end
  if kind.bnb and (not o.adapted or saves(plan, "embed_tokens")) then
    book:assume("optimizer", "averages of embeddings are in 8 bits; Transformers has bitsandbytes keep those of nn.Embedding in f32")
  end
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

-- Where DeepSpeed's settings have no gradient_clipping, none of the Trainer's arrives there: "auto" alone is filled in.
local function put_clip(book, plan, file)
  local key = "max_grad_norm"
  local clip = values.positive(book, key)
  if file and not file:leaf "gradient_clipping" then
    plan:put("optimizer.clip", "1.0", "DeepSpeed's default")
    book:no_effect(key, "DeepSpeed's settings have no gradient_clipping: \"auto\" there is what takes it")
    return book:assume("optimizer.clip", "gradients are clipped to a norm of 1, DeepSpeed's default since 0.19.3; versions before it "
                       .. "clip nothing: --set optimizer.clip=0 says that")
  end
  plan:put("optimizer.clip", quote.value(clip or 1.0), clip and book:leaf(key) or "Transformers' default")
  book:translated(key, "optimizer.clip")
end

local OPTIONS = "an option of the optimizer that weft does not read"

-- `o`: { steps =, config =, adapted =, strategy =, weights =, world = ranks, loss = }.
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
  say_kind(book, plan, o, kind)
  local lr = values.positive(book, "learning_rate")
  if not lr and #book.refused == 0 then book:refuse(book:leaf "learning_rate" and "learning_rate", "a recipe needs a learning_rate") end
  rates.put(book, plan, lr or 0, o.steps, o.loss)
  PUT[builder](book, plan, o)
  local decay = values.positive(book, "weight_decay") or 0
  plan:put("optimizer.weight_decay", quote.value(decay), book:value "weight_decay" and book:leaf "weight_decay" or "axolotl's default")
  book:translated("weight_decay", "optimizer.weight_decay")
  put_groups(book, plan, o, lr or 0, decay)
  if decay > 0 then say_magnitudes(book, plan, o) end
  put_clip(book, plan, o.strategy.file)
  put_states(book, plan, o)
  if book:value "optim_args" ~= nil then book:cannot("optim_args", OPTIONS) end
  for _, name in ipairs { "adam_beta1", "adam_beta2", "adam_epsilon" } do book:no_effect(name, "the optimizer has no such number") end
end

return optimizer
