-- peft_targets.lua - names of PEFT's target_modules as what the plan's adapter targets. Of models with experts PEFT takes
-- gate_proj, up_proj and down_proj among them for the weights of experts, gate and up as one of twice the rank
-- (peft/utils/transformers_weight_conversion.py).
local linears_of = (use "import/automodel/adapter").linears_of
local quote = use "import/quote"
local scalar = use "import/scalar"

local targets = {}

local ATTENTION = { "q_proj", "k_proj", "v_proj", "o_proj" }
local GATE_UP, DOWN = "experts.gate_up_proj", "experts.down_proj"
-- Names of experts' weights in older files, by architecture.
local OLDER = { mixtral = { w1 = GATE_UP, w3 = GATE_UP, w2 = DOWN } }

-- What of `name` PEFT takes for weights of experts.
local function of_experts(config)
  local names, model = OLDER[config[1]] or {}, use("models/" .. config[1])
  for _, name in ipairs(model.peft and model.peft.takes_for_experts or {}) do
    names[name] = name == "down_proj" and DOWN or GATE_UP
  end
  return names
end

-- Of layers, but for weights of experts.
function targets.linears(config, has_experts)
  if config[1] == "gpt2" then return { "c_attn", "c_proj", "c_fc" } end
  return linears_of(config, has_experts) or ATTENTION
end

-- Names as they are, and their last parts.
local function set_of(list)
  local set = {}
  for _, name in ipairs(list) do set[name], set[scalar.behind_last(name, ".")] = true, true end
  return set
end

-- Whether modules of a name may be in the model's layers: shared experts are in those with experts alone.
local function may_be_in(name, has_experts)
  local parent = string.match(name, "([%w_]+)%.[%w_]+$")
  return not parent or has_experts or not string.find(parent, "expert")
end

-- Nothing yet: targets.add fills it.
function targets.of(config, has_experts)
  return { targets = {}, seen = {}, params = {}, old = {}, has_experts = has_experts, experts = has_experts and of_experts(config) or {},
           linears = set_of(targets.linears(config, has_experts)) }
end

-- Adds a name to what the plan targets; false: the model has none of that name.
function targets.add(found, name)
  local last = scalar.behind_last(name, ".")
  if not may_be_in(name, found.has_experts) then return false end
  if found.experts[last] then
    found.old[last] = true
    return true
  elseif found.linears[last] or last == "lm_head" then
    if not found.seen[name] then found.targets[#found.targets + 1] = name end
    found.seen[name] = true
    return true
  end
  return false
end

-- PEFT changes all or none of what is one weight now.
local function converted(book, found, key)
  local params = {}
  for old, new in pairs(found.experts) do
    if found.old[old] then params[new] = true end
  end
  local missing
  for old, new in pairs(found.experts) do
    if params[new] and new == GATE_UP and not found.old[old] then missing = old end
  end
  if missing then
    book:refuse(key, string.format("gate and up of experts are one weight: PEFT has an adapter of both, or of none (%s is missing)", missing))
  end
  return params
end

-- Writes what was found. Whether that is anything; whether gate and up of experts have twice the rank.
function targets.write(book, plan, found, key, leaf)
  local params, names = converted(book, found, key), {}
  if #found.targets > 0 then plan:put("adapter.targets", quote.value(found.targets), leaf) end
  for _, name in ipairs { GATE_UP, DOWN } do
    if params[name] then names[#names + 1] = name end
  end
  for _, name in ipairs(found.params) do
    if not params[name] then names[#names + 1] = name end
  end
  if #names > 0 then plan:put("adapter.target_parameters", quote.value(names), found.leaf or leaf) end
  return #found.targets + #names > 0, params[GATE_UP]
end

-- Of an adapter of this rank, where targets.write says so.
function targets.put_twice(plan, rank, alpha)
  local why = "PEFT has gate and up of experts as one weight"
  plan:entry("adapter.rank_pattern", GATE_UP, quote.value(2 * rank), why)
  plan:entry("adapter.alpha_pattern", GATE_UP, quote.value(2 * alpha), why)
end

-- Of names that the model lacks, each as a user wrote it.
function targets.say_lacking(book, lacks)
  if #lacks == 0 then return end
  book:assume("adapter.targets", string.format("without %s: the model has no such linear, and PEFT takes no notice of it",
                                               table.concat(lacks, ", ")))
end

return targets
