-- ranks.lua - how a plan lies over ranks, as Megatron's arguments: sizes of groups, pipeline stages and
-- their schedule, and what the data-parallel ranks share.
local model = use "export/megatron/model"
local ranks = {}

-- ---- the mesh ----

local AXES = { tp = "tensor", pp = "pipeline", cp = "context", ep = "expert" }
local COMM = { ring = "p2p", allgather = "all_gather", a2a = "a2a", ["a2a+p2p"] = "a2a+p2p" }
local STAGES_OUTSIDE_DATA = "dp_replicate, dp_shard, pp, cp, tp"

local function put_context(s, v)
  if v["mesh.cp"] == 1 then return end
  s:put("--cp-comm-type", COMM[v["cp.comm"]], "cp.comm")
  if v["cp.comm"] ~= "a2a+p2p" then return end
  s:put("--hierarchical-context-parallel-sizes", { v["cp.heads_size"], v["mesh.cp"] // v["cp.heads_size"] },
        "cp.heads_size")
end

local function put_mesh(s, f)
  local v = f.value
  s:group "MODEL_PARALLEL_ARGS"
  for _, axis in ipairs { "tp", "pp", "cp" } do
    local size = v["mesh." .. axis]
    if size > 1 or axis ~= "cp" then s:put("--" .. AXES[axis] .. (axis == "cp" and "-parallel-size"
      or "-model-parallel-size"), size, "mesh." .. axis) end
  end
  if model.experts(f.config) then
    s:put("--expert-model-parallel-size", v["mesh.ep"], "mesh.ep")
    s:put("--expert-tensor-parallel-size", f.mesh.expert.etp, "mesh.etp")
  end
  s:put("--use-tp-pp-dp-mapping", v["mesh.pp"] > 1 and v["mesh.order"] == STAGES_OUTSIDE_DATA, "mesh.order")
  put_context(s, v)
end

-- ---- the pipeline ----

-- Units of a stage in Megatron's letters: what is before the layers is E, what is behind them is L.
local function letters(units, layers)
  local before, n, further, behind = false, 0, 0, false
  for unit in string.gmatch(units, "%S+") do
    local number = tonumber(string.match(unit, "%.(%d+)$"))
    if number and number >= layers then further = further + 1
    elseif number then n = n + 1
    elseif n > 0 or unit == "norm" or unit == "ln_f" or unit == "lm_head" then behind = true
    else before = true end
  end
  local text = (n == 0 and "" or n == 1 and "t" or "t*" .. n) .. string.rep("m", further)
  return (before and "E" or "") .. text .. (behind and "L" or ""), n + further
end

-- The layout of the stages, and whether it is what Megatron makes without one.
local function layout_of(f)
  local parts, even, stages = {}, true, f.mesh.pp * f.virtual
  local each = f.facts.layers // stages
  for units in string.gmatch(f.value.pp_plan .. " | ", "(.-) | ") do
    local text, n = letters(units, f.config.num_hidden_layers or f.config.n_layer)
    parts[#parts + 1] = text
    local at = #parts
    even = even and n == each and not string.find(text, "m") and (string.find(text, "E") ~= nil) == (at == 1)
      and (string.find(text, "L") ~= nil) == (at == stages)
  end
  return table.concat(parts, "|"), even
end

-- Microbatches of a virtual stage that follow each other, if Megatron takes so many.
local function group_of(f)
  local spec = f.spec.schedule
  local group = type(spec) == "table" and math.type(spec.group) == "integer" and spec.group or f.mesh.pp
  local n = f.facts.microbatches
  if group < f.mesh.pp or group > n or (n % group > 0 and n % group < f.mesh.pp) then group = f.mesh.pp end
  if group > n or n % group > 0 and n % group < f.mesh.pp then return nil end
  return group
end

-- One stage for each rank, as equal as can be: what comes nearest where stages cannot be interleaved.
local function one_each(f)
  local further = f.value["mtp.num_layers"]
  local layers, pp, parts = f.facts.layers - further, f.mesh.pp, {}
  for i = 1, pp do
    local n = layers // pp + (i <= layers % pp and 1 or 0)
    parts[i] = (i == 1 and "E" or "") .. (n > 0 and "t*" .. n or "")
      .. (i == pp and string.rep("m", further) .. "L" or "")
  end
  return table.concat(parts, "|"), layers % pp == 0 and further == 0
end

local function put_pipeline(s, f)
  if f.mesh.pp == 1 then return end
  local group = f.virtual > 1 and group_of(f)
  local interleaved = group or f.virtual == 1
  local layout, even = (interleaved and layout_of or one_each)(f)
  if not even then
    s:put("--pipeline-model-parallel-layout", layout, "pp_plan")
  elseif f.virtual > 1 and interleaved then
    s:put("--num-layers-per-virtual-pipeline-stage", f.facts.layers // (f.mesh.pp * f.virtual), "pp_plan")
  end
  if group and group ~= f.mesh.pp then
    s:put("--microbatch-group-size-per-virtual-pipeline-stage", group, "schedule")
  end
end

-- ---- what data-parallel ranks share ----

-- Forms of the strategy that may say it: the one that leaves the fewest differences is taken.
local FORMS = { zero = { [0] = { "none" }, { "optim" }, { "optim_grads" }, { "optim_grads_params" } },
                ddp = { "none" }, fsdp2 = { "torch", "optim_grads_params" } }

function ranks.forms(f)
  local kind = f.value.strategy
  return kind == "zero" and FORMS.zero[f.value["strategy.stage"]] or FORMS[kind]
end

local function put_fsdp(s, form)
  if form == "torch" then
    s:put("--use-torch-fsdp2", true, "strategy")
    s:put("--no-gradient-accumulation-fusion", true)
    return s:put("--ckpt-format", "torch_dist")
  end
  s:put("--use-megatron-fsdp", true, "strategy")
  s:put("--data-parallel-sharding-strategy", form, "strategy.stage")
  s:put("--use-distributed-optimizer", true)
  s:put("--no-gradient-accumulation-fusion", true)
  s:put("--ckpt-format", "fsdp_dtensor")
end

local function put_offload(s, v, form)
  if form == "none" or form == "torch" or v.optimizer ~= "adamw" or not v["strategy.offload_optimizer"] then
    return
  end
  s:put("--optimizer-cpu-offload", true, "strategy.offload_optimizer")
  s:put("--use-precision-aware-optimizer", true)
end

local function put_strategy(s, f, form)
  local v = f.value
  s:group "STRATEGY_ARGS"
  if form == "optim" then
    s:put("--use-distributed-optimizer", true, "strategy.stage")
  elseif form ~= "none" then
    put_fsdp(s, form)
  end
  if form ~= "torch" then
    s:put("--overlap-grad-reduce", v["strategy.overlap_grad_reduce"], "strategy.overlap_grad_reduce")
    s:put("--overlap-param-gather", form ~= "none" and v["strategy.overlap_grad_reduce"]
          and v["strategy.overlap_param_gather"], "strategy.overlap_param_gather")
    s:put("--ddp-bucket-size", v["strategy.bucket_bytes"] % 4 == 0 and v["strategy.bucket_bytes"] // 4,
          "strategy.bucket_bytes")
  end
  if form ~= "none" and v["mesh.dp_replicate"] > 1 then
    s:put("--num-distributed-optimizer-instances", v["mesh.dp_replicate"], "mesh.dp_replicate")
  end
  put_offload(s, v, form)
  if v["mesh.tp"] == 1 then return end
  -- With experts Megatron's training takes tp only so.
  local parallel = v["strategy.sequence_parallel"] or model.experts(f.config) ~= nil
  s:put("--sequence-parallel", parallel, "strategy.sequence_parallel")
  s:put("--tp-comm-overlap", parallel and v["strategy.enable_async_tensor_parallel"],
        "strategy.enable_async_tensor_parallel")
end

-- Before Hopper's successors transfers of tp and cp want one queue of the device, those of FSDP several.
local function put_connections(s, v, form)
  if form == "none" or form == "optim" then
    if v["mesh.tp"] > 1 or v["mesh.cp"] > 1 then s:export("CUDA_DEVICE_MAX_CONNECTIONS", 1) end
  end
end

function ranks.put(s, f, form)
  put_mesh(s, f)
  put_pipeline(s, f)
  put_strategy(s, f, form)
  put_connections(s, f.value, form)
end

return ranks
