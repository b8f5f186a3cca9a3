-- rate.lua - Transformers' learning rates (optimization.py) as those of a plan. From the end of the warmup on they are
-- the same; step k of the warmup has k / warmup of the rate there, and (k + 1) / warmup here, but for
-- cosine_warmup_with_min_lr, whose warmup is that of here, and whose fall is a step ahead.
local quote = use "import/quote"
local scalar = use "import/scalar"
local values = use "import/values"

local rate = {}

local R, K = "optimizer.lr.", "lr_scheduler_kwargs."

local SHAPES = { linear = "linear", cosine = "cosine", cosine_with_min_lr = "cosine", cosine_warmup_with_min_lr = "cosine",
                 cosine_with_restarts = "cosine", polynomial = "polynomial", constant = "constant",
                 constant_with_warmup = "constant", inverse_sqrt = "inverse_sqrt", warmup_stable_decay = "wsd" }

-- What LLaMA-Factory has below Megatron-Bridge (train/megatron_bridge/config_builder.py): all others become cosine.
local OF_BRIDGE = { linear = "linear", cosine = "cosine", constant = "constant_with_warmup",
                    constant_with_warmup = "constant_with_warmup" }
local CANNOT = { reduce_lr_on_plateau = true, greedy = true }

-- ---- parts ----

-- Below Megatron-Bridge a part of the steps is rounded down.
local function put_floor(book, plan, part, steps)
  local n = math.floor(part * (steps or values.USUAL_STEPS))
  plan:put(R .. "warmup", quote.value(n), book:leaf "warmup_ratio")
  book:translated("warmup_ratio", "optimizer.lr.warmup, rounded down, as below Megatron-Bridge")
  return n
end

-- A whole number of steps, or, below 1, a part of them.
local function put_warmup(book, plan, m, kind, steps)
  if kind == "constant" then
    for _, key in ipairs { "warmup_steps", "warmup_ratio" } do
      book:no_effect(key, "lr_scheduler_type constant has no warmup: constant_with_warmup has")
    end
    return 0
  end
  local n = values.positive(book, "warmup_steps") or 0
  if n >= 1 then
    plan:put(R .. "warmup", quote.value(math.floor(n)), book:leaf "warmup_steps")
    book:translated("warmup_steps", "optimizer.lr.warmup")
    book:no_effect("warmup_ratio", "warmup_steps says it")
    return math.floor(n)
  end
  local part, key = n, "warmup_steps"
  if m.bridge and part > 0 then
    book:no_effect(key, "Megatron-Bridge takes it for a number of steps, which is none")
    book:no_effect("warmup_ratio", "warmup_steps says it")
    return 0
  end
  if part == 0 then part, key = values.positive(book, "warmup_ratio") or 0, "warmup_ratio" end
  if part > 1 then
    book:refuse(key, key .. ": expected a number from 0 to 1")
  elseif part > 0 and m.bridge then
    return put_floor(book, plan, part, steps)
  elseif part > 0 then
    plan:put(R .. "warmup_ratio", quote.value(part), book:leaf(key))
  end
  book:translated("warmup_steps", part > 0 and key == "warmup_steps" and "optimizer.lr.warmup_ratio" or "optimizer.lr.warmup, none")
  book:translated("warmup_ratio", "optimizer.lr.warmup_ratio")
  return part
end

-- ---- what each shape has ----

local function put_least(book, plan)
  local least, part = values.positive(book, K .. "min_lr"), values.positive(book, K .. "min_lr_rate")
  if least and part then
    return book:refuse(K .. "min_lr_rate", "min_lr and min_lr_rate are both given, which Transformers refuses")
  elseif least then
    plan:put(R .. "min", quote.value(least), book:leaf(K .. "min_lr"))
    book:translated(K .. "min_lr", R .. "min")
  elseif part then
    plan:put(R .. "min_ratio", quote.value(part), book:leaf(K .. "min_lr_rate"))
    book:translated(K .. "min_lr_rate", R .. "min_ratio")
  else
    book:refuse("lr_scheduler_type", "cosine_with_min_lr needs min_lr or min_lr_rate in lr_scheduler_kwargs")
  end
end

local function put_polynomial(book, plan)
  local least, power = values.positive(book, K .. "lr_end"), values.positive(book, K .. "power")
  plan:put(R .. "min", quote.value(least or 1e-7), least and book:leaf(K .. "lr_end") or "Transformers' default")
  plan:put(R .. "power", quote.value(power or 1.0), power and book:leaf(K .. "power") or "Transformers' default")
  book:translated(K .. "lr_end", R .. "min")
  book:translated(K .. "power", R .. "power")
end

local STYLES = { linear = "linear", cosine = "cosine", ["1-sqrt"] = "minus_sqrt" }

-- LLaMA-Factory's share of a rate that stays is a third of what is behind the warmup, whatever the other is
-- (train/trainer_utils.py): behind both the rate is the least one.
local function put_wsd(book, plan, steps, warmup)
  local stay, fall = values.whole(book, K .. "num_stable_steps", 0), values.whole(book, K .. "num_decay_steps", 1)
  local all = steps or values.USUAL_STEPS
  local rise = warmup >= 1 and warmup or math.ceil(warmup * all * (1 - 1e-12))
  local rest = math.max(all - rise, 1)
  local given = stay and book:leaf(K .. "num_stable_steps") or fall and book:leaf(K .. "num_decay_steps")
  plan:put(R .. "decay", quote.value(fall or rest - rest // 3), fall and book:leaf(K .. "num_decay_steps")
           or "LLaMA-Factory's default: two thirds of the steps behind the warmup")
  stay, fall = stay or rest // 3, fall or rest - rest // 3
  if given then plan:put(R .. "steps", quote.value(rise + stay + fall), given) end
  for _, name in ipairs { "num_stable_steps", "num_decay_steps" } do book:translated(K .. name, R .. "decay") end
  local style = book:value(K .. "decay_type") or "cosine"
  if not STYLES[style] then
    return book:refuse(K .. "decay_type", string.format("%s: expected linear, cosine or 1-sqrt", quote.shown(style)))
  end
  plan:put(R .. "decay_style", quote.text(STYLES[style]), book:leaf(K .. "decay_type") or "Transformers' default")
  book:translated(K .. "decay_type", R .. "decay_style")
  local least = values.positive(book, K .. "min_lr_ratio")
  if least then plan:put(R .. "min_ratio", quote.value(least), book:leaf(K .. "min_lr_ratio")) end
  book:translated(K .. "min_lr_ratio", R .. "min_ratio")
end

local function put_root(book, plan)
  local n = values.whole(book, K .. "timescale", 1)
  if n then plan:put(R .. "timescale", quote.value(n), book:leaf(K .. "timescale")) end
  book:translated(K .. "timescale", R .. "timescale")
end

-- Half a wave, or one fall: of more of them there is none.
local function say_cycles(book, kind)
  local key = K .. "num_cycles"
  local n = scalar.number(book:value(key))
  local usual = kind == "cosine_with_restarts" and 1 or 0.5
  if n == usual then return book:no_effect(key, "the rate falls once") end
  if n then book:cannot(key, "the rate falls once") end
end

-- ---- the field ----

-- The kind that Megatron has for one.
local function kind_of_bridge(book, kind)
  local own = OF_BRIDGE[kind]
  if own == "constant_with_warmup" then return own end
  if not own then
    book:assume("optimizer.lr", string.format("cosine: below Megatron-Bridge LLaMA-Factory takes it for %s", quote.shown(kind)))
  end
  return own or "cosine"
end

function rate.put(book, plan, m, steps)
  local key = "lr_scheduler_type"
  local kind, lr = book:value(key) or "linear", values.positive(book, "learning_rate")
  local shape = SHAPES[kind]
  local from = lr and book:leaf "learning_rate" or "Transformers' default"
  if not shape and CANNOT[kind] and not m.bridge then
    book:cannot(key, "the rate follows the loss of evaluations there: here it is constant")
    shape = "constant"
  elseif not shape and not CANNOT[kind] then
    book:refuse(key, string.format("%s = %s: expected linear, cosine, cosine_with_min_lr, polynomial, constant, constant_with_warmup, "
                                   .. "inverse_sqrt or warmup_stable_decay", key, quote.shown(kind)))
    shape, kind = "linear", "linear"
  end
  if m.bridge then
    kind = kind_of_bridge(book, kind)
    shape = SHAPES[kind]
  end
  plan:head("optimizer.lr", "weft." .. shape)
  plan:put(R .. "max", quote.value(lr or 5e-5), from)
  book:translated("learning_rate", "optimizer.lr")
  book:translated(key, "optimizer.lr")
  local warmup = put_warmup(book, plan, m, kind, steps)
  if kind == "cosine_warmup_with_min_lr" and not m.megatron then
    book:assume("optimizer.lr", "behind the warmup a step has the rate that Transformers' gives the step before it")
  elseif warmup > 0 and not m.megatron then
    book:assume("optimizer.lr", "step k of the warmup has (k + 1) / warmup of the rate, counted from 0; Transformers' has k / warmup, "
                .. "none in the first step")
  end
  if kind == "cosine_with_min_lr" or kind == "cosine_warmup_with_min_lr" then put_least(book, plan) end
  if shape == "polynomial" then put_polynomial(book, plan) end
  if shape == "wsd" then put_wsd(book, plan, steps, warmup) end
  if shape == "inverse_sqrt" then put_root(book, plan) end
  if shape == "cosine" then say_cycles(book, kind) end
end

return rate
