-- memory.lua - plan:memory(): bytes by class, and what is held besides the arenas; of several
-- pipeline ranks a matrix of classes and ranks.
local format, gsub = string.format, string.gsub
local most_columns = 8 -- pipeline ranks beside each other

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

local function gpu(text, m, at, out)
  out[#out + 1] = format("on a GPU%s, besides the arena: about %s, by rules of NCCL 2.28", at, text.bytes(sum(m.gpu)))
  lines(text, m.gpu, out)
end

-- Names of the lines of some list of all ranks, in the order in which they are first met.
local function names(v, list)
  local out, seen = {}, {}
  for _, m in ipairs(v) do
    for _, c in ipairs(m[list] or {}) do
      if not seen[c.name] then out[#out + 1], seen[c.name] = c.name, true end
    end
  end
  return out
end

local function bytes_of(list, name)
  for _, c in ipairs(list or {}) do if c.name == name then return c.bytes end end
end

-- A row for each class, a column for each pipeline rank; too many of these are rows instead.
local function matrix(text, v, rows)
  local heads, table_rows = { "" }, {}
  for i, m in ipairs(v) do
    heads[i + 1] = format("pp %d%s", m.pp, m.pp == v.worst_pp and " *" or "")
  end
  for i, row in ipairs(rows) do
    local cells = { row.name }
    for k, m in ipairs(v) do
      local bytes = row.of(m)
      cells[k + 1] = bytes and text.bytes(bytes) or "-"
    end
    table_rows[i] = cells
  end
  if #v <= most_columns then return text.columns(heads, table_rows, true) end
  local turned, rank_rows = { "pp rank" }, {}
  for i, row in ipairs(table_rows) do turned[i + 1] = row[1] end
  for k = 1, #v do
    rank_rows[k] = { (gsub(heads[k + 1], "^pp ", "")) }
    for i, row in ipairs(table_rows) do rank_rows[k][i + 1] = row[k + 1] end
  end
  return text.columns(turned, rank_rows, true)
end

local function rows_of(v)
  local rows = { { name = "arena", of = function(m) return m.total end } }
  local function add(list, prefix)
    for _, name in ipairs(names(v, list)) do
      rows[#rows + 1] = { name = prefix .. name, of = function(m) return bytes_of(m[list], name) end }
    end
  end
  add("classes", "")
  add("host", "host: ")
  rows[#rows + 1] = { name = "outside", of = function(m) return sum(m.outside) end }
  rows[#rows + 1] = { name = "on a GPU", of = function(m) return sum(m.gpu) end }
  return rows
end

-- What is to be said of classes beside their bytes, of the rank with most.
local function noted(text, m, out)
  for _, list in ipairs { m.classes, m.host or {} } do
    for _, c in ipairs(list) do
      if c.note then lines(text, { c }, out) end
    end
  end
end

return function(v, text)
  local out = {}
  if v.rank then
    out[1] = format("memory of rank %d: %s", v.rank, text.bytes(v.total))
    rank(text, v, out)
    gpu(text, v, "", out)
  elseif #v == 1 then
    out[1] = format("memory of each rank: %s", text.bytes(v[1].total))
    rank(text, v[1], out)
    gpu(text, v[1], "", out)
  else
    local worst = v[v.worst_pp + 1]
    out[1] = format("memory of each rank, by pipeline rank: at most %s, at pp %d (*)", text.bytes(worst.total),
      worst.pp)
    out[2] = matrix(text, v, rows_of(v))
    noted(text, worst, out)
    out[#out + 1] = format("outside of the arena at pp %d: %s", worst.pp, text.bytes(sum(worst.outside)))
    lines(text, worst.outside, out)
    gpu(text, worst, format(" of pp %d", worst.pp), out)
  end
  out[#out + 1] = format("a process with all ranks, besides them: %s",
    text.bytes(sum(v.process)))
  lines(text, v.process, out)
  out[#out + 1] = "libraries, which do not say how much:"
  for _, c in ipairs(v.libraries) do
    out[#out + 1] = format("  %-18s %s", c.name, c.note)
  end
  if v.scores then
    out[#out + 1] = format("attention scores are never stored; stacks that store them have %s more for each layer and",
      text.bytes(v.scores))
    out[#out + 1] = "microbatch in flight (5 a s^2 b of a rank)"
  end
  return table.concat(out, "\n")
end
