-- training.lua - what Megatron's arguments say of a run: batch, optimizer, data, checkpoints, and what the
-- environment says, as fields of a plan.
local quote = use "import/quote"
local rates = use "import/rates"
local unresolved = use("import/shell/value").unresolved
local values = use "import/values"
local training = {}

local function on(book, key) return values.flag(book, key) == true end

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
    local from = m.pp == 1 and "Megatron's default: one microbatch on each rank" or "assumed"
    plan:put("batch.global", quote.value(global), from)
    book:assume("batch.global", string.format("%d sequences%s; --set global-batch-size=N says another", global,
      m.pp == 1 and ", Megatron's default: one microbatch on each rank" or string.format(": as many microbatches as "
      .. "there are stages, where Megatron's default is one: %d", micro * m.dp)))
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

-- A number of steps, said in steps, in samples, or, as DeepSpeed's Megatron has it, in tokens.
local function steps_of(book, iters, samples, global)
  local n = values.whole(book, iters, 0)
  if n then return n, iters end
  n = values.whole(book, samples, 0)
  if n then return n // global, samples end
  local tokens, seq = string.gsub(samples, "samples$", "tokens"), values.whole(book, "seq_length", 1)
  n = seq and values.whole(book, tokens, 0)
  if n then return n // (global * seq), tokens end
end

local RATE = { "min_lr", "lr_decay_style", "lr_decay_iters", "lr_decay_samples", "lr_warmup_iters",
               "lr_warmup_samples", "lr_warmup_fraction", "lr_warmup_init", "lr_wsd_decay_style",
               "lr_wsd_decay_iters", "lr_wsd_decay_samples" }

-- The rise to the full rate, over so many steps or a share of those of the decay.
local function put_warmup(book, plan, span, global)
  local warmup, key = steps_of(book, "lr_warmup_iters", "lr_warmup_samples", global)
  local share = values.positive(book, "lr_warmup_fraction")
  if share and not span then
    plan:put("optimizer.lr.warmup_ratio", quote.value(share), book:leaf "lr_warmup_fraction")
    book:translated("lr_warmup_fraction", "optimizer.lr.warmup_ratio")
    return 1
  elseif share then
    warmup, key = math.floor(share * span), "lr_warmup_fraction"
  end
  plan:put("optimizer.lr.warmup", quote.value(warmup or 0), key and book:leaf(key) or "Megatron's default")
  if key then book:translated(key, "optimizer.lr.warmup") end
  return warmup or 0
end

local function say_rise(book, warmup)
  if warmup > 0 then
    book:assume("optimizer.lr", "the rise begins with a share of the rate in the first step, Megatron's with "
                .. "what --lr-warmup-init says, which is 0")
    if (values.positive(book, "lr_warmup_init") or 0) > 0 then
      book:cannot("lr_warmup_init", "the rate rises from 0, not from this")
    end
  end
  book:no_effect("lr_warmup_init", "it is 0, or there is no warmup")
end

local function put_stable(book, plan, global)
  local steps, key = steps_of(book, "lr_wsd_decay_iters", "lr_wsd_decay_samples", global)
  if not steps then
    return book:refuse("lr_decay_style", "WSD needs --lr-wsd-decay-iters, the steps in which the rate falls")
  end
  rates.put_fall(book, plan, steps, key, "lr_wsd_decay_style", "exponential")
end

-- Where the rate goes from its maximum, and until which step.
local function put_fall(book, plan, shape, steps, global)
  local decay, key = steps_of(book, "lr_decay_iters", "lr_decay_samples", global)
  local span = decay or steps
  if shape == "constant" then
    for _, one in ipairs { "min_lr", "lr_decay_iters", "lr_decay_samples" } do
      book:no_effect(one, "the rate is constant")
    end
    return span
  end
  rates.put_least(book, plan, "min_lr", 0, "Megatron's default")
  if shape == "inverse_sqrt" then
    if key then rates.end_of_root(book, key, decay, steps) end
    return span
  end
  if span then
    plan:put("optimizer.lr.steps", quote.value(math.max(span, 1)), decay and book:leaf(key)
             or "Megatron's default: all steps")
  end
  if key then book:translated(key, "optimizer.lr.steps") end
  if shape == "wsd" then put_stable(book, plan, global) end
  return span
end

local function put_rate(book, plan, steps, global)
  local lr = values.positive(book, "lr")
  if not lr then
    book:assume("optimizer.lr", "weft's default: the settings do not say it; --set lr=X says another")
    for _, key in ipairs(RATE) do book:cannot(key, "it shapes a rate that the settings do not say") end
    return
  end
  local style = book:value "lr_decay_style" or "linear"
  local shape = rates.shapes[style]
  if not shape then
    return book:refuse("lr_decay_style", string.format("%s: expected constant, linear, cosine, "
                       .. "inverse-square-root or WSD", quote.shown(style)))
  end
  plan:head("optimizer.lr", "weft." .. shape)
  plan:put("optimizer.lr.max", quote.value(lr), book:leaf "lr")
  book:translated "lr"
  book:translated "lr_decay_style"
  local span = put_fall(book, plan, shape, steps, global)
  local warmup = put_warmup(book, plan, span, global)
  if shape == "inverse_sqrt" and warmup == 0 then
    plan:put("optimizer.lr.timescale", "1", "there is no warmup")
    book:cannot("lr_decay_style", "without a warmup the rate falls with the root of the samples there; here with "
                .. "that of the steps: it is larger")
  end
  say_rise(book, warmup)
end

local function put_sgd(book, plan)
  plan:head("optimizer", "weft.sgd")
  plan:put("optimizer.momentum", quote.value(values.positive(book, "sgd_momentum") or 0.9),
           book:leaf "sgd_momentum" or "Megatron's default")
  book:translated "sgd_momentum"
  book:translated "optimizer"
  for _, key in ipairs { "adam_beta1", "adam_beta2", "adam_eps", "lion_beta1", "lion_beta2" } do
    book:no_effect(key, "the optimizer is SGD")
  end
end

local function put_lion(book, plan)
  plan:head("optimizer", "weft.lion")
  local b1, b2 = values.positive(book, "lion_beta1"), values.positive(book, "lion_beta2")
  plan:put("optimizer.betas", quote.value { b1 or 0.95, b2 or 0.98 },
           book:leaf "lion_beta1" or book:leaf "lion_beta2" or "Megatron's default")
  for _, key in ipairs { "lion_beta1", "lion_beta2", "optimizer" } do book:translated(key, "optimizer") end
  for _, key in ipairs { "adam_beta1", "adam_beta2", "adam_eps", "sgd_momentum" } do
    book:no_effect(key, "the optimizer is Lion")
  end
end

-- What AdamW has of its own, which Muon has for all but matrices of layers.
local function put_averages(book, plan)
  local b1, b2 = values.positive(book, "adam_beta1"), values.positive(book, "adam_beta2")
  plan:put("optimizer.betas", quote.value { b1 or 0.9, b2 or 0.999 },
           book:leaf "adam_beta1" or book:leaf "adam_beta2" or "Megatron's default")
  book:translated "adam_beta1"
  book:translated "adam_beta2"
  values.put_positive(book, plan, "adam_eps", "optimizer.eps")
end

-- Scales of the step of a matrix, which Megatron multiplies by --muon-extra-scale-factor, and
-- the factor that is in weft's.
local SCALES = {
  spectral = { "match_rms_adamw", 0.2 }, shape_scaling = { "original", 1 },
  unit_rms_norm = { "spectral_unclamped", 1 },
}

local function put_scale(book, plan)
  local mode, factor = book:value "muon_scale_mode" or "spectral", values.positive(book, "muon_extra_scale_factor")
  local scale = SCALES[mode]
  if not scale then return book:refuse("muon_scale_mode", quote.shown(mode) .. " is not in weft") end
  plan:put("optimizer.adjust_lr", quote.text(scale[1]), book:leaf "muon_scale_mode" or "Megatron's default")
  book:translated "muon_scale_mode"
  if (factor or 1) == scale[2] then
    book:translated "muon_extra_scale_factor"
  elseif factor then
    book:cannot("muon_extra_scale_factor", string.format("adjust_lr = %q has the factor %g: the steps of matrices are "
                .. "as much shorter or longer", scale[1], scale[2]))
  else
    book:assume("optimizer.adjust_lr", string.format("it has the factor %g, where Megatron's without "
                .. "--muon-extra-scale-factor has 1", scale[2]))
  end
end

local function put_muon(book, plan)
  plan:head("optimizer", "weft.muon")
  book:translated "optimizer"
  local momentum, steps = values.positive(book, "muon_momentum"), values.whole(book, "muon_num_ns_steps", 1)
  plan:put("optimizer.momentum", quote.value(momentum or 0.9), book:leaf "muon_momentum" or "Megatron's default")
  book:translated "muon_momentum"
  if steps then plan:put("optimizer.ns_steps", quote.value(steps), book:leaf "muon_num_ns_steps") end
  book:translated "muon_num_ns_steps"
  local ahead = book:value "muon_use_nesterov" or book:value "muon_nesterov"
  plan:put("optimizer.nesterov", quote.value(ahead and true or false),
           book:leaf "muon_use_nesterov" or book:leaf "muon_nesterov" or "Megatron's default")
  for _, key in ipairs { "muon_use_nesterov", "muon_nesterov" } do book:translated(key, "optimizer.nesterov") end
  put_scale(book, plan)
  put_averages(book, plan)
  book:assume("optimizer", "matrices are those of Hugging Face's files, over all ranks of tp: gate and up apart, where "
              .. "Megatron has them as one, and without --muon-tp-mode takes each rank's part for a matrix")
  for _, key in ipairs { "sgd_momentum", "lion_beta1", "lion_beta2" } do book:no_effect(key, "the optimizer is Muon") end
end

local function put_adam(book, plan)
  local kind = book:value "optimizer"
  local apart = book:value "decoupled_weight_decay" ~= false
  plan:head("optimizer", apart and "weft.adamw" or "weft.adam")
  book:translated("decoupled_weight_decay", "optimizer")
  if kind ~= nil and kind ~= "adam" then
    book:cannot("optimizer", quote.shown(kind) .. " is not in weft: the plan has AdamW, whose state is two "
                .. "averages of each parameter")
  end
  book:translated "optimizer"
  put_averages(book, plan)
  book:no_effect("sgd_momentum", "the optimizer is not SGD")
  for _, key in ipairs { "lion_beta1", "lion_beta2" } do book:no_effect(key, "the optimizer is not Lion") end
  local m, v = tostring(book:value "exp_avg_dtype"), tostring(book:value "exp_avg_sq_dtype")
  if book:value "use_precision_aware_optimizer" and m == v and (m == "bf16" or m == "torch.bfloat16") then
    plan:put("optimizer.state_dtype", quote.text "bf16", book:leaf "exp_avg_dtype")
    for _, key in ipairs { "use_precision_aware_optimizer", "exp_avg_dtype", "exp_avg_sq_dtype" } do
      book:translated(key, "optimizer.state_dtype")
    end
  end
end

local KINDS = { sgd = put_sgd, lion = put_lion, muon = put_muon, dist_muon = put_muon }

function training.put_optimizer(book, plan, steps, global)
  local kind = KINDS[book:value "optimizer"] or put_adam
  kind(book, plan)
  put_rate(book, plan, steps, global)
  plan:put("optimizer.weight_decay", quote.value(values.positive(book, "weight_decay") or 0.01),
           book:leaf "weight_decay" or "Megatron's default")
  book:translated "weight_decay"
  local clip = values.positive(book, "clip_grad")
  plan:put("optimizer.clip", quote.value(clip or 1.0), book:leaf "clip_grad" or "Megatron's default")
  book:translated "clip_grad"
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
  book:translated "seed"
  values.put_whole(book, plan, "log_interval", "train.log_every", 1)
  values.put_whole(book, plan, "check_weight_hash_across_dp_replicas_interval",
    "train.check_replicas_every", 1)
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
    book:translated "save"
  else
    plan:put("checkpoint.dir", quote.text "checkpoints/", "a folder below the plan's")
    book:cannot("save", "a plan writes below its own folder: --set checkpoint.dir=DIR says another")
  end
  values.put_whole(book, plan, "save_interval", "checkpoint.every", 0)
  local async = values.flag(book, "async_save")
  plan:put("checkpoint.async", tostring(async == true), book:leaf "async_save" or "Megatron's default")
  book:translated "async_save"
end

function training.put_timeout(book, plan)
  local minutes = values.positive(book, "distributed_timeout_minutes")
  if not minutes or minutes == 0 then return end
  plan:put("comm.timeout", quote.value(math.min(minutes * 60, 1000000)), book:leaf "distributed_timeout_minutes")
  book:translated "distributed_timeout_minutes"
end

-- ---- what the environment says ----

-- Fields of plan.nccl, which are NCCL's variables in small letters, by what they hold.
local NCCL = {}
for kind, names in pairs {
  integer = "ib_sl ib_timeout ib_tc ib_qps_per_connection ib_retry_cnt ib_gid_index nvls_enable cumem_enable cross_nic "
    .. "min_nchannels max_nchannels buffsize cga_cluster_size nsocks_perthread socket_nthreads",
  switch = "ib_disable ignore_cpu_affinity p2p_disable shm_disable",
  text = "debug_file debug_subsys hostid ib_hca net socket_ifname topo_file",
} do
  for name in string.gmatch(names, "%S+") do NCCL["NCCL_" .. string.upper(name)] = { "nccl." .. name, kind } end
end

-- The value of a variable as its field takes it; nil: it does not.
local function held(kind, value)
  if kind == "integer" then return math.type(value) == "integer" and quote.value(value) or nil end
  if kind == "switch" then return (value == 0 or value == 1) and tostring(value == 1) or nil end
  return not unresolved(tostring(value)) and quote.text(tostring(value)) or nil
end

local LEVELS = { loc = true, nvl = true, pix = true, pxb = true, phb = true, sys = true }
local NAMES = {
  NCCL_ALGO = { "algo", { ring = true, tree = true, collnetdirect = true, collnetchain = true, nvls = true,
                          nvlstree = true, pat = true } },
  NCCL_PROTO = { "proto", { ll = true, ll128 = true, simple = true } },
  NCCL_DEBUG = { "debug", { version = true, warn = true, info = true, trace = true } },
  NCCL_NET_GDR_LEVEL = { "net_gdr_level", LEVELS }, NCCL_P2P_LEVEL = { "p2p_level", LEVELS },
}

function training.put_environment(book, plan)
  for _, leaf in ipairs(book.leaves) do
    local name = string.match(leaf.key, "^env%.(.*)$")
    local known = NCCL[name]
    local source = known and held(known[2], leaf.value)
    if source then
      plan:put(known[1], source, leaf)
      book:translated(leaf.key, known[1])
    elseif name and NAMES[name] then
      local value = string.lower(tostring(leaf.value))
      local field = "nccl." .. NAMES[name][1]
      if NAMES[name][2][value] then
        plan:put(field, quote.text(value), leaf)
        book:translated(leaf.key, field)
      else
        book:cannot(leaf.key, field .. " takes one of the names that weft check tells")
      end
    end
  end
  if on(book, "deterministic_mode") then
    plan:put("deterministic", "true", book:leaf "deterministic_mode")
    book:translated "deterministic_mode"
  end
end

return training
