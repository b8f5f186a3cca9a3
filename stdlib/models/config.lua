-- config.lua - what the model files share about Hugging Face's config.json: keys that do
-- not matter here, and checks. In `defaults`, false stands for "not given".
local config = {}

-- Bookkeeping, generation and inference: no effect on the training arithmetic.
local common = {
  "_name_or_path", "architectures", "auto_map", "bos_token_id", "chunk_size_feed_forward",
  "dtype", "eos_token_id", "id2label", "is_decoder", "is_encoder_decoder", "label2id",
  "model_type", "output_attentions", "output_hidden_states", "pad_token_id",
  "pretraining_tp", "problem_type", "return_dict", "torch_dtype", "torchscript",
  "transformers_version", "use_cache",
}

-- The set of keys that are read past, with those of one architecture added.
function config.ignored(extra)
  local set = {}
  for _, key in ipairs(common) do set[key] = true end
  for _, key in ipairs(extra or {}) do set[key] = true end
  return set
end

local function show(value)
  if type(value) == "string" then return '"' .. value .. '"' end
  return tostring(value)
end

-- Each kind returns what is wrong with the value, or nil.
local kinds = {}

function kinds.count(value)
  local n = type(value) == "number" and math.tointeger(value)
  if not n or n < 1 then return "expected a positive integer, got " .. show(value) end
  if n > 2147483647 then return "expected at most 2147483647, got " .. show(value) end
end

function kinds.optional_count(value)
  if value then return kinds.count(value) end
end

function kinds.positive(value)
  if type(value) ~= "number" or not (value > 0) then
    return "expected a number above 0, got " .. show(value)
  end
end

function kinds.boolean(value)
  if value ~= true and value ~= false and value ~= nil then
    return "expected true or false, got " .. show(value)
  end
end

-- The model has one way to compute this; `allowed` lists its names.
function kinds.only(value, allowed)
  local names = {}
  for i, name in ipairs(allowed) do
    if value == name or (value == nil and not name) then return nil end
    names[i] = show(name)
  end
  return show(value) .. " is not supported (only " .. table.concat(names, ", ") .. ")"
end

-- A list whose items the model knows, or nothing.
function kinds.each(value, allowed)
  if not value then return nil end
  if type(value) ~= "table" then return "expected a list, got " .. show(value) end
  for _, item in ipairs(value) do
    local message = kinds.only(item, allowed)
    if message then return message end
  end
end

function kinds.dropout(value)
  if value and value ~= 0 then
    return "dropout is not applied: training runs as with 0", "warning"
  end
end

-- `rules` is a list of { key, kind, argument }. Returns the list of problems
-- { key =, message =, severity = "error" or "warning" }, in the order of the rules.
function config.check(c, rules)
  local problems = {}
  for _, rule in ipairs(rules) do
    local key, kind, argument = rule[1], rule[2], rule[3]
    local message, severity = kinds[kind](c[key], argument)
    if message then
      problems[#problems + 1] =
        { key = key, message = message, severity = severity or "error" }
    end
  end
  return problems
end

-- True if none of the problems makes the sizes unusable for further checks.
function config.sound(problems)
  for _, problem in ipairs(problems) do
    if problem.severity == "error" then return false end
  end
  return true
end

function config.add(problems, key, ...)
  problems[#problems + 1] =
    { key = key, message = string.format(...), severity = "error" }
end

return config
