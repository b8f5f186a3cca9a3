-- nanotron.lua - nanotron's settings (YAML) as fields of a plan. What does not take part in the
-- plan is in left_out.lua.
local model_field = use "import/model_field"
local quote = use "import/quote"
local left_out = use "import/nanotron/left_out"
local scalar = use "import/scalar"
local values = use "import/values"

local nanotron = { name = "nanotron", fields = use "import/nanotron/fields", absent = {},
                   describe = "settings of nanotron (parallelism.dp, tokens, model.model_config)" }

function nanotron.is(leaves)
  return leaves.at["tokens.batch_accumulation_per_replica"] ~= nil or leaves.at["parallelism.tp_mode"] ~= nil
    or leaves.at["parallelism.pp_engine"] ~= nil or leaves.at["model.model_config.is_llama_config"] ~= nil
    or leaves.at["parallelism.dp"] ~= nil and leaves.at["parallelism.tp"] ~= nil
end

-- ---- the model ----

local M = "model.model_config."
-- Keys of nanotron's configuration classes, with their defaults there.
local SIZES = {
  { "hidden_size", 4096 }, { "intermediate_size", 11008 }, { "num_hidden_layers", 32 },
  { "num_attention_heads", 32 }, { "vocab_size", 32000 }, { "max_position_embeddings", 2048 },
}

local function refuse_other_model(book)
  for _, leaf in ipairs(book.leaves) do
    local kind = string.match(leaf.key, "^model%.model_config%.is_(%w+)_config$")
    if kind and leaf.value == true and kind ~= "llama" and kind ~= "qwen2" then
      return true, book:refuse(leaf.key, string.format("weft has nanotron's llama and qwen2, not %s; "
        .. "--model NAME makes the plan with another model", quote.shown(kind)))
    end
    if string.find(leaf.key, "^model%.model_config%.moe_") and leaf.value ~= scalar.null then
      return true, book:refuse(leaf.key, "layers of nanotron's experts are not an architecture that "
        .. "weft has; --model NAME makes the plan with another model")
    end
  end
end

local function put_numbers(book, config)
  for _, name in ipairs { "rms_norm_eps", "rope_theta" } do
    local n = values.positive(book, M .. name)
    config[name] = n or (name == "rms_norm_eps" and 1e-6 or 10000.0)
    book:translated(M .. name, "model." .. name)
  end
  if book:value(M .. "is_qwen2_config") ~= true then
    book:no_effect(M .. "attention_bias", "nanotron's Llama has no biases")
  end
  for _, name in ipairs { "tie_word_embeddings", "attention_bias" } do
    config[name] = values.flag(book, M .. name) or false
    book:translated(M .. name, "model")
  end
  local stretch = values.positive(book, M .. "rope_seq_len_interpolation_factor")
  if stretch and stretch > 1 then config.rope_scaling = { rope_type = "linear", factor = stretch } end
  book:translated(M .. "rope_seq_len_interpolation_factor")
  local std = values.positive(book, "model.init_method.std")
  if std and std > 0 then
    config.initializer_range = std
    book:cannot("model.init_method.std", "model.initializer_range; the last weights of a layer begin "
                .. "smaller there, by its depth")
  end
  local act = book:value(M .. "hidden_act")
  if act ~= nil then config.hidden_act = act end
  book:translated(M .. "hidden_act", "model.hidden_act")
end

-- All layers see so many tokens, themselves the last.
local function put_window(book, config)
  local key = M .. "sliding_window_size"
  local tokens = values.whole(book, key, 1)
  if not tokens then return end
  config.sliding_window = tokens
  if config[1] == "qwen2" then
    config.use_sliding_window, config.max_window_layers = true, 0
  else
    config[1] = "mistral"
  end
  book:translated(key, "model.sliding_window")
end

-- Layers without positions between those with them, which SmolLM3 has.
local function put_still(book, config)
  local key = M .. "no_rope_layer"
  local every = values.whole(book, key, 1)
  if not every or config[1] ~= "llama" or book:value(M .. "is_qwen2_config") ~= true then return end
  config[1], config.no_rope_layer_interval = "smollm3", every
  book:translated(key, "model.no_rope_layer_interval")
end

-- nanotron's Qwen2 has biases only where it is told; without them its layers are Llama's.
local function own_config(book, tp)
  if refuse_other_model(book) then return nil end
  local config = {}
  for _, size in ipairs(SIZES) do
    config[size[1]] = values.whole(book, M .. size[1], 1) or size[2]
    book:translated(M .. size[1], "model." .. size[1])
  end
  config.num_key_value_heads = values.whole(book, M .. "num_key_value_heads", 1) or config.num_attention_heads
  book:translated(M .. "num_key_value_heads", "model.num_key_value_heads")
  put_numbers(book, config)
  local biases = config.attention_bias and book:value(M .. "is_qwen2_config") == true
  config[1], config.attention_bias = biases and "qwen2" or "llama", nil
  put_window(book, config)
  put_still(book, config)
  local multiple = (values.whole(book, "model.make_vocab_size_divisible_by", 1) or 1) * tp
  config.vocab_size = (config.vocab_size + multiple - 1) // multiple * multiple
  book:translated("model.make_vocab_size_divisible_by", "model.vocab_size, which is rounded up to it "
                  .. "times tp")
  return config
end

local function put_model(book, plan, options, tp)
  if options.model then return model_field.put(plan, book, { changes = {} }, options.model) end
  if not book:has "model.model_config" then
    return book:refuse(nil, "the settings name no model (model.model_config): give one by --model DIR "
                            .. "or --model NAME")
  end
  local config = own_config(book, tp)
  if config then model_field.write(plan, config, nil, "model.model_config, and nanotron's defaults") end
  return config
end

-- ---- ranks and strategy ----

local P = "parallelism."
local AXES = { { "tp", "tp" }, { "pp", "pp" }, { "cp", "context_parallel_size" },
               { "ep", "expert_parallel_size" }, { "dp", "dp" } }

local function put_mesh(book, plan, options)
  local m = {}
  for _, axis in ipairs(AXES) do
    local name, key = axis[1], P .. axis[2]
    m[name] = values.whole(book, key, 1) or 1
    if name ~= "dp" and m[name] > 1 then plan:put("mesh." .. name, quote.value(m[name]), book:leaf(key)) end
    if name ~= "dp" then book:translated(key, "mesh." .. name) end
  end
  if m.ep > 1 then
    book:cannot(P .. "expert_parallel_size", "mesh.ep shares experts among ranks of dp, cp and tp; there "
                .. "they are ranks of their own")
  end
  if options.world then
    plan:put("mesh.world", quote.value(options.world), "--world")
    book:no_effect(P .. "dp", "--world says how many ranks there are")
    m.dp = math.max(options.world // (m.tp * m.pp * m.cp), 1)
  else
    plan:put("mesh.dp", quote.value(m.dp), book:leaf(P .. "dp") or "nanotron's default")
    book:translated(P .. "dp")
  end
  return m
end

local MODES = { ALL_REDUCE = false, REDUCE_SCATTER = true }

local function put_tensor(book, plan, m)
  local mode, async = P .. "tp_mode", P .. "tp_linear_async_communication"
  local name = string.upper(tostring(book:value(mode) or "ALL_REDUCE"))
  if MODES[name] == nil then
    return book:refuse(mode, string.format("%s = %s: expected ALL_REDUCE or REDUCE_SCATTER", mode,
                                           quote.shown(name)))
  end
  if m.tp == 1 then
    for _, key in ipairs { mode, async, P .. "tp_recompute_allgather" } do
      book:no_effect(key, "without tp there is nothing to cut")
    end
    return
  end
  plan:put("strategy.sequence_parallel", tostring(MODES[name]), book:leaf(mode) or "nanotron's default")
  book:translated(mode, "strategy.sequence_parallel")
  plan:put("strategy.overlap_tp", tostring(values.flag(book, async) or false),
           book:leaf(async) or "nanotron's default")
  book:translated(async, "strategy.overlap_tp")
  if values.flag(book, P .. "tp_recompute_allgather") == false then
    book:cannot(P .. "tp_recompute_allgather", "what was gathered is gathered again in the backward: "
                .. "less memory, more transfers")
  end
end

local function put_strategy(book, plan, m)
  local stage = values.whole(book, "optimizer.zero_stage", 0) or 0
  if stage > 1 then
    book:refuse("optimizer.zero_stage", "nanotron has stages 0 and 1")
  end
  plan:put("strategy.#", quote.text "zero", "nanotron")
  plan:put("strategy.stage", quote.value(stage), book:leaf "optimizer.zero_stage" or "nanotron's default")
  book:translated "optimizer.zero_stage"
  put_tensor(book, plan, m)
  local mb = values.positive(book, "model.ddp_bucket_cap_mb")
  if mb and mb > 0 then
    plan:put("strategy.bucket_bytes", quote.value(math.max(1, math.floor(mb * 1048576))),
             book:leaf "model.ddp_bucket_cap_mb")
    book:translated "model.ddp_bucket_cap_mb"
  end
end

local ENGINES = { afab = "gpipe", ["1f1b"] = "1f1b" }

local function put_pipeline(book, plan, m)
  local key = P .. "pp_engine"
  if m.pp == 1 then return book:no_effect(key, "there is one pipeline stage") end
  local name = book:value(key) or "afab"
  if not ENGINES[name] then
    return book:refuse(key, string.format("%s = %s: expected afab or 1f1b", key, quote.shown(name)))
  end
  plan:put("schedule", quote.text(ENGINES[name]), book:leaf(key) or "nanotron's default")
  book:translated(key, "schedule")
  plan:put("pp_plan.balance", quote.text "cost", "nanotron cuts by the work of modules")
  book:assume("pp_plan", "stages of equal work, as nanotron's, which counts it in another way")
end

local function put_compute(book, plan, m)
  if m.cp > 1 then
    plan:put("cp.comm", quote.text "allgather", "nanotron's llama3_ring_attention")
    plan:put("cp.balance", quote.text "none", "each rank has one run of the sequence")
  end
  local kind = values.type_of(book, "model.dtype") or "bf16"
  plan:put("precision.param_dtype", quote.text(kind), book:leaf "model.dtype" or "nanotron's default")
  book:translated "model.dtype"
  local sums = "optimizer.accumulate_grad_in_fp32"
  if values.flag(book, sums) == false and kind ~= "f32" then
    book:cannot(sums, "gradients add up in f32, and there are f32 master weights: more memory, better "
                .. "sums")
  else
    book:translated(sums, "gradients add up in f32, as they do always")
  end
  if values.flag(book, P .. "recompute_layer") then
    plan:put("recompute", quote.text "full", book:leaf(P .. "recompute_layer"))
    return book:translated(P .. "recompute_layer")
  end
  book:no_effect(P .. "recompute_layer", "it is off, as without it")
end

-- ---- training ----

local function put_batch(book, plan, m)
  local micro = values.whole(book, "tokens.micro_batch_size", 1) or 1
  local each = values.whole(book, "tokens.batch_accumulation_per_replica", 1) or 1
  plan:put("batch.global", quote.value(micro * each * m.dp),
           book:leaf "tokens.batch_accumulation_per_replica")
  plan:put("batch.micro", quote.value(micro), book:leaf "tokens.micro_batch_size")
  book:translated "tokens.micro_batch_size"
  book:translated("tokens.batch_accumulation_per_replica", "batch.global / (batch.micro * dp)")
  if not values.put_whole(book, plan, "tokens.sequence_length", "batch.seq", 1) then
    plan:put("batch.seq", "2048", "assumed")
    book:assume("batch.seq", "2048 tokens; tokens.sequence_length=N behind the file says another")
  end
  values.put_whole(book, plan, "tokens.train_steps", "train.steps", 1)
  values.put_whole(book, plan, "general.seed", "train.seed", 0)
  values.put_whole(book, plan, "logging.iteration_step_info_interval", "train.log_every", 1)
end

local R = "optimizer.learning_rate_scheduler."
local FALLS = { linear = "linear", cosine = "cosine", ["1-sqrt"] = "minus_sqrt" }

-- Puts the step at which the rate is at its least; of one that stays at its maximum behind its rise, or
-- falls with a root, the steps of the fall. Returns the builder.
local function put_fall(book, plan, warmup, rise, along)
  local start_key, steps_key = R .. "lr_decay_starting_step", R .. "lr_decay_steps"
  local start, steps = values.whole(book, start_key, 0) or warmup, values.whole(book, steps_key, 0)
  -- Without a number the fall has as many steps as are behind the warmup, wherever it begins: reading
  -- its settings nanotron fills lr_decay_steps in, before the rate's own default is asked for.
  local train = values.whole(book, "tokens.train_steps", 1) or 100
  local last = math.max(start + (steps or math.max(train - warmup, 0)), 1)
  if steps or last ~= train then
    plan:put("optimizer.lr.steps", quote.value(last), steps and book:leaf(steps_key)
             or "nanotron's: train_steps - warmup more")
  end
  book:translated(steps_key, "optimizer.lr.steps, counted from the first step")
  if start <= rise and along ~= "minus_sqrt" then
    book:translated(start_key, "optimizer.lr: it falls from the end of the warmup on")
    return along
  end
  plan:put("optimizer.lr.decay", quote.value(math.max(last - start, 1)), book:leaf(start_key) or book:leaf(steps_key)
           or "nanotron's default: all behind the warmup")
  plan:put("optimizer.lr.decay_style", quote.text(along), book:leaf(R .. "lr_decay_style") or "nanotron's default")
  book:translated(start_key, "optimizer.lr.decay")
  return "wsd"
end

local function put_rate(book, plan)
  local lr = values.positive(book, R .. "learning_rate")
  if not lr then
    book:assume("optimizer.lr", "weft's default: the settings do not say it")
    return
  end
  local style = book:value(R .. "lr_decay_style") or "linear"
  if not FALLS[style] then
    return book:refuse(R .. "lr_decay_style", string.format("%s: expected linear, cosine or 1-sqrt",
                                                            quote.shown(style)))
  end
  local least = values.positive(book, R .. "min_decay_lr")
  plan:put("optimizer.lr.max", quote.value(lr), book:leaf(R .. "learning_rate"))
  plan:put("optimizer.lr.min", quote.value(least or lr), book:leaf(R .. "min_decay_lr")
           or "nanotron's default: the rate does not fall")
  local warmup = values.whole(book, R .. "lr_warmup_steps", 0) or 0
  local rise = warmup
  if book:value(R .. "lr_warmup_style") == "constant" then
    rise = 0
    book:translated(R .. "lr_warmup_steps", "optimizer.lr, which begins at its maximum")
  else
    plan:put("optimizer.lr.warmup", quote.value(warmup), book:leaf(R .. "lr_warmup_steps") or "nanotron's default")
    if warmup > 0 then
      book:assume("optimizer.lr", "the rise begins with a share of the rate in the first step, nanotron's with 0")
    end
  end
  plan:head("optimizer.lr", "weft." .. put_fall(book, plan, warmup, rise, FALLS[style]))
  for _, name in ipairs { "learning_rate", "lr_decay_style", "min_decay_lr", "lr_warmup_steps",
                          "lr_warmup_style" } do
    book:translated(R .. name, "optimizer.lr")
  end
end

local F = "optimizer.optimizer_factory."

local function put_optimizer(book, plan)
  local name = string.lower(tostring(book:value(F .. "name") or "adamw"))
  plan:head("optimizer", name == "sgd" and "weft.sgd" or "weft.adamw")
  if name == "sgd" or name == "adamw" then
    book:translated(F .. "name")
  else
    book:cannot(F .. "name", "not an optimizer that weft has: the plan has AdamW")
  end
  put_rate(book, plan)
  if name ~= "sgd" then
    local a, b = values.positive(book, F .. "adam_beta1"), values.positive(book, F .. "adam_beta2")
    if a and b then
      plan:put("optimizer.betas", quote.value { a, b }, book:leaf(F .. "adam_beta1"))
      book:translated(F .. "adam_beta1")
      book:translated(F .. "adam_beta2")
    end
    values.put_positive(book, plan, F .. "adam_eps", "optimizer.eps")
  end
  values.put_decay(book, plan, "optimizer.weight_decay", 0, "the settings do not say it")
  local clip = values.positive(book, "optimizer.clip_grad")
  plan:put("optimizer.clip", quote.value(clip or 0), book:leaf "optimizer.clip_grad" or "nanotron's default: none")
  book:translated "optimizer.clip_grad"
end

local function put_checkpoint(book, plan)
  local every = values.whole(book, "checkpoints.checkpoint_interval", 1)
  if not every then return end
  local key, dir = "checkpoints.checkpoints_path", book:value "checkpoints.checkpoints_path"
  if type(dir) == "string" and values.folder(dir) then
    plan:put("checkpoint.dir", quote.text(dir), book:leaf(key))
    book:translated(key, "checkpoint.dir")
  else
    plan:put("checkpoint.dir", quote.text "checkpoints", "a folder below the plan's")
    book:cannot(key, "a plan writes below its own folder: --set checkpoint.dir=DIR says another")
  end
  values.put_whole(book, plan, "checkpoints.checkpoint_interval", "checkpoint.every", 1)
  plan:put("checkpoint.keep", "0", "nanotron keeps all")
end

function nanotron.translate(book, plan, options)
  local m = put_mesh(book, plan, options)
  local config = put_model(book, plan, options, m.tp)
  if not config then return book:apply_early(left_out) end
  put_strategy(book, plan, m)
  put_pipeline(book, plan, m)
  put_compute(book, plan, m)
  put_batch(book, plan, m)
  put_optimizer(book, plan)
  put_checkpoint(book, plan)
  plan:put("data", "weft.synthetic {}", "made-up tokens")
  book:assume("data", "weft.synthetic, made-up tokens")
  book:apply(left_out)
end

return nanotron
