-- fuzz.lua - settings files with faults in them, as fast as weft import reads them:
--
--   weft lua tests/import/fuzz.lua "WEFT" SECONDS SEED FILE ...
--
-- (options of weft import in IMPORT_OPTIONS)
-- Each round takes one of the files, changes it in a few places, and imports it: lines go, come twice or
-- change places, words become others that some reader may take amiss, parts come from another file, bytes
-- flip. A round fails if the program ends otherwise than with a plan, a refusal or an error of the file
-- (exit codes 0, 1 and 2), takes more than ten seconds, or tells an error of weft's own Lua; and if a plan
-- cannot be read by weft check. The file that did it is kept beside the report.
local weft, seconds, seed = arg[1], tonumber(arg[2]), tonumber(arg[3])
local LONGEST = 10
local CHECKS = 4 -- one of so many plans goes through weft check
local state = seed * 2654435761 % 4294967296 + 1

local function below(n)
  state = state ~ (state << 13) & 0xffffffff
  state = state ~ (state >> 17)
  state = state ~ (state << 5) & 0xffffffff
  return (state >> 8) % n
end
local function pick(list) return list[below(#list) + 1] end

local function quoted(s) return "'" .. s:gsub("'", "'\\''") .. "'" end

local texts, names = {}, {}
for i = 4, #arg do
  local file <close> = assert(io.open(arg[i], "rb"))
  texts[#texts + 1], names[#names + 1] = file:read "a", arg[i]:match "([^/]*)$"
end
assert(#texts > 0, "no files are given")

-- ---- faults ----

local WORDS = { "0", "-1", "1e400", "nan", ".inf", "1e-5", "99999999999999999999", "null", "~", "true", "no", "\"\"",
  "[]", "{}", "[1, [2, [3]]]", "{a: {b: {c: 1}}}", "auto", "${X}", "${oc.env:X,2}", "$((1 << 62))", "*a", "&a", "<<: *a",
  "!!python/object:os.system", "\"\\u0000\"", "'", "\"", "\\", "\n", "\t", "\0", "\xff\xfe", "\u{202e}", "0x7fffffff",
  "012", "1_000", "1:30", "2024-01-01", "- - -", "---", "...", "#", "|", ">", "? a", "[[a]]", "a.b.c", "a=b", "$(x)", "`x`",
  "<<EOF", "if", "done", "()", "$1", "lambda: 1", "f(x, *y)", "1 if x else 2", ("9"):rep(400), ("a"):rep(70000), ("[" ):rep(200),
  ("{a: "):rep(80), "none", "-" }

local function lines_of(text)
  local list = {}
  for line in text:gmatch "[^\n]*\n?" do if line ~= "" then list[#list + 1] = line end end
  return list
end

local faults = {}
function faults.bytes(text)
  if #text == 0 then return text end
  local at = below(#text) + 1
  return text:sub(1, at - 1) .. string.char(below(256)) .. text:sub(at + 1)
end
function faults.word(text)
  local spans = {}
  for from, to in text:gmatch "()[%w_.+-]+()" do spans[#spans + 1] = { from, to } end
  if #spans == 0 then return text .. pick(WORDS) end
  local span = pick(spans)
  return text:sub(1, span[1] - 1) .. pick(WORDS) .. text:sub(span[2])
end
function faults.gone(text)
  local list = lines_of(text)
  if #list > 1 then table.remove(list, below(#list) + 1) end
  return table.concat(list)
end
function faults.twice(text)
  local list = lines_of(text)
  if #list == 0 then return text end
  table.insert(list, below(#list) + 1, pick(list))
  return table.concat(list)
end
function faults.splice(text)
  local other = pick(texts)
  local a, b = below(#text + 1), below(#other + 1)
  return text:sub(1, a) .. other:sub(b + 1)
end
function faults.cut(text) return text:sub(1, below(#text + 1)) end

local KINDS = { "bytes", "word", "word", "word", "gone", "twice", "splice", "cut" }

-- ---- a round ----

local dir = os.tmpname()
os.remove(dir)
assert(os.execute("mkdir " .. dir))

local function run(command)
  local pipe <close> = assert(io.popen(string.format("timeout %d %s 2>&1; echo \" $?\"", LONGEST, command)))
  local text = pipe:read "a"
  return tonumber(text:match "(%d+)%s*$"), text
end

-- What is wrong; nil: nothing.
local function fault_of(path)
  local plan = dir .. "/plan.lua"
  os.remove(plan)
  local code, text = run(string.format("%s import %s --world 8 -o %s %s", quoted(weft), quoted(path), quoted(plan),
                                       os.getenv "IMPORT_OPTIONS" or ""))
  if code ~= 0 and code ~= 1 and code ~= 2 then return "exit code " .. tostring(code), code end
  local own = text:match "[^\n]*attempt to [^\n]*" or text:match "[^\n]*stack traceback[^\n]*"
    or text:match "[^\n]*bad argument[^\n]*"
  if own then return own, code end
  if code ~= 0 or below(CHECKS) ~= 0 then return nil, code end
  local checked, why = run(quoted(weft) .. " check -q " .. quoted(plan))
  if checked == 0 then return nil, code end
  if checked ~= 1 then return "weft check ends with " .. checked .. ": " .. why:sub(1, 300), code end
  return nil, "plan with errors"
end

local counts, wrong, n, ends = {}, 0, 0, os.time() + seconds
while os.time() < ends do
  local i = below(#texts) + 1
  local text = texts[i]
  for _ = 1, 1 + below(4) do text = faults[pick(KINDS)](text) end
  local path = dir .. "/" .. names[i]
  local file <close> = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
  local fault, code = fault_of(path)
  counts[code] = (counts[code] or 0) + 1
  n = n + 1
  if fault then
    wrong = wrong + 1
    local kept = string.format("%s/fault-%d-%s", dir, wrong, names[i])
    os.execute(string.format("cp %s %s", quoted(path), quoted(kept)))
    print(kept, fault)
  end
end
print(string.format("%d files in %d s: %d plans, %d plans with errors, %d refused, %d cannot be read; %d faults", n,
                    seconds, counts[0] or 0, counts["plan with errors"] or 0, counts[1] or 0, counts[2] or 0, wrong))
if wrong > 0 then os.exit(1) end
