-- groups.lua - mesh:groups(axis): one line for each.
return function(v)
  local lines = {}
  for i = 1, rawlen(v) do lines[i] = tostring(rawget(v, i)) end
  return table.concat(lines, "\n")
end
