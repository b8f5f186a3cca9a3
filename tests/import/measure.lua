-- measure.lua - how many settings files are imported, and how many of their plans pass check:
--
--   weft lua tests/import/measure.lua "WEFT" OUTDIR FILE ...
--
-- (options of weft import in IMPORT_OPTIONS)
-- writes OUTDIR/NAME.lua, and prints a line for each file that has no plan, or one with errors:
-- "refused" with the reason, "wrong" with the first error of weft check. Files that make the
-- program fail in another way are "broken". Of a registry each configuration that has a name
-- of its own (not _NAME) counts as a file. The last line has how many settings were unknown
-- to weft import, and "unknown" lines which.
local weft, out = arg[1], arg[2]
local counts = { ok = 0, refused = 0, wrong = 0, broken = 0 }

local function quoted(s) return "'" .. s:gsub("'", "'\\''") .. "'" end

local function run(command)
  local pipe <close> = assert(io.popen(command .. " 2>&1; echo \" $?\""))
  local text = pipe:read "a"
  return tonumber(text:match "(%d+)%s*$"), text
end

local function first_error(text)
  return text:match "[^\n]*error: ([^\n]*)" or text:match "[^\n]+" or ""
end

-- Settings that are in no table, each once.
local unknown = { n = 0 }
local function note_unknown(text)
  local group = false
  for line in text:gmatch "[^\n]+" do
    local alone = line:match "([^%s:]* = [^\n]*): weft import does not know this setting$"
    local one = alone or group and line:match "^    %S+ (.*)$"
    group = line:find "^  weft import does not know this setting:$" or group and not alone and one
    if one then
      unknown.n = unknown.n + 1
      if not unknown[one] then print("unknown", one) end
      unknown[one] = true
    end
  end
end

local function judge(file, configuration)
  local plan = out .. "/" .. file:match "([^/]*)$" .. (configuration or "") .. ".lua"
  os.remove(plan)
  local code, text = run(string.format("%s import %s %s -o %s %s", quoted(weft), quoted(file),
                                       configuration or "", quoted(plan),
                                       os.getenv "IMPORT_OPTIONS" or ""))
  note_unknown(text)
  if code == 1 then return "refused", first_error(text) end
  if code ~= 0 then return "broken", text:sub(1, 300) end
  code, text = run(quoted(weft) .. " check -q " .. quoted(plan))
  if code == 0 then return "ok" end
  return code == 1 and "wrong" or "broken", first_error(text)
end

-- The names of a registry's configurations, which weft import lists if none is given; else nil.
local function configurations(file)
  if not file:find "%.json$" and not file:find "%.py$" then return nil end
  local code, text = run(quoted(weft) .. " import " .. quoted(file))
  local list = code == 2 and text:match "has several configurations: name one behind the file: ([^\n]*)"
  if not list then return nil end
  local names = {}
  for name in list:gmatch "%S+" do
    if not name:find "^_" then names[#names + 1] = name end
  end
  return names
end

local function count(file, configuration)
  local kind, why = judge(file, configuration)
  counts[kind] = counts[kind] + 1
  if kind ~= "ok" then print(kind, file:match "([^/]*)$", configuration or "", why) end
end

for i = 3, #arg do
  local names = configurations(arg[i])
  if names then
    for _, name in ipairs(names) do count(arg[i], name) end
  else
    count(arg[i])
  end
end
local all = counts.ok + counts.refused + counts.wrong + counts.broken
print(string.format("%d settings: %d plans pass check, %d refused, %d plans with errors, %d broken; %d unknown settings",
                    all, counts.ok, counts.refused, counts.wrong, counts.broken, unknown.n))
