-- megatron.lua - a plan as a script that starts Megatron-LM's pretrain_gpt.py, as people write them:
-- environment, torchrun, arrays of arguments. import/megatron reads the same arguments, the other way.
local fields = use "export/fields"
local model = use "export/megatron/model"
local ranks = use "export/megatron/ranks"
local rates = use "import/rates"
local rules = use "export/megatron/rules"
local script = use "export/megatron/script"
local megatron = { name = "Megatron", file = "train.sh", has_environment = true,
                   fixed_orders = true, forms = ranks.forms }

-- ---- a step ----

local function put_precision(s, v)
  local compute = v["precision.param_dtype"]
  s:group "PRECISION_ARGS"
  s:put("--bf16", compute == "bf16", "precision.param_dtype")
  s:put("--grad-reduce-in-bf16", compute == "bf16" and v["precision.grad_dtype"] == "bf16",
        "precision.grad_dtype")
  local recipe = v["precision.recipe"]
  if recipe == "tensorwise" or recipe == "mxfp8" then
    s:put("--fp8-format", v["precision.fp8_format"], "precision.fp8_format")
    s:put("--fp8-recipe", recipe, "precision.recipe")
  end
  if compute ~= "f16" then return end
  s:put("--fp16", true, "precision.param_dtype")
  s:put("--initial-loss-scale", v["precision.init_scale"], "precision.init_scale")
  s:put("--loss-scale-window", v["precision.growth_interval"], "precision.growth_interval")
  s:put("--hysteresis", v["precision.hysteresis"], "precision.hysteresis")
  s:put("--min-loss-scale", v["precision.min_scale"], "precision.min_scale")
  s:put("--accumulate-allreduce-grads-in-fp32", v["precision.grad_dtype"] == "f32", "precision.grad_dtype")
end

local function put_recompute(s, v)
  s:group "RECOMPUTE_ARGS"
  if v.recompute == "selective" then s:put("--recompute-granularity", "selective", "recompute") end
  if v.recompute ~= "full" then return end
  s:put("--recompute-granularity", "full", "recompute")
  s:put("--recompute-method", "uniform", "recompute")
  s:put("--recompute-num-layers", 1, "recompute")
end

local function put_moe(s, f)
  local v = f.value
  if not model.experts(f.config) then return end
  s:group "ROUTER_ARGS"
  local weight, each = v["moe.aux_loss_coef"], v["moe.aux_loss_sequences"] == 1 and v["batch.micro"] > 1
  if v["moe.sinkhorn_sequences"] > 0 then
    s:put("--moe-router-load-balancing-type", "sinkhorn", "moe.sinkhorn_sequences")
  elseif v["moe.aux_loss_batch"] == "global" then
    s:put("--moe-router-load-balancing-type", "global_aux_loss", "moe.aux_loss_batch")
  else
    s:put("--moe-router-load-balancing-type", weight > 0 and (each and "seq_aux_loss" or "aux_loss") or "none",
          "moe.aux_loss_sequences")
  end
  if v["moe.num_groups"] > 1 then
    s:put("--moe-router-num-groups", v["moe.num_groups"], "moe.num_groups")
    s:put("--moe-router-group-topk", v["moe.group_topk"], "moe.group_topk")
  end
  if weight > 0 then s:put("--moe-aux-loss-coeff", weight, "moe.aux_loss_coef") end
  if v["moe.z_loss_coef"] > 0 then s:put("--moe-z-loss-coeff", v["moe.z_loss_coef"], "moe.z_loss_coef") end
  s:put("--moe-router-dtype", "fp32", "moe.router_dtype")
  s:put("--moe-token-dispatcher-type", v["moe.dispatcher"], "moe.dispatcher")
  s:put("--moe-grouped-gemm", v["precision.param_dtype"] == "bf16")
  if v["moe.capacity_factor"] > 0 then
    s:put("--moe-expert-capacity-factor", v["moe.capacity_factor"], "moe.capacity_factor")
    s:put("--moe-token-drop-policy", v["moe.drop_policy"], "moe.drop_policy")
  end
  if s.at["--moe-router-enable-expert-bias"] then
    s:put("--moe-router-bias-update-rate", v["moe.bias_update_rate"], "moe.bias_update_rate")
  end
end

-- Over stages the layout names them, too.
local function put_mtp(s, v)
  if v["mtp.num_layers"] == 0 then return end
  s:group "MTP_ARGS"
  s:put("--mtp-num-layers", v["mtp.num_layers"], "mtp.num_layers")
  s:put("--mtp-loss-scaling-factor", v["mtp.loss_scaling_factor"], "mtp.loss_scaling_factor")
end

local function put_batch(s, v)
  s:group "TRAINING_ARGS"
  s:put("--micro-batch-size", v["batch.micro"], "batch.micro")
  s:put("--global-batch-size", v["batch.global"], "batch.global")
  s:put("--seq-length", v["batch.seq"], "batch.seq")
  s:put("--train-iters", v["train.steps"], "train.steps")
  s:put("--seed", v["train.seed"], "train.seed")
  s:put("--log-interval", v["train.log_every"], "train.log_every")
  if v["train.check_replicas_every"] > 0 then
    s:put("--check-weight-hash-across-dp-replicas-interval", v["train.check_replicas_every"],
      "train.check_replicas_every")
  end
  s:put("--eval-iters", 0)
  s:put("--deterministic-mode", v.deterministic, "deterministic")
  if v["comm.timeout"] > 0 then
    s:put("--distributed-timeout-minutes", math.ceil(v["comm.timeout"] / 60), "comm.timeout")
  end
end

-- ---- the optimizer ----

local function put_averages(s, v)
  local beta1, beta2, eps = fields.averages(v)
  s:put("--adam-beta1", beta1, "optimizer.betas")
  s:put("--adam-beta2", beta2, "optimizer.betas")
  s:put("--adam-eps", eps, "optimizer.eps")
end

-- Megatron's names of what the learning rate of a matrix is multiplied by.
local SCALES = {
  original = "shape_scaling", match_rms_adamw = "spectral", spectral_unclamped = "unit_rms_norm",
}

local function put_muon(s, v)
  s:put("--optimizer", "muon", "optimizer")
  s:put("--muon-momentum", v["optimizer.momentum"], "optimizer.momentum")
  s:put("--muon-use-nesterov", v["optimizer.nesterov"], "optimizer.nesterov")
  s:put("--muon-num-ns-steps", v["optimizer.ns_steps"], "optimizer.ns_steps")
  s:put("--muon-scale-mode", SCALES[v["optimizer.adjust_lr"]], "optimizer.adjust_lr")
  if v["optimizer.adjust_lr"] == "match_rms_adamw" then
    s:put("--muon-extra-scale-factor", 0.2, "optimizer.adjust_lr")
  end
  s:put("--muon-tp-mode", "duplicated", "optimizer")
  put_averages(s, v)
end

local function put_adam(s, v, form)
  s:put("--optimizer", "adam", "optimizer")
  put_averages(s, v)
  -- Averages in 16 bits belong to the distributed optimizer.
  if v["optimizer.state_dtype"] ~= "bf16" or form == "none" or form == "torch" then return end
  s:put("--use-precision-aware-optimizer", true, "optimizer.state_dtype")
  s:put("--exp-avg-dtype", "bf16", "optimizer.state_dtype")
  s:put("--exp-avg-sq-dtype", "bf16", "optimizer.state_dtype")
end

local function put_rate(s, v)
  local kind, warmup = v["optimizer.lr"], v["optimizer.lr.warmup"]
  s:put("--lr", v["optimizer.lr.max"], "optimizer.lr.max")
  s:put("--lr-decay-style", rates.style_of[kind], "optimizer.lr")
  s:put("--lr-warmup-iters", warmup, "optimizer.lr.warmup")
  if kind == "constant" then
    -- The decay must end behind the warmup, though there is none.
    if warmup >= v["train.steps"] then s:put("--lr-decay-iters", warmup + 1) end
    return
  end
  s:put("--min-lr", v["optimizer.lr.min"], "optimizer.lr.min")
  s:put("--lr-decay-iters", v["optimizer.lr.steps"], "optimizer.lr.steps")
  s:put("--lr-wsd-decay-iters", v["optimizer.lr.decay"], "optimizer.lr.decay")
  s:put("--lr-wsd-decay-style", v["optimizer.lr.decay_style"], "optimizer.lr.decay_style")
end

local function put_optimizer(s, v, form)
  s:group "OPTIMIZER_ARGS"
  if v.optimizer == "sgd" then
    s:put("--optimizer", "sgd", "optimizer")
    s:put("--sgd-momentum", v["optimizer.momentum"], "optimizer.momentum")
  elseif v.optimizer == "lion" and form == "none" then
    s:put("--optimizer", "lion", "optimizer")
    local a, b = string.match(v["optimizer.betas"], "^(.*), (.*)$")
    s:put("--lion-beta1", tonumber(a), "optimizer.betas")
    s:put("--lion-beta2", tonumber(b), "optimizer.betas")
  elseif v.optimizer == "muon" and form == "none" then
    put_muon(s, v)
  else
    put_adam(s, v, form)
  end
  put_rate(s, v)
  s:put("--weight-decay", v["optimizer.weight_decay"], "optimizer.weight_decay")
  s:put("--clip-grad", v["optimizer.clip"], "optimizer.clip")
end

-- ---- data and checkpoints ----

local function put_data(s)
  s:group "DATA_ARGS"
  s:put("--mock-data", true, "data")
end

local function put_checkpoint(s, v)
  local dir = v["checkpoint.dir"]
  if not dir then return end
  s:group "CHECKPOINT_ARGS"
  s:put("--save", dir, "checkpoint.dir")
  -- 0 is refused there; at the end one is written always.
  local every = v["checkpoint.every"]
  s:put("--save-interval", every > 0 and every or v["train.steps"], "checkpoint.every")
  s:put("--async-save", v["checkpoint.async"], "checkpoint.async")
  s:put("--use-persistent-ckpt-worker", v["checkpoint.async"])
end

-- ---- how it starts ----

local function put_environment(s, f)
  for _, set in ipairs(f.environment) do s:export(set.name, set.value, set.field) end
end

local function start_of(f)
  return { command = "torchrun \"${DISTRIBUTED_ARGS[@]}\"", lines = {
    "DISTRIBUTED_ARGS=(",
    "  --nproc_per_node " .. f.launch.each,
    "  --nnodes " .. f.launch.nodes,
    "  --node_rank \"${NODE_RANK:-0}\"",
    "  --master_addr \"${MASTER_ADDR:-localhost}\"",
    "  --master_port \"${MASTER_PORT:-6000}\"",
    ")",
  } }
end

function megatron.write(f, form)
  local why = model.refused(f)
  if why then return nil, why end
  local s, v = script.new(), f.value
  put_environment(s, f)
  model.put(s, f)
  ranks.put(s, f, form)
  put_precision(s, v)
  put_recompute(s, v)
  put_moe(s, f)
  put_mtp(s, v)
  put_batch(s, v)
  put_optimizer(s, v, form)
  put_data(s)
  put_checkpoint(s, v)
  why = rules.broken(s, f)
  if why then return nil, why end
  local start = start_of(f)
  return { text = function(head) return s:text(head, start, "\"${MEGATRON_PATH:-.}/pretrain_gpt.py\"") end }
end

return megatron
