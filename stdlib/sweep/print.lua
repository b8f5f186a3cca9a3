-- print.lua - the result of a sweep as an aligned table and as CSV, and the reasons why
-- points are no plans. A result is what sweep.lua collects.
local format, find, gsub = string.format, string.find, string.gsub
local figures, grid, text = use "sweep/figures", use "sweep/grid", use "reports/text"

local print = {}

-- ---- cells ----

local function cell_text(name, v)
  if v == nil then return "-" end
  if name == "dp" or name == "microbatches" then return format("%d", v) end
  return format(v >= 1000 and "%.0f" or v >= 100 and "%.1f" or v >= 1 and "%.2f" or "%.4f", v)
end

-- The columns of which the rows have a figure.
local function used_columns(r, rows)
  local used = {}
  for _, name in ipairs(figures) do
    for i = 1, rows do
      local v = figures.column[name](r.best[i].row)
      if v and v ~= 0 and v == v then
        used[#used + 1] = name
        break
      end
    end
  end
  return used
end

-- Lists of texts: the heads, then each row.
local function cells(r, rows, columns)
  local lines = { {} }
  for i, x in ipairs(r.grid) do lines[1][i] = x.name end
  for _, name in ipairs(columns) do lines[1][#lines[1] + 1] = name end
  for i = 1, rows do
    local line, choice = {}, grid.choice(r.grid, r.best[i].point)
    for k, x in ipairs(r.grid) do line[k] = x.text[choice[k]] end
    for _, name in ipairs(columns) do
      line[#line + 1] = cell_text(name, figures.column[name](r.best[i].row))
    end
    lines[i + 1] = line
  end
  return lines
end

-- ---- the table ----

local function add_rows(out, r, rows)
  local lines = cells(r, rows, used_columns(r, rows))
  for c = 1, #lines[1] do
    local width = 0
    for _, line in ipairs(lines) do width = math.max(width, #line[c]) end
    for _, line in ipairs(lines) do
      line[c] = string.rep(" ", width - #line[c]) .. line[c]
    end
  end
  for _, line in ipairs(lines) do out[#out + 1] = table.concat(line, "  ") end
end

-- "    586  mesh.tp: 3 does not divide ..." with the text of the first such point.
function print.reasons(r, out)
  local list = { table.unpack(r.reasons) }
  table.sort(list, function(a, b)
    if a.count ~= b.count then return a.count > b.count end
    return a.first < b.first
  end)
  if r.memory > 0 then
    out[#out + 1] = format("%9d  memory: more than %s", r.memory, r.max_gib
      and format("%.4g GiB on a rank", r.max_gib)
      or "the GPU has, less cluster.reserve_gib")
  end
  for _, x in ipairs(list) do
    out[#out + 1] = format("%9d  %s%s%s%s%s", x.count, x.code,
      x.path ~= "" and ": plan." or "", x.path, x.message ~= "" and ": " or "", x.message)
  end
  return out
end

local function summary(r)
  local out = { format("%d of %s judged", r.judged, text.plural(r.points, "point")) }
  local function add(...) out[#out + 1] = format(...) end
  if r.asked < r.points then add(" (%d left out by where)", r.points - r.asked) end
  if r.resumed > 0 then add(", %d of them before", r.resumed) end
  if r.seconds > 0 then
    add(" in %.2f s", r.seconds)
    if r.judged > r.resumed then add(", %.0f points/s", (r.judged - r.resumed) / r.seconds) end
  end
  add(": %s, %d without enough memory, %d illegal", text.plural(r.legal, "plan"), r.memory, r.illegal)
  if r.dropped > 0 then add("; %s without a score", text.plural(r.dropped, "plan")) end
  if r.interrupted then add "; interrupted" end
  return table.concat(out)
end

-- At most so many rows.
function print.table(r, most)
  local rows, time, clock = math.min(#r.best, most), false, false
  local out = print.reasons(r, { summary(r) })
  if rows == 0 then return table.concat(out, "\n") end
  out[#out + 1] = ""
  add_rows(out, r, rows)
  if rows < #r.best then out[#out + 1] = format("... and %d more", #r.best - rows) end
  for i = 1, rows do
    time = time or r.best[i].row.step_ms ~= nil
    clock = clock or r.best[i].row.clock_ms ~= nil
  end
  if time then
    out[#out + 1] = "step_ms is an estimate from data sheets, a bound and no forecast: see "
      .. "docs/sweeps.md"
  end
  if clock then out[#out + 1] = "clock_ms is the step of the whole program, as weft sim has it" end
  return table.concat(out, "\n")
end

-- ---- CSV ----

local function quoted(v)
  if not find(v, '[,"\n]') then return v end
  return '"' .. gsub(v, '"', '""') .. '"'
end

function print.header(r)
  local line = {}
  for i, x in ipairs(r.grid) do line[i] = quoted(x.path) end
  for _, name in ipairs(figures) do line[#line + 1] = quoted(name) end
  return table.concat(line, ",")
end

function print.csv(r)
  local out, line = { print.header(r) }, {}
  for _, b in ipairs(r.best) do
    local choice = grid.choice(r.grid, b.point)
    line = {}
    for k, x in ipairs(r.grid) do line[k] = quoted(x.text[choice[k]]) end
    for _, name in ipairs(figures) do
      local v = figures.column[name](b.row)
      line[#line + 1] = v and format("%.10g", v) or ""
    end
    out[#out + 1] = table.concat(line, ",")
  end
  return table.concat(out, "\n") .. "\n"
end

-- ---- JSON ----

-- A value that JSON has, else the text that stands for it in the table.
local function plain(x, choice)
  local v = rawget(x.values, choice + 1)
  local kind = type(v)
  if kind == "number" or kind == "string" or kind == "boolean" then return v end
  return x.text[choice]
end

-- What weft sweep --json prints: rows with a member for each axis, under its path, and for each
-- figure that is known.
function print.json(r)
  local out = { rows = {}, reasons = {} }
  for _, key in ipairs { "points", "judged", "legal", "illegal", "memory", "dropped", "seconds" } do
    out[key] = r[key]
  end
  out.asked, out.interrupted = r.asked, r.interrupted or false
  for i, x in ipairs(r.reasons) do
    out.reasons[i] = { code = x.code, path = x.path, message = x.message, count = x.count }
  end
  for i, b in ipairs(r.best) do
    local row, choice = { worst_rank = b.row.worst_rank }, grid.choice(r.grid, b.point)
    for k, x in ipairs(r.grid) do row[x.path] = plain(x, choice[k]) end
    for _, name in ipairs(figures) do row[name] = figures.column[name](b.row) end
    out.rows[i] = row
  end
  return out
end

return print
