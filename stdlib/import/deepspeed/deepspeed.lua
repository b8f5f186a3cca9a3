-- deepspeed.lua - DeepSpeed's JSON as fields of a plan. It names no model (--model does). What is
-- "auto" there is filled in by Hugging Face's Trainer, from arguments that are not in the file:
-- then its defaults are assumed, and said. What does not take part in the plan is in left_out.lua.
local model_field = use "import/model_field"
local optimizer = use "import/deepspeed/optimizer"
local quote = use "import/quote"
local left_out = use "import/deepspeed/left_out"
local scalar = use "import/scalar"
local values = use "import/values"

local deepspeed = { name = "DeepSpeed", fields = use "import/deepspeed/fields", absent = { auto = true },
                    describe = "a configuration of DeepSpeed (zero_optimization, train_batch_size)" }

local TOPS = { zero_optimization = true, train_batch_size = true, gradient_clipping = true,
               train_micro_batch_size_per_gpu = true, zero_allow_untested_optimizer = true,
               steps_per_print = true, wall_clock_breakdown = true }

function deepspeed.is(leaves)
  for _, leaf in ipairs(leaves) do
    if TOPS[string.match(leaf.key, "^[^.]*")] then return true end
  end
  return false
end

-- The older name of bf16, which counts where the newer one is not there.
local function rename(book)
  if book:has "bf16" then return end
  for _, leaf in ipairs(book.leaves) do
    local name = string.match(leaf.key, "^bfloat16%.(.*)$")
    if name then
      book.leaves.at[leaf.key] = nil
      leaf.given, leaf.key = leaf.key, "bf16." .. name
      book.leaves.at[leaf.key] = leaf
    end
  end
end

-- ---- batch and ranks ----

-- One machine's, or as many as a step has microbatches for. `each` ranks share a microbatch.
local function usual_ranks(each, most)
  local dp = math.max(8 // each, 1)
  while most and dp > 1 and most % dp ~= 0 do dp = dp - 1 end
  return dp
end

-- The size of a group that shares a microbatch.
local function put_axis(book, plan, key, axis)
  local n = values.whole(book, key, 1) or 1
  if n > 1 then plan:put("mesh." .. axis, quote.value(n), book:leaf(key)) end
  book:translated(key, "mesh." .. axis)
  return n
end

-- tp, and the ranks that share a sequence: DeepSpeed's are Ulysses', which exchange heads.
local function put_axes(book, plan)
  local tp = put_axis(book, plan, "tensor_parallel.autotp_size", "tp")
  local sp = put_axis(book, plan, "sequence_parallel_size", "cp")
  if sp > 1 then
    plan:put("cp.comm", quote.text "a2a", "DeepSpeed Ulysses")
    book:assume("cp.comm", "a2a: sequence_parallel_size is the size of Ulysses' groups there")
  end
  return tp * sp
end

-- Data-parallel ranks: of --world, or of the file; nil if neither says it.
local function said_dp(book, plan, options, shared)
  local dp = values.whole(book, "data_parallel_size", 1)
  if not options.world then
    if not dp then return nil end
    plan:put("mesh.world", quote.value(dp * shared), book:leaf "data_parallel_size")
    book:translated "data_parallel_size"
    return dp
  end
  book:no_effect("data_parallel_size", "--world says how many ranks there are")
  plan:put("mesh.world", quote.value(options.world), "--world")
  if options.world % shared == 0 then return options.world // shared end
  book:refuse(book:value "sequence_parallel_size" and "sequence_parallel_size" or "tensor_parallel.autotp_size",
              string.format("%d ranks are no multiple of tp * cp = %d", options.world, shared))
  return 1
end

-- Each of the three sizes follows from the other two and the ranks; `shared` of them have the same
-- microbatch.
local function put_batch(book, plan, options, shared)
  local global = values.whole(book, "train_batch_size", 1)
  local micro = values.whole(book, "train_micro_batch_size_per_gpu", 1)
  local each = values.whole(book, "gradient_accumulation_steps", 1)
  local dp = said_dp(book, plan, options, shared)
  if not dp and global and micro and global % (micro * (each or 1)) == 0 then
    dp = global // (micro * (each or 1))
    if dp > 1024 then dp = nil end
    if dp then
      plan:put("mesh.world", quote.value(dp * shared), "the batches of all ranks are the step's")
      book:assume("mesh.world", string.format("%d ranks, on which %s accumulated; --world N says another",
        dp * shared, (each or 1) == 1 and "1 microbatch is" or each .. " microbatches are"))
    end
  end
  if not dp then
    dp = usual_ranks(shared, global and global // (micro or 1) // (each or 1))
    plan:put("mesh.world", quote.value(dp * shared), "assumed; --world N says another")
    book:assume("mesh.world", string.format("%d ranks; --world N says another", dp * shared))
  end
  if global and micro and each and micro * each * dp ~= global then
    book:refuse("train_batch_size", string.format("%d is not %d a rank times %d accumulated times "
      .. "%d data-parallel ranks", global, micro, each, dp))
  end
  if not micro then
    micro = global and math.max(global // ((each or 1) * dp), 1) or 1
    if not (global and each) then
      book:assume("batch.micro", micro .. ": the Trainer's argument is not in the file")
    end
  end
  if not global then
    global = micro * (each or 1) * dp
    book:assume("batch.global", global .. ": what the ranks have together")
  end
  plan:put("batch.global", quote.value(global), book:leaf "train_batch_size" or "assumed")
  plan:put("batch.micro", quote.value(micro), book:leaf "train_micro_batch_size_per_gpu" or "assumed")
  book:translated "train_batch_size"
  book:translated "train_micro_batch_size_per_gpu"
  book:translated("gradient_accumulation_steps", "batch.global / (batch.micro * dp)")
end

-- ---- zero ----

local function put_offload(book, plan, stage)
  local zero = "zero_optimization."
  local state = book:value(zero .. "offload_optimizer.device")
  if values.switch(book, zero .. "cpu_offload") then state = state or "cpu" end
  if state == "none" then state = nil end
  local params = book:value(zero .. "offload_param.device")
  if params == "none" then params = nil end
  for _, name in ipairs { "offload_optimizer.device", "offload_param.device" } do
    local value = book:value(zero .. name)
    if value == "nvme" then
      book:cannot(zero .. name, "nothing is offloaded to files: the plan offloads to the memory of "
                  .. "the host")
    elseif value == "none" then
      book:no_effect(zero .. name, "it is off")
    end
  end
  if state and stage >= 1 then
    plan:put("strategy.offload_optimizer", quote.text "cpu",
             book:leaf(zero .. "offload_optimizer.device") or book:leaf(zero .. "cpu_offload"))
    book:translated(zero .. "offload_optimizer.device")
    book:translated(zero .. "cpu_offload")
  end
  if not params then return end
  if stage == 3 and state then
    plan:put("strategy.offload_param", quote.text "cpu", book:leaf(zero .. "offload_param.device"))
    book:translated(zero .. "offload_param.device")
  else
    book:cannot(zero .. "offload_param.device", "parameters are offloaded at stage 3 with the "
                .. "optimizer (offload_optimizer): here they stay on the device")
  end
end

local function put_threshold(book, plan, config)
  local zero = "zero_optimization."
  local key = book:leaf(zero .. "param_persistence_threshold") and zero .. "param_persistence_threshold"
    or zero .. "stage3_param_persistence_threshold"
  local n = values.whole(book, key, 0)
  local field = "strategy.param_persistence_threshold"
  if n then
    plan:put(field, quote.value(n), book:leaf(key))
  elseif book:leaf(key) then
    plan:put(field, quote.value(10 * (scalar.integer(config.hidden_size) or 0)),
             "\"auto\" is 10 * hidden_size")
  else
    plan:put(field, "100000", "DeepSpeed's default")
  end
  book:translated(key, field)
end

-- The stage, and where it is from: older files have true, which is 1, and false in the place of the group.
local function stage_of(book, key)
  local whole = book:value "zero_optimization"
  if type(whole) == "boolean" then
    book:translated("zero_optimization", "strategy.stage")
    return whole and 1 or 0, book:leaf "zero_optimization"
  end
  local stage = values.whole(book, key, 0)
  book:translated(key)
  return stage or 0, book:leaf(key) or "DeepSpeed's default"
end

local function put_zero(book, plan, config)
  local zero = "zero_optimization."
  local stage, from = stage_of(book, zero .. "stage")
  if stage > 3 then
    return book:refuse(zero .. "stage", string.format("stage %d: there are 0 to 3", stage))
  end
  plan:put("strategy.#", quote.text "zero", "DeepSpeed")
  plan:put("strategy.stage", quote.value(stage), from)
  local overlap = values.switch(book, zero .. "overlap_comm")
  if overlap ~= nil then
    plan:put("strategy.overlap_grad_reduce", tostring(overlap), book:leaf(zero .. "overlap_comm"))
    book:translated(zero .. "overlap_comm")
  end
  values.put_whole(book, plan, zero .. "reduce_bucket_size", "strategy.reduce_bucket_size", 1)
  book:no_effect(zero .. "reduce_bucket_size", "\"auto\": the default of strategy.bucket_bytes")
  if stage == 3 then
    put_threshold(book, plan, config)
    local group = values.whole(book, zero .. "zero_hpz_partition_size", 1)
    if group and group > 1 then
      plan:put("strategy.zero_hpz_partition_size", quote.value(group),
               book:leaf(zero .. "zero_hpz_partition_size"))
    end
    book:translated(zero .. "zero_hpz_partition_size")
  end
  for _, name in ipairs { "stage3_param_persistence_threshold", "param_persistence_threshold",
                          "zero_hpz_partition_size" } do
    book:no_effect(zero .. name, "it is of stage 3")
  end
  put_offload(book, plan, stage)
  for _, name in ipairs { "offload_optimizer.device", "offload_param.device", "cpu_offload" } do
    book:no_effect(zero .. name, "without a stage there is nothing to offload")
  end
end

-- ---- precision ----

local function put_f16(book, plan)
  plan:put("precision.param_dtype", quote.text "f16", book:leaf "fp16.enabled")
  book:translated("fp16.enabled", "precision")
  local power = values.whole(book, "fp16.initial_scale_power", 0)
  if power and power <= 60 then
    plan:put("precision.init_scale", quote.value(1 << power), book:leaf "fp16.initial_scale_power")
    book:translated "fp16.initial_scale_power"
  end
  values.put_whole(book, plan, "fp16.loss_scale_window", "precision.growth_interval", 1)
  plan:put("precision.growth_interval", "1000", "DeepSpeed's default")
  values.put_whole(book, plan, "fp16.hysteresis", "precision.hysteresis", 1)
  plan:put("precision.hysteresis", "2", "DeepSpeed's default")
  values.put_positive(book, plan, "fp16.min_loss_scale", "precision.min_scale")
  if (values.positive(book, "fp16.loss_scale") or 0) > 0 then
    book:cannot("fp16.loss_scale", "the scale of the loss is found while training")
  end
end

-- Gradients add up in the type of the model unless the file says otherwise, and travel in it. Those of bf16 without
-- a stage add up in f32 (get_data_types of DeepSpeed's engine.py).
local function put_gradients(book, plan, compute)
  local key = "data_types.grad_accum_dtype"
  local whole = compute == "bf16" and plan:source "strategy.stage" == "0"
    and book:value "bf16.bf16_master_weights_and_grads" ~= true
  local grads = values.type_of(book, key) or whole and "f32" or compute
  if grads ~= "f32" and grads ~= compute and not (grads == "bf16" and compute == "f32") then
    book:cannot(key, "gradients are f32 or of the type that computes: the plan has f32")
    grads = "f32"
  end
  plan:put("precision.grad_dtype", quote.text(grads), book:leaf(key) or whole and "DeepSpeed's default without a stage"
           or "DeepSpeed's default: that of the model")
  book:translated(key, "precision.grad_dtype")
  key = "communication_data_type"
  local sums = values.type_of(book, key) or compute
  if sums == grads then
    book:translated(key, "precision.grad_dtype")
  elseif sums == "f16" then
    book:cannot(key, "sums in f16 are of gradients in f16: the plan has " .. grads)
  else
    plan:put("precision.reduce_dtype", quote.text(sums), book:leaf(key) or "DeepSpeed's default: that of the model")
    book:translated(key, "precision.reduce_dtype")
  end
end

-- Without f32 master weights.
local function put_masters(book, plan, compute)
  local key = "bf16.bf16_master_weights_and_grads"
  if values.switch(book, key) and compute == "bf16" then
    plan:put("precision.master_dtype", quote.text "bf16", book:leaf(key))
    book:translated(key, "precision.master_dtype")
  end
  book:no_effect(key, "master weights are f32")
end

-- PyTorch's autocast over parameters in f32: gradients are f32, too.
local function put_autocast(book, plan)
  local key = "torch_autocast.dtype"
  local kind = values.type_of(book, key) or "bf16"
  plan:put("precision.param_dtype", quote.text(kind), book:leaf(key) or book:leaf "torch_autocast.enabled")
  for _, one in ipairs { key, "torch_autocast.enabled" } do book:translated(one, "precision.param_dtype") end
  book:assume("precision", "all computes in the type of torch_autocast; there norms and softmax keep f32, and gradients of "
              .. "linears travel in it")
  return "f32"
end

local function put_compute(book, plan)
  if values.switch(book, "fp16.enabled") then
    put_f16(book, plan)
    return "f16"
  end
  local key = values.switch(book, "bf16.enabled") and "bf16.enabled"
  if not key and book:leaf "bf16.enabled" and book:value "bf16.enabled" == nil then
    key = "bf16.enabled"
    book:assume("precision", "bf16: the file says \"auto\"")
  elseif not key and book:leaf "fp16.enabled" and book:value "fp16.enabled" == nil then
    book:assume("precision", "f16: the file says \"auto\"")
    put_f16(book, plan)
    return "f16"
  end
  if not key and values.flag(book, "torch_autocast.enabled") then return put_autocast(book, plan) end
  plan:put("precision.param_dtype", quote.text(key and "bf16" or "f32"), key and book:leaf(key)
           or "neither bf16 nor fp16")
  if key then book:translated(key, "precision") end
  return key and "bf16" or "f32"
end

local function put_precision(book, plan)
  local compute = put_compute(book, plan)
  put_gradients(book, plan, compute)
  put_masters(book, plan, compute)
end

-- What the file says where another system's settings name it, and say the rest: stage and number formats.
function deepspeed.put_beside(book, plan, config)
  rename(book)
  put_zero(book, plan, config)
  put_precision(book, plan)
end

function deepspeed.translate(book, plan, options)
  rename(book)
  local config = model_field.put(plan, book, { changes = {} }, options.model)
  if not config then return book:apply_early(left_out) end
  put_batch(book, plan, options, put_axes(book, plan))
  put_zero(book, plan, config)
  put_precision(book, plan)
  optimizer.put(book, plan)
  values.put_whole(book, plan, "steps_per_print", "train.log_every", 1)
  values.assume_rest(book, plan, config)
  book:apply(left_out)
end

return deepspeed
