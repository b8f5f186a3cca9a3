-- published_layouts.lua - what weft best chooses on H100 beside the layouts that NVIDIA and
-- DeepSeek published: the rows of "Beside published layouts" in docs/planning.md.
--
--   weft lua tests/bench/published_layouts.lua [NAME]
--
-- A row is a model, its GPUs and batch, the values that are searched where they are not the
-- usual ones, and the published layout as fields of the same plan. Minutes a row.
local weft = require "weft"
local wanted = ...

local zero1 = { "zero", stage = 1, sequence_parallel = true }
local ROWS = {
  { "Llama 3 8B", model = "llama3-8b", gpus = 8, batch = 128, seq = 8192,
    published = { mesh = { cp = 2 }, strategy = zero1 } },
  { "Llama 3 70B", model = "llama3-70b", gpus = 64, batch = 128, seq = 8192,
    published = { mesh = { tp = 4, pp = 4, cp = 2 }, strategy = zero1, schedule = "interleaved_1f1b",
      pp_plan = { virtual = 5 } } },
  { "Llama 3 405B", model = "llama3-405b", gpus = 512, batch = 252, seq = 8192,
    precision = { param_dtype = "bf16", grad_dtype = "bf16" },
    over = { tp = { 8 }, pp = { 4, 8, 16 }, cp = { 1, 2 }, micro = { 1 }, strategy = { "zero-1" },
      recompute = { "none", "cheap" }, schedule = { "1f1b", "interleaved_1f1b" } },
    published = { mesh = { tp = 8, pp = 8, cp = 2 }, strategy = zero1, schedule = "interleaved_1f1b",
      pp_plan = { virtual = 8 } } },
  { "Llama 3 405B 16k", model = "llama3-405b", gpus = 16384, batch = 2048, seq = 8192,
    over = { tp = { 4, 8 }, pp = { 8, 16 }, cp = { 1, 2 }, micro = { 1 }, strategy = { "zero-1", "fsdp2" },
      recompute = { "none", "cheap" } },
    published = { mesh = { tp = 8, pp = 16 }, strategy = zero1, recompute = "cheap",
      pp_plan = { layers = { 7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7 } } } },
  { "Mixtral 8x7B", model = "mixtral-8x7b", gpus = 64, batch = 256, seq = 4096, capacity = 1.5,
    over = { tp = { 1 }, pp = { 4, 8 }, cp = { 1 }, micro = { 1 }, ep = { 1, 8 } },
    published = { mesh = { pp = 4, ep = 8 }, strategy = { "zero", stage = 1 }, schedule = "interleaved_1f1b",
      pp_plan = { virtual = 8 } } },
  { "Qwen3 30B-A3B", model = "qwen3-30b-a3b", gpus = 64, batch = 512, seq = 4096, capacity = 1.5,
    over = { tp = { 1, 2 }, pp = { 1, 2, 4 }, micro = { 1, 2 }, cp = { 1 }, ep = { 1, 8, 16 } },
    published = { mesh = { pp = 2, ep = 8 }, strategy = { "zero", stage = 1 }, schedule = "interleaved_1f1b",
      pp_plan = { virtual = 24 } } },
  { "DeepSeek-V3", model = "deepseek-v3", gpus = 2048, batch = 15360, seq = 4096, capacity = 1.5,
    over = { tp = { 1 }, pp = { 8, 16 }, cp = { 1 }, ep = { 8, 32, 64 }, micro = { 1 }, strategy = { "zero-1" } },
    published = { mesh = { pp = 16, ep = 64 }, strategy = { "zero", stage = 1 }, schedule = "dualpipe_v",
      recompute = "full" } },
}

local function plan_of(row)
  return {
    name = row[1], model = weft.model(row.model), mesh = {}, strategy = { "zero", stage = 1 },
    cluster = weft.cluster { "h100-sxm", nodes = row.gpus // 8 }, precision = row.precision or "bf16",
    moe = row.capacity and { dispatcher = "alltoall", max_tokens_factor = row.capacity, drop = true } or nil,
    batch = { global = row.batch, micro = 1, seq = row.seq },
  }
end

local function published(row)
  local plan = plan_of(row)
  for key, value in pairs(row.published) do plan[key] = value end
  return weft.plan(plan)
end

local function layout(l)
  local out = {}
  for _, axis in ipairs { "tp", "pp", "cp", "ep" } do
    if (l[axis] or 1) > 1 then out[#out + 1] = axis:upper() .. l[axis] end
  end
  for _, key in ipairs { "virtual", "schedule", "strategy", "micro", "recompute", "balance" } do
    if l[key] then out[#out + 1] = key .. " " .. tostring(l[key]) end
  end
  return table.concat(out, " ")
end

local function axes(mesh) return { tp = mesh.tp, pp = mesh.pp, cp = mesh.cp, ep = mesh.ep } end

local function classes(sim)
  local r, out = sim.pipeline[1], {}
  for name, s in pairs(r.kernels) do out[#out + 1] = ("%s %.2f"):format(name, s) end
  for name, s in pairs(r.exposed) do out[#out + 1] = ("%s exposed %.2f"):format(name, s) end
  table.sort(out)
  return table.concat(out, ", ") .. (", bubble %.2f"):format(r.bubble)
end

for _, row in ipairs(ROWS) do
  if not wanted or row[1]:lower():find(wanted:lower(), 1, true) then
    local theirs = published(row)
    local sim = theirs:sim()
    local r = weft.best { plan = plan_of(row), over = row.over }
    local ours = r.best
    print(("%s, %d GPUs, %d x %d: %d layouts"):format(row[1], row.gpus, row.batch, row.seq, r.layouts))
    print(("  chosen    %8.2f s  %s"):format(ours.seconds, layout(ours.layout)))
    print(("  published %8.2f s  %s (%.1f %%)"):format(sim.seconds, layout(axes(theirs.mesh)), 100 * (sim.seconds / ours.seconds - 1)))
    print("            first rank: " .. classes(sim))
    io.stdout:flush()
    theirs:close()
  end
end
