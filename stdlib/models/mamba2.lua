-- mamba2.lua - the mixer of Mamba-2 (arXiv:2405.21060), which hybrid models have in the place of
-- attention or beside it: a projection into a gate z, heads x, what a state takes up (B) and
-- gives (C), and steps dt; a short convolution over x, B and C; the scan; and a gated norm.
--
-- Files have the projection as one weight, `in_proj`, and the convolution as one, `conv1d`; here
-- their parts are apart (`packed` of the model names both), so that tensor parallelism cuts each
-- of them between groups of heads, as Megatron-Core does. A head reads B and C of its group.
local mamba2 = {}

mamba2.packed = { "in_proj", "conv1d" }

-- A dimension with `size` elements for each head, and one with as many for each group.
local function of_heads(o, size)
  return { "group", o.heads * size, unit = o.heads // o.groups * size }
end
local function of_groups(o) return { "group", o.groups * o.state, unit = o.state } end

local function conv(g, x, name, dim, o)
  local w = g:param(name .. ".weight", { dim, { "none", 1 }, { "none", o.kernel } }, { std = o.std })
  local y = g:causal_conv(x, w, g:doc_starts())
  if o.conv_bias then y = g:add_bias(y, g:param(name .. ".bias", { dim }, { init = "zeros" })) end
  return g:silu(y)
end

-- y of the scan with its gate z: the norm of each group of y * silu(z); or `norm` is "before",
-- and z comes after it, or false, and there is none.
local function gated(g, y, z, name, dim, o)
  if not o.norm then return g:silu_mul(z, y) end
  local w = g:param(name .. ".norm.weight", { dim }, { init = "ones" })
  local of = { eps = o.eps, head_dim = dim[2] // o.groups }
  if o.norm == "before" then return g:silu_mul(z, g:rmsnorm(y, w, of)) end
  return g:rmsnorm(g:silu_mul(z, y), w, of)
end

-- What comes of x (batch, seq, hidden). `o` has hidden, heads, head_dim, groups, state (N),
-- kernel (of the convolution), bias, out_bias and conv_bias, eps, norm, std, the shortest and the longest
-- step (false: there is none), and `scales`: what z, x, B, C and dt are multiplied by, or nil.
-- A_log, D and dt_bias of a model that begins here are 1, 1 and 0.
function mamba2.mixer(g, x, name, o)
  local hidden, inner, group = { "hidden", o.hidden }, of_heads(o, o.head_dim), of_groups(o)
  local head = of_heads(o, 1)
  local function linear(h, part, out, into, bias)
    local y = g:linear(h, g:param(name .. part .. ".weight", { out, into }, { std = o.std }))
    if not bias then return y end
    return g:add_bias(y, g:param(name .. part .. ".bias", { out }, { init = "zeros" }))
  end
  local function project(part, out, i)
    local y = linear(x, "." .. part .. "_proj", out, hidden, o.bias)
    return o.scales and o.scales[i] ~= 1 and g:scale(y, { scale = o.scales[i] }) or y
  end
  local z, u = project("z", inner, 1), project("x", inner, 2)
  local B, C, dt = project("B", group, 3), project("C", group, 4), project("dt", head, 5)
  u = conv(g, u, name .. ".x_conv", inner, o)
  B, C = conv(g, B, name .. ".B_conv", group, o), conv(g, C, name .. ".C_conv", group, o)
  local bias = g:param(name .. ".dt_bias", { head }, { init = "zeros" })
  local A = g:param(name .. ".A_log", { head }, { init = "ones" })
  local D = g:param(name .. ".D", { head }, { init = "ones" })
  local step, left = g:ssm_steps(dt, bias, A, { eps = o.shortest, limit = o.longest or 0 })
  local y = g:ssm_scan(u, step, left, B, C, D, g:doc_starts(), { head_dim = o.state })
  return linear(gated(g, y, z, name, inner, o), ".out_proj", hidden, inner, o.out_bias)
end

-- Adds what is wrong with the sizes of heads and groups, whose keys these are.
function mamba2.check(c, problems, add, heads, groups)
  if c[heads] % c[groups] ~= 0 then
    add(problems, groups, "%d does not divide %s = %d", c[groups], heads, c[heads])
  end
end

return mamba2
