-- rope_check.lua - what is wrong with the keys of rope (rope.lua) in a config. Problems are as config.lua has
-- them.
local config = require "weft.models.config"
local rope = require "weft.models.rope"

local check = {}

local llama3, yarn = rope.LLAMA3, rope.YARN
-- Keys that some supported type reads.
local known = { rope_type = true, type = true, rope_theta = true, truncate = true,
                partial_rotary_factor = true, short_factor = true, long_factor = true }
-- Keys of architectures whose queries grow with their positions.
local growing = { llama_4_scaling_beta = true, max_position_embeddings = true }
for _, key in ipairs(llama3) do known[key] = true end
for _, key in ipairs(yarn) do known[key] = true end

-- Keys that no supported type reads, sorted.
local function unknown_keys(p)
  local list = {}
  for key in pairs(p) do
    if not known[key] then list[#list + 1] = tostring(key) end
  end
  table.sort(list)
  return list
end

local function is_positive(value) return type(value) == "number" and value > 0 and value < math.huge end

-- Adds a problem for each of the keys that is no number above 0.
local function need_positive(c, p, where, kind, keys, problems)
  for _, key in ipairs(keys) do
    local value = key == "original_max_position_embeddings" and rope.original(c, p) or p[key]
    if not is_positive(value) then
      config.add(problems, where .. "." .. key, "%s needs a number above 0", kind)
    end
  end
end

-- What the types need of their keys.
local checks = { default = function() end }

function checks.linear(c, p, where, problems)
  need_positive(c, p, where, "linear", { "factor" }, problems)
end

function checks.dynamic(c, p, where, problems)
  need_positive(c, p, where, "dynamic", { "factor" }, problems)
end

function checks.llama3(c, p, where, problems)
  need_positive(c, p, where, "llama3", llama3, problems)
  if p.low_freq_factor and p.low_freq_factor == p.high_freq_factor then
    config.add(problems, where .. ".high_freq_factor", "must not be low_freq_factor")
  end
end

function checks.yarn(c, p, where, problems)
  local given = { "factor", "original_max_position_embeddings" }
  for _, key in ipairs(yarn) do if rope.of_yarn(p, key) then given[#given + 1] = key end end
  need_positive(c, p, where, "yarn", given, problems)
  if (p.rope_theta or c.rope_theta) == 1 then
    config.add(problems, where .. ".rope_theta", "yarn needs another number than 1, which turns all pairs alike")
  end
end

local MOST_PAIRS <const> = 64

function checks.longrope(c, p, where, problems)
  local head_dim = c.head_dim or c.hidden_size // c.num_attention_heads
  local pairs_turning = rope.turning(c, head_dim) // 2
  for _, key in ipairs { "short_factor", "long_factor" } do
    local list, at = p[key], where .. "." .. key
    if type(list) ~= "table" or #list ~= pairs_turning then
      config.add(problems, at, "longrope needs a list of %d numbers, one for each pair that turns, got %s",
                 pairs_turning, type(list) == "table" and #list or tostring(list))
    elseif #list > MOST_PAIRS then
      config.add(problems, at, "%d pairs: at most %d have a factor each", #list, MOST_PAIRS)
    else
      for i, value in ipairs(list) do
        if not is_positive(value) then
          config.add(problems, at, "item %d: expected a number above 0, got %s", i, tostring(value))
          break
        end
      end
    end
  end
  local given = { "original_max_position_embeddings" }
  for _, key in ipairs { "factor", "attention_factor" } do if p[key] then given[#given + 1] = key end end
  need_positive(c, p, where, "longrope", given, problems)
end

-- True if it is sound.
local function check_share(c, p, where, partial, problems)
  local part = rope.share(c, p)
  if p.partial_rotary_factor then where = where .. ".partial_rotary_factor"
  else where = "partial_rotary_factor" end
  if not partial and part ~= 1 then
    config.add(problems, where, "only 1 is supported")
  elseif not is_positive(part) or part > 1 then
    config.add(problems, where, "expected a number above 0, up to 1, got %s", tostring(part))
  else
    return true
  end
end

-- Queries grow by a share of the logarithm of how many lengths, of the context that scaling
-- starts from, are before them.
local function check_growth(p, where, problems)
  for _, row in ipairs { { "llama_4_scaling_beta", 0 }, { "original_max_position_embeddings", 1 } } do
    local key, least = row[1], row[2]
    if type(p[key]) ~= "number" or p[key] < least then
      config.add(problems, where .. "." .. key, "expected a number from %d, got %s", least, tostring(p[key]))
    end
  end
end

-- Adds what is wrong with the keys of rope to `problems`; `partial`: the model can turn a part
-- of each head; `grows`: its queries grow with their positions; `sized`: sizes of heads are sound.
function check.keys(c, problems, partial, grows, sized)
  local p, where = rope.parameters(c)
  if type(p) ~= "table" then
    return config.add(problems, where, "expected a table, got %s", tostring(p))
  end
  for _, key in ipairs(unknown_keys(p)) do
    if not (grows and growing[key]) then config.add(problems, where .. "." .. key, "unknown key") end
  end
  if grows then check_growth(p, where, problems) end
  local theta = p.rope_theta or c.rope_theta
  if not is_positive(theta) then
    config.add(problems, p.rope_theta and where .. ".rope_theta" or "rope_theta",
               "expected a number above 0, got %s", tostring(theta))
  end
  local turns = (sized or not c.rotary_dim) and check_share(c, p, where, partial, problems)
  local kind = rope.scaling_type(p)
  if kind == "longrope" and not (sized and turns) then return end -- its lists have a number for each pair
  if checks[kind] then return checks[kind](c, p, where, problems) end
  config.add(problems, where .. ".rope_type",
             '"%s" is not supported (only "default", "linear", "dynamic", "llama3", "yarn", "longrope")',
             tostring(kind))
end

-- Adds that a value, if there is one, is no table.
local function need_table(value, where, problems)
  if not value or type(value) == "table" then return true end
  config.add(problems, where, "expected a table, got %s", tostring(value))
end

-- Adds what is wrong with the ropes of all types; `partial`: each can turn a part of each head; `sized`: sizes
-- of heads are sound.
function check.types(c, problems, partial, sized)
  local known_types = {}
  for _, kind in ipairs(rope.TYPES) do known_types[kind] = true end
  need_table(c.rope_scaling, "rope_scaling", problems)
  if not need_table(c.rope_parameters, "rope_parameters", problems) then return end
  local unknown = {}
  for key in pairs(c.rope_parameters or {}) do
    if not known_types[key] then unknown[#unknown + 1] = tostring(key) end
  end
  table.sort(unknown)
  for _, key in ipairs(unknown) do
    config.add(problems, "rope_parameters." .. key,
               "no type of layers (only a table for each of %s)", table.concat(rope.TYPES, ", "))
  end
  for _, kind in ipairs(rope.TYPES) do
    local of, before = rope.of_type(c, kind), #problems
    need_table((c.rope_parameters or {})[kind], of.rope_place, problems)
    check.keys(of, problems, partial, false, sized)
    if partial and sized and #problems == before and rope.turning(of, c.head_dim) % 2 ~= 0 then
      config.add(problems, of.rope_place .. ".partial_rotary_factor", "%d elements of a head of %d turn, which "
                 .. "must be even", rope.turning(of, c.head_dim), c.head_dim)
    end
    -- Hugging Face looks for it beside the tables, and so rounds whatever one of them says.
    if of.rope_parameters.truncate == false then
      config.add(problems, of.rope_place .. ".truncate",
                 "only true is supported in the table of a type of layers")
    end
  end
end

return check
