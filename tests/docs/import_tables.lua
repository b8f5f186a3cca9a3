-- import_tables.lua - the tables of docs/import.md that say what becomes of the settings of another
-- system: made of the rows by which weft import goes, fields.lua and left_out.lua of each system.
--
--   weft lua tests/docs/import_tables.lua [check]     in the root of the sources
--
-- A line "<!-- rows of FILE: ./dev docs -->" of the page is followed by the table of FILE. With `check`
-- nothing is written; lines that differ are printed.
local PAGE = "docs/import.md"

local function read(path)
  local f = assert(io.open(path, "rb"))
  local text = f:read "a"
  f:close()
  return text
end

-- A file of stdlib that gives rows. Of what it uses the makers of rows count here, and nothing else.
local function rows_of(path)
  local function use(name) return name == "import/rule" and rows_of("stdlib/import/rule.lua") or {} end
  local env = setmetatable({ use = use }, { __index = _G })
  return assert(load(read(path), "@" .. path, "t", env))()
end

-- Settings of Megatron as they are written: keys.lua has one name for all forms.
local function argument(key)
  local name = key:match "^launcher%.(.*)$"
  if name then return "--" .. name end
  name = key:match "^slurm%.(.*)$"
  if name then return "#SBATCH --" .. name:gsub("_", "-") end
  if key:find "^env%." then return (key:gsub("^env%.", "NCCL_")) end
  return key:find(".", 1, true) and key or "--" .. key:gsub("_", "-")
end

local function code(texts)
  local list = {}
  for i, text in ipairs(texts) do list[i] = "`" .. text .. "`" end
  return table.concat(list, ", ")
end

local function keys_of(row, from, written)
  local list = {}
  for i = from, #row do list[#list + 1] = written(row[i]) end
  return code(list)
end

local function names(text)
  local list = {}
  for name in text:gmatch "[^, ]+" do list[#list + 1] = name end
  return code(list)
end

-- Which field each setting becomes.
local function fields(rows, written)
  local lines = { "| setting | field | notes |", "| --- | --- | --- |" }
  for _, row in ipairs(rows) do
    lines[#lines + 1] = string.format("| %s | %s | %s |", keys_of(row, 2, written), names(row[1]),
                                      row.note or ""):gsub("  |$", " |")
  end
  return lines
end

-- What a plan is without, by what it would change: rows that say only that there is no effect are left out.
local function losses(rows, written)
  local order, by = {}, {}
  for _, row in ipairs(rows) do
    local change = row[2] ~= "no_effect" and row[3]
    if change then
      if not by[change] then
        by[change] = {}
        order[#order + 1] = change
      end
      table.insert(by[change], written(row[1]))
    end
  end
  local lines = { "| setting | what it would change |", "| --- | --- |" }
  for _, change in ipairs(order) do
    lines[#lines + 1] = string.format("| %s | %s |", code(by[change]), change)
  end
  return lines
end

local function same(key) return key end

local function table_of(path)
  local written = path:find "/megatron/" and argument or same
  return (path:find "fields%.lua$" and fields or losses)(rows_of(path), written)
end

-- The page with its tables made anew, and how many there are.
local function made(page)
  local out, tables, inside = {}, 0, false
  for line in page:gmatch "([^\n]*)\n" do
    local path = line:match "^<!%-%- rows of (%S+): %./dev docs %-%->$"
    inside = inside and line:find "^|" ~= nil
    if not inside then out[#out + 1] = line end
    if path then
      inside, tables = true, tables + 1
      table.move(table_of(path), 1, #table_of(path), #out + 1, out)
    end
  end
  return table.concat(out, "\n") .. "\n", tables
end

local page = read(PAGE)
local new, tables = made(page)
if arg[1] ~= "check" then
  local f = assert(io.open(PAGE, "wb"))
  f:write(new)
  f:close()
elseif new ~= page then
  print(PAGE .. " differs from the rows of weft import: run ./dev docs")
  os.exit(1)
end
print(tables .. " tables of " .. PAGE)
