-- deepspeed.lua - a plan as DeepSpeed's JSON, with the model beside it as config.json. Ranks and
-- sequences are not in there: the launcher and the data have them.
local fields = use "export/fields"
local settings = use "export/settings"
local deepspeed = { name = "DeepSpeed", file = "ds_config.json" }

-- The ranks that share batches and layers: pipelines and cut sequences are the code's there.
function deepspeed.world(f) return f.value["mesh.dp"] * f.value["mesh.tp"] end

function deepspeed.forms() return { "zero" } end

local function put_batch(s, v)
  s:put("train_batch_size", v["batch.global"])
  s:put("train_micro_batch_size_per_gpu", v["batch.micro"])
  s:put("gradient_accumulation_steps", v["batch.global"] // (v["batch.micro"] * v["mesh.dp"]))
  s:put("steps_per_print", v["train.log_every"])
end

local function put_zero(s, f)
  local v, zero = f.value, "zero_optimization."
  local stage = v["strategy.stage"]
  s:put(zero .. "stage", stage)
  s:put(zero .. "overlap_comm", v["strategy.overlap_grad_reduce"])
  local each = v["precision.grad_dtype"] == "f32" and 4 or 2
  if v["strategy.bucket_bytes"] % each == 0 then
    s:put(zero .. "reduce_bucket_size", v["strategy.bucket_bytes"] // each)
  end
  local spec = type(f.spec.strategy) == "table" and f.spec.strategy or {}
  if stage == 3 then
    s:put(zero .. "stage3_param_persistence_threshold", v["strategy.param_persistence_threshold"])
    local group = spec.zero_hpz_partition_size or spec.reshard_after_forward
    if math.type(group) == "integer" then s:put(zero .. "zero_hpz_partition_size", group) end
  end
  local both = spec.offload_policy and true or false
  local function on(value) return both or value == "cpu" or value == true end
  if stage >= 1 and on(spec.offload_optimizer) then s:put(zero .. "offload_optimizer.device", "cpu") end
  if stage == 3 and on(spec.offload_param) then s:put(zero .. "offload_param.device", "cpu") end
end

local function put_precision(s, v)
  local compute = v["precision.param_dtype"]
  if compute == "bf16" then s:put("bf16.enabled", true) end
  if compute == "f16" then
    s:put("fp16.enabled", true)
    local power = math.log(v["precision.init_scale"], 2)
    if power == math.floor(power) and power >= 0 then
      s:put("fp16.initial_scale_power", math.tointeger(power))
    end
    s:put("fp16.loss_scale_window", v["precision.growth_interval"])
    s:put("fp16.hysteresis", v["precision.hysteresis"])
    s:put("fp16.min_loss_scale", v["precision.min_scale"])
  end
  local names = { f32 = "fp32", f16 = "fp16", bf16 = "bf16" }
  s:put("data_types.grad_accum_dtype", names[v["precision.grad_dtype"]])
  s:put("communication_data_type", names[v["precision.reduce_dtype"]])
  if v["precision.master_dtype"] == "bf16" then s:put("bf16.bf16_master_weights_and_grads", true) end
  if v["optimizer.state_dtype"] == "bf16" and compute == "bf16" then s:put("bf16.bf16_optimizer_states", true) end
end

-- The last ones are what comes near.
local SHAPES = { constant = "WarmupLR", linear = "WarmupDecayLR", cosine = "WarmupCosineLR",
                 polynomial = "WarmupDecayLR", inverse_sqrt = "WarmupLR", wsd = "WarmupDecayLR" }

local function put_optimizer(s, v)
  local params = "optimizer.params."
  s:put("optimizer.type", "AdamW")
  s:put(params .. "lr", v["optimizer.lr.max"])
  local beta1, beta2, eps = fields.averages(v)
  s:put(params .. "betas", beta1 and { beta1, beta2 })
  s:put(params .. "eps", eps)
  s:put(params .. "weight_decay", v["optimizer.weight_decay"])
  s:put("gradient_clipping", v["optimizer.clip"])
  local kind, warmup = v["optimizer.lr"], v["optimizer.lr.warmup"]
  if kind == "constant" and warmup == 0 then return end
  params = "scheduler.params."
  s:put("scheduler.type", SHAPES[kind])
  if kind == "cosine" then
    s:put(params .. "warmup_min_ratio", 0)
    s:put(params .. "cos_min_ratio", v["optimizer.lr.min"] / v["optimizer.lr.max"])
  else
    s:put(params .. "warmup_min_lr", 0)
    s:put(params .. "warmup_max_lr", v["optimizer.lr.max"])
  end
  s:put(params .. "warmup_num_steps", math.max(warmup, 2)) -- fewer are refused, or taken as 2
  s:put(params .. "warmup_type", "linear")
  if SHAPES[kind] ~= "WarmupLR" then s:put(params .. "total_num_steps", v["optimizer.lr.steps"]) end
end

-- As Hugging Face writes it.
local function config_json(f)
  local s = settings.new()
  s:put("model_type", f.architecture)
  for _, key in ipairs(keys(f.config)) do s:put(key, fields.written(f, key)) end
  return s:json()
end

function deepspeed.write(f)
  local s, v = settings.new(), f.value
  put_batch(s, v)
  if v["mesh.tp"] > 1 and v["strategy.stage"] == 3 then
    fail("DeepSpeed's tensor parallelism (autotp_size) goes with ZeRO stages 0 to 2: --set strategy.stage=2")
  end
  if v["mesh.tp"] > 1 then s:put("tensor_parallel.autotp_size", v["mesh.tp"]) end
  put_zero(s, f)
  put_precision(s, v)
  put_optimizer(s, v)
  return { text = function() return s:json() end, 
           model = { name = "config.json", option = "./config.json", text = config_json(f) } }
end

return deepspeed
