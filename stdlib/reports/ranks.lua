-- ranks.lua - a list of ranks and the number of nodes that they are on.
return function(v, text)
  local nodes = math.type(rawget(v, "nodes")) == "integer"
  return "{ " .. text.list(v, 64) .. " }"
    .. (nodes and "  -- " .. text.plural(v.nodes, "node") or "")
end
