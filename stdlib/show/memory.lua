-- memory.lua - plan:memory() as weft show --json has it.
local null = use "show/null"

local function lines(list)
  local out = {}
  for i, c in ipairs(list) do
    out[i] = { bytes = c.bytes, name = c.name, note = c.note or null }
  end
  return out
end

return function(v)
  local ranks = {}
  for i, m in ipairs(v) do
    ranks[i] = { classes = lines(m.classes), gpu = lines(m.gpu), host = lines(m.host or {}),
                 outside = lines(m.outside), pp = m.pp, total_bytes = m.total }
  end
  return { memory = ranks, memory_libraries = lines(v.libraries),
           memory_process = lines(v.process) }
end
