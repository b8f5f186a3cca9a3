-- json_tables.lua - the tables of docs/json.md, made of the rows of stdlib/json/members.lua:
--
--   weft lua tests/docs/json_tables.lua [check]     in the root of the sources
--
-- The first table below a heading "## weft VERB", or "## The frame", is that of the verb. With `check`
-- nothing is written.
local PAGE = "docs/json.md"
local members = dofile "stdlib/json/members.lua"

local function read(path)
  local f = assert(io.open(path, "rb"))
  local text = f:read "a"
  f:close()
  return text
end

-- A type in words: what is in an object or a list is told by the row.
local function words(type)
  local kinds = {}
  type = type:gsub("%b{}", "object"):gsub("%b[]", "list")
  for word in type:gmatch "[^|]+" do kinds[#kinds + 1] = word end
  local last = table.remove(kinds)
  return #kinds == 0 and last or table.concat(kinds, ", ") .. " or " .. last
end

local function table_of(rows)
  local out = { "| member | is |", "| --- | --- |" }
  for _, row in ipairs(rows) do
    local names = row[1]:gsub("[%w_]+", "`%0`"):gsub("%?", "")
    out[#out + 1] = string.format("| %s | %s |", names, words(row[2]) .. (row[3] and ": " .. row[3] or ""))
  end
  return out
end

local tables = { ["The frame"] = members.frame }
for _, section in ipairs(members.sections) do tables["weft " .. section[1]] = section[2] end

local page, out, rows, inside, done = read(PAGE), {}, nil, false, 0
for line in page:gmatch "([^\n]*)\n" do
  local heading = line:match "^## (.*)$"
  if heading then
    if rows then error("no table below the heading before " .. heading) end
    rows = tables[heading]
    if heading:find "^weft " and not rows then error("stdlib/json/members.lua has no " .. heading) end
    tables[heading] = nil
  end
  inside = inside and line:find "^|" ~= nil
  if rows and line == "| member | is |" then
    inside, done = true, done + 1
    table.move(table_of(rows), 1, #rows + 2, #out + 1, out)
    rows = nil
  end
  if not inside then out[#out + 1] = line end
end
if next(tables) then error(PAGE .. " has no heading " .. next(tables)) end
local new = table.concat(out, "\n") .. "\n"
if arg[1] ~= "check" then
  local f = assert(io.open(PAGE, "wb"))
  f:write(new)
  f:close()
elseif new ~= page then
  print(PAGE .. " differs from stdlib/json/members.lua: run ./dev docs")
  os.exit(1)
end
print(done .. " tables of " .. PAGE)
