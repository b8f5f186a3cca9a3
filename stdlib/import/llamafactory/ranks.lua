-- ranks.lua - ranks and strategy of LLaMA-Factory's arguments: DDP, FSDP, DeepSpeed (beside.lua), and Megatron,
-- whose arguments stand among the others where it trains (mcore_adapter, Megatron-Bridge).
local beside = use "import/llamafactory/beside"
local quote = use "import/quote"
local scalar = use "import/scalar"
local v1 = use "import/llamafactory/v1"
local trainer = use "import/trainer"
local values = use "import/values"

local ranks = {}

-- ---- which backend trains ----

-- Arguments of mcore_adapter (training_args.py) and of Megatron-Bridge (hparams/megatron_bridge_args.py).
local OF_BOTH = [[tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size expert_model_parallel_size
  virtual_pipeline_model_parallel_size sequence_parallel use_distributed_optimizer overlap_param_gather
  overlap_grad_reduce recompute_granularity moe_token_dispatcher_type]]
local OF_BRIDGE = [[use_megatron_bridge use_packed_sequences mixed_precision megatron_pretrained_checkpoint
  export_hf_on_finish extra_config masked_softmax_fusion]]

local function has_one(book, names)
  for name in string.gmatch(names, "%S+") do
    if book:value(name) ~= nil then return true end
  end
  return false
end

-- ---- the mesh ----

local AXES = { tp = "tensor_model_parallel_size", pp = "pipeline_model_parallel_size", cp = "context_parallel_size",
               ep = "expert_model_parallel_size" }

local function put_axis(book, plan, m, axis)
  local key = AXES[axis]
  m[axis] = values.whole(book, key, 1) or 1
  if m[axis] > 1 then plan:put("mesh." .. axis, quote.value(m[axis]), book:leaf(key)) end
  if book:leaf(key) then book:translated(key, "mesh." .. axis .. (m[axis] == 1 and ", 1 as without it" or "")) end
end

-- Ranks of tp inside of an expert are 1 in mcore_adapter unless they are given.
local function put_experts_axis(book, plan, m)
  local key = "expert_tensor_parallel_size"
  local n = values.whole(book, key, 1)
  if m.ep > 1 and m.tp > 1 then
    plan:put("mesh.etp", quote.value(n or 1), n and book:leaf(key) or "the default there")
  end
  book:translated(key, "mesh.etp")
end

local function put_world(book, plan, m, options)
  local key = "ray_num_workers"
  local stage = m.tp * m.pp * m.cp
  local least = m.pp * values.lcm(m.tp * m.cp, m.ep)
  local said = values.whole(book, key, 1)
  if options.world then
    plan:put("mesh.world", quote.value(options.world), "--world")
    book:no_effect(key, "--world says how many ranks there are")
    m.world = options.world
  elseif said then
    plan:put("mesh.world", quote.value(said), book:leaf(key))
    book:translated(key, "mesh.world")
    m.world = said
  else
    m.world = values.lcm(least, 8) <= 64 and values.lcm(least, 8) or least
    plan:put("mesh.world", quote.value(m.world), "assumed; --world N says another")
    book:assume("mesh.world", string.format("%d ranks: LLaMA-Factory takes all GPUs of a machine; --world N says another",
                                            m.world))
  end
  if m.world % stage ~= 0 then
    book:refuse(nil, string.format("%d ranks are no multiple of %d, the sizes of tp, pp and cp times each other", m.world,
                                   stage))
  end
  m.dp = math.max(m.world // stage, 1)
end

-- Puts the mesh but for its world, which DeepSpeed's settings may have a part of.
function ranks.put_axes(book, plan, m)
  m.bridge = not m.v1 and has_one(book, OF_BRIDGE)
  m.megatron = m.bridge or not m.v1 and has_one(book, OF_BOTH)
  for _, axis in ipairs { "tp", "pp", "cp", "ep" } do put_axis(book, plan, m, axis) end
  put_experts_axis(book, plan, m)
  if m.v1 then v1.put_mesh(book, plan, m) end
end

-- ---- Megatron ----

local function put_flag(book, plan, name, field, usual)
  local value = values.flag(book, name)
  if value == nil then value = usual end
  plan:put(field, tostring(value), book:leaf(name) or "the default there")
  book:translated(name, field)
end

local function put_pipeline(book, plan, m)
  local names = { virtual_pipeline_model_parallel_size = "pp_plan.virtual", pipeline_model_parallel_layout = "pp_plan.layout",
                  account_for_embedding_in_pipeline_split = "pp_plan.first_stage_less_layers",
                  account_for_loss_in_pipeline_split = "pp_plan.last_stage_less_layers" }
  if m.pp == 1 then
    for _, key in ipairs(keys(names)) do book:no_effect(key, "there is one pipeline stage") end
    return
  end
  local n = values.whole(book, "virtual_pipeline_model_parallel_size", 1)
  if n and n > 1 then plan:put("pp_plan.virtual", quote.value(n), book:leaf "virtual_pipeline_model_parallel_size") end
  book:translated("virtual_pipeline_model_parallel_size", "pp_plan.virtual")
  local key, layout = "pipeline_model_parallel_layout", book:value "pipeline_model_parallel_layout"
  if type(layout) == "string" then
    plan:put("pp_plan.layout", quote.text(layout), book:leaf(key))
    book:translated(key, "pp_plan.layout")
  elseif layout ~= nil then
    book:refuse(key, key .. ": expected a text such as \"Et*3|t*4L\"")
  end
  for _, name in ipairs { "embedding", "loss" } do
    local switch = "account_for_" .. name .. "_in_pipeline_split"
    if values.flag(book, switch) then plan:put(names[switch], "1", book:leaf(switch)) end
    book:translated(switch, names[switch])
  end
end

local function put_megatron(book, plan, m)
  plan:put("strategy.#", quote.text "zero", "Megatron")
  local cut = values.flag(book, "use_distributed_optimizer")
  if cut == nil then cut = m.bridge end
  plan:put("strategy.stage", cut and "1" or "0", book:leaf "use_distributed_optimizer" or "the default there")
  book:translated("use_distributed_optimizer", "strategy.stage")
  put_flag(book, plan, "overlap_grad_reduce", "strategy.overlap_grad_reduce", m.bridge)
  if cut then put_flag(book, plan, "overlap_param_gather", "strategy.overlap_param_gather", m.bridge) end
  book:no_effect("overlap_param_gather", "it counts with use_distributed_optimizer alone")
  local key = "sequence_parallel"
  local on = values.flag(book, key)
  if on and m.tp > 1 then
    plan:put("strategy.sequence_parallel", "true", book:leaf(key))
    book:translated(key, "strategy.sequence_parallel")
  end
  book:no_effect(key, on and "without tp there is nothing to cut" or "it is off")
  put_pipeline(book, plan, m)
  for _, name in ipairs { "deepspeed", "fsdp" } do book:no_effect(name, "Megatron trains, as other settings say") end
  if book:value "calculate_per_token_loss" ~= true then
    book:assume("loss", "divided by the label tokens of the whole step; Megatron's, without calculate_per_token_loss, by those of each "
                .. "microbatch")
  end
  return "megatron"
end

-- ---- FSDP ----

-- Transformers' options, a text with blanks or a list; true and "" are those of FSDP without any.
local SHARDING = { full_shard = { reshard = true }, shard_grad_op = { reshard = false }, no_shard = { ddp = true },
                   hybrid_shard = { reshard = true, hybrid = true }, hybrid_shard_zero2 = { reshard = false, hybrid = true } }
local OTHERS = { auto_wrap = true, offload = true }

local function options_of(book)
  local value, list = book:value "fsdp", {}
  if value == true then return { "full_shard" } end
  if type(value) == "string" then
    for word in string.gmatch(value, "[^%s,]+") do list[#list + 1] = word end
  elseif type(value) == "table" then
    for _, word in ipairs(value) do list[#list + 1] = tostring(word) end
  elseif value ~= nil and value ~= false then
    book:refuse("fsdp", "fsdp: expected full_shard, shard_grad_op, no_shard, hybrid_shard, with auto_wrap and offload")
  end
  return list
end

-- What the options say; nil: no FSDP.
local function sharding_of(book)
  local how, offload, any
  for _, word in ipairs(options_of(book)) do
    any = true
    if SHARDING[word] then how = SHARDING[word] end
    if word == "offload" then offload = true end
    if not SHARDING[word] and not OTHERS[word] then
      book:refuse("fsdp", string.format("fsdp: %s is none of full_shard, shard_grad_op, no_shard, hybrid_shard, "
                                        .. "hybrid_shard_zero2, auto_wrap and offload", quote.shown(word)))
    end
  end
  if any then return how or SHARDING.full_shard, offload end
end

-- reshard_after_forward is a boolean of version 2, or one of the names of version 1.
local function put_reshard(book, plan, how)
  local key = "fsdp_config.reshard_after_forward"
  local value = book:value(key)
  if type(value) == "string" and SHARDING[string.lower(value)] then value = SHARDING[string.lower(value)].reshard end
  if value ~= nil and type(value) ~= "boolean" then
    book:refuse(key, string.format("%s = %s: expected true or false", key, quote.shown(book:value(key))))
  elseif value ~= nil then
    plan:put("strategy.reshard_after_forward", tostring(value), book:leaf(key))
    book:translated(key, "strategy.reshard_after_forward")
  end
  plan:put("strategy.reshard_after_forward", tostring(how.reshard), book:leaf "fsdp")
end

-- LLaMA-Factory's Muon steps what has two dimensions, of which FSDP 1 leaves nothing, and knows its parameters by
-- themselves, in whose place FSDP 2 and DeepSpeed put others.
local function put_muon(book, m)
  local one = scalar.integer(book:value "fsdp_config.version") == 1
  m.flat = m.muon and one
  m.muon = m.muon and not one
  m.swaps = not m.v1 and "FSDP 2" or nil
end

-- Muon puts matrices together on the device.
local ON_DEVICE = "what Muon keeps stays on the device: nothing is offloaded"
local OFFLOADS = { "fsdp_config.offload_params", "fsdp_config.cpu_offload" }

-- `asked`: whether the options of fsdp ask for it.
local function put_offload(book, plan, m, asked)
  local muon = m.muon
  if muon and asked then book:cannot("fsdp", ON_DEVICE) end
  for _, key in ipairs(OFFLOADS) do
    if values.flag(book, key) then
      asked = true
      if muon then book:cannot(key, ON_DEVICE) else book:translated(key, "strategy.offload_policy") end
    end
    book:no_effect(key, "it is off")
  end
  if asked and not muon then plan:put("strategy.offload_policy", "true", book:leaf "fsdp") end
end

local function put_fsdp(book, plan, m)
  local how, offload = sharding_of(book)
  if not how then return nil end
  plan:put("strategy.#", quote.text(how.ddp and "ddp" or "fsdp2"), book:leaf "fsdp")
  book:translated("fsdp", "strategy")
  if how.ddp then return "ddp" end
  put_muon(book, m)
  put_reshard(book, plan, how)
  put_offload(book, plan, m, offload)
  if how.hybrid then
    book:assume("mesh.dp_replicate", "1: on one machine hybrid_shard is full_shard; mesh.dp_replicate says how many copies there are")
  end
  local key = "fsdp_config.activation_checkpointing"
  if values.flag(book, key) then
    plan:put("recompute", quote.text "full", book:leaf(key))
    book:translated(key, "recompute")
  end
  book:no_effect(key, "it is off")
  return "fsdp2"
end

-- ---- the strategy ----

local function put_ddp(book, plan)
  plan:put("strategy.#", quote.text "ddp", "neither deepspeed nor fsdp")
  trainer.put_buckets(book, plan)
  return "ddp"
end

-- tp, and ranks that share a sequence, of DeepSpeed's settings.
local function put_shared(ds, plan, m)
  local tp, sp = "tensor_parallel.autotp_size", "sequence_parallel_size"
  m.tp, m.cp = values.whole(ds, tp, 1) or 1, values.whole(ds, sp, 1) or m.cp
  if m.tp > 1 then plan:put("mesh.tp", quote.value(m.tp), ds:leaf(tp)) end
  if m.cp > 1 then
    plan:put("mesh.cp", quote.value(m.cp), ds:leaf(sp))
    plan:put("cp.comm", quote.text "a2a", "DeepSpeed Ulysses")
  end
  ds:translated(tp, "mesh.tp")
  ds:translated(sp, "mesh.cp")
end

-- What arguments say that DeepSpeed's settings may leave open. The batch of a step needs the ranks.
local function known_of(book, m)
  local function number(name, usual) return scalar.number(book:value(name)) or usual end
  return { ["bf16.enabled"] = m.bf16, ["bfloat16.enabled"] = m.bf16, ["fp16.enabled"] = m.fp16, train_micro_batch_size_per_gpu = m.micro,
           gradient_accumulation_steps = m.each, gradient_clipping = number("max_grad_norm", 1.0),
           ["optimizer.params.lr"] = number("learning_rate", 5e-5),
           ["optimizer.params.betas"] = { number("adam_beta1", 0.9), number("adam_beta2", 0.999) },
           ["optimizer.params.eps"] = number("adam_epsilon", 1e-8),
           ["optimizer.params.weight_decay"] = number("weight_decay", 0.0) }
end

-- pure_bf16 is the type in which LLaMA-Factory loads the model, and nothing that DeepSpeed is told of: with a stage
-- that has master weights and gradients in f32 then, and without one it leaves all as it is.
local function put_pure(book, plan, m, ds)
  m.zero = scalar.integer(ds:value "zero_optimization.stage" or 0) or 0
  if not m.pure then return end
  if m.zero == 3 then book:refuse("pure_bf16", "pure_bf16 beside ZeRO's stage 3, which LLaMA-Factory refuses") end
  if m.bf16 or m.fp16 then return end
  plan:put("precision.param_dtype", quote.text "bf16", book:leaf "pure_bf16")
  if m.zero == 0 and (m.kind == "full" or m.kind == "freeze") then
    plan:put("precision.grad_dtype", quote.text "bf16", book:leaf "pure_bf16")
  end
end

-- Puts the strategy and the rest of the mesh. Returns its kind ("ddp", "fsdp2", "zero", "megatron") and, of "zero",
-- the ledger of DeepSpeed's settings.
function ranks.put_strategy(book, plan, m, config, options)
  if m.megatron then
    put_world(book, plan, m, options)
    return put_megatron(book, plan, m)
  end
  local ds = beside.read(book, options.file, known_of(book, m))
  if ds then put_shared(ds, plan, m) end
  put_world(book, plan, m, options)
  if m.v1 then v1.put_steps(book, m) end
  if ds then
    put_pure(book, plan, m, ds)
    beside.put(ds, plan, config)
    m.swaps = (m.zero > 0 or m.bf16 or m.fp16) and "DeepSpeed" or nil
    book:no_effect("fsdp", "deepspeed says the strategy")
    return "zero", ds
  end
  return put_fsdp(book, plan, m) or put_ddp(book, plan)
end

return ranks
