-- accelerate.lua - the YAML of accelerate config as fields of a plan: FSDP and FSDP2, DDP, and
-- the DeepSpeed stages that it names. It names no model (--model does), and no batch.
local model_field = use "import/model_field"
local quote = use "import/quote"
local rule = use "import/rule"
local scalar = use "import/scalar"
local values = use "import/values"

local accelerate = { name = "Accelerate", fields = use "import/accelerate/fields", absent = { none = true, [""] = true },
                     describe = "a configuration of Accelerate (distributed_type)" }

function accelerate.is(leaves)
  return leaves.at.distributed_type ~= nil or leaves.at.compute_environment ~= nil
end

local START = "how processes start is said by weft launch and weft run"
local UNITS = "the units of the model are what is gathered at a time"
local left_out = {
  rule.none("compute_environment", START), rule.none("machine_rank", START),
  rule.none("main_process_ip", START), rule.none("main_process_port", START),
  rule.none("main_training_function", START), rule.none("rdzv_backend", START),
  rule.none("same_network", START), rule.none("use_cpu", "weft run --device says it"),
  rule.none("num_machines", "num_processes counts the ranks of all machines"),
  rule.none("gpu_ids", START), rule.none("enable_cpu_affinity", START), rule.none("debug", START),
  rule.none("downcast_bf16", "it is for TPUs"),
  rule.none("tpu_*", "it is for TPUs"), rule.none("command_file", START), rule.none("commands", START),
  rule.none("mpirun_config.*", START),
  rule.none("dynamo_config.*", "plans are compiled always"),
  rule.unless("fsdp_config.fsdp_version", { 1, 2 }, "strategy is fsdp2, which has what both versions have",
              "versions 1 and 2 are known: the settings are read as those of version 2"),
  rule.none("fsdp_config.fsdp_auto_wrap_policy", UNITS),
  rule.none("fsdp_config.fsdp_transformer_layer_cls_to_wrap", UNITS),
  rule.none("fsdp_config.fsdp_min_num_params", UNITS),
  rule.none("fsdp_config.fsdp_use_orig_params", UNITS),
  rule.none("fsdp_config.fsdp_cpu_ram_efficient_loading", "no rank reads more than it keeps"),
  rule.none("fsdp_config.fsdp_sync_module_states", "initial values do not depend on the mesh"),
  rule.none("fsdp_config.fsdp_state_dict_type", "checkpoints load on any mesh"),
  rule.none("fsdp_config.fsdp_backward_prefetch",
            "gathers start ahead: strategy.backward_prefetch_depth"),
  rule.none("fsdp_config.fsdp_backward_prefetch_policy",
            "gathers start ahead: strategy.backward_prefetch_depth"),
  rule.none("fsdp_config.fsdp_forward_prefetch",
            "gathers start ahead: strategy.forward_prefetch_depth"),
  rule.none("deepspeed_config.zero3_init_flag", "no rank makes a parameter that it does not keep"),
  rule.none("deepspeed_config.zero3_save_16bit_model", "weft ckpt export writes whole weights"),
  rule.none("deepspeed_config.deepspeed_multinode_launcher", START),
  rule.cannot("deepspeed_config.deepspeed_config_file",
              "settings in another file: weft import reads that one"),
  rule.cannot("megatron_lm_config.*", "settings of Megatron-LM below Accelerate are not read"),
  rule.cannot("fp8_config.*", "products in fp8 are precision = \"fp8\" of the plan, which is not made of these"),
}

-- FSDP1's names, by name or number, and what they are in FSDP2.
local SHARDING = {
  FULL_SHARD = { reshard = true }, ["1"] = { reshard = true },
  SHARD_GRAD_OP = { reshard = false }, ["2"] = { reshard = false },
  NO_SHARD = { ddp = true }, ["3"] = { ddp = true },
  HYBRID_SHARD = { reshard = true, hybrid = true }, ["4"] = { reshard = true, hybrid = true },
  HYBRID_SHARD_ZERO2 = { reshard = false, hybrid = true }, ["5"] = { reshard = false, hybrid = true },
}

local function put_reshard(book, plan, value, key)
  plan:put("strategy.reshard_after_forward", tostring(value), book:leaf(key))
  book:translated(key, "strategy.reshard_after_forward")
end

local function put_sharding(book, plan)
  local key, value = book:first("fsdp_config.fsdp_sharding_strategy",
                                "fsdp_config.fsdp_reshard_after_forward")
  if not key then return plan:put("strategy.#", quote.text "fsdp2", "FSDP") end
  if type(value) == "boolean" then
    plan:put("strategy.#", quote.text "fsdp2", "FSDP")
    return put_reshard(book, plan, value, key)
  end
  local how = SHARDING[tostring(value)]
  if not how then
    return book:refuse(key, string.format("%s = %s: expected FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, "
      .. "HYBRID_SHARD, true or false", key, quote.shown(value)))
  end
  plan:put("strategy.#", quote.text(how.ddp and "ddp" or "fsdp2"), book:leaf(key))
  if not how.ddp then put_reshard(book, plan, how.reshard, key) end
  book:translated(key, "strategy")
  return how
end

local function put_fsdp(book, plan)
  local how = put_sharding(book, plan)
  book:translated("fsdp_config.fsdp_reshard_after_forward", "strategy")
  if values.flag(book, "fsdp_config.fsdp_offload_params") and not (how and how.ddp) then
    plan:put("strategy.offload_policy", "true", book:leaf "fsdp_config.fsdp_offload_params")
    book:translated "fsdp_config.fsdp_offload_params"
  else
    book:no_effect("fsdp_config.fsdp_offload_params", "it is off")
  end
  if values.flag(book, "fsdp_config.fsdp_activation_checkpointing") then
    plan:put("recompute", quote.text "full", book:leaf "fsdp_config.fsdp_activation_checkpointing")
    book:translated "fsdp_config.fsdp_activation_checkpointing"
  else
    book:no_effect("fsdp_config.fsdp_activation_checkpointing", "it is off")
  end
  return how
end

local function put_zero(book, plan)
  local group = "deepspeed_config."
  plan:put("strategy.#", quote.text "zero", "DeepSpeed")
  local stage = values.put_whole(book, plan, group .. "zero_stage", "strategy.stage", 0) or 2
  plan:put("strategy.stage", quote.value(stage), "Accelerate's default")
  if stage == 3 then plan:put("strategy.param_persistence_threshold", "100000", "DeepSpeed's default") end
  for _, name in ipairs { "optimizer", "param" } do
    local key = group .. "offload_" .. name .. "_device"
    if book:value(key) == nil then
      book:no_effect(key, "it is off")
    elseif stage >= 1 and (name == "optimizer" or stage == 3 and plan:has "strategy.offload_optimizer") then
      plan:put("strategy.offload_" .. name, quote.text "cpu", book:leaf(key))
      if book:value(key) == "cpu" then
        book:translated(key, "strategy.offload_" .. name)
      else
        book:cannot(key, "nothing is offloaded to files: the plan offloads to the memory of the host")
      end
    else
      book:cannot(key, "parameters are offloaded at stage 3 with the optimizer, and that from stage 1")
    end
  end
end

local function put_strategy(book, plan)
  local kind = string.upper(tostring(book:value "distributed_type" or "NO"))
  book:translated "distributed_type"
  if kind == "FSDP" then return put_fsdp(book, plan) end
  if kind == "DEEPSPEED" then return put_zero(book, plan) end
  if kind ~= "NO" and not string.find(kind, "^MULTI_") then
    return book:refuse("distributed_type", string.format("%s: expected FSDP, DEEPSPEED, MULTI_GPU, "
      .. "MULTI_CPU or NO", quote.shown(kind)))
  end
  plan:put("strategy.#", quote.text "ddp", book:leaf "distributed_type")
end

local function put_axis(book, plan, m, name, field)
  local key, value = book:first("parallelism_config.parallelism_config_" .. name .. "_size",
                                "parallelism_config." .. name .. "_size")
  local n = key and values.degree(book, key) or 1
  if n > 1 and field then plan:put("mesh." .. field, quote.value(n), book:leaf(key)) end
  if key then book:translated(key, field and "mesh." .. field or "mesh.world") end
  m[name] = value ~= nil and n or 1
end

-- PyTorch's ways of keys and values around the ranks of a sequence.
local ROTATE = { allgather = "allgather", alltoall = "ring" }

local function put_rotation(book, plan, m)
  local key, value = book:first("parallelism_config.parallelism_config_cp_comm_strategy",
                                "parallelism_config.cp_comm_strategy")
  local comm = ROTATE[value or "allgather"]
  if m.cp == 1 then
    if key then book:no_effect(key, "a sequence is not cut") end
  elseif not comm then
    book:refuse(key, quote.shown(value) .. ": expected allgather or alltoall")
  else
    plan:put("cp.comm", quote.text(comm), key and book:leaf(key) or "Accelerate's default")
    if key then book:translated(key, "cp.comm") end
  end
end

local function put_mesh(book, plan, options, how)
  local m = {}
  put_axis(book, plan, m, "tp", "tp")
  put_axis(book, plan, m, "cp", "cp")
  put_axis(book, plan, m, "sp", "cp")
  put_rotation(book, plan, m)
  if m.sp > 1 then
    plan:put("cp.comm", quote.text "a2a", "DeepSpeed Ulysses")
    m.cp = m.cp * m.sp
  end
  put_axis(book, plan, m, "dp_replicate", "dp_replicate")
  put_axis(book, plan, m, "dp_shard")
  local world = options.world or values.whole(book, "num_processes", 1)
  plan:put("mesh.world", quote.value(world or 8), options.world and "--world"
           or world and book:leaf "num_processes" or "assumed; --world N says another")
  if options.world then
    book:no_effect("num_processes", "--world says how many ranks there are")
  end
  book:translated "num_processes"
  if not world then book:assume("mesh.world", "8 ranks; --world N says another") end
  world = world or 8
  local rest = m.tp * m.cp * m.dp_replicate
  local asked = rest * m.dp_shard
  if not options.world and book:first("parallelism_config.parallelism_config_dp_shard_size",
                                      "parallelism_config.dp_shard_size") and asked ~= world then
    book:refuse("num_processes", string.format("%d ranks are not the %d of parallelism_config: the sizes of "
      .. "dp_replicate, dp_shard, cp or sp, and tp times each other", world, asked))
  elseif world % rest ~= 0 then
    book:refuse(nil, string.format("%d ranks are no multiple of %d, the sizes of dp_replicate, cp or sp, and tp "
                                   .. "times each other", world, rest))
  end
  local machines = values.whole(book, "num_machines", 1) or 1
  if how and how.hybrid and machines > 1 then
    plan:put("mesh.dp_replicate", quote.value(machines), book:leaf "num_machines")
    book:translated("num_machines", "mesh.dp_replicate: each machine has a copy")
  elseif how and how.hybrid then
    book:assume("mesh.dp_replicate", "1: on one machine HYBRID_SHARD is FULL_SHARD")
  end
  return math.max(world // (m.tp * m.cp), 1)
end

local function put_batch(book, plan, dp)
  local key, each = book:first("gradient_accumulation_steps",
                               "deepspeed_config.gradient_accumulation_steps")
  each = key and values.whole(book, key, 1) or 1
  plan:put("batch.global", quote.value(dp * each), key and book:leaf(key) or "assumed: one sequence a rank")
  if key then book:translated(key, "batch.global / (batch.micro * dp)") end
  plan:put("batch.micro", "1", "assumed")
  book:assume("batch", "one sequence a rank and microbatch: the settings do not say it")
end

-- FSDP sums gradients in the type that computes, where DDP has f32; DeepSpeed adds them up in it, too.
local function put_precision(book, plan)
  local key = "mixed_precision"
  -- no without quotes is a boolean in YAML, which Accelerate takes for the word.
  local kind = book:value(key) and values.type_of(book, key) or "f32"
  local from = book:leaf(key) or "Accelerate's default"
  local over = string.upper(tostring(book:value "distributed_type"))
  book:translated(key)
  if kind == "f32" or over ~= "FSDP" and over ~= "DEEPSPEED" then
    return plan:put("precision", quote.text(kind), from)
  end
  plan:put("precision.param_dtype", quote.text(kind), from)
  if over == "FSDP" and kind == "bf16" then
    return plan:put("precision.reduce_dtype", quote.text(kind), "Accelerate's FSDP sums gradients in it")
  end
  plan:put("precision.grad_dtype", quote.text(kind), over == "FSDP" and "Accelerate's FSDP sums gradients in it"
           or "DeepSpeed's default: that of the model")
  if over == "FSDP" or kind ~= "f16" then return end
  plan:put("precision.growth_interval", "1000", "DeepSpeed's default")
  plan:put("precision.hysteresis", "2", "DeepSpeed's default")
end

-- The optimizer is the script's: that of Transformers' Trainer is assumed.
local function put_optimizer(book, plan)
  local key = "deepspeed_config.gradient_clipping"
  local clip = values.positive(book, key)
  plan:head("optimizer", "weft.adamw")
  plan:put("optimizer.lr", "5e-05", "assumed")
  plan:put("optimizer.betas", "{ 0.9, 0.999 }", "assumed")
  plan:put("optimizer.weight_decay", "0", "assumed")
  plan:put("optimizer.clip", quote.value(clip or 1.0), clip and book:leaf(key) or "assumed")
  book:translated(key)
  book:assume("optimizer", "AdamW with lr = 5e-05, betas of 0.9 and 0.999 and no decay"
              .. (clip and "" or ", gradients to a norm of 1") .. ", as Transformers' Trainer: the settings do not say it")
end

function accelerate.translate(book, plan, options)
  local config = model_field.put(plan, book, { changes = {} }, options.model)
  if not config then return book:apply_early(left_out) end
  local how = put_strategy(book, plan)
  put_batch(book, plan, put_mesh(book, plan, options, type(how) == "table" and how))
  put_precision(book, plan)
  put_optimizer(book, plan)
  values.assume_rest(book, plan, config)
  book:apply(left_out)
end

return accelerate
