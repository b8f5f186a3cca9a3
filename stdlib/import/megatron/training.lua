-- training.lua - what Megatron's arguments say of a step and of a run: precision, recompute, batch,
-- context and experts, optimizer, data and checkpoints, as fields of a plan.
local quote = use "import/quote"
local values = use "import/values"
local training = {}

local function on(book, key) return values.flag(book, key) == true end

-- ---- precision ----

function training.put_precision(book, plan)
  local mixed = book:value "mixed_precision"
  local f16 = on(book, "fp16") or mixed == "16-mixed" or mixed == "fp16_mixed"
  local bf16 = on(book, "bf16") or type(mixed) == "string" and string.find(mixed, "bf16", 1, true)
  -- Recipes compute in bf16 unless they say otherwise.
  local recipe = not f16 and not bf16 and book:leaf "recipe" ~= nil
  local from = f16 and (book:leaf "fp16" or book:leaf "mixed_precision")
    or bf16 and (book:leaf "bf16" or book:leaf "mixed_precision") or "neither --bf16 nor --fp16"
  if recipe then from = "what recipes have" end
  plan:put("precision.param_dtype", quote.text(f16 and "f16" or (bf16 or recipe) and "bf16" or "f32"), from)
  book:translated("fp16", "precision")
  book:translated("bf16", "precision")
  book:translated("mixed_precision", "precision")
  if not f16 then return end
  plan:put("precision.init_scale", quote.value(values.positive(book, "initial_loss_scale") or 1 << 32),
           book:leaf "initial_loss_scale" or "Megatron's default")
  plan:put("precision.growth_interval", quote.value(values.whole(book, "loss_scale_window", 1) or 1000),
           book:leaf "loss_scale_window" or "Megatron's default")
  plan:put("precision.hysteresis", quote.value(values.whole(book, "hysteresis", 1) or 2),
           book:leaf "hysteresis" or "Megatron's default")
  plan:put("precision.min_scale", quote.value(values.positive(book, "min_loss_scale") or 1),
           book:leaf "min_loss_scale" or "Megatron's default")
  for _, key in ipairs { "initial_loss_scale", "loss_scale_window", "hysteresis", "min_loss_scale" } do
    book:translated(key, "precision")
  end
  if not on(book, "accumulate_allreduce_grads_in_fp32") then
    book:assume("precision", "gradients add up in f32; with --fp16 Megatron adds them in f16")
  end
end

-- ---- recompute ----

-- The MLPs of the layers that have experts, or of the others, as patterns of weft's modules.
local function mlps(m, of_experts)
  local e = m.experts
  local layer = m.arch == "gpt2" and "h" or "layers"
  if (e ~= nil) == of_experts and (not e or #e.dense == 0) then return { layer .. ".*.mlp" } end
  local list, dense = {}, {}
  for _, i in ipairs(e and e.dense or {}) do dense[i] = true end
  for i = 0, m.layers - 1 do
    if e and (dense[i] == nil) == of_experts then list[#list + 1] = string.format("%s.%d.mlp", layer, i) end
  end
  return list
end

local function shared(m)
  if not (m.experts and m.experts.shared) then return {} end
  return { m.arch == "function" and "layers.*.mlp.shared" or "layers.*.mlp.shared_experts" }
end

-- Modules that run again as something here does.
local MODULES = {
  core_attn = function() return { "selective" } end,
  mlp = function(m) return mlps(m, false) end, moe = function(m) return mlps(m, true) end,
  shared_experts = shared,
}

local function selective(book, plan, m, from)
  local key = "recompute_modules"
  local value = book:value(key)
  local text = type(value) == "table" and table.concat(value, " ") or tostring(value or "core_attn")
  local list, others = {}, {}
  for name in string.gmatch(text, "[%w_]+") do
    if MODULES[name] then
      for _, pattern in ipairs(MODULES[name](m)) do list[#list + 1] = quote.text(pattern) end
    else
      others[#others + 1] = name
    end
  end
  if #others > 0 then
    book:cannot(key, string.format("%s: what it keeps and runs again is not said so finely here (recompute = "
      .. "\"cheap\" runs norms and activation functions again): other memory", table.concat(others, ", ")))
  end
  book:translated(key, "recompute")
  if #list == 1 and list[1] == quote.text "selective" then
    plan:put("recompute", list[1], from)
  elseif #list > 0 then
    plan:put("recompute", "{ " .. table.concat(list, ", ") .. " }", from)
  end
end

-- The first n layers of each stage, if the stages are equal.
local function block_layers(m, n)
  local stages = m.pp * (m.virtual or 1)
  if m.layers % stages ~= 0 then return nil end
  local list, each = {}, m.layers // stages
  for stage = 0, stages - 1 do
    for i = 0, math.min(n, each) - 1 do list[#list + 1] = stage * each + i end
  end
  return list
end

local function full(book, plan, m, from)
  local method = book:value "recompute_method"
  local n = values.whole(book, "recompute_num_layers", 1)
  if method ~= nil and method ~= "uniform" and method ~= "block" then
    book:refuse("recompute_method", quote.shown(method) .. ": expected uniform or block")
  end
  local layers = method == "block" and n and m.layers and n * m.pp * (m.virtual or 1) < m.layers
    and block_layers(m, n)
  if layers then
    local names = {}
    for i, layer in ipairs(layers) do names[i] = quote.text("layers." .. layer) end
    plan:put("recompute", "{ " .. table.concat(names, ", ") .. " }", from)
    return book:translated("recompute_num_layers", "recompute")
  end
  plan:put("recompute", quote.text "full", from)
  if method == "uniform" and n and n > 1 then
    book:cannot("recompute_num_layers", string.format("groups of %d layers keep one input there; here each layer "
      .. "keeps its own: more memory", n))
  elseif method == "block" and n and m.layers and m.layers % (m.pp * (m.virtual or 1)) ~= 0
    and n * m.pp < m.layers then
    book:cannot("recompute_num_layers", "stages differ in size: here all layers run again")
  end
end

function training.put_recompute(book, plan, m)
  local key, value = book:first "recompute_granularity"
  if not key and on(book, "recompute_activations") then key, value = "recompute_activations", "selective" end
  if value == "full" then
    full(book, plan, m, book:leaf(key))
  elseif value == "selective" then
    selective(book, plan, m, book:leaf(key))
  elseif key then
    book:refuse(key, quote.shown(value) .. ": expected full or selective")
  end
  for _, one in ipairs { "recompute_granularity", "recompute_method", "recompute_num_layers", "recompute_modules",
                         "recompute_activations" } do
    if key then book:translated(one, "recompute") else book:no_effect(one, "nothing is computed again") end
  end
end

-- ---- context and experts ----

local COMM = { p2p = "ring", all_gather = "allgather", a2a = "a2a", ["a2a+p2p"] = "a2a+p2p" }

function training.put_context(book, plan, m)
  local key, sizes = "cp_comm_type", "hierarchical_context_parallel_sizes"
  if m.cp == 1 then
    book:no_effect(key, "a sequence is not cut")
    return book:no_effect(sizes, "a sequence is not cut")
  end
  local value = book:value(key)
  if type(value) == "table" then value = value[1] end
  local comm = COMM[string.match(tostring(value or "p2p"), "^%S+")]
  if not comm then
    return book:refuse(key, quote.shown(value) .. ": expected p2p, all_gather, a2a or a2a+p2p")
  end
  plan:put("cp.comm", quote.text(comm), book:leaf(key) or "Megatron's default: p2p")
  if type(value) == "string" and string.find(value, "%s") then
    book:cannot(key, "one way for each layer: the plan has the first one for all")
  end
  book:translated(key, "cp.comm")
  if comm ~= "a2a+p2p" then return book:no_effect(sizes, "it is of a2a+p2p") end
  local text = book:value(sizes)
  if type(text) == "table" then text = table.concat(text, " ") end
  local heads = tonumber(string.match(tostring(text or ""), "(%d+)"))
  if not heads then
    return book:refuse(sizes, "a2a+p2p needs --hierarchical-context-parallel-sizes: two sizes, as 2 2")
  end
  plan:put("cp.heads_size", quote.value(heads), book:leaf(sizes))
  book:translated(sizes, "cp.heads_size")
end

local LOSSES = { aux_loss = true, seq_aux_loss = true, global_aux_loss = true, none = true, sinkhorn = true }

local function put_balance(book, plan)
  local key = "moe_router_load_balancing_type"
  local value = book:value(key) or "aux_loss"
  if not LOSSES[value] then
    book:refuse(key, quote.shown(value) .. ": expected aux_loss, seq_aux_loss, global_aux_loss, sinkhorn or none")
  elseif value == "sinkhorn" then
    book:cannot(key, "experts are chosen by the largest scores here; Sinkhorn's balance gives them about the "
                .. "same number of tokens")
    return book:no_effect("moe_aux_loss_coeff", "with sinkhorn there is no such loss")
  elseif value == "none" then
    book:translated(key, "no loss of routers")
    return book:no_effect("moe_aux_loss_coeff", "there is no such loss")
  elseif value ~= "aux_loss" then
    book:cannot(key, "the loss that balances experts is of the tokens of a microbatch here, not of each sequence "
                .. "or of the whole batch; its weight is the same")
  end
  book:translated(key, "moe.aux_loss_coef")
  values.put_positive(book, plan, "moe_aux_loss_coeff", "moe.aux_loss_coef")
end

local function put_dispatcher(book, plan)
  local key = "moe_token_dispatcher_type"
  local value = book:value(key) or "allgather"
  if value == "flex" then
    plan:put("moe.dispatcher", quote.text "alltoall", book:leaf(key))
    return book:cannot(key, "tokens go to their experts by alltoall, which gives the same sums by other kernels")
  elseif value ~= "allgather" and value ~= "alltoall" and value ~= "alltoall_seq" then
    return book:refuse(key, quote.shown(value) .. ": expected allgather, alltoall or flex")
  end
  plan:put("moe.dispatcher", quote.text(value == "allgather" and value or "alltoall"),
           book:leaf(key) or "Megatron's default")
  book:translated(key, "moe.dispatcher")
end

local MOE = { "moe_router_load_balancing_type", "moe_aux_loss_coeff", "moe_z_loss_coeff",
  "moe_token_dispatcher_type", "moe_router_dtype", "moe_expert_capacity_factor", "moe_token_drop_policy",
  "moe_router_bias_update_rate" }

function training.put_moe(book, plan, m)
  if not m.experts then
    for _, key in ipairs(MOE) do book:no_effect(key, "the model has no experts") end
    return
  end
  put_balance(book, plan)
  values.put_positive(book, plan, "moe_z_loss_coeff", "moe.z_loss_coef")
  put_dispatcher(book, plan)
  local dtype = book:value "moe_router_dtype"
  if dtype == "fp64" then
    book:cannot("moe_router_dtype", "scores of routers are f32")
  else
    book:translated("moe_router_dtype", "scores of routers are f32 always")
  end
  local capacity = values.positive(book, "moe_expert_capacity_factor")
  if capacity and capacity > 0 then
    values.put_positive(book, plan, "moe_expert_capacity_factor", "moe.capacity_factor")
    local policy = book:value "moe_token_drop_policy"
    if policy == "position" or policy == "probs" then
      plan:put("moe.drop_policy", quote.text(policy), book:leaf "moe_token_drop_policy")
      book:translated("moe_token_drop_policy", "moe.drop_policy")
    end
  end
  book:no_effect("moe_token_drop_policy", "nothing is dropped")
  if on(book, "moe_router_enable_expert_bias") or m.experts.bias then
    local rate = values.positive(book, "moe_router_bias_update_rate") or 1e-3
    plan:put("moe.bias_update_rate", quote.value(rate), book:leaf "moe_router_bias_update_rate"
             or "Megatron's default")
    book:translated("moe_router_bias_update_rate", "moe.bias_update_rate")
  end
  book:no_effect("moe_router_bias_update_rate", "routers have no bias")
end

-- ---- batch ----

function training.put_batch(book, plan, m)
  local micro = values.put_whole(book, plan, "micro_batch_size", "batch.micro", 1)
  if not micro then
    micro = 1
    plan:put("batch.micro", "1", "assumed")
    book:assume("batch.micro", "one sequence: the settings do not say it")
  end
  local global = values.put_whole(book, plan, "global_batch_size", "batch.global", 1)
  if not global then
    global = micro * m.dp * m.pp
    plan:put("batch.global", quote.value(global), "assumed")
    book:assume("batch.global", string.format("%d sequences: as many microbatches as there are stages; "
      .. "--set global-batch-size=N says another", global))
  elseif global % (micro * m.dp) ~= 0 then
    book:refuse("global_batch_size", string.format("%d sequences are no multiple of microbatches of %d on %d "
      .. "data-parallel ranks; --world N says how many ranks there are", global, micro, m.dp))
  end
  local key = book:first("seq_length", "dataset.seq_length", "dataset.sequence_length", "max_position_embeddings")
  local seq = key and values.whole(book, key, 1)
  if seq and m.seq_limit and seq > m.seq_limit then
    book:refuse(key, string.format("%d tokens are more than max-position-embeddings = %d", seq, m.seq_limit))
  end
  plan:put("batch.seq", quote.value(seq or 2048), key and book:leaf(key) or "assumed")
  for _, one in ipairs { "seq_length", "dataset.seq_length", "dataset.sequence_length" } do
    book:translated(one, "batch.seq")
  end
  if not seq then book:assume("batch.seq", "2048 tokens: the settings do not say it") end
  for _, one in ipairs { "rampup_batch_size", "step_batch_size_schedule" } do
    book:cannot(one, "a step has one size, that of the end")
  end
  return global
end

-- ---- the optimizer ----

-- A number of steps, said in steps or in samples.
local function steps_of(book, iters, samples, global)
  local n = values.whole(book, iters, 0)
  if n then return n, iters end
  n = values.whole(book, samples, 0)
  if n then return n // global, samples end
end

local STYLES = { constant = "constant", linear = "linear", cosine = "cosine" }

local RATE = { "min_lr", "lr_decay_style", "lr_decay_iters", "lr_decay_samples", "lr_warmup_iters",
               "lr_warmup_samples", "lr_warmup_fraction", "lr_warmup_init" }

local function put_rate(book, plan, steps, global)
  local lr = values.positive(book, "lr")
  if not lr then
    book:assume("optimizer.lr", "weft's default: the settings do not say it; --set lr=X says another")
    for _, key in ipairs(RATE) do book:cannot(key, "it shapes a rate that the settings do not say") end
    return
  end
  local style = book:value "lr_decay_style" or "linear"
  local known = STYLES[style]
  if not known then
    book:cannot("lr_decay_style", "the shapes of weft are cosine, linear and constant: the plan has linear")
    known = "linear"
  end
  plan:head("optimizer.lr", "weft." .. known)
  plan:put("optimizer.lr.max", quote.value(lr), book:leaf "lr")
  book:translated("lr", "optimizer.lr.max")
  book:translated("lr_decay_style", "optimizer.lr")
  local decay, decay_key = steps_of(book, "lr_decay_iters", "lr_decay_samples", global)
  local span = decay or steps
  if known ~= "constant" then
    plan:put("optimizer.lr.min", quote.value(values.positive(book, "min_lr") or 0),
             book:leaf "min_lr" or "Megatron's default")
    book:translated("min_lr", "optimizer.lr.min")
    if span then
      plan:put("optimizer.lr.steps", quote.value(math.max(span, 1)), decay_key and book:leaf(decay_key)
               or "Megatron's default: all steps")
    end
    if decay_key then book:translated(decay_key, "optimizer.lr.steps") end
  else
    for _, key in ipairs { "min_lr", "lr_decay_iters", "lr_decay_samples" } do
      book:no_effect(key, "the rate is constant")
    end
  end
  local warmup, key = steps_of(book, "lr_warmup_iters", "lr_warmup_samples", global)
  local share = values.positive(book, "lr_warmup_fraction")
  if share and span then warmup, key = math.floor(share * span), "lr_warmup_fraction" end
  plan:put("optimizer.lr.warmup", quote.value(warmup or 0), key and book:leaf(key) or "Megatron's default")
  if key then book:translated(key, "optimizer.lr.warmup") end
  if (warmup or 0) > 0 then
    book:assume("optimizer.lr", "the rise begins with a share of the rate in the first step, Megatron's with "
                .. "what --lr-warmup-init says, which is 0")
    if (values.positive(book, "lr_warmup_init") or 0) > 0 then
      book:cannot("lr_warmup_init", "the rate rises from 0, not from this")
    end
  end
  book:no_effect("lr_warmup_init", "it is 0, or there is no warmup")
end

local function put_sgd(book, plan)
  plan:head("optimizer", "weft.sgd")
  plan:put("optimizer.momentum", quote.value(values.positive(book, "sgd_momentum") or 0.9),
           book:leaf "sgd_momentum" or "Megatron's default")
  book:translated("sgd_momentum", "optimizer.momentum")
  book:translated("optimizer", "optimizer")
  for _, key in ipairs { "adam_beta1", "adam_beta2", "adam_eps" } do book:no_effect(key, "the optimizer is SGD") end
end

local function put_adam(book, plan)
  local kind = book:value "optimizer"
  plan:head("optimizer", "weft.adamw")
  if kind ~= nil and kind ~= "adam" then
    book:cannot("optimizer", quote.shown(kind) .. " is not in weft: the plan has AdamW, whose state is two "
                .. "averages of each parameter")
  end
  book:translated("optimizer", "optimizer")
  local b1, b2 = values.positive(book, "adam_beta1"), values.positive(book, "adam_beta2")
  plan:put("optimizer.betas", quote.value { b1 or 0.9, b2 or 0.999 },
           book:leaf "adam_beta1" or book:leaf "adam_beta2" or "Megatron's default")
  book:translated("adam_beta1", "optimizer.betas")
  book:translated("adam_beta2", "optimizer.betas")
  values.put_positive(book, plan, "adam_eps", "optimizer.eps")
  book:no_effect("sgd_momentum", "the optimizer is not SGD")
end

function training.put_optimizer(book, plan, steps, global)
  if book:value "optimizer" == "sgd" then put_sgd(book, plan) else put_adam(book, plan) end
  put_rate(book, plan, steps, global)
  plan:put("optimizer.weight_decay", quote.value(values.positive(book, "weight_decay") or 0.01),
           book:leaf "weight_decay" or "Megatron's default")
  book:translated("weight_decay", "optimizer.weight_decay")
  local clip = values.positive(book, "clip_grad")
  plan:put("optimizer.clip", quote.value(clip or 1.0), book:leaf "clip_grad" or "Megatron's default")
  book:translated("clip_grad", "optimizer.clip")
end

-- ---- data, steps, checkpoints ----

function training.put_train(book, plan, global)
  local steps, key = steps_of(book, "train_iters", "train_samples", global)
  if steps then
    plan:put("train.steps", quote.value(math.max(steps, 1)), book:leaf(key))
    book:translated(key, "train.steps")
  else
    book:assume("train.steps", "100, as without it: the settings do not say how long they train")
  end
  plan:put("train.seed", quote.value(values.whole(book, "seed", 0) or 1234), book:leaf "seed" or "Megatron's default")
  book:translated("seed", "train.seed")
  values.put_whole(book, plan, "log_interval", "train.log_every", 1)
  return steps
end

function training.put_data(book, plan)
  plan:put("data", "weft.synthetic {}", "made-up tokens")
  book:assume("data", "weft.synthetic, made-up tokens: a plan that names files needs them to be there")
  if on(book, "reset_attention_mask") or on(book, "reset_position_ids") then
    for _, key in ipairs { "reset_attention_mask", "reset_position_ids" } do
      book:cannot(key, "documents of a sequence are told apart by packed = { eot = ID }, with the id of the "
                  .. "tokenizer, which the settings do not say")
    end
  end
end

function training.put_checkpoint(book, plan)
  if not book:leaf "save" and book:value "save_interval" == nil then return end
  local dir = book:value "save"
  if type(dir) == "string" and values.folder(dir) then
    plan:put("checkpoint.dir", quote.text(dir), book:leaf "save")
    book:translated("save", "checkpoint.dir")
  else
    plan:put("checkpoint.dir", quote.text "checkpoints/", "a folder below the plan's")
    book:cannot("save", "a plan writes below its own folder: --set checkpoint.dir=DIR says another")
  end
  values.put_whole(book, plan, "save_interval", "checkpoint.every", 0)
  local async = values.flag(book, "async_save")
  plan:put("checkpoint.async", tostring(async == true), book:leaf "async_save" or "Megatron's default")
  book:translated("async_save", "checkpoint.async")
end

function training.put_timeout(book, plan)
  local minutes = values.positive(book, "distributed_timeout_minutes")
  if not minutes or minutes == 0 then return end
  plan:put("comm.timeout", quote.value(math.min(minutes * 60, 1000000)), book:leaf "distributed_timeout_minutes")
  book:translated("distributed_timeout_minutes", "comm.timeout")
end

-- ---- what the environment says ----

local NCCL = { NCCL_IB_SL = "ib_sl", NCCL_IB_TIMEOUT = "ib_timeout", NCCL_IB_TC = "ib_tc",
  NCCL_IB_QPS_PER_CONNECTION = "ib_qps_per_connection", NCCL_NVLS_ENABLE = "nvls_enable",
  NCCL_CUMEM_ENABLE = "cumem_enable", NCCL_CROSS_NIC = "cross_nic", NCCL_IB_GID_INDEX = "ib_gid_index",
  NCCL_MIN_NCHANNELS = "min_nchannels", NCCL_MAX_NCHANNELS = "max_nchannels" }
local NAMES = { NCCL_ALGO = "algo", NCCL_PROTO = "proto", NCCL_DEBUG = "debug", NCCL_NET_GDR_LEVEL = "net_gdr_level",
                NCCL_P2P_LEVEL = "p2p_level" }
local KNOWN = { ring = true, tree = true, collnetdirect = true, collnetchain = true, nvls = true, nvlstree = true,
  pat = true, ll = true, ll128 = true, simple = true, version = true, warn = true, info = true, trace = true,
  loc = true, pix = true, pxb = true, phb = true, sys = true, nvl = true }

function training.put_environment(book, plan)
  for _, leaf in ipairs(book.leaves) do
    local name = string.match(leaf.key, "^env%.(.*)$")
    if name and NCCL[name] and math.type(leaf.value) == "integer" then
      plan:put("nccl." .. NCCL[name], quote.value(leaf.value), leaf)
      book:translated(leaf.key, "nccl." .. NCCL[name])
    elseif name and NAMES[name] then
      local value = string.lower(tostring(leaf.value))
      if KNOWN[value] then
        plan:put("nccl." .. NAMES[name], quote.text(value), leaf)
        book:translated(leaf.key, "nccl." .. NAMES[name])
      else
        book:cannot(leaf.key, "nccl." .. NAMES[name] .. " takes one name")
      end
    end
  end
  if on(book, "deterministic_mode") then
    plan:put("deterministic", "true", book:leaf "deterministic_mode")
    book:translated("deterministic_mode", "deterministic")
  end
end

return training
