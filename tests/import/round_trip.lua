-- round_trip.lua - random plans as settings of another system and back:
--
--   weft lua tests/import/round_trip.lua "WEFT" "WEFT-TESTS" SYSTEM N [SEED]
--
-- Each of N random plans is exported and imported again. Where the export lists nothing that is
-- not said, the programs of all pipeline ranks must be equal, byte for byte; where it lists
-- something, the plan that came back is one that the system can say: exported and imported once
-- more, nothing is listed, and its programs are equal.
local weft_lib = require "weft"
local weft, tests, system, n, seed = arg[1], arg[2], arg[3], tonumber(arg[4]), arg[5] or "1"
local dir = os.tmpname()
os.remove(dir)
os.execute("mkdir " .. dir)

local function run(format, ...)
  local pipe <close> = assert(io.popen(string.format(format, ...) .. "; echo \" $?\""))
  local text = pipe:read "a"
  return tonumber(text:match "(%d+)%s*$"), text:gsub("%s%d+%s*$", "")
end

local function programs(plan)
  local out = {}
  for _, rank in ipairs(plan.mesh:group("pp", 0)) do out[#out + 1] = plan:program(rank).text end
  return table.concat(out, "\n")
end

-- The plan that comes back from `path`, written to `back`, and whether nothing was listed.
local function there_and_back(path, back)
  os.execute(string.format("rm -rf %s/out %s", dir, back))
  local code, text = run("%s export --to %s %s -o %s/out 2>&1", weft, system, path, dir)
  if code ~= 0 then return nil, text end
  local plan = assert(weft_lib.load(path))
  local file <close> = assert(io.open(dir .. "/out/not_said.txt"))
  local all = file:read "a":find("They say all ", 1, true) ~= nil
  local settings = system == "deepspeed" and "ds_config.json" or "recipe.yaml"
  local more = system == "deepspeed" and string.format("--model %s/out/config.json --world %d", dir,
                                                        plan.mesh.dp * plan.mesh.tp) or ""
  code, text = run("%s import %s/out/%s %s -o %s 2>&1", weft, dir, settings, more, back)
  assert(code == 0, text)
  local again = assert(weft_lib.load(back))
  return programs(plan) == programs(again), all
end

local counts = { said = 0, listed = 0, cannot = 0 }
local wrong = 0
local function fault(i, what)
  wrong = wrong + 1
  print(string.format("plan %s %d: %s", seed, i, what))
end

for i = 0, n - 1 do
  local plan, once, twice = dir .. "/plan.lua", dir .. "/once.lua", dir .. "/twice.lua"
  assert(run("%s --plan %s %d > %s", tests, seed, i, plan) == 0)
  local equal, all = there_and_back(plan, once)
  if equal == nil then
    counts.cannot = counts.cannot + 1
    print(string.format("plan %s %d: %s", seed, i, all))
  else
    if all and not equal then fault(i, "nothing is listed, and the programs differ") end
    counts[all and "said" or "listed"] = counts[all and "said" or "listed"] + 1
    local same, said = there_and_back(once, twice)
    if not same then fault(i, "what the settings say comes back with other programs: " .. tostring(said)) end
    if not said then fault(i, "what the settings say is listed as not said") end
  end
end
os.execute("rm -rf " .. dir)
print(string.format("%s: %d plans, %d said in full, %d with fields that are listed, %d cannot be said; %d faults",
                    system, n, counts.said, counts.listed, counts.cannot, wrong))
os.exit(wrong == 0)
