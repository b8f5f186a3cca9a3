-- random_model.lua - draws model functions and tensor plans for `./dev fuzz`: weights that
-- several ops and units read, in both orientations, as other kinds of parameters and inside
-- arithmetic; a style for each module, legal or not. All of it is keyed by a number; `new_draw`
-- is that of random_draw.lua.
-- ---- the model ----

-- What a block may do; each takes the builder and (batch, seq, hidden), and returns that.
local blocks = {}

-- The weight of a linear layer: a parameter, or something computed from two of them.
local function weight(b, name, out, into)
  local w = b.g:param(name .. ".weight", { out, into }, { std = 0.2 })
  if not b.d:maybe(6) then return w end
  local other = b.g:param(b:module("delta", out[1] .. into[1]) .. ".weight", { out, into },
                          { std = 0.2 })
  if b.d:maybe(2) then return b.g:add(w, b.g:scale(other, { scale = 0.5 })) end
  return b.g:mul(w, b.g:add(other, w))
end

local function norm(b, x)
  local name = b:module("norm", "")
  local w = b.g:param(name .. ".weight", { b.hidden }, { init = "ones" })
  local centered = b.d:maybe(4) and 1 or 0
  if b.d:maybe(3) then
    local bias = b.g:param(b:module("shift", "") .. ".bias", { b.hidden })
    return b.g:layernorm(x, w, bias,
                         { eps = 1e-5, zero_centered = centered, name = b:named(name) })
  end
  if b.sight:maybe(5) then x = b.g:center(x) end
  return b.g:rmsnorm(x, w, { eps = 1e-5, zero_centered = centered, name = b:named(name) })
end

-- A number for each token says how much of y counts.
local function gated_by(b, x, y)
  if not b.sight:maybe(4) then return y end
  local name = b:module("share", "")
  local w = b.g:param(name .. ".weight", { { "none", 1 }, b.hidden }, { std = 0.2 })
  return b.g:gate(y, b.g:linear(x, w, { name = b:named(name) }))
end

function blocks.mlp(b, x)
  local up = b:module("up", "")
  local h = b.g:linear(norm(b, x), weight(b, up, b.ffn, b.hidden), { name = b:named(up) })
  local bend = b.d:pick { "silu", "gelu", "relu", "soft_cap" }
  h = b.g[bend](b.g, h, bend == "soft_cap" and { soft_cap = 0.7 } or {})
  if b.gates:maybe(5) then h = b.g:clamp(h, { limit = 0.25 }) end
  if b.d:maybe(3) then            -- the same weight the other way round
    local w = b.g:param(up .. ".weight", { b.ffn, b.hidden }, { std = 0.2 })
    return b.g:linear(h, w, { layout = 1, name = b:named(b:module("back", "")) })
  end
  local down = b:module("down", "")
  return b.g:linear(h, weight(b, down, b.hidden, b.ffn), { name = b:named(down) })
end

function blocks.gated(b, x)
  local up, gate = b:module("up", ""), b:module("gate", "")
  local h = norm(b, x)
  local u = b.g:linear(h, weight(b, up, b.ffn, b.hidden), { name = b:named(up) })
  local v = b.g:linear(h, weight(b, gate, b.ffn, b.hidden), { name = b:named(gate) })
  local down = b:module("down", "")
  return gated_by(b, h, b.g:linear(b:dropout(b.g:silu_mul(u, v)),
                                   weight(b, down, b.hidden, b.ffn), { name = b:named(down) }))
end

-- A number for each head of each token says how much of it counts.
local function head_gated(b, x, y)
  if not b.gates:maybe(4) then return y end
  local name, heads = b:module("gates", ""), b.heads[2] // b.d_head
  local w = b.g:param(name .. ".weight", { { "head", heads }, b.hidden }, { std = 0.2 })
  return b.g:gate(y, b.g:linear(x, w), { kind = b.gates:pick { 0, 1 } })
end

function blocks.attention(b, x)
  local h, turn = norm(b, x), { head_dim = b.d_head, theta = 10000.0 }
  local function project(kind)
    local name = b:module(kind, "")
    return b.g:linear(h, weight(b, name, b.heads, b.hidden), { name = b:named(name) })
  end
  local q = b.g:rope(project "q", b.g:positions(), turn)
  local k = b.d:maybe(4) and q or b.g:rope(project "k", b.g:positions(), turn)
  local v = b.d:maybe(4) and k or project "v"
  local o = b:module("o", "")
  local how = { head_dim = b.d_head, rate = b.drops:pick { 0, 0, 0, 0.2 },
                window = b.sight:pick { 0, 0, 2, 3, 5 },
                soft_cap = b.sight:pick { 0, 0, 0, 1.5 } }
  local sinks
  if b.sight:maybe(4) then
    sinks = b.g:param(b.at .. ".sinks.weight", { b.sinks }, { std = 0.5 })
  end
  local y = head_gated(b, h, b.g:attention(q, k, v, b.g:doc_starts(), sinks, how))
  return b.g:linear(y, weight(b, o, b.hidden, b.heads), { name = b:named(o) })
end

function blocks.packed(b, x)
  local name, n = b:module("pair", ""), 2
  local w = b.g:param(name .. ".weight", { b.pair, b.hidden }, { std = 0.2 })
  local y = b.g:linear(norm(b, x), w, { name = b:named(name) })
  if b.d:maybe(2) then
    y = b.g:add_bias(y, b.g:param(name .. ".bias", { b.pair }))
  end
  local u, v = b.g:split(y, { n = n })
  local down = b:module("down", "")
  return b.g:linear(b.g:mul(u, b.g:silu(v)), weight(b, down, b.hidden, b.ffn),
                    { name = b:named(down) })
end

function blocks.square(b, x)
  local name = b:module("square", "")
  local w = b.g:param(name .. ".weight", { b.hidden, b.hidden }, { std = 0.1 })
  local y = b.g:linear(norm(b, x), w, { name = b:named(name) })
  if b.d:maybe(2) then y = b.g:linear(y, w, { layout = 1, name = b:named(name) }) end
  return y
end

-- A bias that may also be the weight of a norm.
function blocks.bias(b, x)
  local name = b.d:pick { b:module("shift", ""), b:module("norm", "") }
  local leaf = name:find "norm" and ".weight" or ".bias"
  local options = leaf == ".weight" and { init = "ones" } or nil
  return b.g:add_bias(b.g:scale(x, { scale = 0.1 }),
                      b.g:param(name .. leaf, { b.hidden }, options))
end

local builder = {}
builder.__index = builder

-- The module of a parameter of this kind: the layer's own, or one that others read, too.
function builder:module(kind, key)
  if self.d:maybe(3) then return "shared." .. kind .. key end
  return self.at .. "." .. kind .. key
end

-- nil: the module of its parameter.
function builder:named(name) return self.d:maybe(6) and name .. "_again" or nil end

-- Drops some of x, with a generator of its own, so that the rest of a model is unchanged.
function builder:dropout(x)
  local rate = self.drops:pick { 0, 0, 0.1, 0.5 }
  return rate > 0 and self.g:dropout(x, { rate = rate }) or x
end

local kinds = { "mlp", "gated", "attention", "packed", "square", "bias" }

local function build(g, c, seed)
  local b = setmetatable({ g = g, d = new_draw(seed), drops = new_draw(seed + 11),
                           sight = new_draw(seed + 13), gates = new_draw(seed + 17) }, builder)
  local d, width = b.d, c.heads * c.head_dim
  b.hidden, b.heads = { "hidden", width }, { "head", width, unit = c.head_dim }
  b.sinks = { "none", width // c.head_dim }
  b.ffn, b.pair, b.d_head = { "ffn", c.ffn }, { "ffn", 2 * c.ffn, parts = 2 }, c.head_dim
  b.at = "embed"
  local table_dims = { { "vocab", c.vocab_size }, b.hidden }
  local before = {}
  local x = g:unit("embed", function()
    local y = g:embedding(g:tokens(), g:param("embed.weight", table_dims, { std = 0.3 }))
    if d:maybe(3) then            -- the same table twice
      local again = g:embedding(g:tokens(), g:param("embed.weight", table_dims))
      y = g:add(y, g:scale(again, { scale = 0.5, }))
    end
    return b:dropout(y)
  end)
  for i = 0, c.layers - 1 do
    b.at = "layers." .. i
    x = g:layer(i, function()
      local y = x
      for _ = 1, 1 + d:below(2) do
        y = g:add(y, b:dropout(blocks[d:pick(kinds)](b, y)))
      end
      if #before > 0 and d:maybe(3) then y = g:add(y, d:pick(before)) end
      return y
    end)
    before[#before + 1] = x
  end
  b.at = "head"
  return g:unit("head", function()
    local function loss_of(h)
      local tied = d:maybe(2)
      local w = g:param(tied and "embed.weight" or "head.weight", table_dims, { std = 0.3 })
      return g:cross_entropy(g:linear(h, w, { name = tied and "head" or nil }), g:labels())
    end
    local loss = loss_of(norm(b, x))
    if not d:maybe(4) then return loss end
    return g:add(loss, g:scale(loss_of(norm(b, d:pick(before))), { scale = 0.3 }))
  end)
end

-- ---- the tensor plan ----

local styles = { "replicate", "sequence_parallel", "colwise", "colwise_gather_output",
                 "packed_colwise", "rowwise", "rowwise_split_input", "packed_rowwise",
                 "embedding_rowwise", "embedding_colwise" }
-- What is legal for the op that reads the module's parameter.
local legal = {
  linear = { "colwise", "rowwise", "colwise_gather_output", "replicate" },
  rmsnorm = { "sequence_parallel", "replicate" },
  layernorm = { "sequence_parallel", "replicate" },
  add_bias = { "replicate", "colwise" },
  attention = { "replicate" },
  embedding = { "embedding_rowwise", "rowwise", "replicate", "embedding_colwise" },
  packed = { "packed_colwise", "replicate" },
}

local function style(d, kind)
  if d:maybe(40) then return d:pick(styles) end
  return d:pick(legal[kind] or styles)
end

-- The dimension of a parameter that a style cuts where an op reads it, or "none".
local cut_by = {
  linear = { colwise = 1, colwise_gather_output = 1, rowwise = 2 },
  packed = { packed_colwise = 1 }, add_bias = { colwise = 1 },
  embedding = { embedding_rowwise = 1, rowwise = 1, embedding_colwise = 2 },
}
local function cut_of(use, name)
  local dim = (cut_by[use.kind] or {})[name] or "none"
  if use.layout ~= 1 or dim == "none" then return dim end
  return 3 - dim
end

-- Whether all uses of a module that has this style cut each parameter in one way, and in that
-- of the modules before.
local function agrees(uses, name, cuts)
  local own = {}
  for _, use in ipairs(uses) do
    local dim = cut_of(use, name)
    if (own[use.param] or cuts[use.param] or dim) ~= dim then return false end
    own[use.param] = dim
  end
  return true
end

-- A style that agrees, or none; in one case of ten any that the op knows.
local function agreeing(d, uses, cuts)
  local first = uses[1].kind
  if d:maybe(10) then return not d:maybe(4) and style(d, first) or nil end
  local list = {}
  for _, name in ipairs(legal[first]) do
    if agrees(uses, name, cuts) then list[#list + 1] = name end
  end
  if agrees(uses, "none", cuts) and (#list == 0 or d:maybe(4)) then return nil end
  return #list > 0 and d:pick(list) or nil
end

-- A graph that only remembers which op reads which parameter for which module.
local function spy()
  local seen, order = {}, {}
  local function pattern(name) return (name:gsub("%f[%d]%d+%f[%D]", "*")) end
  local function note(module, use)
    module = pattern(module)
    if not seen[module] then order[#order + 1], seen[module] = module, {} end
    table.insert(seen[module], use)
  end
  local tensor = {}
  local g = {}
  function g.param(_, name, dims)
    return { module = name:match "^(.*)%.[^.]*$", packed = dims[1].parts,
             param = pattern(name) }
  end
  function g.unit(_, _, fn) return fn() end
  function g.layer(_, _, fn) return fn() end
  local function op(name)
    return function(_, ...)
      local args = { ... }
      local last, weight = args[#args], args[2]
      if legal[name] and type(weight) == "table" and weight.module then
        note(last.name or weight.module, { kind = weight.packed and "packed" or name,
                                           param = weight.param, layout = last.layout })
      end
      if name == "split" then return tensor, tensor end
      return tensor
    end
  end
  setmetatable(g, { __index = function(_, name) return op(name) end })
  return g, seen, order
end

local function tp_plan(seed, c)
  local g, seen, order = spy()
  build(g, c, seed)
  local d, plan, cuts = new_draw(seed + 7), {}, {}
  for _, module in ipairs(order) do
    plan[module] = agreeing(d, seen[module], cuts)
    for _, use in ipairs(seen[module]) do
      cuts[use.param] = cuts[use.param] or cut_of(use, plan[module])
    end
  end
  return plan
end

local decoder = {
  { "embed_tokens", "embedding" }, { "layers.*.input_layernorm", "rmsnorm" },
  { "layers.*.self_attn.q_proj", "linear" }, { "layers.*.self_attn.k_proj", "linear" },
  { "layers.*.self_attn.v_proj", "linear" }, { "layers.*.self_attn.o_proj", "linear" },
  { "layers.*.post_attention_layernorm", "rmsnorm" },
  { "layers.*.mlp.gate_proj", "linear" }, { "layers.*.mlp.up_proj", "linear" },
  { "layers.*.mlp.down_proj", "linear" }, { "norm", "rmsnorm" }, { "lm_head", "linear" },
}
local gpt2 = {
  { "wte", "embedding" }, { "wpe", "embedding" }, { "h.*.ln_1", "layernorm" },
  { "h.*.attn.c_attn", "packed" }, { "h.*.attn.c_proj", "linear" },
  { "h.*.ln_2", "layernorm" }, { "h.*.mlp.c_fc", "linear" }, { "h.*.mlp.c_proj", "linear" },
  { "ln_f", "layernorm" }, { "lm_head", "linear" },
}

-- Styles of an embedding and of a head that may be tied to it.
local tied = {
  { "embedding_rowwise", "colwise" }, { "rowwise", "colwise_gather_output" },
  { "embedding_colwise", "rowwise" }, { "replicate", "replicate" },
}

-- The plan of a model of the library with some of its modules' styles drawn anew.
local function change(weft, seed, arch)
  local d, out = new_draw(seed + 9), {}
  local modules = arch == "gpt2" and gpt2 or decoder
  for _, m in ipairs(modules) do
    if d:maybe(3) then out[m[1]] = style(d, m[2]) end
  end
  if not d:maybe(10) then
    local both = d:pick(tied)
    out[modules[1][1]], out[modules[#modules][1]] = both[1], both[2]
  end
  return d:maybe(3) and out or weft.extend(weft.tp_plan(arch), out)
end

return {
  model = function(seed) return function(g, c) return build(g, c, seed) end end,
  tp_plan = tp_plan,
  change = change,
}
