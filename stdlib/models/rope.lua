-- rope.lua - rotary position embedding as Hugging Face's configs describe it: the keys
-- rope_theta and rope_scaling, or rope_parameters, which holds both. Where both are given
-- Transformers 5 takes rope_scaling, and rope_theta from beside it.
local config = require "weft.models.config"

local rope = {}

local llama3 = { "factor", "low_freq_factor", "high_freq_factor",
                 "original_max_position_embeddings" }
local yarn = { "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim" }
-- Those of them of which Hugging Face's classes read 0 as if it were not given.
local none_at_zero = { beta_fast = true, beta_slow = true, mscale = true, mscale_all_dim = true }
local known = { rope_type = true, type = true, rope_theta = true, truncate = true,
                partial_rotary_factor = true, short_factor = true, long_factor = true }
-- Keys of architectures whose queries grow with their positions.
local growing = { llama_4_scaling_beta = true, max_position_embeddings = true }
for _, key in ipairs(llama3) do known[key] = true end
for _, key in ipairs(yarn) do known[key] = true end

local function is_given(p)
  if type(p) ~= "table" then return p end
  for _ in pairs(p) do return true end
  return false
end
rope.is_given = is_given

-- The table in force, and where it is.
local function parameters(c)
  if is_given(c.rope_scaling) then return c.rope_scaling, "rope_scaling" end
  return c.rope_parameters or {}, c.rope_place or "rope_parameters"
end
rope.parameters = parameters

-- The types of layers that have a rope each.
rope.TYPES = { "full_attention", "sliding_attention" }

-- The config `c` of layers of one type, where rope_parameters has a table for each of them.
-- Older files have rope_theta for all, and rope_scaling for layers that see all tokens;
-- Gemma's, rope_local_base_freq for those with a window.
function rope.of_type(c, kind)
  local p, all = {}, type(c.rope_parameters) == "table" and c.rope_parameters or {}
  local function add(t)
    for key, value in pairs(type(t) == "table" and t or {}) do p[key] = value end
  end
  add(all[kind])
  if kind == "full_attention" then
    add(c.rope_scaling)
  elseif not p.rope_theta and c.rope_local_base_freq then
    p.rope_theta = c.rope_local_base_freq
  end
  local of = { rope_parameters = p, rope_scaling = false, rope_place = "rope_parameters." .. kind }
  -- A table of one type has a length of its own, where one table for all has the length beside it.
  if p.original_max_position_embeddings then of.original_max_position_embeddings = false end
  return setmetatable(of, { __index = c })
end

-- rope_parameters and rope_scaling of a config whose rope_theta and partial_rotary_factors may be lists, of a
-- number for each layer: those of a type are of its first layer. Scaling is of layers that see all tokens.
function rope.by_type(c, types)
  if is_given(c.rope_parameters) then return c.rope_parameters, c.rope_scaling end
  local out, scaling = {}, c.rope_scaling
  for _, kind in ipairs(rope.TYPES) do
    local at = 1
    for i = #types, 1, -1 do if types[i] == kind then at = i end end
    local theta, part = c.rope_theta, c.partial_rotary_factors
    out[kind] = { rope_type = "default", rope_theta = type(theta) == "table" and theta[at] or theta,
                  partial_rotary_factor = part and part[at] or nil }
  end
  if type(scaling) ~= "table" then return out, scaling end
  for key, value in pairs(scaling) do out.full_attention[key] = value end
  return out, false
end

-- Adds that a value, if there is one, is no table.
local function need_table(value, where, problems)
  if not value or type(value) == "table" then return true end
  config.add(problems, where, "expected a table, got %s", tostring(value))
end

-- Adds what is wrong with the ropes of all types; `partial`: each can turn a part of each head; `sized`: sizes
-- of heads are sound.
function rope.check_types(c, problems, partial, sized)
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
    rope.check(of, problems, partial, false, sized)
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

-- The length that scaling starts from.
local function original(c, p)
  return c.original_max_position_embeddings or p.original_max_position_embeddings
    or c.max_position_embeddings
end

-- Phi-3's first files call longrope "su", and "yarn".
local function scaling_type(p)
  local kind = p.rope_type or p.type or "default"
  return p.short_factor and (kind == "su" or kind == "yarn") and "longrope" or kind
end

local function is_positive(value) return type(value) == "number" and value > 0 and value < math.huge end

-- Adds a problem for each of the keys that is no number above 0.
local function need_positive(c, p, where, kind, keys, problems)
  for _, key in ipairs(keys) do
    local value = key == "original_max_position_embeddings" and original(c, p) or p[key]
    if not is_positive(value) then
      config.add(problems, where .. "." .. key, "%s needs a number above 0", kind)
    end
  end
end

-- The value of a key of YaRN; nil: it is not given.
local function of_yarn(p, key)
  local value = p[key]
  if value == 0 and none_at_zero[key] then return nil end
  return value or nil
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
  for _, key in ipairs(yarn) do if of_yarn(p, key) then given[#given + 1] = key end end
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

-- Which part of a head turns; MiniMax says how many elements.
local function share(c, p)
  return p.partial_rotary_factor or c.partial_rotary_factor
    or c.rotary_dim and c.rotary_dim / (c.head_dim or c.hidden_size // c.num_attention_heads) or 1
end

-- rope_parameters of a config whose class lets `part` of each head turn where nothing scales and the table of
-- the type does not say: each table says it. Where something scales it is what stands beside the tables, or all.
function rope.with_parts(c, part)
  local all, out = c.rope_parameters or {}, {}
  if type(all) ~= "table" then return all end
  for key, value in pairs(all) do out[key] = value end
  for _, kind in ipairs(rope.TYPES) do
    local p, t = rope.of_type(c, kind).rope_parameters, {}
    if not p.partial_rotary_factor and type(all[kind] or t) == "table" then
      for key, value in pairs(all[kind] or {}) do t[key] = value end
      local scales = scaling_type(p) ~= "default"
      t.partial_rotary_factor = (scales or not is_given(p)) and c.partial_rotary_factor or scales and 1.0 or part
      out[kind] = t
    end
  end
  return out
end

-- True if it is sound.
local function check_share(c, p, where, partial, problems)
  local part = share(c, p)
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
function rope.check(c, problems, partial, grows, sized)
  local p, where = parameters(c)
  if type(p) ~= "table" then
    return config.add(problems, where, "expected a table, got %s", tostring(p))
  end
  for _, key in ipairs(rope.unknown(p)) do
    if not (grows and growing[key]) then config.add(problems, where .. "." .. key, "unknown key") end
  end
  if grows then check_growth(p, where, problems) end
  local theta = p.rope_theta or c.rope_theta
  if not is_positive(theta) then
    config.add(problems, p.rope_theta and where .. ".rope_theta" or "rope_theta",
               "expected a number above 0, got %s", tostring(theta))
  end
  local turns = (sized or not c.rotary_dim) and check_share(c, p, where, partial, problems)
  local kind = scaling_type(p)
  if kind == "longrope" and not (sized and turns) then return end -- its lists have a number for each pair
  if checks[kind] then return checks[kind](c, p, where, problems) end
  config.add(problems, where .. ".rope_type",
             '"%s" is not supported (only "default", "linear", "dynamic", "llama3", "yarn", "longrope")',
             tostring(kind))
end

-- Keys that no supported type reads, sorted.
function rope.unknown(p)
  local list = {}
  for key in pairs(p) do
    if not known[key] then list[#list + 1] = tostring(key) end
  end
  table.sort(list)
  return list
end

-- How many elements of a head turn.
function rope.turning(c, head_dim)
  return math.floor(head_dim * share(c, (parameters(c))))
end

-- What YaRN multiplies by where a context is `factor` times longer.
local function mscale(factor, by)
  return factor <= 1 and 1 or 0.1 * (by or 1) * math.log(factor) + 1
end

-- The pair of `d` elements that turns so many times in the original context.
local function pair_of(turns, d, theta, length)
  return d * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(theta))
end

local function add_yarn(a, c, p)
  local d, length = a.head_dim, original(c, p)
  local low = pair_of(of_yarn(p, "beta_fast") or 32, d, a.theta, length)
  local high = pair_of(of_yarn(p, "beta_slow") or 1, d, a.theta, length)
  if p.truncate ~= false then low, high = math.floor(low), math.ceil(high) end
  low, high = math.max(low, 0), math.min(high, d - 1)
  a.yarn, a.rope_factor = 1, p.factor
  a.rope_low, a.rope_high = low, low == high and high + 0.001 or high
  if p.attention_factor then
    a.rope_scale = p.attention_factor
  elseif of_yarn(p, "mscale") and of_yarn(p, "mscale_all_dim") then
    a.rope_scale = mscale(p.factor, p.mscale) / mscale(p.factor, p.mscale_all_dim)
  else
    a.rope_scale = mscale(p.factor)
  end
end

-- What DeepSeek multiplies the scale of the softmax by: q and k are longer by mscale in
-- all elements, those that do not turn too.
function rope.softmax_scale(c)
  local p = parameters(c)
  if scaling_type(p) == "default" or not of_yarn(p, "mscale_all_dim") then return 1 end
  return mscale(p.factor, p.mscale_all_dim) ^ 2
end

-- All pairs turn `factor` times slower: none is as ever, and none in between.
local function add_linear(a, p)
  a.yarn, a.rope_factor, a.rope_low, a.rope_high, a.rope_scale = 1, p.factor, -1, 0, 1
end

-- Each pair turns as many times slower as one of two lists says: that of sequences up to the length that
-- scaling starts from, or that of longer ones. What turns grows with the factor between both lengths.
local function add_longrope(a, c, p, context)
  local length = original(c, p)
  local factor = p.factor or c.max_position_embeddings / length
  a.rope_factors = context and context > length and p.long_factor or p.short_factor
  a.rope_scale = p.attention_factor or factor > 1 and math.sqrt(1 + math.log(factor) / math.log(length)) or 1
end

-- Hugging Face's "dynamic" turns as ever up to the length that the model was made for.
local function check_length(c, seq)
  if seq and seq > c.max_position_embeddings then
    error(string.format("batch.seq = %d exceeds max_position_embeddings = %d, and rope of the "
                        .. "type dynamic then depends on the length", seq,
                        c.max_position_embeddings), 0)
  end
end

-- Attributes of g:rope for heads of so many elements, in sequences of `seq` tokens: with those before
-- one that is sampled.
function rope.attributes(c, head_dim, seq)
  local p = parameters(c)
  local turning = rope.turning(c, head_dim)
  local a = { head_dim = turning, theta = p.rope_theta or c.rope_theta }
  local kind = scaling_type(p)
  if kind == "llama3" then
    a.rope_factor = p.factor
    a.rope_low = p.low_freq_factor
    a.rope_high = p.high_freq_factor
    a.rope_original = original(c, p)
  elseif kind == "yarn" then
    add_yarn(a, c, p)
  elseif kind == "longrope" then
    add_longrope(a, c, p, seq)
  elseif kind == "linear" then
    add_linear(a, p)
  elseif kind == "dynamic" then
    check_length(c, seq)
  end
  if turning ~= head_dim then a.rotary_dim, a.head_dim = turning, head_dim end
  return a
end

-- Attributes of queries that grow, of those of keys.
function rope.longer(c, turn)
  local p, a = parameters(c), {}
  for key, value in pairs(turn) do a[key] = value end
  a.length_scale, a.length = p.llama_4_scaling_beta, math.tointeger(original(c, p))
  return a
end

-- The keys of each type that a file needs.
local written = { linear = { "factor" }, dynamic = { "factor" }, llama3 = llama3, yarn = yarn,
                  longrope = { "attention_factor" } }

-- Those of each type.
function rope.keys_by_type(c)
  local out = {}
  for _, kind in ipairs(rope.TYPES) do out[kind] = rope.keys(rope.of_type(c, kind)) end
  return out
end

-- The keys in one table, as Transformers 5 has them.
function rope.keys(c)
  local p = parameters(c)
  local kind = scaling_type(p)
  local out = { rope_theta = (p.rope_theta or c.rope_theta) + 0.0, rope_type = kind }
  if share(c, p) ~= 1 then out.partial_rotary_factor = share(c, p) + 0.0 end
  if p.llama_4_scaling_beta then
    out.llama_4_scaling_beta = p.llama_4_scaling_beta + 0.0
    out.original_max_position_embeddings = math.tointeger(original(c, p))
  end
  if kind == "default" then return out end
  for _, list in ipairs { written[kind], { "factor" } } do
    for _, key in ipairs(list) do if p[key] then out[key] = p[key] + 0.0 end end
  end
  if kind == "longrope" then out.short_factor, out.long_factor = p.short_factor, p.long_factor end
  if kind == "llama3" or kind == "yarn" or kind == "longrope" then
    out.original_max_position_embeddings = math.tointeger(original(c, p))
  end
  if kind == "yarn" then out.truncate = p.truncate end
  return out
end

return rope
