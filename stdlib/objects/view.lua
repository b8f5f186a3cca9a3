-- view.lua - ranks with axes: a mesh, its expert mesh, or a part of one. The ranks stand in
-- the order of their coordinates; an index counts them from 0.
local gmatch = string.gmatch
local axes = use "objects/axes"

local view = {}

-- `whole`: the mesh that this is a view of (world, gpus, the size of every axis, the order
-- of the dense ones); `list`: { name =, size = } for each axis, slowest first; `ranks`: nil
-- where every rank is its own index.
function view.new(whole, list, ranks)
  local v = { whole = whole, gpus = whole.gpus, axes = list, ranks = ranks, named = {}, n = 1 }
  for i = #list, 1, -1 do
    list[i].stride, v.named[list[i].name] = v.n, list[i]
    v.n = v.n * list[i].size
  end
  return v
end

function view.rank(v, index) return v.ranks and v.ranks[index + 1] or index end

-- Where a rank is, nil: not here.
function view.index(v, rank)
  if not v.ranks then return rank < v.n and rank or nil end
  if not v.places then
    v.places = {}
    for i, r in ipairs(v.ranks) do v.places[r] = i - 1 end
  end
  return v.places[rank]
end

function view.all(v)
  local list = {}
  for i = 1, v.n do list[i] = view.rank(v, i - 1) end
  return list
end

function view.coord(axis, index) return index // axis.stride % axis.size end

-- The axes that a name stands for, as a set: an axis, a sum such as "dp_shard+tp", one of
-- the names of several such as "dp"; nil: there is no such axis.
function view.find(v, name)
  local set = {}
  local function add(part)
    local axis, several = v.named[part], axes.views[part]
    if axis then
      local twice = set[axis]
      set[axis] = true
      return not twice
    end
    if part == "world" then
      for _, a in ipairs(v.axes) do set[a] = true end
      return true
    end
    for _, one in ipairs(several or {}) do if not add(one) then return false end end
    return several ~= nil
  end
  if v.named[name] then return { [v.named[name]] = true } end
  for part in gmatch(name .. "+", "([^+]*)%+") do if not add(part) then return nil end end
  return set
end

-- dp_replicate and dp_shard, where they are two axes here; else nil.
function view.split_dp(v)
  return v.named.dp_replicate and v.named.dp_shard and view.find(v, "dp")
end

-- The coordinate on several axes as one number.
function view.flat(v, set, index)
  local at = 0
  for _, a in ipairs(v.axes) do
    if set[a] then at = at * a.size + view.coord(a, index) end
  end
  return at
end

function view.size(v, set)
  local n = 1
  for a in next, set do n = n * a.size end
  return n
end

-- The ranks of the group along these axes of the rank at an index, in mesh order.
function view.group(v, set, index)
  local at = { index }
  for _, a in ipairs(v.axes) do
    if set[a] then
      local wider = {}
      for _, i in ipairs(at) do
        local base = i - view.coord(a, i) * a.stride
        for k = 0, a.size - 1 do wider[#wider + 1] = base + k * a.stride end
      end
      at = wider
    end
  end
  for k, i in ipairs(at) do at[k] = view.rank(v, i) end
  return at
end

-- How many nodes ranks are on.
function view.nodes(ranks, gpus)
  local seen, n = {}, 0
  for _, r in ipairs(ranks) do
    if not seen[r // gpus] then seen[r // gpus], n = true, n + 1 end
  end
  return n
end

-- The axis as it is printed: dp_shard is dp where it is all of it.
function view.label(v, axis)
  local dp = axis.name == "dp_shard" and v.whole.size.dp_replicate == 1
  return dp and "dp" or axis.name
end

return view
