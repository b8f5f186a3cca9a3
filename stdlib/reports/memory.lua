-- memory.lua - plan:memory(): bytes by class, and what is held besides the arenas.
local function lines(text, list, out)
  for _, c in ipairs(list) do
    local bytes = c.bytes and text.bytes(c.bytes) or "?"
    local line = ("  %-18s %10s  %s"):format(c.name, bytes, c.note or "")
    out[#out + 1] = line:gsub("%s+$", "")
  end
end

local function sum(list)
  local n = 0
  for _, c in ipairs(list) do n = n + c.bytes end
  return n
end

local function rank(text, m, out)
  lines(text, m.classes, out)
  out[#out + 1] = ("  outside of the arena: %s"):format(text.bytes(sum(m.outside)))
  lines(text, m.outside, out)
end

return function(v, text)
  local out = {}
  if v.rank then
    out[1] = ("memory of rank %d: %s"):format(v.rank, text.bytes(v.total))
    rank(text, v, out)
  end
  for _, m in ipairs(v) do
    local most = m.pp == v.worst_pp and #v > 1 and "  (the most)" or ""
    out[#out + 1] = ("memory of each rank at pipeline rank %d: %s%s"):format(
      m.pp, text.bytes(m.total), most)
    rank(text, m, out)
  end
  out[#out + 1] = ("a process with all ranks, besides them: %s"):format(
    text.bytes(sum(v.process)))
  lines(text, v.process, out)
  out[#out + 1] = "libraries, which do not say how much:"
  for _, c in ipairs(v.libraries) do
    out[#out + 1] = ("  %-18s %s"):format(c.name, c.note)
  end
  return table.concat(out, "\n")
end
