-- rates.lua - learning rates of axolotl's recipes: Transformers' schedulers (optimization.py) and axolotl's own
-- (utils/schedulers.py, core/trainers/mixins/scheduler.py), as builders of a plan.
local quote = use "import/quote"
local scalar = use "import/scalar"
local values = use "import/values"
local rates = {}

local SHAPES = {
  cosine = "cosine", linear = "linear", constant = "constant", constant_with_warmup = "constant", polynomial = "polynomial",
  inverse_sqrt = "inverse_sqrt", cosine_with_min_lr = "cosine", cosine_warmup_with_min_lr = "cosine", warmup_stable_decay = "wsd",
}
-- What others are, and what the plan has in their place.
local OTHERS = {
  cosine_with_restarts = { "cosine", "the rate falls once, without restarts" },
  reduce_lr_on_plateau = { "constant", "the rate does not look at losses: it is constant" },
  one_cycle = { "cosine", "OneCycleLR rises along a cosine, from a 25th of the rate, and moves betas: the plan has a line and a cosine" },
  rex = { "cosine", "the fall of REX, z / (0.1 + 0.9 z), is not in weft: the plan has a cosine" },
  greedy = { "constant", "the rate does not look at losses: it is constant" },
}

local K = "lr_scheduler_kwargs."

-- ---- the rise ----

-- Which steps axolotl takes a part of. Where data are a stream it knows none but max_steps (utils/data/sft.py).
local function say_part(book, n, loss)
  local whole = loss == "dpo" and "pairs and num_epochs make, whatever max_steps is" or not loss
    and book:value "pretraining_dataset" == nil and not values.switch(book, "streaming")
    and "samples and num_epochs make, where they are fewer than max_steps"
  if not whole or n == 0 and loss ~= "dpo" or values.positive(book, "warmup_ratio") == 0 then return end
  book:assume("optimizer.lr.warmup", string.format("%d steps, a part of max_steps; axolotl takes that part of the steps that all %s: "
                                                   .. "warmup_steps says a number", n, whole))
end

-- Transformers' first step of a rise has no rate; that of cosine_warmup_with_min_lr is as weft's, and it falls from a
-- step further on.
local function say_first(book, name)
  book:assume("optimizer.lr", name == "cosine_warmup_with_min_lr" and "the fall is a step behind that of cosine_warmup_with_min_lr"
              or "the rise begins with a share of the rate; Transformers' begins with a step of rate 0, and is a step behind")
end

-- Steps of the rise, as axolotl counts them: a part of known steps rounded down, and never one.
local function put_warmup(book, plan, steps, loss, name)
  local field = "optimizer.lr.warmup"
  local given, part = values.whole(book, "warmup_steps", 0), values.positive(book, "warmup_ratio")
  if given and given > 0 and part and part > 0 then
    return book:refuse("warmup_ratio", "warmup_steps and warmup_ratio exclude each other")
  end
  local key = given and "warmup_steps" or part and "warmup_ratio" or nil
  local n = given or steps and (part and math.floor(part * steps) or math.min(math.floor(0.03 * steps), 100))
  if n == 1 then n = 2 end
  local from = key and book:leaf(key) or "axolotl's default: 3 % of the steps, at most 100"
  if n then
    plan:put(field, quote.value(n), from)
  else
    plan:put("optimizer.lr.warmup_ratio", quote.value(math.min(part or 0.03, 1)), from)
    if not key then
      book:assume("optimizer.lr", "the warmup is 3 % of the steps; axolotl takes at most 100 of them")
    end
  end
  if steps and not given then say_part(book, n, loss) end
  book:translated("warmup_steps", "optimizer.lr.warmup")
  book:translated("warmup_ratio", n and "optimizer.lr.warmup" or "optimizer.lr.warmup_ratio")
  if n ~= 0 or name == "cosine_warmup_with_min_lr" then say_first(book, name) end
end

-- ---- the fall ----

-- Arguments for the least rate, by the schedulers that have them.
local LEAST = {
  { "min_lr", "min", cosine_with_min_lr = true, cosine_warmup_with_min_lr = true },
  { "min_lr_rate", "min_ratio", cosine_with_min_lr = true, cosine_warmup_with_min_lr = true },
  { "min_lr_ratio", "min_ratio", warmup_stable_decay = true }, { "lr_end", "min", polynomial = true },
}

local QUADRATIC = "lr_quadratic_warmup"

-- The least rate, as a part of the most or itself.
local function put_least(book, plan, shape, name)
  local key = "cosine_min_lr_ratio"
  local part = values.positive(book, key)
  if part and values.switch(book, QUADRATIC) and name == "cosine" then
    book:no_effect(key, "with lr_quadratic_warmup the rate falls to 0")
  elseif part and (name == "cosine" or name == "rex") then
    plan:put("optimizer.lr.min_ratio", quote.value(math.min(part, 1)), book:leaf(key))
    book:translated(key, "optimizer.lr.min_ratio")
  else
    book:no_effect(key, "it counts with lr_scheduler: cosine and rex alone")
  end
  for _, row in ipairs(LEAST) do
    local kwarg, field = K .. row[1], "optimizer.lr." .. row[2]
    local n = row[name] and values.positive(book, kwarg)
    if n and not plan:has "optimizer.lr.min" and not plan:has "optimizer.lr.min_ratio" then
      plan:put(field, quote.value(row[2] == "min_ratio" and math.min(n, 1) or n), book:leaf(kwarg))
      book:translated(kwarg, field)
    end
  end
  if shape == "polynomial" then
    plan:put("optimizer.lr.power", quote.value(values.positive(book, K .. "power") or 1.0), book:leaf(K .. "power") or "Transformers' default")
    book:translated(K .. "power", "optimizer.lr.power")
    plan:put("optimizer.lr.min", "1e-07", "Transformers' default")
  end
end

-- The part of the run at which the rate is at its least, rounded down; a cosine_min_lr_ratio of 0 is as none there.
local function put_end(book, plan, steps, name)
  local key = "cosine_constant_lr_ratio"
  local part = values.positive(book, key)
  if not part or part == 0 then return end
  if name ~= "cosine" or not plan:has "optimizer.lr.min_ratio" or values.positive(book, "cosine_min_lr_ratio") == 0 then
    return book:no_effect(key, "it counts with lr_scheduler: cosine and a cosine_min_lr_ratio above 0 alone")
  elseif not steps then
    return book:cannot(key, string.format("the rate is at its least from this part of all steps on, which the recipe does not count: "
                                          .. "optimizer.lr.steps = N"))
  end
  plan:put("optimizer.lr.steps", quote.value(math.max(math.floor(steps * part), 1)), book:leaf(key))
  book:translated(key, "optimizer.lr.steps")
end

local function put_wsd(book, plan)
  local n = values.whole(book, K .. "num_decay_steps", 1)
  if not n then
    return book:refuse(book:value "lr_scheduler" and "lr_scheduler", "warmup_stable_decay needs lr_scheduler_kwargs.num_decay_steps")
  end
  plan:put("optimizer.lr.decay", quote.value(n), book:leaf(K .. "num_decay_steps"))
  book:translated(K .. "num_decay_steps", "optimizer.lr.decay")
  local style = book:value(K .. "decay_type") or "cosine"
  local known = style == "cosine" or style == "linear" and style or style == "1-sqrt"
  if not known then book:refuse(K .. "decay_type", quote.shown(style) .. ": expected cosine, linear or 1-sqrt") end
  plan:put("optimizer.lr.decay_style", quote.text(style == "1-sqrt" and "minus_sqrt" or known and style or "cosine"),
           book:leaf(K .. "decay_type") or "Transformers' default")
  book:translated(K .. "decay_type", "optimizer.lr.decay_style")
end

-- ---- all ----

local REST = {
  lr_quadratic_warmup = "the rate rises with the steps, not with their square",
  jagged_restart_steps = "the rate does not restart",
  jagged_restart_warmup_steps = "the rate does not restart", jagged_restart_anneal_steps = "the rate does not restart",
}

local function say_rest(book)
  for _, key in ipairs(keys(REST)) do
    if book:value(key) ~= nil and book:value(key) ~= false then book:cannot(key, REST[key]) end
  end
  for _, leaf in ipairs(book.leaves) do
    if string.find(leaf.key, "^lr_scheduler_kwargs%.") and not leaf.list and leaf.value ~= scalar.null then
      book:cannot(leaf.key, "an option of learning rates that this one does not have, or weft does not")
    end
  end
end

-- `steps`: of the run; nil: the recipe does not say. `loss`: "dpo", or nil.
function rates.put(book, plan, lr, steps, loss)
  local key, name = "lr_scheduler", book:value "lr_scheduler" or "cosine"
  local other = OTHERS[name]
  local shape = SHAPES[name] or other and other[1]
  if not shape then
    book:refuse(key, string.format("%s: expected %s", quote.shown(name), table.concat(keys(SHAPES), ", ")))
    shape = "cosine"
  end
  if other then book:cannot(key, other[2]) end
  book:translated(key, "optimizer.lr")
  book:translated("learning_rate", "optimizer.lr.max")
  if name == "constant" then
    plan:put("optimizer.lr", quote.value(lr), book:leaf "learning_rate")
    for _, one in ipairs { "warmup_steps", "warmup_ratio", "cosine_min_lr_ratio", "cosine_constant_lr_ratio" } do
      book:no_effect(one, "the rate is constant")
    end
    return say_rest(book)
  end
  plan:head("optimizer.lr", "weft." .. shape)
  plan:put("optimizer.lr.max", quote.value(lr), book:leaf "learning_rate")
  put_least(book, plan, shape, name)
  put_end(book, plan, steps, name)
  if shape == "wsd" then put_wsd(book, plan) end
  put_warmup(book, plan, steps, loss, name)
  if shape == "inverse_sqrt" and values.whole(book, K .. "timescale", 1) then
    plan:put("optimizer.lr.timescale", quote.value(values.whole(book, K .. "timescale", 1)), book:leaf(K .. "timescale"))
    book:translated(K .. "timescale", "optimizer.lr.timescale")
  end
  book:no_effect("cosine_constant_lr_ratio", "it counts with cosine_min_lr_ratio alone")
  say_rest(book)
end

return rates
