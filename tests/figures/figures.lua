-- figures.lua - what plans cost, as weft computes it: bytes by class, what goes over each link, and a
-- step on the clock. figures.txt has it for the plans below, so that a commit that moves a figure
-- shows in its diff which, of what plan, and by how much.
--
--   weft lua tests/figures/figures.lua figures.txt [write]
local weft = require "weft"
local path, write = ...

local DENSE, PIPELINE, EXPERTS = "llama3_8b", "llama3_70b", "mixtral_8x7b"

-- A plan of plans/, and what is changed of it.
local CASES = {
  { DENSE },
  { DENSE, { precision = "bf16", recompute = "full" } },
  { DENSE, { precision = "fp8" } },
  { DENSE, { cluster = { "a100-80gb", nodes = 2 }, recompute = "cheap" } },
  { DENSE, { cluster = { "v100-32gb", nodes = 4 }, ["mesh.tp"] = 4, precision = "f16" } },
  { DENSE, { cluster = { "mi300x", nodes = 2 }, loss_chunks = 4 } },
  { DENSE, { cluster = { "gb200-nvl72", nodes = 1 } } },
  { DENSE, { optimizer = weft.sgd { lr = 1e-3, momentum = 0.9 } }, name = "sgd" },
  { DENSE, { optimizer = weft.muon { lr = 1e-3 } }, name = "muon" },
  { DENSE, { optimizer = weft.adafactor { lr = 1e-3 } }, name = "adafactor" },
  { DENSE, { optimizer = weft.adamw_8bit { lr = 1e-3 } }, name = "adamw_8bit" },
  { "llama3_8b_fsdp2" },
  { "llama3_8b_fsdp2", { ["strategy.reshard_after_forward"] = false, expect = {} } },
  { "llama3_8b_fsdp2", { ["mesh.cp"] = 2, ["mesh.dp"] = 4, recompute = { "layers.*.mlp" }, expect = {} } },
  { "llama3_8b_hsdp" },
  { "llama3_8b_megatron_fsdp" },
  { "llama3_8b_zero3_offload" },
  { "llama3_8b_128k" },
  { "llama3_8b_lora" },
  { "llama3_70b_qlora" },
  { PIPELINE },
  { PIPELINE, { schedule = "interleaved_1f1b", ["pp_plan.virtual"] = 2 } },
  { PIPELINE, { schedule = "gpipe" } },
  { PIPELINE, { schedule = "zb_h1" } },
  { PIPELINE, { schedule = "zb_v" } },
  { PIPELINE, { schedule = "dualpipe_v" } },
  { "llama3_70b_64xh100" },
  { "llama3_405b_16k" },
  { EXPERTS },
  { EXPERTS, { ["moe.dispatcher"] = "allgather" } },
  { EXPERTS, {}, { skew = { experts = 1.3 } } },
  { "qwen3_30b_a3b_ep8" },
  { "qwen3_8b" },
  { "families" },
  { "gpt2_124m" },
  { PIPELINE, {}, { skew = { slow = 1.2, pp = 1 } } },
  { PIPELINE, {}, { sends = "beside", steps = "apart" } },
}

local SWEEPS = {
  { DENSE, { { "mesh.tp", 1, 2, 8 }, { "mesh.pp", 1, 4 }, { "schedule", "1f1b", "gpipe" } } },
  { EXPERTS, { { "mesh.tp", 2, 4 }, { "recompute", "none", "full" } } },
}

local out -- the lines of a case
local function line(fmt, ...) out[#out + 1] = fmt:format(...) end

local function number(v)
  if math.type(v) == "integer" then return ("%d"):format(v) end
  return ("%.7g"):format(v)
end

-- "a=1 b=2", in the order of names.
local function pairs_of(t)
  local list = {}
  for name, v in pairs(t) do
    if type(v) == "number" then list[#list + 1] = ("%s=%s"):format(tostring(name):gsub(" ", "_"), number(v)) end
  end
  table.sort(list)
  return table.concat(list, " ")
end

-- A value of a plan, as it is written there.
local function shown(v)
  if type(v) ~= "table" then return tostring(v) end
  local list = {}
  for key, x in pairs(v) do list[#list + 1] = ("%s = %s"):format(key, shown(x)) end
  table.sort(list)
  return "{ " .. table.concat(list, ", ") .. " }"
end

-- Of a pipeline rank the first one: it is at 0 on all other axes.
local function rank_on(plan, pp)
  local at = {}
  for _, axis in ipairs(plan.mesh.axes) do at[axis] = axis == "pp" and pp or 0 end
  return plan.mesh:rank(at)
end

local function memory(plan)
  for pp = 0, plan.mesh.pp - 1 do
    local m = plan:memory(rank_on(plan, pp))
    local classes = {}
    for _, c in ipairs(m.classes) do classes[c.name] = c.bytes end
    line("memory pp %d: total=%d %s", pp, m.total, pairs_of(classes))
    if pp == 0 then
      local gpu = {}
      for _, l in ipairs(m.gpu or {}) do gpu[l.name] = l.bytes end
      line("memory of the GPU beside it: %s", pairs_of(gpu))
    end
  end
end

local function traffic(plan)
  for pp = 0, plan.mesh.pp - 1, math.max(1, plan.mesh.pp - 1) do
    for _, r in ipairs(plan:comm(rank_on(plan, pp))) do
      line("comm pp %d: %s %s over the %s%s: count=%d bytes=%d", pp, r.axis, r.op, r.link,
        r.at_most and ", at most" or "", r.count, r.bytes)
    end
  end
end

local function stages(plan)
  local s = plan:schedule()
  line("schedule %s: %s", s.name, pairs_of(s))
  for _, r in ipairs(plan:stages()) do
    line("stage %d on pp %d: parameters=%s flops=%s share=%s", r.stage, r.pp, number(r.parameters), number(r.flops),
      number(r.share))
  end
end

local function clock(plan, how)
  local s = plan:sim(how)
  line("step: seconds=%s low=%s high=%s flops=%s mfu=%s hfu=%s tokens_per_s_per_gpu=%s", number(s.seconds),
    number(s.low), number(s.high), number(s.flops), number(s.mfu), number(s.hfu),
    number(s.tokens_per_s_per_gpu))
  for i, r in ipairs(s.pipeline) do
    line("clock pp %d: bubble=%s %s", i - 1, number(r.bubble), pairs_of(r.kernels))
    line("exposed pp %d: %s", i - 1, pairs_of(r.exposed))
  end
  for i = 1, math.min(#s.waits, 6) do
    local w = s.waits[i]
    line("wait %d: %s pp %d %s: count=%d seconds=%s", i, w.axis, w.pp, w.what, w.count, number(w.seconds))
  end
end

local function case(c)
  local name, set, how = c[1], c[2] or {}, c[3]
  local keys = {}
  for key in pairs(set) do keys[#keys + 1] = key end
  table.sort(keys)
  local changes = {}
  for i, key in ipairs(keys) do changes[i] = ("%s = %s"):format(key, shown(set[key])) end
  if how then changes[#changes + 1] = "on the clock " .. shown(how) end
  line("== %s.lua %s", name, c.name or table.concat(changes, ", "))
  local first = assert(weft.load(("plans/%s.lua"):format(name)))
  local plan = next(set) and assert(first:with(set)) or first
  memory(plan)
  traffic(plan)
  if plan.mesh.pp > 1 then stages(plan) end
  clock(plan, how)
end

-- The rows of a sweep, which judges by bounds, and by the clock.
local function sweep(name, over)
  line("== sweep of %s.lua", name)
  local plan = assert(weft.load(("plans/%s.lua"):format(name)))
  for _, by in ipairs { false, true } do
    for i, r in ipairs(weft.sweep { plan = plan, over = over, clock = by, max_gib = 400 }) do
      local point = {}
      for _, axis in ipairs(over) do point[#point + 1] = tostring(r[axis[1]]) end
      line("row %d %s, %s: %s", i, by and "by the clock" or "by bounds", table.concat(point, " "), pairs_of(r))
      line("moves: %s", pairs_of(r.comm_gib))
    end
  end
end

-- Figures may differ in their last digits from machine to machine.
local function near(a, b)
  local x, y = tonumber(a), tonumber(b)
  if not x or not y then return a == b end
  return math.abs(x - y) <= 1e-5 * math.max(math.abs(x), math.abs(y))
end

local function words(text)
  local list = {}
  for word in text:gmatch "[^ =]+" do list[#list + 1] = word end
  return list
end

local function same(a, b)
  local x, y = words(a), words(b)
  if #x ~= #y then return false end
  for i = 1, #x do
    if not near(x[i], y[i]) then return false end
  end
  return true
end

-- WEFT_ROWS=K/N: of N cases one after the other the one after K.
local first, each = (os.getenv "WEFT_ROWS" or "0/1"):match "^(%d+)/(%d+)$"
first, each = tonumber(first), tonumber(each)

local cases, index = {}, 0
local function add(fn, ...)
  index = index + 1
  if (index - 1) % each ~= first then return end
  out = {}
  local ok, why = xpcall(fn, debug.traceback, ...)
  if not ok then error(why, 0) end
  assert(not cases[out[1]], "two cases of one name")
  cases[#cases + 1], cases[out[1]] = out, out
end
for _, c in ipairs(CASES) do add(case, c) end
for _, s in ipairs(SWEEPS) do add(sweep, table.unpack(s)) end

if write then
  local f = assert(io.open(path, "w"))
  for _, lines in ipairs(cases) do assert(f:write(table.concat(lines, "\n"), "\n")) end
  assert(f:close())
  return
end

local shown_most, differ, unknown = 10, 0, 0
local function differs(at, title, was, is)
  differ = differ + 1
  if differ <= shown_most then print(("%s:%d: %s\n  was %s\n  is  %s"):format(path, at, title, was, is)) end
end

local at, title, lines, i = 0, nil, nil, 0
local function close()
  if lines and i < #lines then differs(at, title, "(nothing)", lines[i + 1]) end
end
for was in io.lines(path) do
  at = at + 1
  if was:sub(1, 2) == "==" then
    close()
    title, lines, i = was:sub(4), cases[was], 0
    cases[was] = nil
  end
  i = i + 1
  if lines and not same(was, lines[i] or "(nothing)") then differs(at, title, was, lines[i] or "(nothing)") end
end
close()
for _, c in ipairs(cases) do
  if cases[c[1]] then print(c[1] .. ": is not there yet") unknown = unknown + 1 end
end
if differ + unknown > 0 then
  print(("%d lines differ, %d plans are new; if that is meant: ./dev figures"):format(differ, unknown))
  os.exit(1)
end
