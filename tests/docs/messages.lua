-- messages.lua - fields that messages tell users to write: each is one of docs/plan.md, which is
-- made of the schema. Looks at strings of vm and bindings: `moe = { name = ... }` and `moe.name`.
-- Prints what is no field; fails if there is any.
--
--   weft lua tests/docs/messages.lua     in the root of the sources

local function read(path)
  local file <close> = assert(io.open(path))
  return file:read "a"
end

-- ---- the fields of each section ----

-- Sections that are built by one of several functions have the fields of all of them.
local BUILT = {
  strategy = { "zero", "fsdp2", "megatron_fsdp", "ddp" }, adapter = { "lora" },
  optimizer = { "adamw", "adam", "adamw_8bit", "sgd", "lion", "muon", "adafactor" },
  loss = { "cross_entropy", "dpo", "distill" },
}
-- Names that strings have for other things, too: files, tables of a script.
local OTHER = { mesh = true, data = true, nccl = true, schedule = true, cluster = true, comm = true, plan = true,
                text = true, tokens = true, chat = true, linear = true, constant = true, group = true }

local fields, section = {}, nil
for line in io.lines "docs/plan.md" do
  section = line:match "^## ([%w_]+)$" or section
  local name = line:match "^| `([%w_]+)` |"
  if section and name then
    fields[section] = fields[section] or {}
    fields[section][name] = true
  end
end
for name, builders in pairs(BUILT) do
  fields[name] = {}
  for _, builder in ipairs(builders) do
    for field in pairs(assert(fields[builder], builder)) do fields[name][field] = true end
  end
end

-- ---- strings ----

local wrong, strings = 0, 0
local function check(path, of, name, text)
  if not fields[of] or fields[of][name] then return end
  print(("%s: %s has no field %s: \"%s\""):format(path, of, name, text))
  wrong = wrong + 1
end

local function check_string(path, text)
  strings = strings + 1
  for of, inside in text:gmatch "%f[%w_]([%w_]+) = {([^{}]*)}" do
    for name in inside:gmatch "%f[%w_%%]([%w_]+) = " do check(path, of, name, text) end
  end
  for of, name, behind in text:gmatch "%f[%w_./-]([%w_]+)%.([%a_][%w_]*)()" do
    local is_file = name == "md" or name == "h" or name == "lua" or name == "c"
    if not OTHER[of] and not is_file and not text:find("^[(/.]", behind) then check(path, of, name, text) end
  end
end

local pipe <close> = assert(io.popen "find vm bindings -name '*.c' -o -name '*.def'")
for path in pipe:lines() do
  local text = read(path):gsub("\\\n", "\n"):gsub('"%s*\n%s*"', "")
  for string in text:gmatch '"([^"\n]*)"' do check_string(path, string) end
end
assert(strings > 5000, strings)
os.exit(wrong == 0)
