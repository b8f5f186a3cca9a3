-- ranks.lua - the ranks, the strategy, the pipeline and context parallelism of
-- torchtitan's settings as fields of a plan.
local pytorch = use "import/pytorch"
local quote = use "import/quote"
local read_text = use "read_text"
local scalar = use "import/scalar"
local values = use "import/values"

local P = "parallelism."

-- Ranks that share shards, if the settings leave it to the world: a machine's worth, or as many
-- as experts and the batch take.
local function usual_shards(book, m)
  local global = scalar.integer(book:value "training.global_batch_size")
  local locally = scalar.integer(book:value "training.local_batch_size" or 8)
  local function fits(n)
    local batch = not global or global < 1 or not locally or locally < 1
      or global % (locally * m.rep * n) == 0
    return batch and (n * m.cp * (m.etp == 1 and m.tp or 1)) % m.ep == 0
  end
  for _, n in ipairs { 8, 16, 32, 64, 128, 256, 512, 4, 2, 1 } do
    if fits(n) then return n end
  end
  return m.ep
end

local function put_axis(book, plan, m, name, key)
  local given
  m[name], given = values.degree(book, key)
  if given and m[name] > 1 then plan:put("mesh." .. name, quote.value(m[name]), book:leaf(key)) end
  book:translated(key, "mesh." .. name .. (m[name] == 1 and ", 1 as without it" or ""))
end

-- Experts: torchtitan's are whole, or cut like the rest (expert_tensor_parallel_degree).
local function put_etp(book, plan, m)
  local key = P .. "expert_tensor_parallel_degree"
  m.etp = values.degree(book, key)
  if m.ep == 1 then
    return book:no_effect(key, "experts are not shared by ep: tp cuts them as it cuts the rest")
  end
  if m.etp ~= 1 and m.etp ~= m.tp then
    return book:refuse(key, string.format("%d: torchtitan has 1 and tensor_parallel_degree = %d",
                                          m.etp, m.tp))
  end
  if m.tp > 1 then
    plan:put("mesh.etp", quote.value(m.etp), book:leaf(key) or "torchtitan's default")
  end
  book:translated(key, "mesh.etp")
end

local function put_mesh(book, plan, options)
  local m = { folder = string.match(options.file, "^.*/") or "" }
  put_axis(book, plan, m, "tp", P .. "tensor_parallel_degree")
  put_axis(book, plan, m, "pp", P .. "pipeline_parallel_degree")
  put_axis(book, plan, m, "cp", P .. "context_parallel_degree")
  put_axis(book, plan, m, "ep", P .. "expert_parallel_degree")
  put_etp(book, plan, m)
  m.rep = values.degree(book, P .. "data_parallel_replicate_degree")
  local key = P .. "data_parallel_shard_degree"
  local shard, given = values.degree(book, key)
  local rest = m.tp * m.pp * m.cp
  if options.world then
    plan:put("mesh.world", quote.value(options.world), "--world")
    book:no_effect(key, given and "--world says how many ranks there are"
                        or "it is what is left of the world, here too")
    m.dp = math.max(options.world // rest, 1)
    if options.world % (rest * m.rep) ~= 0 then
      book:refuse(nil, string.format("--world %d: %d ranks are no multiple of the degrees %d of tp, pp, cp and copies",
                                     options.world, options.world, rest * m.rep))
    end
  elseif given then
    m.dp = m.rep * shard
    plan:put("mesh.dp", quote.value(m.dp), book:leaf(key))
    book:translated(key, "mesh.dp / mesh.dp_replicate")
  else
    m.dp = m.rep * usual_shards(book, m)
    plan:put("mesh.world", quote.value(m.dp * rest), "assumed; --world N says another")
    book:assume("mesh.world", string.format("%d ranks: data_parallel_shard_degree is what is left "
      .. "of a world that the settings do not say; --world N says another", m.dp * rest))
    book:no_effect(key, "it is what is left of the world, here too")
  end
  m.fsdp = m.dp > m.rep or m.cp > 1 or m.ep > 1
  if m.fsdp and m.rep > 1 then
    plan:put("mesh.dp_replicate", quote.value(m.rep), book:leaf(P .. "data_parallel_replicate_degree"))
  end
  local copies = m.fsdp and "mesh.dp_replicate" or "mesh.dp: all data-parallel ranks have copies"
  book:translated(P .. "data_parallel_replicate_degree", m.rep == 1 and "mesh.dp_replicate, 1 as without it" or copies)
  return m
end

-- ---- strategy ----

local RESHARD = { always = "true", never = "false" }

local function put_reshard(book, plan, m)
  local key = P .. "fsdp_reshard_after_forward"
  local value = book:value(key)
  if value == true or value == false then value = value and "always" or "never" end
  if not m.fsdp then return book:no_effect(key, "nothing is gathered: there are no shards") end
  if RESHARD[value] then
    plan:put("strategy.reshard_after_forward", RESHARD[value], book:leaf(key))
    return book:translated(key, "strategy.reshard_after_forward")
  end
  if value ~= nil and value ~= "default" then
    return book:refuse(key, string.format("%s = %s: expected default, always or never", key,
                                          quote.shown(value)))
  end
  book:translated(key, "strategy.reshard_after_forward, whose default is the same but for the "
                  .. "head, which torchtitan keeps")
end

-- With torchtitan there is sequence parallelism wherever there is tp, unless it is told off.
local function put_tensor(book, plan, m)
  local sp, async = P .. "enable_sequence_parallel", P .. "enable_async_tensor_parallel"
  local whole = P .. "disable_loss_parallel"
  if m.tp == 1 then
    for _, key in ipairs { sp, async, whole } do
      book:no_effect(key, "without tp there is nothing to cut")
    end
    return
  end
  local on = values.flag(book, sp) ~= false
  plan:put("strategy.sequence_parallel", tostring(on), book:leaf(sp) or "torchtitan's default")
  book:translated(sp, "strategy.sequence_parallel")
  if values.flag(book, async) and on then
    plan:put("strategy.enable_async_tensor_parallel", "true", book:leaf(async))
    book:translated(async, "strategy.enable_async_tensor_parallel")
  elseif values.flag(book, async) then
    book:refuse(async, "it is about gathers over the sequence: enable_sequence_parallel is false")
  else
    book:no_effect(async, "it is off, as without it")
  end
  local off = values.flag(book, whole)
  if off ~= nil then plan:put("strategy.loss_parallel", tostring(not off), book:leaf(whole)) end
  book:translated(whole, "strategy.loss_parallel")
end

local function strategy_of(m)
  if m.fsdp then return "fsdp2", "torchtitan's FSDP" end
  if m.tp == 1 and m.pp == 1 then return "ddp", "torchtitan's DDP: there are no shards" end
  return "zero", "copies on all data-parallel ranks: there are no shards"
end

local function put_strategy(book, plan, m)
  local name, from = strategy_of(m)
  plan:put("strategy.#", quote.text(name), from)
  if name == "zero" then plan:put("strategy.stage", "0", from) end
  put_reshard(book, plan, m)
  put_tensor(book, plan, m)
  -- Gradients are reduced in each backward; of a pipeline behind the last microbatch.
  if m.fsdp and m.pp == 1 then
    plan:put("strategy.defer_fsdp_grad_sync", "false", "torchtitan reduces in each backward")
  end
  local offload = "training.enable_cpu_offload"
  if values.flag(book, offload) and m.fsdp then
    plan:put("strategy.offload_policy", "true", book:leaf(offload))
    return book:translated(offload, "strategy.offload_policy")
  elseif values.flag(book, offload) then
    return book:cannot(offload, "without shards nothing is offloaded")
  end
  book:no_effect(offload, "it is off, as without it")
end

-- ---- the pipeline ----

-- Names of modules: what torchtitan has, and what units of models have here.
local MODULES = { tok_embeddings = "embed_tokens", norm = "norm", output = "lm_head",
                  lm_head = "lm_head" }

local function put_modules(book, plan, key, m)
  local stages = {}
  if #book:value(key) % m.pp ~= 0 then
    return book:refuse(key, string.format("%d parts cannot be shared by %d pipeline ranks",
                                          #book:value(key), m.pp))
  end
  for i, stage in ipairs(book:value(key)) do
    stages[i] = {}
    for j, name in ipairs(type(stage) == "table" and stage or { stage }) do
      stages[i][j] = MODULES[name] or tostring(name)
    end
  end
  plan:put("pp_plan.modules", quote.value(stages), book:leaf(key))
  if #stages > m.pp then plan:put("pp_plan.virtual", quote.value(#stages // m.pp), book:leaf(key)) end
  book:translated(key, "pp_plan.modules")
end

-- "layers.3": the stage begins with this layer.
local function put_points(book, plan, key)
  local points = book:value(key)
  if type(points) == "string" then points = { points } end
  if type(points) ~= "table" or #points == 0 then
    return book:no_effect(key, "it names no cut")
  end
  book:cannot(key, "cuts of an older version, by the first module of each stage; pp_plan.modules "
    .. "lists all of them: the plan has stages as equal as can be")
end

local function put_stages(book, plan, schedule, m)
  local key = P .. "module_fqns_per_model_part"
  local list = book:value(key)
  if type(list) == "table" and #list > 0 then
    put_modules(book, plan, key, m)
    for _, name in ipairs { "layers_per_stage", "first_stage_less_layers", "last_stage_less_layers" } do
      book:no_effect(P .. "pipeline_parallel_" .. name, "module_fqns_per_model_part says the cuts")
    end
    return
  end
  for _, side in ipairs { "first", "last" } do
    local name = side .. "_stage_less_layers"
    local n = values.put_whole(book, plan, P .. "pipeline_parallel_" .. name, "pp_plan." .. name, 0)
    if not n then plan:put("pp_plan." .. name, "1", "torchtitan's default") end
  end
  if not values.put_whole(book, plan, P .. "pipeline_parallel_layers_per_stage",
                          "pp_plan.layers_per_stage", 1) and not pytorch.one_stage[schedule] then
    plan:put("pp_plan.virtual", "2", "torchtitan's default")
  end
  put_points(book, plan, P .. "pipeline_parallel_split_points")
end

-- A table of actions that lies beside the settings; the schedule by name says only where stages lie.
local function put_csv(book, plan, m)
  local key = P .. "pipeline_parallel_schedule_csv"
  local file = book:value(key)
  if file == nil or file == "" then return book:no_effect(key, "it names no file") end
  if type(file) == "string" and values.folder(file) and pcall(read_text, m.folder .. file) then
    plan:put("schedule", "weft.schedule_csv " .. quote.text(file), book:leaf(key))
    book:assume("schedule", "the table lies below the plan's folder, as it lies below that of the settings")
    return book:translated(key, "schedule")
  end
  book:cannot(key, "schedule = weft.schedule_csv \"FILE\" reads a file below the plan's folder, and there is none "
              .. "of this name beside the settings: the plan has the schedule by name")
end

local function put_pipeline(book, plan, m)
  if m.pp == 1 then
    for _, leaf in ipairs(book.leaves) do
      if string.find(leaf.key, "^parallelism%.pipeline_parallel_") and leaf.key ~= P .. "pipeline_parallel_degree"
        or leaf.key == P .. "module_fqns_per_model_part" or leaf.key == P .. "num_pp_microbatches" then
        book:no_effect(leaf.key, "there is one pipeline stage")
      end
    end
    return
  end
  put_csv(book, plan, m)
  local schedule = pytorch.put_schedule(book, plan, P .. "pipeline_parallel_schedule", "torchtitan's default")
  put_stages(book, plan, schedule, m)
end

-- ---- context parallelism ----

local ROTATE = { allgather = "allgather", alltoall = "ring" }

local function put_context(book, plan, m)
  local balance, rotate = P .. "context_parallel_load_balancer", P .. "context_parallel_rotate_method"
  if m.cp == 1 then
    book:no_effect(balance, "sequences are not cut: cp is 1")
    return book:no_effect(rotate, "sequences are not cut: cp is 1")
  end
  local value = book:value(rotate) or "allgather"
  if not ROTATE[value] then
    return book:refuse(rotate, string.format("%s = %s: expected allgather or alltoall", rotate,
                                             quote.shown(value)))
  end
  plan:put("cp.comm", quote.text(ROTATE[value]), book:leaf(rotate) or "torchtitan's default")
  book:translated(rotate, "cp.comm")
  local leaf = book:leaf(balance)
  local how = leaf and leaf.value
  if how == scalar.null then
    plan:put("cp.balance", quote.text "none", leaf)
    return book:translated(balance, "cp.balance")
  end
  plan:put("cp.balance", quote.text "zigzag", leaf or "torchtitan's default")
  if how == nil or how == "headtail" then return book:translated(balance, "cp.balance") end
  book:cannot(balance, "blocks are dealt out by their work there; here in zigzag")
end

return { put_mesh = put_mesh, put_strategy = put_strategy, put_pipeline = put_pipeline, put_context = put_context }
