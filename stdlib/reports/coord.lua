-- coord.lua - mesh:coord(rank): the coordinates that say something.
return function(v, _, shown)
  local out = {}
  for i, name in ipairs(shown) do out[i] = name .. " = " .. tostring(rawget(v, name)) end
  return "{ " .. table.concat(out, ", ") .. " }"
end
