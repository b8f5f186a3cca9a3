-- ranks.lua - the ranks and the strategy of NeMo AutoModel recipes: world, mesh, FSDP2
-- and Megatron FSDP settings as fields of a plan.
local quote = use "import/quote"
local scalar = use "import/scalar"
local values = use "import/values"

-- ---- ranks ----

-- How many GPUs the recipe says it runs on; nil if it does not.
local function said_world(book)
  local key, nodes = book:first("ci.nodes", "benchmark.num_nodes")
  nodes = nodes and scalar.integer(nodes)
  local each = scalar.integer(book:value "ci.nproc_per_node" or 8)
  if nodes and nodes >= 1 and nodes < 1e5 and each and each >= 1 and each < 1e3 then
    return nodes * each, key
  end
end

-- Ranks that the layout needs at least.
local function least_world(m)
  local stage = m.tp * m.cp * math.max(m.dp or 1, m.dp_replicate)
  return m.pp * values.lcm(stage, m.ep)
end

-- Whether the batch is whole microbatches on every rank; true if the settings do not say.
local function batch_fits(book, m, world)
  local global = scalar.integer(book:value "step_scheduler.global_batch_size")
  local locally = scalar.integer(book:value "step_scheduler.local_batch_size" or 1)
  local dp = world // (m.tp * m.pp * m.cp)
  return not global or not locally or locally < 1 or dp < 1 or global % (locally * dp) == 0
end

-- The ranks that a plan has if nobody says how many: one machine, or as few as the layout takes.
local function usual_world(book, m, least)
  local world = values.lcm(least, 8)
  if world <= 4 * math.max(least, 8) and batch_fits(book, m, world) then return world end
  return least
end

local function put_world(book, plan, m, options)
  if options.world then
    plan:put("mesh.world", quote.value(options.world), "--world")
    return options.world
  end
  if m.dp then return m.pp * m.tp * m.cp * m.dp end
  local least = least_world(m)
  local world, key = said_world(book)
  if world and world % least == 0 and batch_fits(book, m, world) then
    plan:put("mesh.world", quote.value(world), book:leaf(key))
    book:translated(key, "mesh.world")
    if key == "ci.nodes" then book:translated "ci.nproc_per_node" end
    return world
  end
  local why = "the settings do not say how many"
  if world then
    why = string.format("%s = %s, 8 GPUs each, does not go with the layout and the batch", key,
                        quote.shown(book:value(key)))
  end
  world = usual_world(book, m, least)
  plan:put("mesh.world", quote.value(world), "assumed; --world N says another")
  book:assume("mesh.world", string.format("%d ranks: %s; --world N says another", world, why))
  return world
end

local function put_mesh(book, plan, options)
  local m = {}
  for _, axis in ipairs { "tp", "pp", "cp", "ep" } do
    local key = "distributed." .. axis .. "_size"
    local given
    m[axis], given = values.degree(book, key)
    if given and m[axis] > 1 then
      plan:put("mesh." .. axis, quote.value(m[axis]), book:leaf(key))
    end
    if book:leaf(key) then
      book:translated(key, "mesh." .. axis .. (m[axis] == 1 and ", 1 as without it" or ""))
    end
  end
  local dp, dp_given = values.degree(book, "distributed.dp_size")
  if dp_given and options.world then
    book:no_effect("distributed.dp_size", "--world says how many ranks there are")
  elseif dp_given then
    m.dp = dp
    plan:put("mesh.dp", quote.value(dp), book:leaf "distributed.dp_size")
    book:translated "distributed.dp_size"
  else
    book:no_effect("distributed.dp_size", "dp is what is left of the world, here too")
  end
  m.dp_replicate = values.degree(book, "distributed.dp_replicate_size")
  m.world = put_world(book, plan, m, options)
  if m.dp_replicate > 1 then
    plan:put("mesh.dp_replicate", quote.value(m.dp_replicate),
             book:leaf "distributed.dp_replicate_size")
  end
  book:translated "distributed.dp_replicate_size"
  -- AutoModel's experts are whole: ep takes the ranks of tp, too.
  if m.ep > 1 and m.tp > 1 then plan:put("mesh.etp", "1", "AutoModel does not cut experts by tp") end
  m.dp = m.dp or math.max(m.world // (m.tp * m.pp * m.cp), 1)
  return m
end

-- ---- strategy ----

local STRATEGIES = { fsdp2 = "fsdp2", megatron_fsdp = "megatron_fsdp", ["megatron-fsdp"] = "megatron_fsdp",
                     mfsdp = "megatron_fsdp", nvfsdp = "megatron_fsdp", ddp = "ddp" }
local MANAGERS = { FSDP2Manager = "fsdp2", MegatronFSDPManager = "megatron_fsdp", DDPManager = "ddp",
                   NVFSDPManager = "megatron_fsdp", -- its name before it went to Megatron
                   FSDP2Config = "fsdp2", MegatronFSDPConfig = "megatron_fsdp", DDPConfig = "ddp" }
-- Options that have the same name and meaning here: of all, of fsdp2, of megatron_fsdp.
local FSDP2 = { "defer_fsdp_grad_sync", "enable_async_tensor_parallel" }
local MEGATRON_FSDP = { "zero_dp_strategy", "overlap_grad_reduce", "overlap_param_gather",
  "grad_reduce_in_fp32", "preserve_fp32_weights", "check_for_nan_in_grad" }

local function strategy_of(book)
  local key, name = book:first("distributed.strategy", "distributed._target_")
  if not key then return "fsdp2" end
  local known = STRATEGIES[name] or MANAGERS[scalar.behind_last(tostring(name), ".")]
  if not known then
    book:refuse(key, string.format("the strategy %s is none of fsdp2, megatron_fsdp and ddp",
                                   quote.shown(name)))
    return "fsdp2"
  end
  book:translated(key, "strategy")
  return known, book:leaf(key)
end

local function put_prefetch(book, plan)
  local on = values.flag(book, "distributed.enable_fsdp2_prefetch")
  for _, side in ipairs { "forward", "backward" } do
    local key = "distributed.fsdp2_" .. side .. "_prefetch_depth"
    if on then
      values.put_whole(book, plan, key, "strategy." .. side .. "_prefetch_depth", 0)
    else
      book:no_effect(key, "distributed.enable_fsdp2_prefetch is not set")
    end
  end
  book:translated("distributed.enable_fsdp2_prefetch", "strategy.forward_prefetch_depth and "
                  .. "backward_prefetch_depth")
end

local function put_reshard(book, plan)
  local key = "distributed.reshard_after_forward"
  local value = book:value(key)
  if value == nil then return end
  local n = scalar.integer(value)
  if type(value) ~= "boolean" and not n then return values.flag(book, key) end
  plan:put("strategy.reshard_after_forward", quote.value(n or value), book:leaf(key))
  book:translated(key, "strategy.reshard_after_forward")
end

local function put_offload(book, plan)
  for _, leaf in ipairs(book.leaves) do
    if string.find(leaf.key, "^distributed%.offload_policy") and leaf.value ~= scalar.null
      and leaf.value ~= false then
      plan:put("strategy.offload_policy", "true", leaf)
      book:translated(leaf.key, "strategy.offload_policy")
    end
  end
  book:no_effect("distributed.offload_policy", "it is off")
end

local function put_sequence_parallel(book, plan, strategy, m)
  local key = "distributed.sequence_parallel"
  local on = values.flag(book, key)
  if not on then return book:no_effect(key, "it is off") end
  if strategy ~= "fsdp2" then
    return book:refuse(key, "AutoModel's " .. strategy .. " has no sequence parallelism")
  end
  if m.tp == 1 then return book:no_effect(key, "without tp there is nothing to cut") end
  plan:put("strategy.sequence_parallel", "true", book:leaf(key))
  book:translated(key, "strategy.sequence_parallel")
end

local function put_strategy(book, plan, m)
  local strategy, from = strategy_of(book)
  plan:put("strategy.#", quote.text(strategy), from or "AutoModel's default")
  put_sequence_parallel(book, plan, strategy, m)
  if strategy == "fsdp2" then
    for _, name in ipairs(FSDP2) do
      values.put_flag(book, plan, "distributed." .. name, "strategy." .. name)
    end
    put_prefetch(book, plan)
    put_reshard(book, plan)
    put_offload(book, plan)
  elseif strategy == "megatron_fsdp" then
    for _, name in ipairs(MEGATRON_FSDP) do
      local leaf = book:leaf("distributed." .. name)
      if leaf and leaf.value ~= scalar.null then
        plan:put("strategy." .. name, quote.value(leaf.value), leaf)
        book:translated(leaf.key, "strategy." .. name)
      end
    end
  end
  local mb = strategy == "ddp" and values.positive(book, "distributed.bucket_cap_mb")
  if mb then
    plan:put("strategy.bucket_bytes", quote.value(math.max(1, math.floor(mb * 1048576))),
             book:leaf "distributed.bucket_cap_mb")
    book:translated "distributed.bucket_cap_mb"
  end
  return strategy
end

return { put_mesh = put_mesh, put_strategy = put_strategy }
