-- rope.lua - rotary position embedding as Hugging Face's configs describe it: the keys
-- rope_theta and rope_scaling, or rope_parameters, which holds both. Where both are given
-- Transformers 5 takes rope_scaling, and rope_theta from beside it.
local rope = {}

-- The keys of these types.
local llama3 = { "factor", "low_freq_factor", "high_freq_factor",
                 "original_max_position_embeddings" }
local yarn = { "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim" }
rope.LLAMA3, rope.YARN = llama3, yarn
-- Those of them of which Hugging Face's classes read 0 as if it were not given.
local none_at_zero = { beta_fast = true, beta_slow = true, mscale = true, mscale_all_dim = true }

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

-- The length that scaling starts from.
function rope.original(c, p)
  return c.original_max_position_embeddings or p.original_max_position_embeddings
    or c.max_position_embeddings
end

-- Phi-3's first files call longrope "su", and "yarn".
function rope.scaling_type(p)
  local kind = p.rope_type or p.type or "default"
  return p.short_factor and (kind == "su" or kind == "yarn") and "longrope" or kind
end

-- The value of a key of YaRN; nil: it is not given.
function rope.of_yarn(p, key)
  local value = p[key]
  if value == 0 and none_at_zero[key] then return nil end
  return value or nil
end

-- Which part of a head turns; MiniMax says how many elements.
function rope.share(c, p)
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
      local scales = rope.scaling_type(p) ~= "default"
      t.partial_rotary_factor = (scales or not is_given(p)) and c.partial_rotary_factor or scales and 1.0 or part
      out[kind] = t
    end
  end
  return out
end

-- How many elements of a head turn.
function rope.turning(c, head_dim)
  return math.floor(head_dim * rope.share(c, (parameters(c))))
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
  local d, length = a.head_dim, rope.original(c, p)
  local low = pair_of(rope.of_yarn(p, "beta_fast") or 32, d, a.theta, length)
  local high = pair_of(rope.of_yarn(p, "beta_slow") or 1, d, a.theta, length)
  if p.truncate ~= false then low, high = math.floor(low), math.ceil(high) end
  low, high = math.max(low, 0), math.min(high, d - 1)
  a.yarn, a.rope_factor = 1, p.factor
  a.rope_low, a.rope_high = low, low == high and high + 0.001 or high
  if p.attention_factor then
    a.rope_scale = p.attention_factor
  elseif rope.of_yarn(p, "mscale") and rope.of_yarn(p, "mscale_all_dim") then
    a.rope_scale = mscale(p.factor, p.mscale) / mscale(p.factor, p.mscale_all_dim)
  else
    a.rope_scale = mscale(p.factor)
  end
end

-- What DeepSeek multiplies the scale of the softmax by: q and k are longer by mscale in
-- all elements, those that do not turn too.
function rope.softmax_scale(c)
  local p = parameters(c)
  if rope.scaling_type(p) == "default" or not rope.of_yarn(p, "mscale_all_dim") then return 1 end
  return mscale(p.factor, p.mscale_all_dim) ^ 2
end

-- All pairs turn `factor` times slower: none is as ever, and none in between.
local function add_linear(a, p)
  a.yarn, a.rope_factor, a.rope_low, a.rope_high, a.rope_scale = 1, p.factor, -1, 0, 1
end

-- Each pair turns as many times slower as one of two lists says: that of sequences up to the length that
-- scaling starts from, or that of longer ones. What turns grows with the factor between both lengths.
local function add_longrope(a, c, p, context)
  local length = rope.original(c, p)
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
  local kind = rope.scaling_type(p)
  if kind == "llama3" then
    a.rope_factor = p.factor
    a.rope_low = p.low_freq_factor
    a.rope_high = p.high_freq_factor
    a.rope_original = rope.original(c, p)
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
  a.length_scale, a.length = p.llama_4_scaling_beta, math.tointeger(rope.original(c, p))
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
  local kind = rope.scaling_type(p)
  local out = { rope_theta = (p.rope_theta or c.rope_theta) + 0.0, rope_type = kind }
  if rope.share(c, p) ~= 1 then out.partial_rotary_factor = rope.share(c, p) + 0.0 end
  if p.llama_4_scaling_beta then
    out.llama_4_scaling_beta = p.llama_4_scaling_beta + 0.0
    out.original_max_position_embeddings = math.tointeger(rope.original(c, p))
  end
  if kind == "default" then return out end
  for _, list in ipairs { written[kind], { "factor" } } do
    for _, key in ipairs(list) do if p[key] then out[key] = p[key] + 0.0 end end
  end
  if kind == "longrope" then out.short_factor, out.long_factor = p.short_factor, p.long_factor end
  if kind == "llama3" or kind == "yarn" or kind == "longrope" then
    out.original_max_position_embeddings = math.tointeger(rope.original(c, p))
  end
  if kind == "yarn" then out.truncate = p.truncate end
  return out
end

return rope
