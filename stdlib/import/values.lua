-- values.lua - values of settings as fields take them. Each reads book:value(key): nil if it is not
-- given; what is given and cannot be is refused, with what would be right.
local quote = use "import/quote"
local scalar = use "import/scalar"
local values = {}

-- Steps of a plan that does not say train.steps.
values.USUAL_STEPS = 100

local function refuse(book, key, value, expected)
  local leaf = book:leaf(key)
  book:refuse(key, string.format("%s = %s: expected %s", quote.shown(leaf and leaf.given or key),
                                 quote.shown(value), expected))
end

-- An integer of at least `least`.
function values.whole(book, key, least)
  local value = book:value(key)
  if value == nil then return nil end
  local n = scalar.integer(value)
  if n and n >= least then return n end
  local large = (scalar.number(value) or 0) >= 1e18
  refuse(book, key, value, large and "a smaller number" or "an integer, at least " .. least)
end

function values.positive(book, key)
  local value = book:value(key)
  if value == nil then return nil end
  local n = scalar.number(value)
  if n and n >= 0 and n < math.huge then return n end
  refuse(book, key, value, "a number, at least 0")
end

-- Of what dropout drops; nil also if that is nothing.
function values.rate(book, key)
  local value = book:value(key)
  if value == nil then return nil end
  local n = scalar.number(value)
  if n and n >= 0 and n < 1 then return n > 0 and n or nil end
  refuse(book, key, value, "a number, at least 0 and below 1")
end

-- The size of a group, and whether it is given: what is below 1 is 1.
function values.degree(book, key)
  local value = book:value(key)
  if value == nil then return 1, false end
  local n = scalar.integer(value)
  if not n then return values.whole(book, key, 1) or 1, false end
  return math.max(n, 1), n >= 1
end

function values.flag(book, key)
  local value = book:value(key)
  if value == nil or value == true or value == false then return value end
  refuse(book, key, value, "true or false")
end

-- Texts and numbers that pydantic takes for a bool.
local SWITCHES = { [1] = true, [0] = false }
for word in string.gmatch("1 on t true y yes", "%S+") do SWITCHES[word] = true end
for word in string.gmatch("0 off f false n no", "%S+") do SWITCHES[word] = false end

-- The same of a file that pydantic reads, where "true" is true.
function values.switch(book, key)
  local value = book:value(key)
  if value == nil or value == true or value == false then return value end
  local known
  if type(value) ~= "table" then known = SWITCHES[type(value) == "string" and string.lower(value) or value] end
  if known == nil then refuse(book, key, value, "true or false") end
  return known
end

local TYPES = { bfloat16 = "bf16", bf16 = "bf16", float16 = "f16", fp16 = "f16", half = "f16",
                float32 = "f32", fp32 = "f32", float = "f32", no = "f32" }

-- "torch.bfloat16" as a plan writes it; nil: it is none of f32, bf16 and f16.
function values.known_type(value) return TYPES[string.gsub(string.lower(tostring(value)), "^torch%.", "")] end

function values.type_of(book, key)
  local value = book:value(key)
  if value == nil then return nil end
  local known = values.known_type(value)
  if not known and string.find(string.lower(tostring(value)), "^fp[48]") then
    book:refuse(key, string.format("%s = %s: expected f32, bf16 or f16; products in fp8 are precision = \"fp8\" of the "
                                   .. "plan, whose recipes are tensorwise, rowwise and mxfp8", key, quote.shown(value)))
  elseif not known then
    refuse(book, key, value, "one of f32, bf16 and f16")
  end
  return known
end

-- The same, put into a field. They return the value.

function values.put_flag(book, plan, key, field)
  local value = values.flag(book, key)
  if value == nil then return nil end
  plan:put(field, tostring(value), book:leaf(key))
  book:translated(key, field)
  return value
end

function values.put_whole(book, plan, key, field, least)
  local n = values.whole(book, key, least)
  if not n then return nil end
  plan:put(field, quote.value(n), book:leaf(key))
  book:translated(key, field)
  return n
end

function values.put_positive(book, plan, key, field)
  local n = values.positive(book, key)
  if not n then return nil end
  plan:put(field, quote.value(n), book:leaf(key))
  book:translated(key, field)
  return n
end

-- Two numbers: a list, or a text such as "[0.9, 0.95]".
function values.put_pair(book, plan, key, field)
  local value = book:value(key)
  if value == nil then return nil end
  local a, b
  if type(value) == "table" and #value == 2 then
    a, b = scalar.number(value[1]), scalar.number(value[2])
  elseif type(value) == "string" then
    a, b = string.match(value, "^[%[(]%s*([%d.]+)%s*,%s*([%d.]+)%s*[%])]$")
    a, b = a and tonumber(a), b and tonumber(b)
  end
  if not a or not b then return book:refuse(key, key .. ": expected two numbers") end
  plan:put(field, quote.value { a, b }, book:leaf(key))
  book:translated(key, field)
end

function values.lcm(a, b)
  local x, y = a, b
  while y ~= 0 do x, y = y, x % y end
  return a // x * b
end

-- The decay of weights of a PyTorch optimizer, which has all parameters in one group.
function values.put_decay(book, plan, key, default, why)
  local decay = values.positive(book, key)
  plan:put("optimizer.weight_decay", quote.value(decay or default), book:leaf(key) or why)
  if (decay or default) > 0 then
    plan:put("optimizer.decay_vectors", "true", "norms and biases decay, too")
  end
  book:translated(key, "optimizer.weight_decay")
  return decay or default
end

-- Whether a text is a folder below the plan's, as plans have it.
function values.folder(text)
  return not string.find(text, "^[/~]") and not string.find(text, "%.%.")
    and not string.find(text, "[%c\x7f-\xff$]") and #text > 0 and #text < 200
end

-- What settings that are about ranks alone do not say: sequences and data.
function values.assume_rest(book, plan, config)
  local positions = config.max_position_embeddings or config.n_positions or config.n_ctx or 2048
  local most = scalar.integer(positions) or 2048
  plan:put("batch.seq", quote.value(math.min(2048, most)), "assumed")
  book:assume("batch.seq", string.format("%d tokens; weft check --set batch.seq=N judges others",
                                         math.min(2048, most)))
  plan:put("data", "weft.synthetic {}", "made-up tokens")
  book:assume("data", "weft.synthetic, made-up tokens: the settings name no data")
end

return values
