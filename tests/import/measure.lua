-- measure.lua - how many settings files are imported, and how many of their plans pass check:
--
--   weft lua tests/import/measure.lua "WEFT" OUTDIR FILE ...
--
-- (options of weft import in IMPORT_OPTIONS)
-- writes OUTDIR/NAME.lua, and prints a line for each file that has no plan, or one with errors:
-- "refused" with the reason, "wrong" with the first error of weft check. Files that make the
-- program fail in another way are "broken".
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

local function judge(file)
  local plan = out .. "/" .. file:match "([^/]*)$" .. ".lua"
  os.remove(plan)
  local code, text = run(string.format("%s import %s -o %s %s", quoted(weft), quoted(file),
                                       quoted(plan), os.getenv "IMPORT_OPTIONS" or ""))
  if code == 1 then return "refused", first_error(text) end
  if code ~= 0 then return "broken", text:sub(1, 300) end
  code, text = run(quoted(weft) .. " check -q " .. quoted(plan))
  if code == 0 then return "ok" end
  return code == 1 and "wrong" or "broken", first_error(text)
end

for i = 3, #arg do
  local kind, why = judge(arg[i])
  counts[kind] = counts[kind] + 1
  if kind ~= "ok" then print(kind, arg[i]:match "([^/]*)$", why) end
end
print(string.format("%d files: %d plans pass check, %d refused, %d plans with errors, %d broken",
                    #arg - 2, counts.ok, counts.refused, counts.wrong, counts.broken))
