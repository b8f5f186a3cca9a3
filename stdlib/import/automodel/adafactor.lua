-- adafactor.lua - Adafactor of NeMo AutoModel recipes: torch.optim.Adafactor, which weft.adafactor is, and that of
-- Transformers, whose other rules are switches of it.
local quote = use "import/quote"
local scalar = use "import/scalar"
local values = use "import/values"

local adafactor = {}

local O = "optimizer."
local IS = { ["torch.optim.Adafactor"] = "torch", ["transformers.optimization.Adafactor"] = "transformers",
             ["transformers.Adafactor"] = "transformers" }

-- Which of both a recipe has, or nil.
function adafactor.of(book) return IS[book:value(O .. "_target_")] end

-- A number from `low` to `high`, as that optimizer, or this one, takes it.
local function put_number(book, plan, key, field, default, low, high)
  local value = book:value(O .. key)
  local n = scalar.number(value)
  if value ~= nil and not (n and n >= low and n <= high) then
    return book:refuse(O .. key, string.format("%s%s: expected a number from %.9g to %.9g", O, key, low, high))
  end
  plan:put(field, quote.value(n or default), n and book:leaf(O .. key) or "its default")
  if n then book:translated(O .. key, field) end
end

-- Two numbers, of which the first may be null if it has a default; nil: it is something else.
local function pair_of(value, first)
  if type(value) ~= "table" or #value ~= 2 then return nil end
  local a, b = scalar.number(value[1]), scalar.number(value[2])
  if value[1] == scalar.null then a = first end
  if a and b and a >= 0 and b >= 0 then return a, b end
end

-- `made`: what the first number is here; `null`: what it is if there is none.
local function put_epsilons(book, plan, default, null, made)
  local key = O .. "eps"
  local first, second = default[1], default[2]
  if book:value(key) ~= nil then
    first, second = pair_of(book:value(key), null)
    if not first then return book:refuse(key, key .. ": expected a list of two numbers of at least 0") end
  end
  first = made(first)
  local a, b = math.max(1e-30, math.min(first, 1)), math.min(second, 1)
  plan:put("optimizer.eps", quote.value { a, b }, book:leaf(key) or "its default")
  if not book:has(key) then return end
  if a == first and b == second then return book:translated(key, "optimizer.eps") end
  book:cannot(key, string.format("the first is from 1e-30 to 1 here, the second at most 1: the plan has { %.9g, %.9g }",
                                 a, b))
end

local function as_it_is(eps) return eps end

-- Without a first number it is the precision of the weights' type.
local function put_torch(book, plan)
  put_number(book, plan, "beta2_decay", "optimizer.beta2_decay", -0.8, -10, 0)
  local precision = plan:has "precision.master_dtype" and 0x1p-7 or 0x1p-23
  put_epsilons(book, plan, { precision, 1e-3 }, precision, as_it_is)
  put_number(book, plan, "d", "optimizer.d", 1, 1, 1e6)
end

local function put_switch(book, plan, key, default)
  local value = values.flag(book, O .. key)
  if value == nil then value = default end
  plan:put("optimizer." .. key, tostring(value), book:leaf(O .. key) or "its default")
  book:translated(O .. key, "optimizer." .. key)
  return value
end

-- As short as it is said, but for what is the square of no short number.
local function root(square)
  local exact = math.sqrt(square)
  local short = tonumber(string.format("%.9g", exact))
  return math.abs(short - exact) <= 1e-15 * exact and short or exact
end

-- What is added to squares there is the least of their means here, so its root.
local function put_transformers(book, plan)
  put_number(book, plan, "decay_rate", "optimizer.beta2_decay", -0.8, -10, 0)
  put_epsilons(book, plan, { 1e-30, 1e-3 }, nil, root)
  put_number(book, plan, "clip_threshold", "optimizer.d", 1, 1e-6, 1e6)
  local scaled = put_switch(book, plan, "scale_parameter", true)
  put_switch(book, plan, "relative_step", true)
  if book:value(O .. "warmup_init") == true then
    book:cannot(O .. "warmup_init", "the rate begins at what lr says, not at a millionth a step")
  end
  if scalar.number(book:value(O .. "beta1")) then
    book:cannot(O .. "beta1", "Adafactor has no average of gradients here: a state as large as the model")
  end
  if scaled and (tonumber(book:value(O .. "weight_decay")) or 0) > 0 then
    book:cannot(O .. "weight_decay", "it is times lr here, and there times the size of each parameter, too")
  end
  book:assume("optimizer.eps", "Transformers adds eps to squares, here it is the least of their means: the same "
              .. "but where gradients are smaller than it")
end

function adafactor.put(book, plan)
  book:translated(O .. "_target_", "optimizer")
  if not book:has(O .. "lr") then plan:put("optimizer.lr", "0.01", "its default") end
  if adafactor.of(book) == "torch" then put_torch(book, plan) else put_transformers(book, plan) end
  for _, key in ipairs { "betas", "epsilon" } do book:no_effect(O .. key, "the optimizer is Adafactor") end
end

return adafactor
