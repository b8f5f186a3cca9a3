-- ranks.lua - how Megatron lays a model over ranks: the mesh, pipeline stages and their schedule, and
-- what the data-parallel ranks share, as fields of a plan.
local layout = use "import/megatron/layout"
local quote = use "import/quote"
local scalar = use "import/scalar"
local values = use "import/values"
local ranks = {}

local function on(book, key) return values.flag(book, key) == true end

-- ---- the mesh ----

local AXES = { { "tp", "tensor_model_parallel_size" }, { "pp", "pipeline_model_parallel_size" },
               { "cp", "context_parallel_size" }, { "ep", "expert_model_parallel_size" } }

-- GPUs of a launch: of each machine, and machines, as torchrun, Slurm or NeMo say them.
local EACH = { "launcher.nproc_per_node", "slurm.ntasks_per_node", "slurm.gpus_per_node", "devices" }
local NODES = { "launcher.nnodes", "slurm.nodes", "num_nodes" }

-- The first of these keys that has a number, and the number.
local function number_of(book, list, most)
  for _, key in ipairs(list) do
    local n = scalar.integer(book:value(key))
    if n and n >= 1 and n <= most then return n, key end
  end
end

-- Ranks, and the keys that say so. Of machines that nobody counts there is one, unless their number
-- is a variable without a value.
local function said_world(book)
  local each, key = number_of(book, EACH, 1000)
  local nodes, other = number_of(book, NODES, 100000)
  if not each or (not nodes and book:leaf "launcher.nnodes") then return nil end
  return each * (nodes or 1), key, other
end

-- Whether the batch is whole microbatches on every rank, as many as there are stages.
local function batch_fits(book, m, world)
  local global = scalar.integer(book:value "global_batch_size")
  local micro = scalar.integer(book:value "micro_batch_size" or 1)
  local dp = world // (m.tp * m.pp * m.cp)
  if not global or not micro or micro < 1 or dp < 1 then return true end
  return global % (micro * dp) == 0 and global // (micro * dp) >= m.pp
end

local function put_world(book, plan, m, options)
  if options.world then
    plan:put("mesh.world", quote.value(options.world), "--world")
    return options.world
  end
  local least = m.pp * values.lcm(m.tp * m.cp * m.copies, m.ep * m.etp)
  local world, key, other = said_world(book)
  local why = "the settings do not say how many"
  if world and world % least == 0 and batch_fits(book, m, world) then
    plan:put("mesh.world", quote.value(world), book:leaf(key))
    book:translated(key, "mesh.world")
    if other then book:translated(other, "mesh.world") end
    return world
  elseif world then
    why = string.format("the %d of %s do not go with the layout and the batch", world,
                        quote.shown(book:leaf(key).given))
    book:cannot(key, "the layout or the batch does not take so many ranks")
    if other then book:cannot(other, "the layout or the batch does not take so many ranks") end
  end
  world = values.lcm(least, 8)
  if world > 4 * math.max(least, 8) or not batch_fits(book, m, world) then world = least end
  plan:put("mesh.world", quote.value(world), "assumed; --world N says another")
  book:assume("mesh.world", string.format("%d ranks: %s; --world N says another", world, why))
  return world
end

-- The sizes of all axes; without their fields yet, since the vocabulary depends on tp.
function ranks.sizes(book)
  local m = {}
  for _, axis in ipairs(AXES) do m[axis[1]] = values.whole(book, axis[2], 1) or 1 end
  m.etp = values.whole(book, "expert_tensor_parallel_size", 1) or m.tp
  m.copies = values.whole(book, "num_distributed_optimizer_instances", 1) or 1
  return m
end

function ranks.put_mesh(book, plan, m, options, experts)
  if not experts and m.ep > 1 then
    book:no_effect("expert_model_parallel_size", "the model has no experts")
    m.ep, m.etp = 1, m.tp
  end
  for _, axis in ipairs(AXES) do
    local name, key = axis[1], axis[2]
    if m[name] > 1 then plan:put("mesh." .. name, quote.value(m[name]), book:leaf(key)) end
    book:translated(key, "mesh." .. name .. (m[name] == 1 and ", 1 as without it" or ""))
  end
  if experts and m.etp ~= m.tp then
    plan:put("mesh.etp", quote.value(m.etp), book:leaf "expert_tensor_parallel_size")
  end
  if experts then
    book:translated "expert_tensor_parallel_size"
  else
    m.etp = m.tp
    book:no_effect("expert_tensor_parallel_size", "the model has no experts")
  end
  m.world = put_world(book, plan, m, options)
  m.dp = math.max(m.world // (m.tp * m.pp * m.cp), 1)
  if m.copies > 1 then
    plan:put("mesh.dp_replicate", quote.value(m.copies), book:leaf "num_distributed_optimizer_instances")
  end
  book:translated "num_distributed_optimizer_instances"
  if on(book, "use_tp_pp_dp_mapping") and m.pp > 1 then
    plan:put("mesh.order", '{ "dp_replicate", "dp_shard", "pp", "cp", "tp" }', book:leaf "use_tp_pp_dp_mapping")
    book:translated "use_tp_pp_dp_mapping"
  else
    book:no_effect("use_tp_pp_dp_mapping", "there is one pipeline stage")
  end
end

-- ---- the pipeline ----

local PIPELINE = { "num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank",
  "virtual_pipeline_model_parallel_size", "decoder_first_pipeline_num_layers",
  "decoder_last_pipeline_num_layers", "account_for_embedding_in_pipeline_split",
  "account_for_loss_in_pipeline_split", "microbatch_group_size_per_virtual_pipeline_stage",
  "pipeline_model_parallel_layout" }

-- Stages of each rank, and the key that says so.
local function virtual_of(book, m, counted)
  for _, key in ipairs { "num_virtual_stages_per_pipeline_rank", "virtual_pipeline_model_parallel_size" } do
    local n = values.whole(book, key, 1)
    if n then return n, key end
  end
  local key = "num_layers_per_virtual_pipeline_stage"
  local each = values.whole(book, key, 1)
  if not each then return 1 end
  if counted % (m.pp * each) ~= 0 then
    book:refuse(key, string.format("stages of %d layers cannot be made of %d layers on %d pipeline ranks", each,
                                   counted, m.pp))
    return 1, key
  end
  return counted // (m.pp * each), key
end

-- Layers of each stage where they are not all equal; nil: they are.
local function uneven(book, m, virtual, extra_first, extra_last)
  local first = values.whole(book, "decoder_first_pipeline_num_layers", 0)
  local last = values.whole(book, "decoder_last_pipeline_num_layers", 0)
  local list = {}
  if first or last then
    local others = m.pp - (first and 1 or 0) - (last and 1 or 0)
    local rest = m.layers - (first or 0) - (last or 0)
    local key = first and "decoder_first_pipeline_num_layers" or "decoder_last_pipeline_num_layers"
    if rest < 0 or (others > 0 and rest % (others * virtual) ~= 0) or (others == 0 and rest ~= 0)
      or (first or 0) % virtual ~= 0 or (last or 0) % virtual ~= 0 then
      return book:refuse(key, string.format("the other %d of %d layers cannot be cut into equal stages", rest,
                                            m.layers))
    end
    for stage = 0, m.pp * virtual - 1 do
      local rank = stage % m.pp
      local n = others > 0 and rest // others or 0
      if rank == 0 and first then n = first elseif rank == m.pp - 1 and last then n = last end
      list[#list + 1] = n // virtual
    end
    return list, key
  end
  if not extra_first and not extra_last then return nil end
  local counted = m.layers + (extra_first and 1 or 0) + (extra_last and 1 or 0)
  local key = extra_first and "account_for_embedding_in_pipeline_split" or "account_for_loss_in_pipeline_split"
  if counted % (m.pp * virtual) ~= 0 then
    return book:refuse(key, string.format("%d layers, counted with what it adds, cannot be cut into %d equal "
                                          .. "stages", counted, m.pp * virtual))
  end
  for i = 1, m.pp * virtual do list[i] = counted // (m.pp * virtual) end
  if extra_first then list[1] = list[1] - 1 end
  if extra_last then list[#list] = list[#list] - 1 end
  return list, key
end

-- Layers that predict further tokens are all on the last stage.
local function with_further(book, m, virtual, list, why)
  local stages = m.pp * virtual
  if not list and why then return nil, why end
  if not list and m.layers % stages ~= 0 then
    return nil, book:refuse("mtp_num_layers", string.format("%d layers cannot be cut into %d equal stages", m.layers,
                                                            stages)) or "mtp_num_layers"
  end
  if not list then
    list = {}
    for i = 1, stages do list[i] = m.layers // stages end
  end
  list[stages] = list[stages] + m.further
  return list, why or "mtp_num_layers"
end

local function put_layout(book, plan, m)
  local key = "pipeline_model_parallel_layout"
  local text = book:value(key)
  if text == nil then return nil end
  local stages, why = layout.stages(tostring(text))
  if not stages then
    book:refuse(key, string.format("%s: %s", quote.shown(text), why))
    return 1
  end
  if stages % m.pp ~= 0 then
    book:refuse(key, string.format("its %d stages are no multiple of pp = %d", stages, m.pp))
    return 1
  end
  local kept = m.further > 0 and tostring(text) or string.gsub(tostring(text), "m%*?%d*", "")
  plan:put("pp_plan.layout", quote.text(kept), book:leaf(key))
  if kept ~= text then
    book:cannot(key, "m, multi-token prediction, is no part of the model: the plan has the layout without it")
  else
    book:translated(key, "pp_plan.layout")
  end
  return stages // m.pp
end

local function put_schedule(book, plan, m, virtual, key)
  if virtual == 1 then
    plan:put("schedule", quote.text "1f1b", "Megatron's, without virtual stages")
    return
  end
  local group = "microbatch_group_size_per_virtual_pipeline_stage"
  local size = values.whole(book, group, 1) or m.pp
  plan:put("pp_plan.virtual", quote.value(virtual), key and book:leaf(key))
  plan:put("schedule.#", quote.text "interleaved_1f1b", key and book:leaf(key))
  plan:put("schedule.group", quote.value(size), book:leaf(group) or "Megatron's default: pp")
end

function ranks.put_pipeline(book, plan, m)
  if m.pp == 1 then
    for _, key in ipairs(PIPELINE) do book:no_effect(key, "there is one pipeline stage") end
    return
  end
  local extra_first = on(book, "account_for_embedding_in_pipeline_split")
  local extra_last = on(book, "account_for_loss_in_pipeline_split")
  local virtual, key = put_layout(book, plan, m), "pipeline_model_parallel_layout"
  if not virtual and m.layers then
    local counted = m.layers + (extra_first and 1 or 0) + (extra_last and 1 or 0)
    virtual, key = virtual_of(book, m, counted)
    local list, why = uneven(book, m, virtual, extra_first, extra_last)
    if m.further > 0 then list, why = with_further(book, m, virtual, list, why) end
    if list then
      plan:put("pp_plan.layers", quote.value(list), book:leaf(why))
    elseif not why and m.layers % (m.pp * virtual) ~= 0 then
      book:assume("pp_plan", string.format("Megatron takes equal stages alone, which %d layers do not make of %d: "
        .. "here they differ by one layer", m.layers, m.pp * virtual))
    end
  end
  m.virtual = virtual or 1
  put_schedule(book, plan, m, m.virtual, key)
  for _, one in ipairs(PIPELINE) do book:translated(one, "pp_plan and schedule") end
end

-- ---- what data-parallel ranks share ----

local STAGES = { no_shard = 0, optim = 1, optim_grads = 2, optim_grads_params = 3 }

local function stage_of(book)
  if on(book, "use_megatron_fsdp") or on(book, "use_custom_fsdp") then
    local key = "data_parallel_sharding_strategy"
    local value = book:value(key) or "no_shard"
    local stage = STAGES[value]
    if not stage then
      book:refuse(key, string.format("%s: expected no_shard, optim, optim_grads or optim_grads_params",
                                     quote.shown(value)))
    end
    return stage or 0, book:leaf(key) and key or "use_megatron_fsdp"
  end
  book:no_effect("data_parallel_sharding_strategy", "it is of --use-megatron-fsdp")
  if on(book, "use_distributed_optimizer") then return 1, "use_distributed_optimizer" end
  return 0
end

local function put_overlap(book, plan, key, field, applies)
  local flag = values.flag(book, key)
  if not applies then return book:no_effect(key, "there is nothing to gather") end
  plan:put(field, tostring(flag == true), book:leaf(key) or "Megatron's default")
  book:translated(key, field)
end

local function put_buckets(book, plan)
  local n = values.whole(book, "ddp_bucket_size", 1)
  if n then
    plan:put("strategy.bucket_bytes", quote.value(4 * n), book:leaf "ddp_bucket_size")
    book:translated("ddp_bucket_size", "strategy.bucket_bytes, four bytes an element")
  end
  book:cannot("ddp_num_buckets", "buckets have a size here, strategy.bucket_bytes, not a number")
end

local function put_tp_overlap(book, plan, m, parallel)
  if not on(book, "tp_comm_overlap") then return book:no_effect("tp_comm_overlap", "it is off") end
  if m.tp == 1 or not parallel then
    return book:no_effect("tp_comm_overlap", "without sequence parallelism nothing is gathered over tp")
  end
  plan:put("strategy.enable_async_tensor_parallel", "true", book:leaf "tp_comm_overlap")
  book:translated "tp_comm_overlap"
end

function ranks.put_strategy(book, plan, m)
  local parallel = on(book, "sequence_parallel") and m.tp > 1
  if on(book, "use_torch_fsdp2") then
    plan:put("strategy.#", quote.text "fsdp2", book:leaf "use_torch_fsdp2")
    book:translated "use_torch_fsdp2"
    for _, key in ipairs { "use_distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather" } do
      book:no_effect(key, "FSDP2 cuts all, and overlaps")
    end
  else
    local stage, key = stage_of(book)
    plan:put("strategy.#", quote.text "zero", key and book:leaf(key) or "Megatron's default")
    plan:put("strategy.stage", quote.value(stage), key and book:leaf(key) or "without --use-distributed-optimizer")
    for _, one in ipairs { "use_distributed_optimizer", "use_megatron_fsdp", "use_custom_fsdp",
                           "data_parallel_sharding_strategy" } do
      book:translated(one, string.format("strategy = { \"zero\", stage = %d }", stage))
    end
    local share = values.positive(book, "optimizer_offload_fraction") or 1
    if stage > 0 and share == 1 and on(book, "optimizer_cpu_offload") then
      plan:put("strategy.offload_optimizer", quote.text "cpu", book:leaf "optimizer_cpu_offload")
      book:translated "optimizer_cpu_offload"
      book:translated "optimizer_offload_fraction"
      book:no_effect("use_precision_aware_optimizer", "Megatron offloads with it alone; the types are said beside it")
    end
    put_overlap(book, plan, "overlap_grad_reduce", "strategy.overlap_grad_reduce", true)
    if stage == 3 then
      book:no_effect("overlap_param_gather", "units are gathered ahead of their use")
    else
      put_overlap(book, plan, "overlap_param_gather", "strategy.overlap_param_gather", stage > 0)
    end
    put_buckets(book, plan)
  end
  if parallel then plan:put("strategy.sequence_parallel", "true", book:leaf "sequence_parallel") end
  if on(book, "sequence_parallel") and m.tp == 1 then
    book:no_effect("sequence_parallel", "without tp there is nothing to cut")
  end
  book:translated "sequence_parallel"
  put_tp_overlap(book, plan, m, parallel)
end

return ranks
