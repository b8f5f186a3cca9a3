-- memory.lua - plan:memory(): bytes by class.
local function classes(text, m, out)
  for _, c in ipairs(m.classes) do
    local line = ("  %-18s %10s  %s"):format(c.name, text.bytes(c.bytes), c.note or "")
    out[#out + 1] = line:gsub("%s+$", "")
  end
end

return function(v, text)
  local out = {}
  if v.rank then
    out[1] = ("memory of rank %d: %s"):format(v.rank, text.bytes(v.total))
    classes(text, v, out)
  end
  for _, m in ipairs(v) do
    local most = m.pp == v.worst_pp and #v > 1 and "  (the most)" or ""
    out[#out + 1] = ("memory of each rank at pipeline rank %d: %s%s"):format(
      m.pp, text.bytes(m.total), most)
    classes(text, m, out)
  end
  return table.concat(out, "\n")
end
