-- model.lua - the model of LLaMA-Factory's arguments, and how its positions are scaled.
local model_field = use "import/model_field"
local models = use "import/models"
local quote = use "import/quote"
local scalar = use "import/scalar"
local values = use "import/values"

local NAME = "model_name_or_path"

-- ---- names ----

-- How names of files end that are quantized already. LLaMA-Factory trains adapters on them as they are.
local QUANTIZED = { "%-awq$", "%-awq%-int4$", "%-gptq$", "%-gptq%-int[48]$", "%-int[48]$", "%-aqlm%-.*$", "%-bnb%-4bit$",
                    "%-unsloth%-bnb%-4bit$", "%-fp8%-dynamic$" }

-- The name of the model whose weights are quantized there; nil: the name says nothing of it.
local function unquantized(name)
  local lower = string.lower(name)
  for _, pattern in ipairs(QUANTIZED) do
    local at = string.find(lower, pattern)
    if at and at > 1 then return string.sub(name, 1, at - 1) end
  end
end

-- ---- positions ----

local SCALED = { linear = {}, dynamic = { original = true }, yarn = { original = true },
                 llama3 = { original = true, low_freq_factor = 1.0, high_freq_factor = 4.0 } }

-- Positions that the model was made for: those before they were scaled, if they are.
local function positions_of(config)
  local scaling = config.rope_scaling or config.rope_parameters
  local before = type(scaling) == "table" and scalar.integer(scaling.original_max_position_embeddings)
  return before or scalar.integer(config.max_position_embeddings)
end

-- As LLaMA-Factory's configure_rope (model/model_utils/rope.py) has it: whole factors, and none where sequences
-- are no longer than the model takes. Returns changes of the config.
local function scaled(book, config, seq)
  local key = "rope_scaling"
  local kind = book:value(key)
  if kind == nil then return {} end
  local how = SCALED[kind]
  if not how then
    book:refuse(key, string.format("%s = %s: expected linear, dynamic, yarn or llama3", key, quote.shown(kind)))
    return {}
  end
  local most = positions_of(config)
  if not most then
    book:cannot(key, "the model does not say its positions: they are not scaled")
    return {}
  elseif seq <= most then
    book:no_effect(key, string.format("cutoff_len is no more than the %d positions of the model", most))
    return {}
  end
  local factor = math.ceil(seq / most)
  local value = { rope_type = kind, factor = factor + 0.0, low_freq_factor = how.low_freq_factor,
                  high_freq_factor = how.high_freq_factor,
                  original_max_position_embeddings = how.original and most or nil }
  local leaf = book:leaf(key)
  return { rope_scaling = { value = value, leaves = { leaf } },
           max_position_embeddings = { value = most * factor, leaves = {} } }
end

-- ---- the field ----

local model = {}

-- Puts plan.model; returns the config, nil if it is refused, and what it says of training.
function model.put(book, plan, option, seq)
  local name = book:value(NAME)
  if name ~= nil and type(name) ~= "string" then
    return book:refuse(NAME, string.format("%s = %s: expected a name, or a folder", NAME, quote.shown(name)))
  end
  local given = { leaf = name and book:leaf(NAME), name = name, changes = {} }
  local base = name and not option and unquantized(name)
  if base then given.name = base end
  local found = given.name and not option and models.find(given.name)
  if found then given.changes = scaled(book, found, seq) end
  local config, aside = model_field.put(plan, book, given, option)
  if not config then return nil end
  if base then
    book:cannot(NAME, "its weights are quantized already: the plan has the model in the type of precision; adapter.base = "
                .. "\"nf4\" stores it in 4 bits")
  end
  if option then book:no_effect("rope_scaling", "--model says which model the plan has") end
  if book:value "train_from_scratch" ~= true then
    book:assume("model", "a run begins with random weights, not with those of the model; weft.hf \"DIR\" has them")
  end
  return config, aside
end

-- Tokens of a sequence: where packing is on LLaMA-Factory takes one away (hparams/data_args.py), and adds it again where
-- it packs samples of stage sft itself.
function model.sequence(book, m)
  local n = values.whole(book, "cutoff_len", 2) or 2048
  local packs = values.flag(book, "packing") or m.bridge and values.flag(book, "neat_packing")
  return packs and (m.bridge or m.stage == "pt") and math.max(n - 1, 1) or n
end

return model
