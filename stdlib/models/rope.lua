-- rope.lua - rotary position embedding as Hugging Face's configs describe it: the keys
-- rope_theta and rope_scaling, or rope_parameters, which holds both. Where both are given
-- Transformers 5 takes rope_scaling, and rope_theta from beside it.
local config = require "weft.models.config"

local rope = {}

local llama3 = { "factor", "low_freq_factor", "high_freq_factor",
                 "original_max_position_embeddings" }
local known = { rope_type = true, type = true, rope_theta = true,
                partial_rotary_factor = true }
for _, key in ipairs(llama3) do known[key] = true end

local function is_given(p)
  if type(p) ~= "table" then return p end
  for _ in pairs(p) do return true end
  return false
end

local function parameters(c)
  if is_given(c.rope_scaling) then return c.rope_scaling, "rope_scaling" end
  return c.rope_parameters or {}, "rope_parameters"
end

-- The length that scaling starts from.
local function original(c, p)
  return c.original_max_position_embeddings or p.original_max_position_embeddings
    or c.max_position_embeddings
end

local function scaling_type(p) return p.rope_type or p.type or "default" end

-- Adds what is wrong with the keys of rope to `problems`.
function rope.check(c, problems)
  local p, where = parameters(c)
  if type(p) ~= "table" then
    return config.add(problems, where, "expected a table, got %s", tostring(p))
  end
  for _, key in ipairs(rope.unknown(p)) do
    config.add(problems, where .. "." .. key, "unknown key")
  end
  local theta = p.rope_theta or c.rope_theta
  if type(theta) ~= "number" or theta <= 0 then
    config.add(problems, p.rope_theta and where .. ".rope_theta" or "rope_theta",
               "expected a number above 0, got %s", tostring(theta))
  end
  if (p.partial_rotary_factor or 1) ~= 1 then
    config.add(problems, where .. ".partial_rotary_factor", "only 1 is supported")
  end
  local kind = scaling_type(p)
  if kind == "llama3" then
    for _, key in ipairs(llama3) do
      local value = key == "original_max_position_embeddings" and original(c, p) or p[key]
      if type(value) ~= "number" or value <= 0 then
        config.add(problems, where .. "." .. key, "llama3 needs a number above 0")
      end
    end
    if p.low_freq_factor and p.low_freq_factor == p.high_freq_factor then
      config.add(problems, where .. ".high_freq_factor", "must not be low_freq_factor")
    end
  elseif kind ~= "default" then
    config.add(problems, where .. ".rope_type",
               '"%s" is not supported (only "default", "llama3")', tostring(kind))
  end
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

-- Attributes of g:rope.
function rope.attributes(c, head_dim)
  local p = parameters(c)
  local a = { head_dim = head_dim, theta = p.rope_theta or c.rope_theta }
  if scaling_type(p) == "llama3" then
    a.rope_factor = p.factor
    a.rope_low = p.low_freq_factor
    a.rope_high = p.high_freq_factor
    a.rope_original = original(c, p)
  end
  return a
end

return rope
