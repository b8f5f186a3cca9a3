-- automodel.lua - a plan as a recipe of NeMo AutoModel. Names that import/automodel translates
-- come from its tables, read the other way.
local fields = use "export/fields"
local names = use "import/automodel/names"
local pytorch = use "import/pytorch"
local rates = use "import/rates"
local settings = use "export/settings"
local automodel = { name = "NeMo AutoModel", file = "recipe.yaml" }

-- ---- the strategy ----

-- Strategies that come near: the export takes the one that says most.
function automodel.forms(f)
  local kind = f.value.strategy
  if kind ~= "zero" then return { kind } end
  return { "fsdp2", "megatron_fsdp", "ddp" }
end

local FLAGS = {
  fsdp2 = { defer_fsdp_grad_sync = "strategy.defer_grad_sync",
            enable_async_tensor_parallel = "strategy.enable_async_tensor_parallel" },
  megatron_fsdp = { overlap_grad_reduce = "strategy.overlap_grad_reduce",
                    overlap_param_gather = "strategy.overlap_param_gather" },
}

local function put_fsdp2(s, f)
  local v = f.value
  if v["mesh.tp"] > 1 then
    s:put("distributed.sequence_parallel", v["strategy.sequence_parallel"], "strategy.sequence_parallel")
  end
  local spec = type(f.spec.strategy) == "table" and f.spec.strategy or {}
  local keep = spec.reshard_after_forward
  if keep == nil then keep = spec.zero_hpz_partition_size end
  s:put("distributed.reshard_after_forward", keep, "strategy.reshard_after_forward")
  s:put("distributed.enable_fsdp2_prefetch", true)
  for _, side in ipairs { "forward", "backward" } do
    local field = "strategy." .. side .. "_prefetch_depth"
    s:put("distributed.fsdp2_" .. side .. "_prefetch_depth", v[field], field)
  end
  if spec.offload_policy or spec.offload_param == "cpu" then
    s:put("distributed.offload_policy._target_", "torch.distributed.fsdp.CPUOffloadPolicy",
          "strategy.offload_policy")
  end
  local precision = "distributed.mp_policy."
  s:put(precision .. "_target_", "torch.distributed.fsdp.MixedPrecisionPolicy")
  s:put(precision .. "param_dtype", names.torch[v["precision.param_dtype"]], "precision.param_dtype")
  s:put(precision .. "reduce_dtype", names.torch[v["precision.reduce_dtype"]], "precision.reduce_dtype")
end

local function put_distributed(s, f, form)
  local v = f.value
  s:put("distributed.strategy", form, "strategy")
  for _, axis in ipairs { "dp", "tp", "pp", "cp", "ep" } do
    s:put("distributed." .. axis .. "_size", v["mesh." .. axis], "mesh." .. axis)
  end
  if v["mesh.dp_replicate"] > 1 then
    s:put("distributed.dp_replicate_size", v["mesh.dp_replicate"], "mesh.dp_replicate")
  end
  if form == "fsdp2" then put_fsdp2(s, f) end
  for _, key in ipairs(keys(FLAGS[form] or {})) do
    s:put("distributed." .. key, v[FLAGS[form][key]], FLAGS[form][key])
  end
  if form == "megatron_fsdp" then
    s:put("distributed.zero_dp_strategy", v["strategy.stage"], "strategy.stage")
    s:put("distributed.grad_reduce_in_fp32", v["precision.reduce_dtype"] == "f32", "precision.reduce_dtype")
  elseif form == "ddp" then
    s:put("distributed.bucket_cap_mb", v["strategy.bucket_bytes"] / 1048576, "strategy.bucket_bytes")
  end
  local again = v.recompute
  if again == "full" or again == "selective" then
    s:put("distributed.activation_checkpointing", again == "full" or again, "recompute")
  end
end

-- ---- the pipeline ----

-- Schedules that have no name there: what comes nearest, with as many stages.
local NEAREST = { eager_1f1b = "1f1b", zb_h2 = "interleavedzerobubble", v_half = "zbvzerobubble",
                  v_min = "zbvzerobubble" }
local function schedule_of(f)
  local name = f.value.schedule
  return pytorch.schedule_of[name] or NEAREST[name] or f.virtual == 1 and "1f1b" or "interleaved1f1b"
end

-- AutoModel counts stages by their layers, and rounds to a multiple of pp.
local function stages_by_layers(layers, pp, stages)
  for each = 1, layers do
    local made = (layers + each - 1) // each
    local rest = made % pp
    if made == stages then return each end
    if rest ~= 0 and made + pp - rest == stages then return each, "up" end
    if rest ~= 0 and made - rest == stages then return each, "down" end
  end
end

local function put_pipeline(s, f)
  local v, pp = f.value, f.value["mesh.pp"]
  if pp == 1 then return end
  local prefix, layers = "distributed.pipeline.", f.facts.layers
  s:put(prefix .. "pp_schedule", schedule_of(f), "schedule")
  s:put(prefix .. "pp_microbatch_size", v["batch.micro"], "batch.micro")
  local each, round = stages_by_layers(layers, pp, pp * f.virtual)
  s:put(prefix .. "layers_per_stage", each, "pp_plan")
  s:put(prefix .. "round_virtual_stages_to_pp_multiple", round, "pp_plan")
end

-- ---- the rest ----

local function put_model(s, f, form)
  s:put("model._target_", "nemo_automodel.NeMoAutoModelForCausalLM.from_config")
  s:put("model.config._target_", "transformers." .. names.class_of[f.architecture], "model")
  for _, key in ipairs(keys(f.config)) do s:put("model.config." .. key, fields.written(f, key)) end
  local v = f.value
  local field = form == "fsdp2" and "precision.master_dtype" or "precision.param_dtype"
  s:put("model.torch_dtype", names.torch[v[field]], field)
end

local function put_moe(s, f)
  local v = f.value
  if f.facts.experts == 0 then return end
  if v["moe.router_dtype"] == "f32" then s:put("model.backend.gate_precision", "float32", "moe.router_dtype") end
  s:put("model.config.router_aux_loss_coef", v["moe.aux_loss_coef"], "moe.aux_loss_coef")
  if v["mesh.ep"] == 1 then return end
  s:put("model.backend.dispatcher", v["moe.dispatcher"] == "allgather" and "torch" or "deepep", "moe.dispatcher")
  s:put("distributed.moe.ignore_router_for_ac", v["moe.ignore_router_for_ac"], "moe.ignore_router_for_ac")
  s:put("distributed.moe.reshard_after_forward", v["moe.reshard_after_forward"], "moe.reshard_after_forward")
end

-- ---- what learns ----

-- A pattern that AutoModel matches with the same modules: names of modules are written as their ends.
local function pattern_of(target)
  local inner = string.match(target, "^layers%.%*%.(.*)$")
  return inner and "model.layers.*." .. inner or "*." .. target
end

local function put_adapter(s, f)
  local v, spec = f.value, f.spec.adapter
  if not spec or v["adapter.rank"] == 0 then return end
  s:put("peft._target_", names.PEFT, "adapter")
  s:put("peft.dim", v["adapter.rank"], "adapter.rank")
  s:put("peft.alpha", math.tointeger(v["adapter.alpha"]), "adapter.alpha")
  if type(spec.targets) == "table" then
    local list = {}
    for i, target in ipairs(spec.targets) do list[i] = pattern_of(target) end
    s:put("peft.target_modules", list, "adapter.targets")
  else
    s:put("peft.exclude_modules", { "*lm_head*" }, "adapter.targets")
  end
  if v["adapter.dropout"] > 0 then
    s:put("peft.dropout", v["adapter.dropout"], "adapter.dropout")
    s:put("peft.dropout_position", v["adapter.dropout_position"], "adapter.dropout_position")
  end
  s:put("peft.use_dora", v["adapter.dora"], "adapter.dora")
  if v["adapter.base"] == "nf4" then
    s:put("quantization.load_in_4bit", true, "adapter.base")
    s:put("quantization.bnb_4bit_quant_type", "nf4", "adapter.base")
    s:put("quantization.bnb_4bit_use_double_quant", true, "adapter.base")
  end
  s:put("peft.lora_A_init", "kaiming")
end

local function put_freeze(s, f)
  local list = f.spec.freeze
  if list and table.concat(list, " ") == table.concat(names.embeddings(f.architecture), " ") then
    s:put("freeze_config.freeze_embeddings", true, "freeze")
  end
end

-- A teacher's divergence is KL(teacher|student), without a factor at a temperature of 1 alone.
local function distills(f)
  local loss = f.spec.loss
  return type(loss) == "table" and loss[1] == "distill" and (loss.beta or 0) == 0
    and (loss.temperature or 1) == 1 and loss
end

local function put_teacher(s, loss)
  s:put("teacher_model._target_", "nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained")
  s:put("teacher_model.pretrained_model_name_or_path", loss.teacher, "loss.teacher")
  s:put("kd_ratio", loss.alpha or 0.5, "loss.alpha")
  s:put("kd_loss_fn._target_", names.LOSS .. "kd_loss.KDLoss", "loss")
  s:put("kd_loss_fn.temperature", 1.0, "loss")
end

-- Cross entropy that never has all logits is that of a head in pieces.
local function put_loss(s, f)
  local loss = distills(f)
  if loss then put_teacher(s, loss) end
  local kind = f.value.loss_chunks == "auto" and "linear_ce.FusedLinearCrossEntropy"
    or "masked_ce.MaskedCrossEntropy"
  s:put("loss_fn._target_", names.LOSS .. kind, f.value.loss_chunks == "auto" and "loss_chunks" or nil)
end

local function put_batch(s, f)
  local v = f.value
  local here = v["batch.global"] // (v["mesh.dp"] * v["batch.rounds"])
  s:put("step_scheduler.global_batch_size", v["batch.global"], "batch.global")
  s:put("step_scheduler.local_batch_size", v["mesh.pp"] > 1 and here or v["batch.micro"],
        v["mesh.pp"] > 1 and "batch.rounds" or "batch.micro")
  s:put("step_scheduler.max_steps", v["train.steps"], "train.steps")
  if v["train.neftune_noise_alpha"] > 0 then
    s:put("neftune.noise_alpha", v["train.neftune_noise_alpha"], "train.neftune_noise_alpha")
  end
  s:put("dataset._target_", "nemo_automodel.components.datasets.llm.mock_iterable_dataset.MockIterableDataset", "data")
  s:put("dataset.seq_len", v["batch.seq"], "batch.seq")
  s:put("dataset.vocab_size", f.config.vocab_size)
  if v["packed.size"] > 0 then
    s:put("packed_sequence.packed_sequence_size", v["packed.size"], "packed.size")
    if v["packed.too_long"] == "drop" then s:put("packed_sequence.drop_long_samples", true, "packed.too_long") end
  end
end

local function put_rate(s, v)
  local kind, warmup = v["optimizer.lr"], v["optimizer.lr.warmup"]
  if kind == "constant" and warmup == 0 then return end
  s:put("lr_scheduler.lr_decay_style", rates.style_of[kind], "optimizer.lr")
  s:put("lr_scheduler.lr_warmup_steps", warmup, "optimizer.lr.warmup")
  s:put("lr_scheduler.init_lr", 0.0)
  if kind == "constant" then return end
  s:put("lr_scheduler.min_lr", v["optimizer.lr.min"], "optimizer.lr.min")
  s:put("lr_scheduler.lr_decay_steps", v["optimizer.lr.steps"], "optimizer.lr.steps")
  s:put("lr_scheduler.wsd_decay_steps", v["optimizer.lr.decay"], "optimizer.lr.decay")
  s:put("lr_scheduler.lr_wsd_decay_style", v["optimizer.lr.decay_style"], "optimizer.lr.decay_style")
end

-- Others become AdamW, with its averages where they have them.
local function target_of(v)
  if v.optimizer ~= "adafactor" then return v.optimizer == "adam" and "torch.optim.Adam" or "torch.optim.AdamW" end
  return v["optimizer.relative_step"] and "torch.optim.Adafactor" or "transformers.Adafactor"
end

-- PyTorch's has relative steps in proportion to parameters and a `d` of at least 1; Transformers' takes an
-- `lr` for steps that are not relative, and adds the first eps to squares.
local function put_adafactor(s, v)
  local least, size = string.match(v["optimizer.eps"], "^(.*), (.*)$")
  least, size = tonumber(least), tonumber(size)
  if v["optimizer.relative_step"] then
    s:put("optimizer.beta2_decay", v["optimizer.beta2_decay"], "optimizer.beta2_decay")
    s:put("optimizer.eps", { least, size }, "optimizer.eps")
    if v["optimizer.d"] >= 1 then s:put("optimizer.d", v["optimizer.d"], "optimizer.d") end
    return
  end
  s:put("optimizer.decay_rate", v["optimizer.beta2_decay"], "optimizer.beta2_decay")
  s:put("optimizer.eps", { least * least, size }, "optimizer.eps")
  s:put("optimizer.clip_threshold", v["optimizer.d"], "optimizer.d")
  s:put("optimizer.relative_step", false, "optimizer.relative_step")
  s:put("optimizer.scale_parameter", v["optimizer.scale_parameter"], "optimizer.scale_parameter")
end

-- Of Transformers' the decay is times the size of a parameter, too.
local function other_decay(v)
  return target_of(v) == "transformers.Adafactor" and v["optimizer.scale_parameter"] and v["optimizer.weight_decay"] > 0
end

local function put_adam(s, v)
  local beta1, beta2, eps = fields.averages(v)
  s:put("optimizer.betas", beta1 and { beta1, beta2 }, "optimizer.betas")
  s:put("optimizer.eps", eps, "optimizer.eps")
end

local function put_optimizer(s, f)
  local v = f.value
  s:put("optimizer._target_", target_of(v), "optimizer")
  s:put("optimizer.lr", v["optimizer.lr.max"], "optimizer.lr")
  if v.optimizer == "adafactor" then put_adafactor(s, v) else put_adam(s, v) end
  if not other_decay(v) then s:put("optimizer.weight_decay", v["optimizer.weight_decay"], "optimizer.weight_decay") end
  if v["optimizer.state_dtype"] == "bf16" then
    for _, name in ipairs { "exp_avg_dtype", "exp_avg_sq_dtype" } do
      s:put("optimizer." .. name, "torch.bfloat16", "optimizer.state_dtype")
    end
  end
  s:put("clip_grad_norm.max_norm", v["optimizer.clip"], "optimizer.clip")
  put_rate(s, v)
end

local function put_run(s, f)
  local v = f.value
  s:put("rng.seed", v["train.seed"], "train.seed")
  if v["comm.timeout"] > 0 then s:put("dist_env.timeout_minutes", v["comm.timeout"] / 60, "comm.timeout") end
  s:put("checkpoint.enabled", v["checkpoint.dir"] ~= nil, "checkpoint")
  if v["checkpoint.dir"] == nil then return end
  s:put("checkpoint.checkpoint_dir", v["checkpoint.dir"], "checkpoint.dir")
  s:put("step_scheduler.ckpt_every_steps", v["checkpoint.every"], "checkpoint.every")
  s:put("checkpoint.is_async", v["checkpoint.async"], "checkpoint.async")
  local whole = type(f.spec.checkpoint) == "table" and f.spec.checkpoint.save_consolidated
  if whole ~= nil then s:put("checkpoint.save_consolidated", whole, "checkpoint.save_consolidated") end
end

function automodel.write(f, form)
  local s = settings.new()
  s:put("recipe", distills(f) and "KnowledgeDistillationRecipeForNextTokenPrediction"
        or "TrainFinetuneRecipeForNextTokenPrediction")
  put_batch(s, f)
  put_run(s, f)
  put_model(s, f, form)
  put_distributed(s, f, form)
  put_pipeline(s, f)
  put_moe(s, f)
  put_adapter(s, f)
  put_freeze(s, f)
  put_loss(s, f)
  put_optimizer(s, f)
  return { text = function(head) return s:yaml(head) end }
end

return automodel
