-- automodel.lua - recipes of NeMo AutoModel (YAML) as fields of a plan. What does not take part
-- in the plan is in automodel_rules.lua.
local model_field = use "import/model_field"
local quote = use "import/quote"
local rules = use "import/automodel_rules"
local scalar = use "import/scalar"
local values = use "import/values"

local automodel = { name = "NeMo AutoModel",
                    describe = "a recipe of NeMo AutoModel (step_scheduler, distributed)",
                    absent = { none = true, None = true } }

-- Groups that other systems' settings do not have.
local TOPS = { step_scheduler = true, recipe = true, dist_env = true, recipe_args = true,
               distributed = true, autopipeline = true, flow_matching = true }

function automodel.is(leaves)
  for _, leaf in ipairs(leaves) do
    local top = string.match(leaf.key, "^[^.]*")
    if TOPS[top]
      or string.find(tostring(leaf.value), "^nemo_automodel%.") then
      return true
    end
  end
  return false
end

-- ---- the model ----

local CLASSES = { Qwen3MoeConfig = "qwen3_moe", Qwen3Config = "qwen3", Qwen2Config = "qwen2",
                  LlamaConfig = "llama", MixtralConfig = "mixtral", GPT2Config = "gpt2",
                  DeepseekV3Config = "deepseek_v3" }
-- Keys of a config that change nothing that is trained, or that are told in the rules.
local PLAIN = { _target_ = true, pretrained_model_name_or_path = true, name_or_path = true,
                trust_remote_code = true, use_cache = true }

-- Keys of the model's config that the recipe sets: { key = { value =, leaves = } }.
local function changes_of(book)
  local changes = {}
  for _, leaf in ipairs(book.leaves) do
    local key = string.match(leaf.key, "^model%.config%.([^.]+)$")
    local group, inner = string.match(leaf.key, "^model%.config%.([^.]+)%.(.+)$")
    if key and not PLAIN[key] then
      changes[key] = { value = leaf.value, leaves = { leaf } }
    elseif group then
      changes[group] = changes[group] or { value = {}, leaves = {} }
      changes[group].value[inner] = leaf.value
      table.insert(changes[group].leaves, leaf)
    end
  end
  local tied = book:leaf "model.tie_word_embeddings"
  if tied then changes.tie_word_embeddings = { value = tied.value, leaves = { tied } } end
  return changes
end

-- A config made of its keys alone, by the class that makes it; nil: it is made otherwise.
local function class_model(book, plan)
  local key = "model.config._target_"
  local class = tostring(book:value(key) or "")
  local name = string.match(class, "([^.]*)$")
  if not string.find(name, "Config$") then return nil end
  if not CLASSES[name] then
    book:refuse(key, string.format("%s is the config of an architecture that weft does not have; "
      .. "--model NAME makes the plan with another model", quote.shown(name)))
    return nil, true
  end
  local config = { CLASSES[name] }
  model_field.change(book, config, nil, changes_of(book))
  book:translated(key, "model")
  model_field.write(plan, config, nil, book:leaf(key))
  return config
end

local TEXT_CLASS = { NeMoAutoModelForCausalLM = true, AutoModelForCausalLM = true }

local function refuse_other_class(book, option)
  local key, class = "model._target_", book:value "model._target_"
  if class == nil then return end
  local name = string.match(tostring(class), "([^.]*)%.[^.]*$") or tostring(class)
  if TEXT_CLASS[name] then return end
  if option then return book:cannot(key, "the plan trains the causal language model of --model") end
  book:refuse(key, string.format("%s makes another kind of model than a causal language model, "
    .. "which is what weft trains; --model NAME makes the plan with one", quote.shown(class)))
end

local function put_model(book, plan, options)
  refuse_other_class(book, options.model)
  if not options.model then
    local config, refused = class_model(book, plan)
    if config or refused then return config end
  end
  local key, name = book:first("model.pretrained_model_name_or_path",
    "model.config.pretrained_model_name_or_path", "model.config", "model.llm_path")
  if key == nil then key, name = book:first("recipe_args.target_model_name_or_path") end
  if key and string.find(key, "^recipe_args") and not options.model then
    return book:refuse(key, "the recipe trains a draft model beside this one, which weft cannot; "
                            .. "--model NAME makes the plan of a model alone")
  end
  return model_field.put(plan, book, { leaf = key and book:leaf(key),
    name = name and tostring(name), changes = changes_of(book) }, options.model)
end

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
    if key == "ci.nodes" then book:translated("ci.nproc_per_node", "mesh.world") end
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
    book:translated("distributed.dp_size", "mesh.dp")
  else
    book:no_effect("distributed.dp_size", "dp is what is left of the world, here too")
  end
  m.dp_replicate = values.degree(book, "distributed.dp_replicate_size")
  m.world = put_world(book, plan, m, options)
  if m.dp_replicate > 1 then
    plan:put("mesh.dp_replicate", quote.value(m.dp_replicate),
             book:leaf "distributed.dp_replicate_size")
  end
  book:translated("distributed.dp_replicate_size", "mesh.dp_replicate")
  -- AutoModel's experts are whole: ep takes the ranks of tp, too.
  if m.ep > 1 and m.tp > 1 then plan:put("mesh.etp", "1", "AutoModel does not cut experts by tp") end
  m.dp = m.dp or math.max(m.world // (m.tp * m.pp * m.cp), 1)
  return m
end

-- ---- strategy ----

local STRATEGIES = { fsdp2 = "fsdp2", megatron_fsdp = "megatron_fsdp", ["megatron-fsdp"] = "megatron_fsdp",
                     mfsdp = "megatron_fsdp", ddp = "ddp" }
local MANAGERS = { FSDP2Manager = "fsdp2", MegatronFSDPManager = "megatron_fsdp", DDPManager = "ddp",
                   FSDP2Config = "fsdp2", MegatronFSDPConfig = "megatron_fsdp", DDPConfig = "ddp" }
-- Options that have the same name and meaning here: of all, of fsdp2, of megatron_fsdp.
local FSDP2 = { "defer_fsdp_grad_sync", "enable_async_tensor_parallel" }
local MEGATRON_FSDP = { "zero_dp_strategy", "overlap_grad_reduce", "overlap_param_gather",
  "grad_reduce_in_fp32", "preserve_fp32_weights", "check_for_nan_in_grad" }

local function strategy_of(book)
  local key, name = book:first("distributed.strategy", "distributed._target_")
  if not key then return "fsdp2" end
  local known = STRATEGIES[name] or MANAGERS[string.match(tostring(name), "([^.]*)$")]
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
    book:translated("distributed.bucket_cap_mb", "strategy.bucket_bytes")
  end
  return strategy
end

-- ---- recompute and precision ----

local function put_recompute(book, plan)
  local key, value = book:first("distributed.activation_checkpointing",
                                "parallelizer.activation_checkpointing")
  if not key then return end
  if value == false then return book:no_effect(key, "it is off, as without it") end
  if value == true or value == "full" then
    plan:put("recompute", quote.text "full", book:leaf(key))
    return book:translated(key, "recompute = \"full\"")
  end
  if value ~= "selective" then
    return book:refuse(key, string.format("%s = %s: expected true, false, \"full\" or \"selective\"",
                                          quote.shown(key), quote.shown(value)))
  end
  plan:put("recompute", quote.text "selective", book:leaf(key))
  book:cannot(key, "AutoModel's keeps what chosen ops give; recompute = \"selective\" runs the core "
              .. "of attention again: other memory")
end

-- FSDP2 computes in bf16 and sums gradients in f32 unless it is told otherwise; DDP has the
-- type of the weights.
local function put_precision(book, plan, strategy)
  local compute, from = nil, nil
  if strategy == "fsdp2" then
    compute, from = "bf16", "AutoModel's default for fsdp2"
    for _, key in ipairs { "distributed.mp_policy.param_dtype", "distributed.autocast_dtype" } do
      local known = values.type_of(book, key)
      if known then compute, from = known, book:leaf(key) end
      book:translated(key, "precision.param_dtype")
    end
  end
  local weights, key = nil, book:first("model.torch_dtype", "model.dtype", "model.compute_dtype")
  if key and book:value(key) == "auto" then
    book:cannot(key, "weights have the type of their files; here master weights are f32")
  elseif key then
    weights = values.type_of(book, key)
    if weights == "f32" then
      book:translated(key, "f32 master weights, as there are always")
    elseif weights then
      book:cannot(key, "weights and what the optimizer keeps have this type; here master weights "
                  .. "and averages are f32: more memory, better sums")
    end
  end
  compute = compute or weights or "bf16"
  plan:put("precision.param_dtype", quote.text(compute), from or key and book:leaf(key)
           or "the type of most public weights")
  local reduce = values.type_of(book, "distributed.mp_policy.reduce_dtype")
  if reduce == "f16" then
    book:refuse("distributed.mp_policy.reduce_dtype", "gradients are summed in f32 or bf16")
  elseif reduce then
    plan:put("precision.reduce_dtype", quote.text(reduce),
             book:leaf "distributed.mp_policy.reduce_dtype")
    book:translated("distributed.mp_policy.reduce_dtype", "precision.reduce_dtype")
  end
  book:no_effect("distributed.mp_policy.output_dtype",
                 "the loss is computed in f32 from logits in param_dtype")
  book:no_effect("distributed.mp_policy.cast_forward_inputs", "the model's inputs are token ids")
end

-- ---- the pipeline ----

local SCHEDULES = { ["1f1b"] = "1f1b", gpipe = "gpipe", interleaved1f1b = "interleaved_1f1b",
  loopedbfs = "looped_bfs", interleavedzerobubble = "zero_bubble", zbvzerobubble = "zbv",
  dualpipev = "dualpipe_v" }
local ONE_STAGE = { ["1f1b"] = true, gpipe = true }

local function put_schedule(book, plan)
  local key = "distributed.pipeline.pp_schedule"
  local value = book:value(key) or "1f1b"
  local name = string.gsub(string.lower(tostring(value)), "^schedule", "")
  local known = SCHEDULES[name]
  if not known then
    book:refuse(key, string.format("the schedule %s is none of PyTorch's", quote.shown(value)))
    return "1f1b"
  end
  plan:put("schedule", quote.text(known), book:leaf(key) or "AutoModel's default")
  book:translated(key, "schedule")
  return known
end

-- AutoModel cuts the layers into ceil(layers / layers_per_stage) stages, rounded to a multiple
-- of pp; the first ones have one layer more where it does not divide.
local function put_stages(book, plan, m, schedule, layers)
  local prefix = "distributed.pipeline."
  local each = values.whole(book, prefix .. "layers_per_stage", 1)
  local round = book:value(prefix .. "round_virtual_stages_to_pp_multiple")
  local virtual = ONE_STAGE[schedule] and 1 or 2
  if each then
    local stages = (layers + each - 1) // each
    local rest = stages % m.pp
    if rest ~= 0 and round == "up" then stages = stages + m.pp - rest end
    if rest ~= 0 and round == "down" then stages = stages - rest end
    if stages % m.pp ~= 0 or stages == 0 then
      return book:refuse(prefix .. "layers_per_stage", string.format(
        "%d layers a stage make %d stages of %d layers, which %d pipeline ranks cannot share: "
        .. "round_virtual_stages_to_pp_multiple: up", each, stages, layers, m.pp))
    end
    virtual = stages // m.pp
    book:translated(prefix .. "layers_per_stage", "pp_plan.virtual")
  end
  book:translated(prefix .. "round_virtual_stages_to_pp_multiple", "pp_plan.virtual")
  local stages = virtual * m.pp
  if stages > layers then
    return book:refuse(prefix .. "layers_per_stage", string.format(
      "%d layers are fewer than %d stages", layers, stages))
  end
  if virtual > 1 then
    plan:put("pp_plan.virtual", quote.value(virtual), book:leaf(prefix .. "layers_per_stage")
             or "AutoModel's default")
  end
  if layers % stages ~= 0 then
    local list = {}
    for i = 1, stages do list[i] = layers // stages + (i <= layers % stages and 1 or 0) end
    plan:put("pp_plan.layers", quote.value(list), "AutoModel's cut: larger stages first")
  end
end

local function put_pipeline(book, plan, m, config)
  if m.pp == 1 then
    for _, leaf in ipairs(book.leaves) do
      if string.find(leaf.key, "^distributed%.pipeline") then
        book:no_effect(leaf.key, "there is one pipeline stage")
      end
    end
    return
  end
  local schedule = put_schedule(book, plan)
  local layers = scalar.integer(config.num_hidden_layers)
  if layers then put_stages(book, plan, m, schedule, layers) end
end

-- ---- experts ----

local DISPATCHERS = { torch = "allgather" }

local function put_moe(book, plan, m)
  for _, name in ipairs { "ignore_router_for_ac", "reshard_after_forward" } do
    local key = "distributed.moe." .. name
    if m.ep > 1 then
      values.put_flag(book, plan, key, "moe." .. name)
    else
      book:no_effect(key, "experts are not cut: ep is 1")
    end
  end
  book:no_effect("distributed.moe.wrap_outer_model", "each unit is gathered by itself")
  if book:value "model.backend.gate_precision" == "float32" and m.experts then
    plan:put("moe.router_dtype", quote.text "f32", book:leaf "model.backend.gate_precision")
    book:translated("model.backend.gate_precision", "moe.router_dtype")
  end
  local key = "model.backend.dispatcher"
  local value = book:value(key)
  if value == nil then return end
  if m.ep == 1 then return book:no_effect(key, "experts are not cut: ep is 1") end
  plan:put("moe.dispatcher", quote.text(DISPATCHERS[value] or "alltoall"), book:leaf(key))
  if DISPATCHERS[value] then return book:translated(key, "moe.dispatcher") end
  book:cannot(key, "tokens go to their experts by alltoall, which gives the same sums by other "
              .. "kernels")
end

-- ---- batch and sequences ----

local ASSUMED_SEQ = 2048

local function sequence_of(book, config)
  local size = values.whole(book, "packed_sequence.packed_sequence_size", 0)
  if size and size > 0 then return size, "packed_sequence.packed_sequence_size" end
  for _, key in ipairs { "packed_sequence.pack_size", "dataset.seq_len", "dataset.seq_length",
                         "dataset.max_length", "dataloader.collate_fn.max_length",
                         "distributed.pipeline.pp_seq_len", "recipe_args.seq_length" } do
    local n = values.whole(book, key, 1)
    if n then return n, key end
  end
  local most = scalar.integer(config.max_position_embeddings or ASSUMED_SEQ) or ASSUMED_SEQ
  return math.min(ASSUMED_SEQ, most)
end

local function put_batch(book, plan, m, config)
  local global = values.put_whole(book, plan, "step_scheduler.global_batch_size", "batch.global", 1)
  local locally = values.whole(book, "step_scheduler.local_batch_size", 1)
  local micro, micro_key = locally, "step_scheduler.local_batch_size"
  if not global then
    global = (locally or 1) * m.dp
    plan:put("batch.global", quote.value(global), "assumed")
    book:assume("batch.global", string.format("%d sequences: one local batch on each rank", global))
  end
  if m.pp > 1 then
    micro = values.whole(book, "distributed.pipeline.pp_microbatch_size", 1)
    micro_key = "distributed.pipeline.pp_microbatch_size"
    book:translated(micro_key, "batch.micro")
  end
  plan:put("batch.micro", quote.value(micro or 1), book:leaf(micro_key) or "AutoModel's default")
  book:translated("step_scheduler.local_batch_size", m.pp > 1 and "batch.rounds" or "batch.micro")
  local rounds = locally and global // math.max(locally * m.dp, 1) or 1
  if m.pp > 1 and rounds > 1 and global % (locally * m.dp) == 0 then
    plan:put("batch.rounds", quote.value(rounds), book:leaf "step_scheduler.local_batch_size")
  end
  local seq, key = sequence_of(book, config)
  plan:put("batch.seq", quote.value(seq), key and book:leaf(key) or "assumed")
  if key then return book:translated(key, "batch.seq"), seq end
  book:assume("batch.seq", string.format("%d tokens: each batch is as long as its longest sample "
    .. "there; dataset.seq_length=N behind the file says another", seq))
end

-- The token that ends a document: which one it is does not change sizes.
local function put_packed(book, plan)
  local key, size = book:first("packed_sequence.packed_sequence_size", "packed_sequence.pack_size")
  size = size and scalar.integer(size)
  if not size or size < 1 then
    return book:no_effect("packed_sequence.packed_sequence_size", "sequences are not packed")
  end
  plan:put("packed.eot", "0", "assumed: the id of the tokenizer is not in the settings")
  plan:put("packed.size", quote.value(size), book:leaf(key))
  plan:put("packed.labels", quote.text "within", "labels do not cross documents")
  book:translated(key, "packed.size and batch.seq")
  book:assume("packed.eot", "0 is the token that ends a document; set the one of the tokenizer")
  if book:value "packed_sequence.drop_long_samples" == true then
    plan:put("packed.too_long", quote.text "drop", book:leaf "packed_sequence.drop_long_samples")
    book:translated("packed_sequence.drop_long_samples", "packed.too_long")
  end
end

-- ---- the optimizer ----

local ADAM = { ["torch.optim.Adam"] = "L2", ["torch.optim.AdamW"] = "AdamW" }

local function put_kind(book, decay)
  local key = "optimizer._target_"
  local value = book:value(key)
  if value == nil then return end
  local name = string.match(tostring(value), "([^.]*)$")
  if name == "Adam" and decay > 0 then
    book:cannot(key, "Adam adds decay to the gradient; AdamW, which the plan has, to the step")
  elseif ADAM[value] or name == "FusedAdam" or name == "FlashAdamW" or name == "AdamW" then
    book:translated(key, "optimizer")
  else
    book:cannot(key, string.format("%s is not in weft: the plan has AdamW with these numbers",
                                   quote.shown(name)))
  end
end

-- Steps of the rise to the full rate: as given, as a share of the run, or AutoModel's default.
local function warmup_of(book, steps)
  local n = values.whole(book, "lr_scheduler.lr_warmup_steps", 0)
  if n then return n, "lr_scheduler.lr_warmup_steps" end
  return steps and math.min(1000, steps // 10) or 0
end

local function put_rate(book, plan, lr, steps)
  local key = "optimizer.lr"
  if not book:has "lr_scheduler" then
    plan:put("optimizer.lr", quote.value(lr), book:leaf(key))
    return book:translated(key, "optimizer.lr")
  end
  local style_key, style = book:first("lr_scheduler.lr_decay_style", "lr_scheduler.schedule")
  style = style or "cosine"
  if style ~= "cosine" and style ~= "linear" and style ~= "constant" then
    book:cannot(style_key, "the shapes of weft are cosine, linear and constant: the plan has cosine")
    style = "cosine"
  end
  book:translated(style_key or key, "optimizer.lr")
  plan:head("optimizer.lr", "weft." .. style)
  plan:put("optimizer.lr.max", quote.value(lr), book:leaf(key))
  book:translated(key, "optimizer.lr.max")
  local warmup, warmup_key = warmup_of(book, steps)
  if style ~= "constant" then
    local least = values.positive(book, "lr_scheduler.min_lr")
    plan:put("optimizer.lr.min", quote.value(least or tonumber(string.format("%.9g", lr / 100))),
             book:leaf "lr_scheduler.min_lr" or "AutoModel's default: 1 % of lr")
    book:translated("lr_scheduler.min_lr", "optimizer.lr.min")
    if values.put_whole(book, plan, "lr_scheduler.lr_decay_steps", "optimizer.lr.steps", 1) == nil
      and steps then
      plan:put("optimizer.lr.steps", quote.value(steps), "AutoModel's default: all steps")
    end
  else
    book:no_effect("lr_scheduler.min_lr", "the rate is constant")
  end
  plan:put("optimizer.lr.warmup", quote.value(warmup), warmup_key and book:leaf(warmup_key)
           or "AutoModel's default: a tenth of the steps, at most 1000")
  if warmup_key then book:translated(warmup_key, "optimizer.lr.warmup") end
  local first = values.positive(book, "lr_scheduler.init_lr")
  if warmup == 0 then
    book:no_effect("lr_scheduler.init_lr", "there is no warmup")
  elseif first == 0 then
    book:translated("lr_scheduler.init_lr", "optimizer.lr, which rises from 0")
  elseif first then
    book:cannot("lr_scheduler.init_lr", "the rate rises from 0, not from this")
  else
    book:assume("optimizer.lr", "AutoModel's warmup rises from a tenth of lr, here it is from 0")
  end
end

local STATES = { ["torch.float32"] = "f32", ["torch.bfloat16"] = "bf16" }

local function put_optimizer(book, plan, steps)
  plan:head("optimizer", "weft.adamw")
  local lr = values.positive(book, "optimizer.lr")
  if lr then put_rate(book, plan, lr, steps) end
  values.put_pair(book, plan, "optimizer.betas", "optimizer.betas")
  for _, key in ipairs { "optimizer.eps", "optimizer.epsilon" } do
    local eps = values.positive(book, key)
    if eps then plan:put("optimizer.eps", quote.value(eps), book:leaf(key)) end
    book:translated(key, "optimizer.eps")
  end
  local decay = values.positive(book, "optimizer.weight_decay") or 0
  plan:put("optimizer.weight_decay", quote.value(decay), book:leaf "optimizer.weight_decay"
           or "Adam's default")
  if decay > 0 then
    book:cannot("optimizer.weight_decay",
                "norms and biases decay there, too; here only what has more than one dimension")
  else
    book:translated("optimizer.weight_decay", "optimizer.weight_decay")
  end
  put_kind(book, decay)
  local clip = values.positive(book, "clip_grad_norm.max_norm")
  plan:put("optimizer.clip", quote.value(clip or 1.0), book:leaf "clip_grad_norm.max_norm"
           or "AutoModel's default")
  book:translated("clip_grad_norm.max_norm", "optimizer.clip")
  local state = STATES[book:value "optimizer.exp_avg_dtype"]
  if state and state == STATES[book:value "optimizer.exp_avg_sq_dtype"] then
    plan:put("optimizer.state_dtype", quote.text(state), book:leaf "optimizer.exp_avg_dtype")
    book:translated("optimizer.exp_avg_dtype", "optimizer.state_dtype")
    book:translated("optimizer.exp_avg_sq_dtype", "optimizer.state_dtype")
  end
end

-- ---- data, steps, checkpoints ----

local SYNTHETIC = "MockIterableDataset$"
local TOKEN_FILES = { NanogptDataset = "automodel", MegatronPretraining = "megatron" }

local function files_of(book)
  for _, key in ipairs { "dataset.file_pattern", "dataset.paths" } do
    local value = book:value(key)
    if type(value) == "string" then return key, { value } end
    if type(value) == "table" and type(value[1]) == "string" then return key, value end
  end
end

local function put_data(book, plan)
  local class = tostring(book:value "dataset._target_" or "")
  local kind = TOKEN_FILES[string.match(class, "([^.]*)$")]
  local key, files = files_of(book)
  if string.find(class, SYNTHETIC) then
    book:translated("dataset._target_", "data = weft.synthetic")
    for _, name in ipairs { "vocab_size", "num_samples", "batch_size" } do
      book:no_effect("dataset." .. name, "made-up tokens come as long as steps are taken, of the "
                     .. "model's vocabulary")
    end
  elseif kind and key then
    book:cannot(key, string.format("a plan that names files needs them to be there: the plan has "
      .. "weft.synthetic; data = weft.tokens { %s, format = \"%s\" } reads them",
      quote.shown(quote.value(files)), kind))
  elseif book:has "dataset" then
    book:assume("data", "weft.synthetic, made-up tokens: the data of these settings cannot be read")
  end
  plan:put("data", "weft.synthetic {}", "made-up tokens")
  book:no_effect("dataset.tokenizer.pretrained_model_name_or_path", "made-up tokens have no tokenizer")
end

local function put_train(book, plan)
  local steps = values.put_whole(book, plan, "step_scheduler.max_steps", "train.steps", 1)
  if steps then
    book:no_effect("step_scheduler.num_epochs", "step_scheduler.max_steps says how long")
  else
    book:cannot("step_scheduler.num_epochs",
                "how many steps an epoch has is not in the settings: train.steps is as without it")
    book:assume("train.steps", "100, as without it: the settings count epochs, or nothing")
  end
  for _, key in ipairs { "rng.seed", "seed" } do
    values.put_whole(book, plan, key, "train.seed", 0)
  end
  book:cannot("step_scheduler.val_every_steps",
              "there is no evaluation without data for it: see data.val and train.eval_every")
  return steps
end

local function put_consolidated(book, plan)
  local key = "checkpoint.save_consolidated"
  local value = book:value(key)
  if value == nil then return end
  if type(value) ~= "boolean" and value ~= "final" and value ~= "every" then
    return book:refuse(key, string.format(
      "%s = %s: expected true, false, \"final\" or \"every\"", key, quote.shown(value)))
  end
  plan:put(key, quote.value(value), book:leaf(key))
  book:translated(key, key)
end

local function put_checkpoint(book, plan)
  local every = "step_scheduler.ckpt_every_steps"
  if book:value "checkpoint.enabled" == false then
    book:no_effect("checkpoint.enabled", "it is off, as without it")
    return book:no_effect(every, "checkpoint.enabled is false")
  end
  local key, dir = "checkpoint.checkpoint_dir", book:value "checkpoint.checkpoint_dir"
  if dir ~= nil and type(dir) == "string" and values.folder(dir) then
    plan:put("checkpoint.dir", quote.text(dir), book:leaf(key))
    book:translated(key, "checkpoint.dir")
  else
    plan:put("checkpoint.dir", quote.text "checkpoints/", dir ~= nil and "a folder below the plan's"
             or "AutoModel's default")
    if dir ~= nil then
      book:cannot(key, "a plan writes below its own folder: --set checkpoint.dir=DIR says another")
    end
  end
  book:translated("checkpoint.enabled", "checkpoint")
  values.put_whole(book, plan, every, "checkpoint.every", 0)
  values.put_flag(book, plan, "checkpoint.is_async", "checkpoint.async")
  put_consolidated(book, plan)
end

local function put_timeout(book, plan)
  local minutes = values.positive(book, "dist_env.timeout_minutes")
  if not minutes or minutes == 0 then return end
  plan:put("comm.timeout", quote.value(math.min(minutes * 60, 1000000)),
           book:leaf "dist_env.timeout_minutes")
  book:translated("dist_env.timeout_minutes", "comm.timeout")
end

function automodel.translate(book, plan, options)
  local config = put_model(book, plan, options)
  if not config then return book:apply(rules) end
  local m = put_mesh(book, plan, options)
  m.experts = (config.num_experts or config.num_local_experts or config.n_routed_experts) and true
  local strategy = put_strategy(book, plan, m)
  put_pipeline(book, plan, m, config)
  put_precision(book, plan, strategy)
  put_recompute(book, plan)
  put_moe(book, plan, m)
  put_packed(book, plan)
  put_batch(book, plan, m, config)
  local steps = put_train(book, plan)
  put_optimizer(book, plan, steps)
  put_data(book, plan)
  put_checkpoint(book, plan)
  put_timeout(book, plan)
  book:apply(rules)
end

return automodel
