-- text.lua - numbers and tables as people read them, for the reports of this folder.
local format, gsub, match, rep = string.format, string.gsub, string.match, string.rep

local text = {}

-- Three digits and a unit: "1.5 MiB", "834 KiB".
function text.bytes(n)
  local units, i = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" }, 1
  while n >= (i == 1 and 1024 or 999.5) and i < #units do
    n, i = n / 1024, i + 1
  end
  return format(i == 1 and "%d %s" or "%.3g %s", i == 1 and math.floor(n) or n, units[i])
end

-- "1.05 M", "8.03 B", as weft check has them.
function text.count(n)
  local units, i = { "", " k", " M", " B", " T" }, 1
  while n >= 999.5 and i < #units do
    n, i = n / 1000, i + 1
  end
  if i == 1 then return format("%.4g", n) end
  return format(n < 10 and "%.2f%s" or n < 100 and "%.1f%s" or "%.0f%s", n, units[i])
end

-- "1 rank", "2 ranks", "4 microbatches".
function text.plural(n, word)
  if n == 1 then return "1 " .. word end
  return format("%d %s%s", n, word, match(word, "[sc]h$") and "es" or "s")
end

-- "0, 8, 16, 24, ..., 1016": all of a list, or, if there are more than `shown`, the first
-- four and the last.
function text.list(items, shown)
  if #items <= math.max(shown, 5) then return table.concat(items, ", ") end
  return table.concat(items, ", ", 1, 4) .. ", ..., " .. items[#items]
end

-- Rows of cells under their heads. Texts are flush left, numbers flush right; a last column
-- of texts is not filled up. `figures`: all columns but the first are flush right.
function text.columns(heads, rows, figures)
  local width, right = {}, {}
  for c, head in ipairs(heads) do
    width[c], right[c] = #head, true
    for _, row in ipairs(rows) do
      local cell = row[c]
      width[c] = math.max(width[c], #tostring(cell))
      if type(cell) == "string" and not match(cell, "^[%d.]") then right[c] = false end
    end
    if figures then right[c] = c > 1 end
  end
  local out = {}
  local function add(row)
    local line = {}
    for c in ipairs(heads) do
      local cell = tostring(row[c])
      local space = rep(" ", width[c] - #cell)
      line[c] = right[c] and space .. cell or cell .. space
    end
    out[#out + 1] = (gsub(table.concat(line, "  "), "%s+$", ""))
  end
  add(heads)
  for _, row in ipairs(rows) do add(row) end
  return table.concat(out, "\n")
end

return text
