-- constructors.lua - objects among the arguments of torchtitan's models, MoEArgs and RoPEScalingArgs: which
-- arguments they have, what torchtitan takes for those that are not given, and which of them no model of
-- weft computes. `{ route_norm = true }` of moe_args becomes a table in which all others are said, too.
local quote = use "import/quote"
local scalar = use "import/scalar"
local constructors = {}

local function whole(v, least) return math.type(v) == "integer" and v >= least end

-- What an argument can be, and how that is said.
local kinds = {
  count = { "a whole number from 1", function(v) return whole(v, 1) end },
  number = { "a number above 0", function(v) return type(v) == "number" and v > 0 end },
  some = { "a whole number from 0", function(v) return whole(v, 0) end },
  switch = { "True or False", function(v) return type(v) == "boolean" end },
  score = { '"softmax" or "sigmoid"', function(v) return v == "softmax" or v == "sigmoid" end },
}

-- Arguments of the classes by the argument of a model that is such an object: their kind and default. One
-- without a default may be None; `none` stands for a None that is not the default.
local classes = {
  moe_args = { name = "MoEArgs", arguments = {
    num_experts = { "count", 8 }, num_shared_experts = { "some", 1 }, top_k = { "count", 1 },
    score_func = { "score", "sigmoid" }, route_norm = { "switch", false }, route_scale = { "number", 1.0 },
    score_before_experts = { "switch", true }, num_expert_groups = { "count" }, num_limited_groups = { "count" },
    load_balance_coeff = { "number", 1e-3, none = 0 }, use_grouped_mm = { "switch", true },
    _debug_force_load_balance = { "switch", false },
    gate_bias = { "switch" }, -- from 0.2.2 on, where the default is False
  } },
  rope_scaling_args = { name = "RoPEScalingArgs", arguments = {
    scaling_factor = { "number", 8.0 }, low_freq_factor = { "number", 1.0 }, high_freq_factor = { "number", 4.0 },
    original_max_position_embeddings = { "count", 8192 },
  } },
}

-- The value of an argument; nil and why not.
local function value_of(row, given)
  if given == nil then return row[2] end
  if given == scalar.null and (row.none or row[2] == nil) then return row.none end
  local kind = kinds[row[1]]
  if kind[2](given) then return given end
  return nil, string.format("expected %s, got %s", kind[1], quote.shown(given))
end

-- What the argument `key` of a model says, as torchtitan reads it: nil where it is no such object; false
-- and why where it cannot be read.
function constructors.read(key, given)
  local class = classes[key]
  if not class then return nil end
  if given == nil then given = {} end
  local name = type(given) == "table" and given.class
  if type(given) ~= "table" or given[1] ~= nil or name and scalar.behind_last(name, ".") ~= class.name then
    return false, string.format("%s: expected %s(...), got %s", key, class.name, quote.shown(name or given))
  end
  for _, one in ipairs(keys(given)) do
    if one ~= "class" and not class.arguments[one] then
      return false, string.format("%s has an argument that weft does not know: %s", class.name, quote.shown(one))
    end
  end
  local read = {}
  for _, one in ipairs(keys(class.arguments)) do
    local value, why = value_of(class.arguments[one], given[one])
    if why then return false, string.format("%s.%s: %s", key, one, why) end
    read[one] = value
  end
  return read
end

-- Why no model of weft has such experts; nil: one has.
function constructors.refused(moe)
  if moe.score_before_experts then
    return "moe_args: score_before_experts is True, as by default: scores of experts are applied to what comes of "
      .. "them in weft"
  elseif moe._debug_force_load_balance then
    return "moe_args._debug_force_load_balance: experts are chosen by their routers in weft"
  elseif (moe.num_expert_groups ~= nil) ~= (moe.num_limited_groups ~= nil) then
    return "moe_args: num_expert_groups and num_limited_groups go together"
  end
end

return constructors
