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

local function put_number(book, plan, key, field, default)
  local value = book:value(O .. key)
  local n = scalar.number(value)
  if value ~= nil and not n then return book:refuse(O .. key, O .. key .. ": expected a number") end
  plan:put(field, quote.value(n or default), n and book:leaf(O .. key) or "its default")
  if n then book:translated(O .. key, field) end
end

-- The two numbers of a list, whose first may be null.
local function epsilons(book, first, second)
  local value = book:value(O .. "eps")
  if type(value) ~= "table" then return first, second end
  return scalar.number(value[1]) or first, scalar.number(value[2]) or second
end

local function put_epsilons(book, plan, first, second)
  plan:put("optimizer.eps", quote.value { first, second }, book:leaf(O .. "eps") or "its default")
  if book:has(O .. "eps") then book:translated(O .. "eps", "optimizer.eps") end
end

-- Without a first number it is the precision of the weights' type.
local function put_torch(book, plan)
  put_number(book, plan, "beta2_decay", "optimizer.beta2_decay", -0.8)
  put_epsilons(book, plan, epsilons(book, plan:has "precision.master_dtype" and 0x1p-7 or 0x1p-23, 1e-3))
  put_number(book, plan, "d", "optimizer.d", 1)
end

local function put_switch(book, plan, key, default)
  local value = values.flag(book, O .. key)
  if value == nil then value = default end
  plan:put("optimizer." .. key, tostring(value), book:leaf(O .. key) or "its default")
  book:translated(O .. key, "optimizer." .. key)
  return value
end

-- What is added to squares there is the least of their means here, so its root.
local function put_transformers(book, plan)
  put_number(book, plan, "decay_rate", "optimizer.beta2_decay", -0.8)
  local first, second = epsilons(book, 1e-30, 1e-3)
  put_epsilons(book, plan, tonumber(string.format("%.9g", math.sqrt(first))), second)
  put_number(book, plan, "clip_threshold", "optimizer.d", 1)
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
