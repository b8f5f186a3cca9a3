-- spec.lua - what a random plan of `weft-tests --plan` says, as JSON, without weft: plain Lua
-- runs the plan with a `weft` of its own, which keeps what it is given. A model function is
-- called with a builder that writes down its ops; all else of it is plan_models.py's.
--
--   lua5.4 tests/oracle/spec.lua PLAN.lua

-- ---- JSON ----

local json

local function is_list(t)
  local n = 0
  for _ in pairs(t) do n = n + 1 end
  return n == #t
end

local function json_table(t)
  local parts = {}
  if is_list(t) then
    for i, v in ipairs(t) do parts[i] = json(v) end
    return "[" .. table.concat(parts, ",") .. "]"
  end
  for k, v in pairs(t) do
    if type(v) ~= "function" then
      parts[#parts + 1] = string.format("%s:%s", json(tostring(k)), json(v))
    end
  end
  table.sort(parts)
  return "{" .. table.concat(parts, ",") .. "}"
end

function json(v)
  if type(v) == "table" then return json_table(v) end
  if type(v) == "string" then return '"' .. v:gsub('[\\"]', "\\%0") .. '"' end
  if math.type(v) == "float" then return string.format("%.17g", v) end
  return tostring(v)
end

-- ---- model functions ----

-- A builder: a tensor is its number. `ops` gets { op =, ["in"] =, out =, attr = }.
local function recorder(ops)
  local count, units, sites, attentions = 0, 0, 0, 0
  local function new()
    count = count + 1
    return { number = count }
  end
  local function write(op, list, attr, outs)
    local into, out = {}, {}
    for i, x in ipairs(list) do into[i] = x.number end
    for i = 1, outs do out[i] = new() end
    local numbers = {}
    for i, x in ipairs(out) do numbers[i] = x.number end
    ops[#ops + 1] = { op = op, ["in"] = into, out = numbers, attr = attr }
    return table.unpack(out)
  end
  local g = {}
  function g.param(_, name) return write("param", {}, { name = name }, 1) end
  function g.unit(_, _, fn)
    units, sites, attentions = units + 1, 0, 0
    return fn()
  end
  g.layer = g.unit
  function g.dropout(_, x, attr)
    sites = sites + 1
    return write("dropout", { x }, { rate = attr.rate, unit = units - 1, site = sites - 1 }, 1)
  end
  -- Sinks, which may be nil, are before the attributes.
  function g.attention(_, q, k, v, starts, ...)
    attentions = attentions + 1
    local more = table.pack(...)
    local attr, sinks = more[more.n], more.n > 1 and more[1] or nil
    return write("attention", { q, k, v, starts, sinks }, { head_dim = attr.head_dim,
      rate = attr.rate, unit = units - 1, site = attentions - 1, window = attr.window,
      soft_cap = attr.soft_cap }, 1)
  end
  return setmetatable(g, {
    __index = function(_, op)
      return function(_, ...)
        local list, attr = {}, {}
        for _, x in ipairs { ... } do
          if x.number then list[#list + 1] = x else attr = x end
        end
        return write(op, list, attr, op == "split" and attr.n or 1)
      end
    end,
  })
end

local function ops_of(model)
  if type(model[1]) ~= "function" then return nil end
  local ops = {}
  model[1](recorder(ops), model)
  return ops
end

-- ---- the plan ----

-- { "embed_tokens", lr = 0.1 }: what the items name, and the rest.
local function groups_of(groups)
  local out = {}
  for i, g in ipairs(groups) do
    out[i] = { patterns = table.move(g, 1, #g, 1, {}), lr = g.lr, weight_decay = g.weight_decay }
  end
  return out
end

local function same(x) return x end
local function empty() return {} end

-- The kind of a learning rate or an optimizer is the name of its function.
local function rate(kind)
  return function(t)
    t = type(t) == "table" and t or { max = t }
    t.kind = kind
    return t
  end
end

local function named(kind)
  return function(t)
    t.kind = kind
    return t
  end
end

package.preload.weft = function()
  return {
    plan = same, model = same, adamw = named "adamw",
    sgd = named "sgd", lion = named "lion", muon = named "muon", adafactor = named "adafactor", adam = named "adam",
    adamw_8bit = named "adamw_8bit", tokens = same, synthetic = same,
    tp_plan = empty, extend = empty,
    constant = rate "constant", cosine = rate "cosine", linear = rate "linear",
  }
end

local plan = assert(loadfile(arg[1]))()
print(json {
  name = plan.name, mesh = plan.mesh, batch = plan.batch, moe = plan.moe or {},
  packed = plan.packed or {}, seed = (plan.train or {}).seed or 0,
  noise_alpha = (plan.train or {}).neftune_noise_alpha or 0, optimizer = plan.optimizer,
  precision = type(plan.precision) == "table" and plan.precision or {},
  adapter = plan.adapter or {},
  freeze = plan.freeze or {}, groups = plan.groups and groups_of(plan.groups) or {},
  mtp = plan.mtp or {}, z_loss = (plan.loss or {}).z_loss or 0,
  model = type(plan.model[1]) == "string" and plan.model[1] or "function",
  ops = ops_of(plan.model),
})
