-- config.lua - what the model files share about Hugging Face's config.json. A key is one of
-- `defaults` (used, or checked because only one value is computed here), one of `ignored`
-- (no effect on the training arithmetic, whatever its value), or unknown: told, since nothing
-- says what it does. In `defaults`, false stands for "not given"; null in a file is that, too. Names of
-- weft's that the class does not know are `not_of_files`: unknown where a file has them.
local config = {}

-- Bookkeeping, generation and inference, and heads of other tasks, which a causal model does
-- not have. pretraining_tp cuts products into slices and adds them up: the same sums.
local common = {
  "_attn_implementation", "_attn_implementation_autoset", "_name_or_path",
  "_num_labels", "attn_implementation", "begin_suppress_tokens",
  "bos_token_id", "chunk_size_feed_forward",
  "decoder_start_token_id", "do_sample", "dtype", "eos_token_id",
  "experts_implementation", "finetuning_task", "forced_bos_token_id",
  "forced_eos_token_id", "id2label", "is_decoder", "label2id", "max_length", "min_length",
  "model_type", "num_labels", "output_attentions",
  "output_hidden_states", "output_scores", "pad_token_id", "prefix", "pretraining_tp",
  "problem_type", "return_dict", "return_dict_in_generate", "sep_token_id",
  "task_specific_params", "temperature", "tf_legacy_loss", "tokenizer_class", "top_k",
  "top_p", "torch_dtype", "transformers_version", "unsloth_fixed",
  "unsloth_version", "use_bfloat16", "use_cache",
}

-- Keys that change what is computed, in Hugging Face's classes or in other code that reads
-- these files, with the only values that are computed here, the first of which is the
-- default. An architecture's own rule for a key comes before these.
local fixed = {
  -- Which positions a token sees, and how it knows them.
  alibi = { false }, attention_chunk_size = { false }, is_causal = { true },
  no_rope_layers = { false }, partial_rotary_factor = { false, 1 }, rotary_pct = { false, 1 },
  sliding_window = { false }, use_bidirectional_attention = { false },
  -- Encoders, and weights shared with them, or not shared where they should be.
  add_cross_attention = { false }, cross_attention_hidden_size = { false },
  is_encoder_decoder = { false }, tie_encoder_decoder = { false }, torchscript = { false },
  -- Factors, limits and norms.
  attention_multiplier = { false }, attn_logit_softcapping = { false }, clip_qkv = { false },
  embedding_multiplier = { false, 1 }, final_logit_softcapping = { false },
  logit_scale = { false, 1 }, logits_scaling = { false, 1 },
  query_pre_attn_scalar = { false }, qk_layernorm = { false },
  residual_multiplier = { false, 1 }, scale_depth = { false }, scale_emb = { false, 1 },
  use_qk_norm = { false },
  -- Other layers, and another loss.
  loss_type = { false, "ForCausalLM" }, mlp_bias = { false },
  use_parallel_residual = { false },
}

-- Rules that `fixed` has no form for; all keys are false by default.
local shared = {
  { "pruned_heads", "empty" }, { "layer_types", "each", { "full_attention" } },
}

-- The defaults of an architecture with those keys added, and the set of keys that were: a
-- config that is written does not have them, since not all classes know them.
function config.defaults(d)
  local added = { architectures = true, auto_map = true }
  for key, allowed in pairs(fixed) do
    if d[key] == nil then d[key], added[key] = allowed[1], true end
  end
  for _, rule in ipairs(shared) do
    if d[rule[1]] == nil then d[rule[1]], added[rule[1]] = false, true end
  end
  d.architectures, d.auto_map = false, false
  return d, added
end

-- Adds to an architecture without experts, and to its rules, that there are none.
function config.dense(arch, rules)
  for _, key in ipairs { "num_experts", "num_local_experts" } do
    arch.defaults[key], arch.unwritten[key] = false, true
    rules[#rules + 1] = { key, "only", { false, 0, 1 } }
  end
end

-- What says here what a key that is read past says elsewhere: a plan that has the key is told.
config.elsewhere = {
  router_aux_loss_coef = "the loss of routers is plan.moe.aux_loss_coef",
  aux_loss_alpha = "the loss of routers is plan.moe.aux_loss_coef",
  seq_aux = "the loss of routers, plan.moe.aux_loss_coef, is that of a microbatch",
  ep_size = "experts are shared as plan.mesh.ep says",
}

-- Why a key that files of one architecture have, and a plan has, too, changes nothing.
config.unread = "models of this family do not read it"

-- The set of keys that are read past, with those of one architecture added. Of the layers that predict
-- further tokens plan.mtp says more.
function config.ignored(extra)
  local set = {}
  for _, key in ipairs(common) do set[key] = true end
  for _, key in ipairs(extra or {}) do set[key] = config.elsewhere[key] or config.unread end
  if set.num_nextn_predict_layers then set.num_nextn_predict_layers = true end
  return set
end

local function show(value)
  if type(value) == "string" then return '"' .. value .. '"' end
  return tostring(value)
end

-- Whether two values of a key are equal.
function config.same(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then return a == b end
  for key, value in pairs(a) do if not config.same(value, b[key]) then return false end end
  for key in pairs(b) do if a[key] == nil then return false end end
  return true
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

-- A number for each layer, or nothing.
function kinds.counts(value)
  if not value then return nil end
  if type(value) ~= "table" then return "expected a list of positive integers, got " .. show(value) end
  for _, item in ipairs(value) do
    local message = kinds.count(item)
    if message then return message end
  end
end

-- A list without what is behind its first n items; what is no list as it is.
function config.first_items(list, n)
  return type(list) == "table" and table.move(list, 1, math.min(n, #list), 1, {}) or list
end

-- A limit for each layer, 0 or false: none; or nothing.
function kinds.limits(value)
  if not value then return nil end
  if type(value) ~= "table" then return "expected a list of numbers, got " .. show(value) end
  for _, item in ipairs(value) do
    if item and item ~= 0 and not (type(item) == "number" and item >= 0.3 and item < math.huge) then
      return "expected 0, for none, or a number from 0.3 on, got " .. show(item)
    end
  end
end

-- 0 is none, too.
function kinds.count_or_none(value)
  if value ~= 0 then return kinds.optional_count(value) end
end

function kinds.positive(value)
  if type(value) ~= "number" or not (value > 0 and value < math.huge) then
    return "expected a number above 0, got " .. show(value)
  end
end

function kinds.not_negative(value)
  if type(value) ~= "number" or not (value >= 0 and value < math.huge) then
    return "expected a number from 0, got " .. show(value)
  end
end

function kinds.optional_positive(value)
  if value then return kinds.positive(value) end
end

-- rope.lua says what is wrong with these.
function kinds.part(value) end
function kinds.ropes(value) end
function kinds.grows(value) end

-- One of 0 and 1 for each layer, and maybe more of them.
function kinds.switches(value)
  if not value then return nil end
  if type(value) ~= "table" then return "expected a list of 0 and 1, got " .. show(value) end
  for _, item in ipairs(value) do
    if item ~= 0 and item ~= 1 then return "expected a list of 0 and 1, got " .. show(item) end
  end
end

function kinds.boolean(value)
  if value ~= true and value ~= false and value ~= nil then
    return "expected true or false, got " .. show(value)
  end
end

-- checks.lua says what is wrong with windows.
kinds.switch, kinds.patterned = kinds.boolean, kinds.optional_count

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

-- Classes of a file: only the causal model of its type is built here.
function kinds.class(value, name)
  if not value then return nil end
  if type(value) ~= "table" then return "expected a list, got " .. show(value) end
  for _, item in ipairs(value) do
    if item ~= name then
      return show(item) .. " is not supported (only " .. show(name) .. ")"
    end
  end
end

-- Code of the file's own: "file.Class" for each of Transformers' automatic classes.
function kinds.code(value, name)
  local class = type(value) == "table" and value.AutoModelForCausalLM
  if type(class) == "string" and class:match "[^.]*$" ~= name then
    return "AutoModelForCausalLM = " .. show(class) .. " is not supported (only "
      .. show(name) .. ")"
  end
end

-- Of what dropout drops.
function kinds.rate(value)
  if value and not (type(value) == "number" and value >= 0 and value < 1) then
    return "expected a number from 0 that is below 1, got " .. show(value)
  end
end

-- Of a router: what is added to its scores.
function kinds.noise(value)
  if value and value ~= 0 then
    return "noise is not applied: training runs as with 0", "warning"
  end
end

-- The rules of all architectures with those of one, in the order of their keys and of `rules`.
local function all_rules(class, rules)
  local own, all = {}, {}
  for _, rule in ipairs(rules) do own[rule[1]] = true end
  local function add(rule) if not own[rule[1]] then all[#all + 1] = rule end end
  for key, allowed in pairs(fixed) do add { key, "only", allowed } end
  for _, rule in ipairs(shared) do add(rule) end
  add { "architectures", "class", class }
  add { "auto_map", "code", class }
  table.sort(all, function(a, b) return a[1] < b[1] end)
  return table.move(rules, 1, #rules, #all + 1, all)
end

-- `class` is Hugging Face's name of the causal model, `rules` a list of { key, kind, argument }.
-- Returns the list of problems { key =, message =, severity = "error" or "warning" }.
function config.check(class, c, rules)
  local problems = {}
  for _, rule in ipairs(all_rules(class, rules)) do
    local key, kind, argument = rule[1], rule[2], rule[3]
    local message, severity = kinds[kind](c[key], argument)
    if message then
      problems[#problems + 1] =
        { key = key, message = message, severity = severity or "error" }
    end
  end
  return problems
end

-- Problems of ids of special tokens, which only exported files have: one for each key, or a list of
-- those that end a text. What is no number and no list is the absence of one.
function config.check_ids(ids, vocab)
  local problems = {}
  for key, value in pairs(ids) do
    local list = key == "eos_token_id" and type(value) == "table" and value or { value }
    local n, whole = #list, true
    for at in pairs(list) do whole = whole and math.type(at) == "integer" and at >= 1 and at <= n end
    for i = 1, n do
      local id = list[i]
      local token = type(id) == "number" and math.tointeger(id)
      local is_token = token and token >= 0 and not (math.type(vocab) and token >= vocab)
      if is_token then list[i] = token
      elseif type(id) ~= "userdata" then
        config.add(problems, key, "expected the id of a token, below vocab_size = %s, or false, got %s",
                   tostring(vocab), show(id))
      end
    end
    if n == 0 or not whole then config.add(problems, key, "expected a list of ids of tokens, or false") end
    if list ~= value then ids[key] = list[1] end
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

-- Adds the lists, of `what`, that have no item for each layer.
function config.check_items(c, problems, keys, what)
  for _, key in ipairs(keys) do
    if type(c[key]) == "table" and #c[key] < c.num_hidden_layers then
      config.add(problems, key, "%d %s for num_hidden_layers = %d", #c[key], what, c.num_hidden_layers)
    end
  end
end

return config
