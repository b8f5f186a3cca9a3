-- mesh.lua - a mesh: a small grid with the borders of nodes, a table of axes for more than
-- 64 ranks.
local axes, view = use "objects/axes", use "objects/view"
local format, rep = string.format, string.rep

local grid_ranks, row_cells = 64, 16

local function head(v, text)
  local sizes = {}
  for _, a in ipairs(v.axes) do
    if a.size > 1 then sizes[#sizes + 1] = format(" %s=%d", view.label(v, a), a.size) end
  end
  return format("mesh%s: %s on %s of %d%s", table.concat(sizes), text.plural(v.n, "rank"),
    text.plural(view.nodes(view.all(v), v.gpus), "node"), v.gpus,
    #sizes > 0 and "; slowest axis first" or "")
end

-- What the dense mesh does not show of the experts: nothing, unless they have sizes of
-- their own.
local function add_experts(v, out)
  local size, list = v.whole.size, {}
  local own = size.ep > 1 or size.etp ~= size.tp
  if not own or v.n < v.whole.world or v.named.ep then return end
  for _, name in ipairs(axes.expert) do
    if name ~= "pp" then list[#list + 1] = format("%s=%d", name, size[name]) end
  end
  out[#out + 1] = "  experts: " .. table.concat(list, " ")
    .. ", the ranks of each pp in mesh order; mesh.expert shows them"
end

-- ---- the grid ----

-- Ranks with borders where a node ends, and the nodes at the right.
local function cells(v, first, n)
  local line, low, high = {}, math.huge, 0
  for i = first, first + n - 1 do
    local r = view.rank(v, i)
    local node, before = r // v.gpus, i > first and view.rank(v, i - 1) // v.gpus
    low, high = math.min(low, node), math.max(high, node)
    line[#line + 1] = format("%s%4d", node == before and "  " or " |", r)
  end
  local nodes = low == high and format("node %d", low) or format("nodes %d to %d", low, high)
  return table.concat(line) .. " |  " .. nodes
end

-- True where every cell of a row is on another node than the cell above.
local function rule_above(v, first, columns)
  if first < columns or columns >= v.gpus then return false end
  for i = first, first + columns - 1 do
    if view.rank(v, i) // v.gpus == view.rank(v, i - columns) // v.gpus then return false end
  end
  return true
end

-- The last axis of size above 1 runs along the rows; those in front of it label them. Rows
-- that are narrower than a node are grouped by lines.
local function add_grid(v, out)
  local labels, last = {}, nil
  for _, a in ipairs(v.axes) do
    if a.size > 1 then
      labels[#labels + 1], last = last, a
    end
  end
  local columns, width = last and last.size or 1, last and #view.label(v, last) or 0
  local row, space = math.min(columns, row_cells), 0
  for _, a in ipairs(labels) do space = space + #view.label(v, a) + 5 end
  width = math.max(width, space)
  local function filled(s) return "  " .. s .. rep(" ", width - #s) end
  if last then
    local numbers = {}
    for i = 1, row do numbers[i] = format("%6d", i - 1) end
    local name = view.label(v, last)
    out[#out + 1] = "  " .. rep(" ", width - #name) .. name .. table.concat(numbers)
  end
  for first = 0, v.n - 1, columns do
    if rule_above(v, first, columns) then
      out[#out + 1] = filled "" .. " |" .. rep("------", row)
    end
    local label = {}
    for i, a in ipairs(labels) do
      label[i] = format("%s %-3d ", view.label(v, a), view.coord(a, first))
    end
    for at = 0, columns - 1, row do
      out[#out + 1] = filled(at == 0 and table.concat(label) or "")
        .. cells(v, first + at, math.min(row, columns - at))
    end
  end
end

-- ---- the table of axes ----

-- The first group of each axis stands for all.
local function add_axes(v, text, out)
  local line = "  %-14s %6s %8s %6s  %s"
  out[#out + 1] = format(line, "axis", "size", "stride", "nodes", "ranks of the first group")
  for _, a in ipairs(v.axes) do
    if a.size > 1 then
      local group = view.group(v, { [a] = true }, 0)
      out[#out + 1] = format(line, view.label(v, a), #group, group[2] - group[1],
        view.nodes(group, v.gpus), text.list(group, 8))
    end
  end
end

return function(v, text)
  local out = { head(v, text) }
  add_experts(v, out)
  if v.n <= grid_ranks then add_grid(v, out) else add_axes(v, text, out) end
  return table.concat(out, "\n")
end
