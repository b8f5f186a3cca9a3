-- round_trip.lua - random plans as settings of another system and back:
--
--   weft lua tests/import/round_trip.lua "WEFT" "WEFT-TESTS" SYSTEM N [SEED] [said]
--
-- Each of N random plans is exported and imported again. Where the export lists nothing that is
-- not said, the programs of all pipeline ranks must be equal, byte for byte; where it lists
-- something, the plan that came back is one that the system can say: exported and imported once
-- more, nothing is listed, and its programs are equal. With `said` the plans are drawn from what
-- the settings of the system can say (said.lua): then nothing may be listed.
local weft_lib = require "weft"
local weft, tests, system, n, seed = arg[1], arg[2], arg[3], tonumber(arg[4]), arg[5] or "1"
local said = arg[6] == "said" and dofile(arg[0]:gsub("[^/]*$", "said.lua"))
local dir = os.tmpname()
os.remove(dir)
os.execute("mkdir " .. dir)

local SETTINGS = { automodel = "recipe.yaml", deepspeed = "ds_config.json", megatron = "train.sh",
                   torchtitan = "config.toml" }

local function run(format, ...)
  local pipe <close> = assert(io.popen(string.format(format, ...) .. "; echo \" $?\""))
  local text = pipe:read "a"
  return tonumber(text:match "(%d+)%s*$"), text:gsub("%s%d+%s*$", "")
end

-- Without the line of a table of actions that an instruction is from.
local function programs(plan)
  local out = {}
  for _, rank in ipairs(plan.mesh:group("pp", 0)) do out[#out + 1] = plan:program(rank).text end
  return (table.concat(out, "\n"):gsub("  line %d+\n", "\n"))
end

-- The plan that comes back from `path`, written to `back`, and whether nothing was listed.
local function there_and_back(path, back)
  os.execute(string.format("rm -rf %s/out %s", dir, back))
  local code, text = run("%s export --to %s %s -o %s/out 2>&1", weft, system, path, dir)
  if code ~= 0 then return nil, text end
  local plan = assert(weft_lib.load(path))
  local file <close> = assert(io.open(dir .. "/out/not_said.txt"))
  local list = file:read "a"
  local all = list:find("They say all ", 1, true) ~= nil
  local more = system == "deepspeed" and string.format("--model %s/out/config.json --world %d", dir,
                                                        plan.mesh.dp * plan.mesh.tp) or ""
  local python <close> = io.open(dir .. "/out/args.py")
  if python then more = string.format("--model %s/out/args.py:%s", dir, python:read "a":match '\n    "([^"]*)"') end
  os.execute(string.format("cp %s/out/schedule.csv %s/ 2>/dev/null", dir, dir))
  code, text = run("%s import %s/out/%s %s -o %s 2>&1", weft, dir, SETTINGS[system], more, back)
  assert(code == 0, text)
  local again = assert(weft_lib.load(back))
  return programs(plan) == programs(again), all, list
end

local counts = { said = 0, listed = 0, cannot = 0 }
local wrong = 0
local function fault(i, what)
  wrong = wrong + 1
  print(string.format("plan %s %d: %s", seed, i, what))
end

local function draw(i, path)
  if not said then return run("%s --plan %s %d > %s", tests, seed, i, path) == 0 end
  local file <close> = assert(io.open(path, "w"))
  return file:write(said(system, tonumber(seed), i))
end

for i = 0, n - 1 do
  local plan, once, twice = dir .. "/plan.lua", dir .. "/once.lua", dir .. "/twice.lua"
  assert(draw(i, plan))
  local equal, all, list = there_and_back(plan, once)
  if equal == nil then
    counts.cannot = counts.cannot + 1
    print(string.format("plan %s %d: %s", seed, i, all))
    if said then fault(i, "it is one that the settings can say") end
  else
    if all and not equal then fault(i, "nothing is listed, and the programs differ") end
    if said and not all then fault(i, list) end
    counts[all and "said" or "listed"] = counts[all and "said" or "listed"] + 1
    if not all then
      local same, again = there_and_back(once, twice)
      if not same then fault(i, "what the settings say comes back with other programs: " .. tostring(again)) end
      if not again then fault(i, "what the settings say is listed as not said") end
    end
  end
end
os.execute("rm -rf " .. dir)
print(string.format("%s%s: %d plans, %d said in full, %d with fields that are listed, %d cannot be said; %d faults",
                    system, said and ", drawn from what it can say" or "", n, counts.said, counts.listed,
                    counts.cannot, wrong))
os.exit(wrong == 0)
