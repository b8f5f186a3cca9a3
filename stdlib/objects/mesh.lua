-- mesh.lua - meshes as objects: what one can ask them. A mesh is a userdata whose value is
-- a view (view.lua).
local format, find = string.format, string.find
local axes, view, report = use "objects/axes", use "objects/view", use "reports/report"

local methods = {}
local meta = { __name = "weft.mesh", __metatable = "weft.mesh", methods = methods }
debug.getregistry()["weft.mesh"] = meta

local function failf(...) fail(format(...)) end

-- ---- arguments ----

local function is_mesh(m) return debug.getmetatable(m) == meta end

local function view_of(m)
  if not is_mesh(m) then
    fail "the mesh is missing: write mesh:method(...), with a colon"
  end
  return unbox(m)
end

-- The index of a rank.
local function place(v, rank, method)
  expected(rank, "number", method)
  local r = math.tointeger(rank)
  if not r then failf("a rank is an integer, not %s", rank) end
  if r < 0 or r >= v.whole.world then
    failf("there is no rank %d: the mesh has %d, counted from 0", r, v.whole.world)
  end
  return view.index(v, r) or failf("rank %d is not in this part of the mesh", r)
end

-- The name of an axis that another mesh has is no slip of the fingers.
local function unknown_axis(v, name)
  local all = {}
  for i, a in ipairs(v.axes) do all[i] = a.name end
  if view.find(v, "dp") then all[#all + 1] = "dp" end
  all[#all + 1] = "world"
  all[#all + 1] = "node"
  local near = not axes.parse(name) and suggest(name, all)
  if near then failf('the mesh has no axis "%s" (did you mean "%s"?)', name, near) end
  failf('the mesh has no axis "%s"; it has %s', name, table.concat(all, ", "))
end

-- The expert mesh of a whole one: inside a pp coordinate all other axes are one row, in
-- mesh order, which is cut again.
local function expert_view(v)
  local whole = v.whole
  if v.n < whole.world then
    fail "a part of a mesh has no expert mesh: slice mesh.expert instead"
  end
  local list, ranks, inner = {}, nil, 1
  for i, name in ipairs(axes.expert) do list[i] = { name = name, size = whole.size[name] } end
  for i = #whole.order, 1, -1 do
    if whole.order[i] == "pp" then break end
    inner = inner * whole.size[whole.order[i]]
  end
  local pp, row = whole.size.pp, whole.world // whole.size.pp
  if inner < row then
    ranks = {}
    for r = 0, whole.world - 1 do
      ranks[r // inner % pp * row + r // (inner * pp) * inner + r % inner + 1] = r
    end
  end
  return view.new(whole, list, ranks)
end

-- The axes that a name stands for, and the view that has them: the mesh itself, or, where
-- they are axes of its expert mesh, that.
local function axes_arg(v, name)
  local _, expert = axes.parse(name)
  if expert and not view.find(v, name) then v = expert_view(v) end
  return view.find(v, name) or unknown_axis(v, name), v
end

-- Field `name` of a table as a coordinate below `size`, nil if it is not there.
local function coordinate(t, name, size)
  local x = rawget(t, name)
  local at = math.type(x) and math.tointeger(x)
  if x ~= nil and not (at and at >= 0 and at < size) then
    failf("%s must be an integer from 0 to %d", name, size - 1)
  end
  return at
end

-- Every key names an axis or one of the other fields of a coordinate.
local function check_keys(v, t)
  for k in next, t do
    if type(k) ~= "string" then fail "a coordinate is written { axis = number, ... }" end
    local known = k == "node" or k == "local_rank" or v.named[k]
      or k == "dp" and view.find(v, "dp")
    if not known then unknown_axis(v, k) end
  end
end

local function ranks_of(v, list)
  list.nodes = view.nodes(list, v.gpus)
  return report("ranks", list)
end

-- ---- coordinates ----

-- mesh:coord(rank): also dp, node and local_rank. Axes of one rank are not printed.
function methods.coord(m, rank)
  local v = view_of(m)
  local index, dp = place(v, rank, "coord"), view.split_dp(v)
  local both = dp and v.whole.size.dp_replicate > 1
  local c, shown, any_dp = {}, {}, false
  for _, a in ipairs(v.axes) do
    local merged = dp and dp[a] and not both
    c[a.name] = view.coord(a, index)
    if a.size > 1 and not (merged and any_dp) then
      any_dp = any_dp or merged
      shown[#shown + 1] = merged and "dp" or a.name
    end
  end
  if dp then c.dp = view.flat(v, dp, index) end
  local r = view.rank(v, index)
  c.node, c.local_rank = r // v.gpus, r % v.gpus
  shown[#shown + 1] = "node"
  shown[#shown + 1] = "local_rank"
  return report("coord", c, shown)
end

-- What the table says beside the axes must fit the rank that they give.
local function check_same(t, key, size, rank, is)
  local said = coordinate(t, key, size)
  if said and said ~= is then
    failf("%s = %d does not fit the other coordinates: rank %d has %s = %d", key, said, rank,
      key, is)
  end
end

-- mesh:rank { pp = 1, dp = 0, tp = 3 }; axes of one rank may be left out.
function methods.rank(m, t)
  local v = view_of(m)
  expected(t, "table", "rank")
  check_keys(v, t)
  local dp, index = view.split_dp(v), 0
  local flat = dp and coordinate(t, "dp", 1 << 31)
  for i = #v.axes, 1, -1 do
    local a = v.axes[i]
    local at = coordinate(t, a.name, a.size)
    if flat and dp[a] then
      at, flat = at or flat % a.size, flat // a.size
    end
    if not at and a.size > 1 then failf("%s is missing: from 0 to %d", a.name, a.size - 1) end
    index = index + (at or 0) * a.stride
  end
  local r = view.rank(v, index)
  if dp then check_same(t, "dp", v.whole.world, r, view.flat(v, dp, index)) end
  check_same(t, "node", v.whole.world, r, r // v.gpus)
  check_same(t, "local_rank", v.gpus, r, r % v.gpus)
  return r
end

-- mesh:node(rank): the node and the rank's number on it.
function methods.node(m, rank)
  local v = view_of(m)
  local r = view.rank(v, place(v, rank, "node"))
  return r // v.gpus, r % v.gpus
end

-- ---- groups ----

local function node_group(v, node)
  local list = {}
  for r = node * v.gpus, math.min((node + 1) * v.gpus, v.whole.world) - 1 do
    if view.index(v, r) then list[#list + 1] = r end
  end
  return list
end

-- mesh:group(axis, rank)
function methods.group(m, axis, rank)
  local v, set = view_of(m), nil
  expected(axis, "string", "group")
  if axis == "node" then
    return ranks_of(v, node_group(v, view.rank(v, place(v, rank, "group")) // v.gpus))
  end
  set, v = axes_arg(v, axis)
  return ranks_of(v, view.group(v, set, place(v, rank, "group")))
end

-- mesh:groups(axis): every rank is in one of them.
function methods.groups(m, axis)
  local v, list, set = view_of(m), {}, nil
  expected(axis, "string", "groups")
  if axis == "node" then
    for node = 0, (v.whole.world - 1) // v.gpus do
      local group = node_group(v, node)
      if #group > 0 then list[#list + 1] = ranks_of(v, group) end
    end
  else
    set, v = axes_arg(v, axis)
    for i = 0, v.n - 1 do
      if view.flat(v, set, i) == 0 then
        list[#list + 1] = ranks_of(v, view.group(v, set, i))
      end
    end
  end
  return report("groups", list)
end

-- mesh:neighbors(rank): for each axis of more than one rank, in a list and by name, the
-- ranks before and after it, around the ring.
function methods.neighbors(m, rank)
  local v, list = view_of(m), {}
  local index = place(v, rank, "neighbors")
  for _, a in ipairs(v.axes) do
    if a.size > 1 then
      local at = view.coord(a, index)
      local function neighbor(step)
        return view.rank(v, index + ((at + step) % a.size - at) * a.stride)
      end
      local entry = { axis = view.label(v, a), prev = neighbor(-1), next = neighbor(1) }
      list[#list + 1], list[a.name], list[entry.axis] = entry, entry, entry
    end
  end
  return report("neighbors", list)
end

-- ---- views ----

-- The option `name` of mesh:flatten: what stands for these axes from now on, so nothing else
-- may have that name.
local function name_option(v, t, set)
  for k, name in next, t do
    if math.type(k) ~= "integer" then
      if k ~= "name" then
        failf("there is no option '%s': mesh:flatten { \"dp\", \"cp\", name = \"x\" }",
          type(k) == "string" and k or "?")
      end
      if type(name) ~= "string" or name == "" or #name >= 64 or find(name, "[ +]") then
        fail "name must be a string of 1 to 63 characters without blanks and +"
      end
      local other = name == "node" or name == "local_rank"
      for a in next, view.find(v, name) or {} do other = other or not set[a] end
      if other then failf('the name "%s" stands for something else already', name) end
      return name
    end
  end
end

-- mesh:flatten { "dp", "cp" [, name = "x"] }: these axes become one, at the place of the
-- slowest of them; it counts in mesh order.
function methods.flatten(m, t)
  local v, set, names = view_of(m), {}, {}
  expected(t, "table", "flatten")
  if rawlen(t) == 0 then
    fail 'name the axes in a list: mesh:flatten { "dp", "cp" }'
  end
  for i = 1, rawlen(t) do
    local name = rawget(t, i)
    if type(name) ~= "string" then
      failf("item %d is %s, not the name of an axis", i, type(name))
    end
    for a in next, view.find(v, name) or unknown_axis(v, name) do
      if set[a] then failf('the axis "%s" is named twice', name) end
      set[a] = true
    end
  end
  local list, merged = {}, nil
  for _, a in ipairs(v.axes) do
    if set[a] then names[#names + 1] = a.name end
    if not (set[a] and merged) then list[#list + 1] = { name = a.name, size = a.size, of = a }
    else merged.size = merged.size * a.size end
    if set[a] then merged = merged or list[#list] end
  end
  local joined = table.concat(names, "+")
  merged.name = name_option(v, t, set) or axes.parse(joined) or joined
  local ranks = {}
  local flat = view.new(v.whole, list, ranks)
  for i = 0, v.n - 1 do
    local at = view.flat(v, set, i) * merged.stride
    for _, b in ipairs(list) do
      if b ~= merged then at = at + view.coord(b.of, i) * b.stride end
    end
    ranks[at + 1] = view.rank(v, i)
  end
  return box(flat, meta)
end

-- mesh:slice { pp = 1 }: the ranks with these coordinates, on the other axes.
function methods.slice(m, t)
  local v, fixed, list, ranks = view_of(m), {}, {}, {}
  expected(t, "table", "slice")
  check_keys(v, t)
  local both = view.split_dp(v)
  local dp = both and coordinate(t, "dp", view.size(v, both))
  for _, a in ipairs(v.axes) do
    fixed[a] = coordinate(t, a.name, a.size)
    if not fixed[a] and not (dp and both[a]) then
      list[#list + 1] = { name = a.name, size = a.size }
    end
  end
  for i = 0, v.n - 1 do
    local inside = not dp or view.flat(v, both, i) == dp
    for a, at in next, fixed do inside = inside and view.coord(a, i) == at end
    if inside then ranks[#ranks + 1] = view.rank(v, i) end
  end
  local part = view.new(v.whole, list, ranks)
  if #ranks < part.n then fail "dp does not fit dp_replicate and dp_shard" end
  return box(part, meta)
end

-- ---- fields ----

local fields = {}
function fields.world(v) return v.n end
function fields.gpus(v) return v.gpus end
function fields.ranks(v) return ranks_of(v, view.all(v)) end
function fields.nodes(v) return view.nodes(view.all(v), v.gpus) end
function fields.expert(v) return box(expert_view(v), meta) end
function fields.axes(v)
  local list = {}
  for i, a in ipairs(v.axes) do list[i] = a.name end
  return list
end

function meta.__index(m, key)
  local v, name = view_of(m), tostring(key)
  if methods[name] then return methods[name] end
  if fields[name] then return fields[name](v) end
  local known, expert = axes.parse(name)
  if expert and not view.find(v, name) then
    if v.n == v.whole.world then v = expert_view(v)
    else failf("this part of a mesh has no '%s' (slice mesh.expert instead)", name) end
  end
  local set = view.find(v, name)
  if set then return view.size(v, set) end
  if known then unknown_axis(v, name) end -- other meshes have it
  local near = suggest(name, axes.fields)
  failf("weft.mesh has no '%s'%s", name,
    near and format(" (did you mean '%s'?)", near) or "")
end

function meta.__newindex()
  fail "a mesh cannot be changed; make another one with weft.mesh"
end

function meta.__len(m) return view_of(m).n end

function meta.__eq(a, b)
  if not is_mesh(a) or not is_mesh(b) then return false end
  local v, w = unbox(a), unbox(b)
  local same = v.n == w.n and #v.axes == #w.axes and v.gpus == w.gpus
  for i, x in ipairs(same and v.axes or {}) do
    same = same and x.size == w.axes[i].size and x.name == w.axes[i].name
  end
  for i = 0, same and (v.ranks or w.ranks) and v.n - 1 or -1 do
    if view.rank(v, i) ~= view.rank(w, i) then return false end
  end
  return same
end

function meta.__tostring(m) return (use "reports/mesh")(view_of(m), use "reports/text") end

-- The object of a resolved mesh.
return function(whole)
  local list = {}
  for i, name in ipairs(whole.order) do
    list[i] = { name = name, size = whole.size[name] }
  end
  return box(view.new(whole, list), meta)
end
