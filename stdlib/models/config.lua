-- config.lua - what the model files share about Hugging Face's config.json. A key is one of
-- `defaults` (used, or checked because only one value is computed here), one of `ignored`
-- (no effect on the training arithmetic), or unknown: told, since nothing says what it
-- does. In `defaults`, false stands for "not given"; null in a file is that, too.
local config = {}

-- Bookkeeping, generation and inference: no effect on the training arithmetic.
local common = {
  "_attn_implementation", "_attn_implementation_autoset", "_name_or_path",
  "_num_labels", "architectures", "attn_implementation", "auto_map", "begin_suppress_tokens",
  "bos_token_id", "chunk_size_feed_forward", "cross_attention_hidden_size",
  "decoder_start_token_id", "do_sample", "dtype", "eos_token_id",
  "experts_implementation", "finetuning_task", "forced_bos_token_id",
  "forced_eos_token_id", "id2label", "is_decoder", "is_encoder_decoder", "label2id",
  "max_length", "min_length", "model_type", "num_labels", "output_attentions",
  "output_hidden_states", "output_scores", "pad_token_id", "prefix", "pretraining_tp",
  "problem_type", "return_dict", "return_dict_in_generate", "sep_token_id",
  "task_specific_params", "temperature", "tf_legacy_loss", "tokenizer_class", "top_k",
  "top_p", "torch_dtype", "torchscript", "transformers_version", "unsloth_fixed",
  "unsloth_version", "use_bfloat16", "use_cache",
}

-- Keys that Hugging Face reads for every architecture, with the only values that are
-- computed here, the first of which is the default.
local fixed = {
  is_causal = { true }, loss_type = { false, "ForCausalLM" },
  partial_rotary_factor = { false, 1 }, use_bidirectional_attention = { false },
}

-- The defaults of an architecture with those keys added.
function config.defaults(d)
  for key, allowed in pairs(fixed) do d[key] = allowed[1] end
  d.pruned_heads = false
  return d
end

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

local function integer(value, least, what)
  local n = type(value) == "number" and math.tointeger(value)
  if not n or n < least then return "expected " .. what .. ", got " .. show(value) end
  if n > 2147483647 then return "expected at most 2147483647, got " .. show(value) end
end

function kinds.count(value) return integer(value, 1, "a positive integer") end

-- How many layers come before those of another kind: there may be none.
function kinds.layers(value) return integer(value, 0, "a number of layers, from 0") end

function kinds.optional_layers(value)
  if value then return kinds.layers(value) end
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

function kinds.empty(value)
  if not value then return nil end
  if type(value) ~= "table" then return "expected a table, got " .. show(value) end
  for _ in pairs(value) do return "is not supported (only an empty one)" end
end

function kinds.dropout(value)
  if value and value ~= 0 then
    return "dropout is not applied: training runs as with 0", "warning"
  end
end

-- `rules` is a list of { key, kind, argument }. Returns the list of problems
-- { key =, message =, severity = "error" or "warning" }, in the order of the rules.
function config.check(c, rules)
  local problems, all = {}, { { "pruned_heads", "empty" } }
  for key, allowed in pairs(fixed) do all[#all + 1] = { key, "only", allowed } end
  for _, rule in ipairs(rules) do all[#all + 1] = rule end
  for _, rule in ipairs(all) do
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
