-- codes.lua - whether the codes of diagnostics in the sources are those of weft explain: takes what
-- `weft explain --json` prints, in the root of the sources.
--
--   weft explain --json | weft lua tests/docs/codes.lua
local known, used, wrong, n = {}, {}, 0, 0
for name in io.read("a"):gmatch('"code": "([%w-]+)"') do known[name] = true end

-- The arguments of a call, "(a, f(b, c), d)", as a list.
local function arguments(call)
  local list, depth, from = {}, 0, 2
  for at = 2, #call do
    local c = call:sub(at, at)
    if c == "(" then depth = depth + 1 end
    if depth == 0 and (c == "," or c == ")") then
      list[#list + 1], from = call:sub(from, at - 1), at + 1
    elseif c == ")" then
      depth = depth - 1
    end
  end
  return list
end

local function note(code, path)
  used[code], n = true, n + 1
  if not known[code] then
    wrong = wrong + 1
    print(path .. ": weft explain has no code " .. code)
  end
end

for path in io.popen("find vm bindings -name '*.c'"):lines() do
  local f = assert(io.open(path))
  local text = f:read("a")
  f:close()
  for call in text:gmatch("[^%w_]diag_%l+%s*(%b())") do
    for code in (arguments(call)[2] or ""):gmatch('"([%w-]+)"') do note(code, path) end
  end
  for code in text:gmatch('%[WEFT_E%u+%]%s*=%s*"([%w-]+)"') do
    if path == "bindings/api/job.c" then note(code, path) end
  end
end
for code in pairs(known) do
  if not used[code] then
    wrong = wrong + 1
    print("vm/base/diag.def: nothing has the code " .. code)
  end
end
print(string.format("%d uses of codes: %d are not so", n, wrong))
os.exit(wrong == 0 and n > 200)
