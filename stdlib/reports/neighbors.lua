-- neighbors.lua - mesh:neighbors(rank).
return function(v)
  local lines = {}
  for i, n in ipairs(v) do
    lines[i] = string.format("%-12s prev %d, next %d", n.axis, n.prev, n.next)
  end
  return #lines > 0 and table.concat(lines, "\n") or "no neighbors: one rank on every axis"
end
