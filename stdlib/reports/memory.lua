-- memory.lua - plan:memory(): bytes by class, and what is held besides the arenas.
local format, gsub = string.format, string.gsub

local function lines(text, list, out)
  for _, c in ipairs(list) do
    local bytes = c.bytes and text.bytes(c.bytes) or "?"
    local line = format("  %-18s %10s  %s", c.name, bytes, c.note or "")
    out[#out + 1] = gsub(line, "%s+$", "")
  end
end

local function sum(list)
  local n = 0
  for _, c in ipairs(list) do n = n + c.bytes end
  return n
end

local function rank(text, m, out)
  lines(text, m.classes, out)
  if m.host then
    out[#out + 1] = format("  in the memory of the host: %s", text.bytes(sum(m.host)))
    lines(text, m.host, out)
  end
  out[#out + 1] = format("  outside of the arena: %s", text.bytes(sum(m.outside)))
  lines(text, m.outside, out)
end

return function(v, text)
  local out = {}
  if v.rank then
    out[1] = format("memory of rank %d: %s", v.rank, text.bytes(v.total))
    rank(text, v, out)
  end
  for _, m in ipairs(v) do
    local most = m.pp == v.worst_pp and #v > 1 and "  (the most)" or ""
    out[#out + 1] = format("memory of each rank at pipeline rank %d: %s%s", m.pp,
      text.bytes(m.total), most)
    rank(text, m, out)
  end
  out[#out + 1] = format("a process with all ranks, besides them: %s",
    text.bytes(sum(v.process)))
  lines(text, v.process, out)
  out[#out + 1] = "libraries, which do not say how much:"
  for _, c in ipairs(v.libraries) do
    out[#out + 1] = format("  %-18s %s", c.name, c.note)
  end
  return table.concat(out, "\n")
end
