-- measure.lua - how many settings files are imported, and how many of their plans pass check:
--
--   weft lua tests/import/measure.lua "WEFT" OUTDIR FILE ...
--
-- (options of weft import in IMPORT_OPTIONS)
-- writes OUTDIR/NAME.lua, and prints a line for each file that has no plan, or one with errors:
-- "refused" with the reason, "wrong" with the first error of weft check. Files that make the
-- program fail in another way are "broken". Of a registry each configuration that has a name
-- of its own (not _NAME) counts as a file. "unknown" lines are settings that are in no table.
-- At the end refusals are counted by their kind: what REASONS has no row for is a failure, as
-- are plans with errors, and files that cannot be read though they are settings.
local weft, out = arg[1], arg[2]
local counts = { ok = 0, refused = 0, wrong = 0, broken = 0 }

-- Kinds of refusals, and how they begin or what is in them. `outside`: the file says no model that weft has,
-- so that it is none of the files that a plan is wanted of.
local REASONS = {
  { kind = "another architecture", outside = true, "architecture that weft does not have", "; weft has ", "is not in weft: weft has ",
    "which weft does not have", "^layers of Mamba are not in weft", "^weft has nanotron's llama and qwen2, not",
    "layers of nanotron's experts", "torchtitan has llama, qwen3" },
  { kind = "another kind of model", outside = true, "makes another kind of model than a causal language model",
    "^an encoder and a decoder", "^images are not in weft" },
  { kind = "the file names no model", outside = true, "^the settings name no model",
    "^the settings do not say %-%-num%-layers", "^the sizes of [./]" },
  { kind = "no settings of these systems", outside = true, "is none of the settings that weft import knows",
    "is no YAML", "is not JSON", "has no command with arguments of Megatron" },
  { kind = "a variable without a value", " has no value in the file" },
  { kind = "a draft model", "^the recipe trains a draft model" },
  { kind = "products in fp8", "products in fp8 are precision" },
  { kind = "an attention that weft has not", "is an attention that weft does not have", "alibi: weft has",
    "^attention within chunks is not in weft" },
  { kind = "an activation that weft has not", "is an activation function that weft does not have" },
  { kind = "norms that weft has not", "^weft's LayerNorm is over all of a token", "^norms are before attention" },
}

local function reason_of(why)
  for _, row in ipairs(REASONS) do
    for _, pattern in ipairs(row) do
      if why:find(pattern) then return row end
    end
  end
end

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

local rightly, outside, failures = {}, 0, 0
local function count(file, configuration)
  local kind, why = judge(file, configuration)
  counts[kind] = counts[kind] + 1
  if kind == "ok" then return end
  local reason = kind ~= "wrong" and reason_of(why)
  print(kind, file:match "([^/]*)$", configuration or "", reason and reason.kind or "a failure", why)
  if not reason then
    failures = failures + 1
    return
  end
  rightly[reason] = (rightly[reason] or 0) + 1
  if reason.outside then outside = outside + 1 end
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
for _, reason in ipairs(REASONS) do
  if rightly[reason] then print(string.format("%5d  %s%s", rightly[reason], reason.kind, reason.outside and " (outside)" or "")) end
end
local inside = all - outside
print(string.format("%d passes, %d refused rightly, %d failures: %.1f %% of the %d whose architecture weft has", counts.ok,
                    inside - counts.ok - failures, failures, 100 * (inside - failures) / math.max(inside, 1), inside))
