-- odd_values.lua - each key of a family (-D family=llama) with values that no file should have. A check
-- refuses them, or what it takes builds a model; neither ends in an error of Lua. check_model_files loads it.
local weft = require "weft"

local name = weft.vars.family
local arch = require("weft.models." .. name)

-- A graph that takes everything: tensors are tables with a size.
local tensor = setmetatable({}, { __index = function() return function() return 8 end end })
local results = { permute = 3, route = 2, split_heads = 2, ssm_steps = 2 }
local given = {
  context = { 16 }, mtp = { 0, 0 }, noise_alpha = { 0 },
  moe = { { aux = 0, z = 0, groups = 0, topk_group = 0, sinkhorn = 0, capacity = 0, bound = 0, drop = 0,
            aux_sequences = 0 } },
}

-- Sizes that g:param and ops take are whole numbers, and their numbers finite.
local function look(value)
  if type(value) == "number" and not (value > -math.huge and value < math.huge) then error("bad argument: no number") end
  if type(value) ~= "table" or value == tensor then return end
  for _, item in pairs(value) do look(item) end
end

local g = setmetatable({}, { __index = function(_, op)
  return function(_, ...)
    local list = table.pack(...)
    if op == "unit" or op == "layer" then return list[2]() end
    if given[op] then return table.unpack(given[op]) end
    local out = {}
    for i = 1, list.n do look(list[i]) end
    for i = 1, op == "split" and list[2].n or results[op] or 1 do out[i] = tensor end
    return table.unpack(out)
  end
end })

local VALUES = {
  true, false, 0, 1, 3, -1, 0.5, 1.5, math.huge, 0 / 0, "x", "", {}, { 1, 2, 3 }, { "x" }, { a = 1 },
  { false, 1 }, { full_attention = 5 }, { full_attention = { rope_type = "yarn" } },
  { rope_type = "longrope", short_factor = 5 }, { rope_type = "yarn", rope_theta = 1, factor = 2 }, { rope_theta = "x", partial_rotary_factor = "x" },
}

local function with(base, key, value)
  local c = {}
  for k, v in pairs(base) do c[k] = v end
  c[key] = value
  return c
end

-- What a text says where a value went wrong in the library, and not in its checks.
local function of_library(text)
  text = tostring(text)
  return text:find "attempt to" or text:find "bad argument" or text:find "stdlib/"
end

local function try(c)
  local ok, problems = pcall(arch.check, c)
  if not ok then return problems end
  if #problems > 0 then return nil end
  local built, why = pcall(arch.build, g, c)
  return not built and of_library(why) and why or nil
end

local base = with(arch.defaults, "head_dim", name == "glm4_moe" and 128 or arch.defaults.head_dim)
if base.num_hidden_layers then base.num_hidden_layers = 2 end
if base.max_window_layers then base.max_window_layers = 1 end
assert(#arch.check(base) == 0, name)
for key, default in pairs(arch.defaults) do
  for i, value in ipairs(VALUES) do
    -- A file's null is the table of the class.
    if not (value == false and type(default) == "table") then
      local why = try(with(base, key, value))
      if why then error(string.format("%s: %s, value %d: %s", name, key, i, tostring(why))) end
    end
  end
end

return weft.plan { model = weft.model "llama-tiny", batch = { global = 1, seq = 8 } }
