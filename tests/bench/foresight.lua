-- foresight.lua - how far the clock is from published training runs, beside the bound of
-- sweeps and a constant utilisation.
--
--   weft lua tests/bench/foresight.lua RUNS.csv [rows]
--
-- RUNS.csv has a line for each run: source, model, layers, hidden, heads, kv_heads, ffn,
-- vocab, seq, global_batch, micro_batch, gpu, gpus, tp, pp, vpp, cp, ep, dp,
-- zero_or_dist_opt, recompute, step_time_s, note. Nothing is fitted to them. Runs of
-- single layers and without sizes are left out, and counted. A note may say FP8. Models of experts
-- are known by name, with even loads, as their benchmarks have them. Where a run does not
-- say its micro batch or its vocabulary, they are taken to be 1 and 51,200. A note may say
-- what the network of a machine carries, as "800 Gb/s inter-node"; else it is that of the
-- GPU's usual machine. Sources before FlashAttention, or that say so, store the scores of
-- attention, and one has FlashAttention 1; two reduce gradients behind the backward. `rows` prints
-- each run.
local weft = require "weft"
local path, all_rows = ...
if not path then error("which runs? weft lua tests/bench/foresight.lua RUNS.csv", 0) end

-- ---- the file ----

-- Fields of a line; those in quotes may have commas.
local function fields(line)
  local out, at = {}, 1
  while at <= #line + 1 do
    local quoted, after = line:match('^"([^"]*)"()', at)
    local plain, next_at = line:match("^([^,]*)()", at)
    out[#out + 1] = quoted or plain
    at = (after or next_at) + 1
  end
  return out
end

local function read(name)
  local rows, heads = {}, nil
  for line in io.lines(name) do
    local f = fields((line:gsub("\r$", "")))
    if not heads then
      heads = f
    else
      local row = {}
      for i, head in ipairs(heads) do row[head] = f[i] ~= "" and f[i] or nil end
      rows[#rows + 1] = row
    end
  end
  return rows
end

-- ---- a run as a plan ----

local gpus = { ["A100-80GB-SXM"] = "a100-80gb", a100_80gb = "a100-80gb", ["H100-80GB-SXM"] = "h100-sxm",
  H200 = "h200", B200 = "b200", B300 = "b300", GB200 = "gb200-nvl72", GB300 = "gb300-nvl72",
  ["H100-96GB-500W"] = "h100-500w" }

-- Models of experts, whose sizes the file does not have.
local of_experts = { DeepSeekV3 = { "deepseek-v3", "deepseek_v3" }, Qwen3_30B_a3B = { "qwen3-30b-a3b", "qwen3_moe" },
  Qwen3_235B_a22B = { "qwen3-235b-a22b", "qwen3_moe" }, ["GPT OSS 120B"] = { "gpt-oss-120b", "gpt_oss" } }
local function named(row) return of_experts[row.model:gsub("%s*%b()", "")] end

local function int(row, key, default) return row[key] and math.floor(tonumber(row[key])) or default end

local function why_not(row)
  if not gpus[row.gpu] then return "other GPUs" end
  local sizes = row.layers and row.hidden and row.heads
  if not (row.step_time_s and row.gpus and row.global_batch and row.seq and (sizes or named(row))) then return "without sizes" end
  if sizes and int(row, "layers") == 1 then return "single layers" end
  if not named(row) and (row.ep and int(row, "ep") > 1 or row.model:find "x") then return "of other experts" end
end

-- Its scripts have a SentencePiece tokenizer and --untie-embeddings-and-output-weights; the sizes
-- that its models are called by leave 27,600 to 34,000 tokens.
local function zero_bubble(row) return row.source:find("Zero Bubble", 1, true) end

local function model(row)
  if named(row) then return weft.model(named(row)[1]) end
  local hidden, ffn = int(row, "hidden"), int(row, "ffn")
  ffn = ffn or 4 * hidden
  local llama = row.model:lower():find "llama" or row.model:lower():find "nemotron" or ffn ~= 4 * hidden
  if llama then
    return weft.model { "llama", hidden_size = hidden, num_hidden_layers = int(row, "layers"),
      num_attention_heads = int(row, "heads"), num_key_value_heads = int(row, "kv_heads", int(row, "heads")),
      intermediate_size = ffn, vocab_size = int(row, "vocab", 51200),
      max_position_embeddings = int(row, "seq") }
  end
  -- Megatron's defaults; MPT trains without.
  local drop = not row.model:find "MPT" and 0.1 or 0
  return weft.model { "gpt2", resid_pdrop = drop, embd_pdrop = drop, attn_pdrop = drop, n_embd = hidden,
    n_layer = int(row, "layers"), n_head = int(row, "heads"), n_positions = int(row, "seq"),
    vocab_size = int(row, "vocab", zero_bubble(row) and 32000 or 51200),
    tie_word_embeddings = not zero_bubble(row) }
end

local function schedule(row, vpp)
  local name = (row.note or ""):match "schedule=([%w%-]+)"
  if name == "ZB-2p" then return "zb_h2" end
  if name == "ZB-1p" then return "zero_bubble" end
  return vpp > 1 and "interleaved_1f1b" or "1f1b"
end

-- Megatron reduces gradients while the backward runs since the end of 2023; before, all of them
-- behind it.
local function older_megatron(row) return row.source:find "Narayanan" or row.source:find "vTrain" end

local function strategy(row, tp)
  local how = (row.zero_or_dist_opt or ""):lower()
  if how:find "fsdp" then return { "fsdp2" } end
  local sp = (row.recompute or ""):find "SP" or how:find "dist" or row.gpu:find "H100"
  return { "zero", overlap_grad_reduce = not older_megatron(row), stage = (how:find "dist" or how:find "zero") and 1 or 0, sequence_parallel = tp > 1 and sp and true or false }
end

-- torchtitan computes every second product of a layer again, and what is cheap.
local every_second = { "cheap", "layers.*.self_attn.k_proj", "layers.*.self_attn.o_proj", "layers.*.mlp.up_proj" }

local function recompute(row)
  local how = (row.recompute or "none"):lower()
  if how:find "selective" and row.source:find "torchtitan" then return every_second end
  return how:find "full" and "full" or how:find "selective" and "selective" or "none"
end

-- Stacks whose attention stored its scores, one that was measured in the spring of 2023, and
-- PyTorch's own.
local older = { { "torchtitan", "flash2" }, { "Narayanan", "scores" }, { "Zero Bubble", "scores" }, { "vTrain", "scores" }, { "llm-foundry", "flash1" } }
local function attention(row)
  for _, of in ipairs(older) do
    if row.source:find(of[1], 1, true) then return of[2] end
  end
  return "fused"
end

-- Zero Bubble looks at the norm of gradients beside the next step, by its post-validation.
local function steps(row) return (row.note or ""):find "schedule=ZB" and "overlap" or "apart" end

-- Megatron's exchanges between stages stand in the way of kernels; those of Zero Bubble's own
-- schedules do not.
local function sends(row)
  local old = older_megatron(row) or zero_bubble(row)
  return old and steps(row) == "apart" and "blocking" or "beside"
end

-- Scales of whole tensors on Hopper, of 32 elements on Blackwell.
local function precision(row)
  if not (row.note or ""):find "FP8" then return "bf16" end
  return { "fp8", recipe = row.gpu:find "B[23]00" and "mxfp8" or "tensorwise" }
end

-- Megatron sums input gradients over tp beside the product of weight gradients since the end of 2021.
local function tp_collectives(row) return older_megatron(row) and "blocking" or "beside" end

-- The GPU's usual machine, of eight, with the network that the run had.
local function machine(row)
  local note = row.note or ""
  local gbits = note:match "(%d+) Gb/s inter%-node" or note:match "(%d+) Gbps node"
  return { gpus[row.gpu], network = gbits and { per_gpu = gbits * 1e9 / 8 / 8 } or nil }
end

-- Stages of one size, the first and the last with a layer less: "Et|tt|tL".
local function stages(row, pp, vpp)
  if vpp == 1 or not (row.note or ""):find "one layer less" then return { virtual = vpp } end
  local each, out = (int(row, "layers") + 2) // (pp * vpp), {}
  for i = 1, pp * vpp do
    local ends = (i == 1 or i == pp * vpp) and 1 or 0
    out[i] = (i == 1 and "E" or "") .. ("t"):rep(each - ends) .. (i == pp * vpp and "L" or "")
  end
  return { virtual = vpp, layout = table.concat(out, "|") }
end

local function plan_of(row)
  local tp, pp, cp, vpp = int(row, "tp", 1), int(row, "pp", 1), int(row, "cp", 1), int(row, "vpp", 1)
  return {
    name = row.model, model = model(row), cluster = weft.cluster(machine(row)),
    mesh = { world = int(row, "gpus"), tp = tp, pp = pp, cp = cp, ep = int(row, "ep"), etp = named(row) and 1 or nil },
    tp_plan = named(row) and weft.tp_plan(named(row)[2]) or nil, moe = named(row) and { dispatcher = "alltoall" } or nil,
    strategy = strategy(row, tp), schedule = schedule(row, vpp), pp_plan = stages(row, pp, vpp),
    recompute = recompute(row), precision = precision(row),
    batch = { global = int(row, "global_batch"), micro = int(row, "micro_batch", 1), seq = int(row, "seq") },
  }
end

-- ---- figures ----

local function mean(list)
  local s = 0
  for _, x in ipairs(list) do s = s + x end
  return #list > 0 and s / #list or 0
end

local function errors(runs, key)
  local out = {}
  for i, r in ipairs(runs) do out[i] = math.abs(r[key] - r.measured) / r.measured end
  return mean(out)
end

-- Of runs of one workload that differ by more than 3 %, how many stand in the right order.
local function pairs_right(runs, key)
  local right, n = 0, 0
  for i = 1, #runs do
    for j = i + 1, #runs do
      local a, b = runs[i], runs[j]
      if a.workload == b.workload and math.abs(a.measured - b.measured) > 0.03 * math.min(a.measured, b.measured) then
        n = n + 1
        if (a.measured < b.measured) == (a[key] < b[key]) then right = right + 1 end
      end
    end
  end
  return right, n
end

-- How much slower than the fastest run of a workload is the one that would be chosen.
local function regret(runs, key)
  local best, chosen, count = {}, {}, {}
  for _, r in ipairs(runs) do
    local w = r.workload
    count[w] = (count[w] or 0) + 1
    if not best[w] or r.measured < best[w] then best[w] = r.measured end
    if not chosen[w] or r[key] < chosen[w][key] then chosen[w] = r end
  end
  local out = {}
  for w, n in pairs(count) do if n > 1 then out[#out + 1] = chosen[w].measured / best[w] - 1 end end
  return mean(out), #out
end

-- One utilisation for all runs of a set: the best constant that there is, of all its arithmetic.
local function constant(runs)
  local shares = {}
  for i, r in ipairs(runs) do shares[i] = r.ideal / r.measured end
  table.sort(shares)
  local middle = shares[(#shares + 1) // 2]
  for _, r in ipairs(runs) do r.constant = r.ideal / middle end
end

-- ---- all of it ----

local sets, order, left_out = {}, {}, {}
for _, row in ipairs(read(path)) do
  local why, p = why_not(row), nil
  if not why then
    local fine, plan = pcall(function() return weft.plan(plan_of(row)) end)
    local ran, sim = pcall(function() return plan:sim { attention = attention(row), steps = steps(row), sends = sends(row), tp = tp_collectives(row) } end)
    if not (fine and ran) then
      why = "refused: " .. tostring(fine and sim or plan):match "[^\n]*"
    else
      local judged = weft.sweep { plan = plan, over = { { "train.seed", 0 } }, max_gib = 1e6 }
      local source = row.source:sub(1, 26) .. (named(row) and " MoE" or (row.note or ""):find "FP8" and " FP8" or "")
      if not sets[source] then
        sets[source] = {}
        order[#order + 1] = source
      end
      local run = { measured = tonumber(row.step_time_s), clock = sim.seconds, low = sim.low, high = sim.high, model = row.model, gpu = gpus[row.gpu],
        bound = judged[1] and judged[1].step_ms / 1e3 or 0 / 0, ideal = sim.hfu * sim.seconds, layout = plan,
        workload = row.model .. row.gpu .. row.gpus .. " " .. row.global_batch .. " " .. row.seq }
      table.insert(sets[source], run)
      if all_rows then
        print(("%-14s %5s gpus tp %s pp %s cp %s mb %s %-8s measured %8.3f clock %8.3f (%+5.1f %%) bound %8.3f"):format(
          row.model, row.gpus, row.tp or "-", row.pp or "-", row.cp or "-", row.micro_batch or "-",
          (row.recompute or ""):sub(1, 8), run.measured, run.clock, 100 * (run.clock / run.measured - 1), run.bound))
      end
    end
  end
  if why then left_out[why] = (left_out[why] or 0) + 1 end
end

local every = {}
local function inside(runs)
  local n = 0
  for _, r in ipairs(runs) do if r.low <= r.measured and r.measured <= r.high then n = n + 1 end end
  return n
end

-- Spearman's rank correlation of what runs and the clock say of the utilisation: of times it says
-- nothing, as models differ a thousandfold.
local function ranks_of(runs, key)
  local order, rank = table.move(runs, 1, #runs, 1, {}), {}
  local function value(r) return r.ideal / r[key] end
  table.sort(order, function(a, b) return value(a) < value(b) end)
  local i = 1
  while i <= #order do
    local last = i
    while last < #order and value(order[last + 1]) == value(order[i]) do last = last + 1 end
    for k = i, last do rank[order[k]] = (i + last) / 2 end
    i = last + 1
  end
  return rank
end

local function spearman(runs)
  local a, b, middle = ranks_of(runs, "measured"), ranks_of(runs, "clock"), (#runs + 1) / 2
  local ab, aa, bb = 0, 0, 0
  for _, r in ipairs(runs) do
    local x, y = a[r] - middle, b[r] - middle
    ab, aa, bb = ab + x * y, aa + x * x, bb + y * y
  end
  return aa > 0 and bb > 0 and ab / math.sqrt(aa * bb) or 0 / 0
end

local function line(name, runs)
  constant(runs)
  local right, n = pairs_right(runs, "clock")
  local by_bound = pairs_right(runs, "bound")
  local lost, workloads = regret(runs, "clock")
  print(("%-32s %4d %7.1f %7.1f %9.1f   %4d/%-4d %4d/%-4d  %5.1f (%d)  %4d  %8.2f"):format(name, #runs,
    100 * errors(runs, "clock"), 100 * errors(runs, "bound"), 100 * errors(runs, "constant"), right, n, by_bound, n,
    100 * lost, workloads, inside(runs), spearman(runs)))
end
print "                                       mean error, %              pairs in order      regret, %  runs in  Spearman of"
print "set                              runs   clock   bound  constant     clock     bound    (workloads)  the range  utilisation"
for _, name in ipairs(order) do
  line(name, sets[name])
  table.move(sets[name], 1, #sets[name], #every + 1, every)
end
if #every > 0 then line("all", every) end
for why, n in pairs(left_out) do print(("left out: %d %s"):format(n, why)) end

-- ---- what is asked of them ----

local function check(says, holds, ...)
  print(("%-7s %s"):format(holds and "holds" or "FAILS", says:format(...)))
end

-- GPUs of whose products there are public figures: `reached` in stdlib/clusters.
local published = { "a100-80gb", "h100-sxm", "h200", "mi300x" }
local function on_gpu(name)
  local runs = {}
  for _, r in ipairs(every) do if r.gpu == name then runs[#runs + 1] = r end end
  return runs
end

local function judge()
  local right, n = pairs_right(every, "clock")
  local lost = regret(every, "clock")
  check("mean error %.1f %%, at most 12", errors(every, "clock") <= 0.12, 100 * errors(every, "clock"))
  for _, gpu in ipairs(published) do
    local runs = on_gpu(gpu)
    if #runs > 0 then
      local e = errors(runs, "clock")
      check("mean error %.1f %% of %d runs on %s, at most 10", e <= 0.10, 100 * e, #runs, gpu)
    end
  end
  for _, name in ipairs(order) do
    local runs = sets[name]
    local mine, all = pairs_right(runs, "clock")
    local bound = pairs_right(runs, "bound")
    if all >= 10 then
      constant(runs)
      local share = errors(runs, "clock") / errors(runs, "constant")
      check("%s: %d of %d pairs in order, at least the %d of the bound", mine >= bound, name, mine, all, bound)
      check("%s: %.2f of the error of a constant utilisation, at most 0.6", share <= 0.6, name, share)
    end
  end
  check("pairs in order %.1f %%, at least 85", right >= 0.85 * n, 100 * right / n)
  check("mean regret %.1f %%, at most 2", lost <= 0.02, 100 * lost)
  check("Spearman of utilisation %.2f, at least 0.8", spearman(every) >= 0.8, spearman(every))
end
if #every > 0 then judge() end
