-- torchtitan.lua - a plan as torchtitan's TOML, as versions up to 0.2 read it; a model that it does not
-- ship is a table in Python beside it. import/torchtitan reads the same names, the other way.
local fields = use "export/fields"
local model = use "export/torchtitan/model"
local pytorch = use "import/pytorch"
local rules = use "export/torchtitan/rules"
local settings = use "export/settings"
local torchtitan = { name = "torchtitan", file = "config.toml" }

-- ---- forms ----

-- torchtitan's names, and how many stages each rank has with them: one, two and more, or two in a V.
local function by_name(f)
  if not pytorch.class_of[f.value.schedule] then return false end
  if pytorch.one_stage[f.value.schedule] then return f.virtual == 1 end
  if f.value.schedule == "zbv" or f.value.schedule == "dualpipe_v" then return f.virtual == 2 end
  return f.virtual > 1
end

-- A flavor that torchtitan ships or one of one's own; the schedule by its name or as a table.
function torchtitan.forms(f)
  if model.refused(f) then return { {} } end
  local forms, models = {}, model.shipped(f)
  models[#models + 1] = false
  for _, csv in ipairs { false, true } do
    for _, flavor in ipairs(models) do
      if f.mesh.pp == 1 and not csv or f.mesh.pp > 1 and (csv or by_name(f)) then
        forms[#forms + 1] = { flavor = flavor, csv = csv }
      end
    end
  end
  return forms
end

-- ---- ranks ----

local P = "parallelism."

local function put_mesh(s, v, shards)
  local dp, copies = v["mesh.dp"], v["mesh.dp_replicate"]
  if copies == dp then copies = 1 end -- weft has no shards over cp alone
  s:put(P .. "data_parallel_replicate_degree", shards and copies or dp, "mesh.dp_replicate")
  s:put(P .. "data_parallel_shard_degree", shards and dp // copies or 1, "mesh.dp")
  for _, axis in ipairs { { "tp", "tensor" }, { "pp", "pipeline" }, { "cp", "context" }, { "ep", "expert" } } do
    s:put(P .. axis[2] .. "_parallel_degree", v["mesh." .. axis[1]], "mesh." .. axis[1])
  end
  if v["mesh.ep"] > 1 then
    s:put(P .. "expert_tensor_parallel_degree", v["mesh.etp"] == v["mesh.tp"] and v["mesh.tp"] or 1, "mesh.etp")
    s:put(P .. "expert_parallel_comm_backend", "standard", "moe.dispatcher")
  end
end

local RESHARD = { [true] = "always", [false] = "never" }
local ROTATE = { ring = "alltoall", allgather = "allgather" }

local function put_strategy(s, v)
  s:put(P .. "fsdp_reshard_after_forward", RESHARD[v["strategy.reshard_after_forward"]],
        "strategy.reshard_after_forward")
  s:put("training.enable_cpu_offload", v["strategy.offload_param"] and v["strategy.offload_optimizer"] or nil,
        "strategy.offload_policy")
  if v["mesh.cp"] > 1 then
    s:put(P .. "context_parallel_rotate_method", ROTATE[v["cp.comm"]] or "allgather", "cp.comm")
  end
  if v["mesh.tp"] == 1 then return end
  s:put(P .. "disable_loss_parallel", not v["strategy.loss_parallel"], "strategy.loss_parallel")
  if v["strategy.enable_async_tensor_parallel"] then
    s:put(P .. "enable_async_tensor_parallel", true, "strategy.enable_async_tensor_parallel")
    s:put("compile.enable", true) -- it is the compiler that overlaps
  end
end

-- ---- the pipeline ----

local UNITS = { embed_tokens = "tok_embeddings", lm_head = "output" }

local function stages_of(f)
  local stages = {}
  for units in string.gmatch(f.value.pp_plan .. " | ", "(.-) | ") do
    local names = {}
    for unit in string.gmatch(units, "%S+") do names[#names + 1] = UNITS[unit] or unit end
    stages[#stages + 1] = names
  end
  return stages
end

-- The schedule beside a table says how many stages a rank has, and whether they lie in a V.
local function place_of(f)
  if f.virtual == 1 then return "GPipe" end
  local first = string.match(f.csv, "^[^\n]*")
  local v = f.virtual == 2 and string.find(first, "%f[%d]" .. 2 * f.mesh.pp - 1 .. "F%d")
  return v and "ZBVZeroBubble" or "LoopedBFS"
end

local function put_pipeline(s, f, csv)
  if f.mesh.pp == 1 then return end
  s:put(P .. "pipeline_parallel_schedule", csv and place_of(f) or pytorch.class_of[f.value.schedule], "schedule")
  if csv then s:put(P .. "pipeline_parallel_schedule_csv", "schedule.csv", "schedule") end
  s:put(P .. "pipeline_parallel_microbatch_size", f.value["batch.micro"], "batch.micro")
  s:put(P .. "module_fqns_per_model_part", stages_of(f), "pp_plan")
end

-- ---- a step ----

-- One layer of so many that run again; nil: they are not such.
local function every_nth(f)
  local list = type(f.spec.recompute) == "table" and f.spec.recompute or {}
  local n = tonumber(string.match(tostring(list[1]), "^layers%.(%d+)$"))
  if not n or #list ~= f.facts.layers // (n + 1) then return nil end
  for i, one in ipairs(list) do
    if one ~= "layers." .. i * (n + 1) - 1 then return nil end
  end
  return n + 1
end

local function put_recompute(s, f)
  local again, n = f.value.recompute, every_nth(f)
  local key = "activation_checkpoint."
  if n then
    s:put(key .. "mode", "selective", "recompute")
    return s:put(key .. "selective_ac_option", tostring(n), "recompute")
  elseif again == "cheap" then
    s:put(key .. "mode", "selective", "recompute")
    return s:put(key .. "selective_ac_option", "op", "recompute")
  end
  s:put(key .. "mode", again == "full" and "full" or "none", "recompute")
end

local function put_training(s, v)
  local here = v["batch.global"] // (v["mesh.dp"] * v["batch.rounds"])
  s:put("training.local_batch_size", v["mesh.pp"] > 1 and here or v["batch.micro"],
        v["mesh.pp"] > 1 and "batch.rounds" or "batch.micro")
  s:put("training.global_batch_size", v["batch.global"], "batch.global")
  s:put("training.seq_len", v["batch.seq"], "batch.seq")
  s:put("training.steps", v["train.steps"], "train.steps")
  -- There is no way not to clip but to a norm that none has.
  s:put("training.max_norm", v["optimizer.clip"] > 0 and v["optimizer.clip"] or math.huge, "optimizer.clip")
  s:put("training.dtype", "float32")
  s:put("training.mixed_precision_param", v["precision.param_dtype"] == "f32" and "float32" or "bfloat16",
        "precision.param_dtype")
  s:put("training.mixed_precision_reduce", "float32", "precision.reduce_dtype")
end

-- What a rate falls along: a polynomial, a root of the steps and an exponential are none there.
local TYPES = { linear = "linear", cosine = "cosine", minus_sqrt = "sqrt" }

local function put_rate(s, v)
  local kind, rate, steps = v["optimizer.lr"], "lr_scheduler.", v["optimizer.lr.steps"]
  s:put(rate .. "warmup_steps", v["optimizer.lr.warmup"], "optimizer.lr.warmup")
  if kind == "constant" then return s:put(rate .. "decay_ratio", 0.0, "optimizer.lr") end
  s:put(rate .. "total_steps", steps, "optimizer.lr.steps")
  s:put(rate .. "decay_type", TYPES[v["optimizer.lr.decay_style"] or kind] or "linear", "optimizer.lr")
  if kind == "wsd" then
    s:put(rate .. "decay_ratio", tonumber(string.format("%.12g", v["optimizer.lr.decay"] / steps)), "optimizer.lr.decay")
  end
  local factor = v["optimizer.lr.min"] / v["optimizer.lr.max"]
  s:put(rate .. "min_lr_factor", tonumber(string.format("%.12g", factor)), "optimizer.lr.min")
end

local function put_optimizer(s, v)
  s:put("optimizer.name", v.optimizer == "adam" and "Adam" or "AdamW", "optimizer")
  s:put("optimizer.lr", v["optimizer.lr.max"], "optimizer.lr.max")
  local beta1, beta2, eps = fields.averages(v)
  s:put("optimizer.beta1", beta1, "optimizer.betas")
  s:put("optimizer.beta2", beta2, "optimizer.betas")
  s:put("optimizer.eps", eps, "optimizer.eps")
  s:put("optimizer.weight_decay", v["optimizer.weight_decay"], "optimizer.weight_decay")
  put_rate(s, v)
end

local function put_run(s, f)
  local v = f.value
  s:put("metrics.log_freq", v["train.log_every"], "train.log_every")
  s:put("debug.seed", v["train.seed"], "train.seed")
  s:put("debug.deterministic", v.deterministic, "deterministic")
  if v["comm.timeout"] > 0 then
    s:put("comm.train_timeout_seconds", math.ceil(v["comm.timeout"]), "comm.timeout")
  end
  local dir = v["checkpoint.dir"]
  if not dir then return end
  local whole = v["checkpoint.save_consolidated"] == "final"
  s:put("checkpoint.enable", true, "checkpoint")
  s:put("checkpoint.folder", dir, "checkpoint.dir")
  s:put("checkpoint.interval", v["checkpoint.every"] > 0 and v["checkpoint.every"] or v["train.steps"],
        "checkpoint.every")
  -- One alone is refused: it may be the one that is being written.
  s:put("checkpoint.keep_latest_k", v["checkpoint.keep"] == 1 and 2 or v["checkpoint.keep"], "checkpoint.keep")
  s:put("checkpoint.async_mode", v["checkpoint.async"] and "async" or "disabled", "checkpoint.async")
  s:put("checkpoint.last_save_model_only", whole)
  if whole then s:put("checkpoint.last_save_in_hf", true, "checkpoint.save_consolidated") end
end

-- ---- all ----

-- What has no shards has copies on all data-parallel ranks, which goes with neither tp nor pp: FSDP comes
-- nearest.
local function has_shards(f)
  local v = f.value
  if v["mesh.cp"] > 1 or v["mesh.ep"] > 1 then return true end
  if v["mesh.dp"] > 1 and (v["mesh.tp"] > 1 or v["mesh.pp"] > 1) then return true end
  return v.strategy ~= "ddp" and v["strategy.stage"] ~= 0 and v["mesh.dp"] > v["mesh.dp_replicate"]
end

function torchtitan.write(f, form)
  local why = model.refused(f)
  if why then return nil, why end
  local s, v, shards = settings.new(), f.value, has_shards(f)
  s:put("job.description", f.facts.name)
  s:put("model.name", model.family(f), "model")
  s:put("model.flavor", form.flavor or model.name_of(f), "model")
  put_training(s, v)
  put_mesh(s, v, shards)
  put_strategy(s, v)
  put_pipeline(s, f, form.csv)
  put_recompute(s, f)
  put_optimizer(s, v)
  put_run(s, f)
  why = rules.broken(s, f)
  if why then return nil, why end
  local made = { text = function(head) return s:toml(head) end, csv = form.csv }
  if not form.flavor then
    made.model = { name = "args.py", text = model.python(f), option = "./args.py:" .. model.name_of(f) }
  end
  -- The table is the plan's own order, and lies in a file that is not written yet.
  if form.csv then made.set = { P .. "pipeline_parallel_schedule_csv=" } end
  return made
end

return torchtitan
