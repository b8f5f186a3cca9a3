-- automodel_training.lua - what a NeMo AutoModel recipe says of training: batch and sequences, the
-- optimizer, data, steps and checkpoints as fields of a plan.
local quote = use "import/quote"
local rates = use "import/rates"
local scalar = use "import/scalar"
local values = use "import/values"

-- ---- batch and sequences ----

local ASSUMED_SEQ = 2048

local function sequence_of(book, config)
  local size = values.whole(book, "packed_sequence.packed_sequence_size", 0)
  if size and size > 0 then return size, "packed_sequence.packed_sequence_size" end
  for _, key in ipairs { "packed_sequence.pack_size", "dataset.seq_len", "dataset.seq_length",
                         "dataset.max_length", "dataloader.collate_fn.max_length",
                         "distributed.pipeline.pp_seq_len", "recipe_args.seq_length" } do
    local n = values.whole(book, key, 1)
    if n then return n, key end
  end
  local most = scalar.integer(config.max_position_embeddings or ASSUMED_SEQ) or ASSUMED_SEQ
  return math.min(ASSUMED_SEQ, most)
end

local function put_batch(book, plan, m, config)
  local global = values.put_whole(book, plan, "step_scheduler.global_batch_size", "batch.global", 1)
  -- The first versions had dataloader.batch_size, and how many of them make a step.
  local key = book:first("step_scheduler.local_batch_size", "dataloader.batch_size")
    or "step_scheduler.local_batch_size"
  local locally, each = values.whole(book, key, 1), values.whole(book, "step_scheduler.grad_acc_steps", 1)
  local micro, micro_key = locally, key
  if not global and each then
    global = (locally or 1) * m.dp * each
    plan:put("batch.global", quote.value(global), book:leaf "step_scheduler.grad_acc_steps")
    book:translated("step_scheduler.grad_acc_steps", "batch.global / (batch.micro * dp)")
  elseif not global then
    global = (locally or 1) * m.dp
    plan:put("batch.global", quote.value(global), "assumed")
    book:assume("batch.global", string.format("%d sequences: one local batch on each rank", global))
  end
  if m.pp > 1 then
    micro = values.whole(book, "distributed.pipeline.pp_microbatch_size", 1)
    micro_key = "distributed.pipeline.pp_microbatch_size"
    book:translated(micro_key, "batch.micro")
  end
  plan:put("batch.micro", quote.value(micro or 1), book:leaf(micro_key) or "AutoModel's default")
  if each then book:no_effect("step_scheduler.grad_acc_steps", "step_scheduler.global_batch_size says it") end
  book:translated(key, m.pp > 1 and "batch.rounds" or "batch.micro")
  local rounds = locally and global // math.max(locally * m.dp, 1) or 1
  if m.pp > 1 and rounds > 1 and global % (locally * m.dp) == 0 then
    plan:put("batch.rounds", quote.value(rounds), book:leaf(key))
  end
  local seq, seq_key = sequence_of(book, config)
  plan:put("batch.seq", quote.value(seq), seq_key and book:leaf(seq_key) or "assumed")
  if seq_key then return book:translated(seq_key, "batch.seq"), seq end
  book:assume("batch.seq", string.format("%d tokens: each batch is as long as its longest sample "
    .. "there; dataset.seq_length=N behind the file says another", seq))
end

-- The token that ends a document: which one it is does not change sizes.
local function put_packed(book, plan)
  local key, size = book:first("packed_sequence.packed_sequence_size", "packed_sequence.pack_size")
  size = size and scalar.integer(size)
  if not size or size < 1 then
    return book:no_effect("packed_sequence.packed_sequence_size", "sequences are not packed")
  end
  plan:put("packed.eot", "0", "assumed: the id of the tokenizer is not in the settings")
  plan:put("packed.size", quote.value(size), book:leaf(key))
  plan:put("packed.labels", quote.text "within", "labels do not cross documents")
  book:translated(key, "packed.size and batch.seq")
  book:assume("packed.eot", "0 is the token that ends a document; set the one of the tokenizer")
  if book:value "packed_sequence.drop_long_samples" == true then
    plan:put("packed.too_long", quote.text "drop", book:leaf "packed_sequence.drop_long_samples")
    book:translated("packed_sequence.drop_long_samples", "packed.too_long")
  end
end

-- ---- the optimizer ----

local ADAM = { ["torch.optim.Adam"] = "L2", ["torch.optim.AdamW"] = "AdamW" }

local function put_kind(book, decay)
  local key = "optimizer._target_"
  local value = book:value(key)
  if value == nil then return end
  local name = string.match(tostring(value), "([^.]*)$")
  if name == "Adam" and decay > 0 then
    book:cannot(key, "Adam adds decay to the gradient; AdamW, which the plan has, to the step")
  elseif ADAM[value] or name == "FusedAdam" or name == "FlashAdamW" or name == "AdamW" then
    book:translated(key, "optimizer")
  else
    book:cannot(key, string.format("%s is not in weft: the plan has AdamW with these numbers",
                                   quote.shown(name)))
  end
end

-- What a plan has if it does not say train.steps.
local USUAL_STEPS = 100

-- Steps of the rise to the full rate: as given, or AutoModel's share of all steps, which without
-- max_steps are those of the epochs, and so of the data: then a share of those that the plan has.
local function put_warmup(book, plan, steps)
  local key, field = "lr_scheduler.lr_warmup_steps", "optimizer.lr.warmup"
  local given = values.put_whole(book, plan, key, field, 0)
  if given then return given end
  local n = math.min(1000, (steps or USUAL_STEPS) // 10)
  plan:put(field, quote.value(n), "AutoModel's default: a tenth of the steps, at most 1000")
  if not steps then
    book:assume(field, string.format("%d, a tenth of the %d steps assumed: AutoModel takes a tenth of those "
                                     .. "of all epochs, at most 1000", n, USUAL_STEPS))
  end
  return n
end

local L = "lr_scheduler."

-- Where the rate goes from its maximum, and until which step.
local function put_fall(book, plan, shape, lr, steps)
  if shape == "constant" then return book:no_effect(L .. "min_lr", "the rate is constant") end
  rates.put_least(book, plan, L .. "min_lr", tonumber(string.format("%.9g", lr / 100)),
                  "AutoModel's default: 1 % of lr")
  if shape == "inverse_sqrt" then
    local at = values.whole(book, L .. "lr_decay_steps", 1)
    return rates.end_of_root(book, L .. "lr_decay_steps", at, steps)
  end
  if values.put_whole(book, plan, L .. "lr_decay_steps", "optimizer.lr.steps", 1) == nil and steps then
    plan:put("optimizer.lr.steps", quote.value(steps), "AutoModel's default: all steps")
  end
  if shape ~= "wsd" then return end
  local decay = values.whole(book, L .. "wsd_decay_steps", 1)
  if not decay then
    return book:refuse(L .. "lr_decay_style", "WSD needs wsd_decay_steps, the steps in which the rate falls")
  end
  rates.put_fall(book, plan, decay, L .. "wsd_decay_steps", L .. "lr_wsd_decay_style")
end

local function say_rise(book, warmup)
  local key = L .. "init_lr"
  local first = values.positive(book, key)
  if warmup == 0 then
    book:no_effect(key, "there is no warmup")
  elseif first == 0 then
    book:translated(key, "optimizer.lr, which rises from 0")
  elseif first then
    book:cannot(key, "the rate rises from 0, not from this")
  else
    book:assume("optimizer.lr", "AutoModel's warmup rises from a tenth of lr, here it is from 0")
  end
end

local function put_rate(book, plan, lr, steps)
  local key = "optimizer.lr"
  if not book:has "lr_scheduler" then
    plan:put("optimizer.lr", quote.value(lr), book:leaf(key))
    return book:translated(key, "optimizer.lr")
  end
  local style_key, style = book:first(L .. "lr_decay_style", L .. "schedule")
  local shape = rates.shapes[style or "cosine"]
  if not shape then
    return book:refuse(style_key, string.format("%s: expected constant, linear, cosine, inverse-square-root "
                       .. "or WSD", quote.shown(style)))
  end
  book:translated(style_key or key, "optimizer.lr")
  plan:head("optimizer.lr", "weft." .. shape)
  values.put_positive(book, plan, L .. "max_lr", "optimizer.lr.max")
  plan:put("optimizer.lr.max", quote.value(lr), book:leaf(key))
  book:translated(key, "optimizer.lr.max")
  put_fall(book, plan, shape, lr, steps)
  local warmup = put_warmup(book, plan, steps)
  if shape == "inverse_sqrt" and warmup == 0 then
    plan:put("optimizer.lr.timescale", "1", "there is no warmup")
    book:assume("optimizer.lr", "without a warmup the rate is that of AutoModel one step later")
  end
  say_rise(book, warmup)
end

local STATES = { ["torch.float32"] = "f32", ["torch.bfloat16"] = "bf16" }

local function put_optimizer(book, plan, steps)
  plan:head("optimizer", "weft.adamw")
  local lr = values.positive(book, "optimizer.lr")
  if lr then put_rate(book, plan, lr, steps) end
  values.put_pair(book, plan, "optimizer.betas", "optimizer.betas")
  plan:put("optimizer.betas", "{ 0.9, 0.999 }", "Adam's default")
  for _, key in ipairs { "optimizer.eps", "optimizer.epsilon" } do
    local eps = values.positive(book, key)
    if eps then plan:put("optimizer.eps", quote.value(eps), book:leaf(key)) end
    book:translated(key, "optimizer.eps")
  end
  local adamw = book:value "optimizer._target_" == "torch.optim.AdamW"
  put_kind(book, values.put_decay(book, plan, "optimizer.weight_decay", adamw and 0.01 or 0,
                                  adamw and "AdamW's default" or "Adam's default"))
  local clip = values.positive(book, "clip_grad_norm.max_norm")
  plan:put("optimizer.clip", quote.value(clip or 1.0), book:leaf "clip_grad_norm.max_norm"
           or "AutoModel's default")
  book:translated("clip_grad_norm.max_norm", "optimizer.clip")
  local state = STATES[book:value "optimizer.exp_avg_dtype"]
  if state and state == STATES[book:value "optimizer.exp_avg_sq_dtype"] then
    plan:put("optimizer.state_dtype", quote.text(state), book:leaf "optimizer.exp_avg_dtype")
    book:translated("optimizer.exp_avg_dtype", "optimizer.state_dtype")
    book:translated("optimizer.exp_avg_sq_dtype", "optimizer.state_dtype")
  elseif plan:has "precision.master_dtype" and string.find(tostring(book:value "optimizer._target_"), "^torch%.optim") then
    plan:put("optimizer.state_dtype", quote.text "bf16", "torch.optim: the type of the weights")
    if book:value "optimizer.fused" ~= true then
      book:assume("optimizer", "weights in bf16 are rounded once a step, as by PyTorch's fused optimizers; its others "
                  .. "round each of their operations")
    end
  end
end

-- ---- data, steps, checkpoints ----

local SYNTHETIC = "MockIterableDataset$"
local TOKEN_FILES = { NanogptDataset = "automodel", MegatronPretraining = "megatron" }

local function files_of(book)
  for _, key in ipairs { "dataset.file_pattern", "dataset.paths" } do
    local value = book:value(key)
    if type(value) == "string" then return key, { value } end
    if type(value) == "table" and type(value[1]) == "string" then return key, value end
  end
end

-- What a plan would say of conversations, and of rows with a question and an answer; nil: it cannot.
local COLUMNS = "dataset.column_mapping."
local function rows_of(book, class)
  if class == "ChatDataset" then return "" end
  local answer = book:first(COLUMNS .. "answer")
  local prompt = book:first(COLUMNS .. "question", COLUMNS .. "context")
  if class ~= "ColumnMappedTextInstructionDataset" or not answer or not prompt then return nil end
  local both = book:value(COLUMNS .. "question") ~= nil and book:value(COLUMNS .. "context") ~= nil
  return string.format(", format = { prompt = %s, response = %s }", quote.text(tostring(book:value(prompt))),
                       quote.text(tostring(book:value(answer)))), both
end

local function say_chat(book, class)
  local key, path = book:first("dataset.path_or_dataset_id", "dataset.path_or_dataset")
  local format, both = rows_of(book, class)
  if not format or type(path) ~= "string" then return end
  local file = string.find(path, "%.jsonl?$") and string.gsub(path, "^%./", "")
  local how = string.format("data = weft.chat { %s%s } reads %s, with the tokenizer of weft.hf or of its folder",
                            quote.text(file or "FILE.jsonl"), format, file and "it" or "its rows as JSON lines")
  if both then how = how .. ", where one column has all of the prompt" end
  book:cannot(key, (file and "a plan that names files needs them to be there: the plan has weft.synthetic; "
                    or "a data set of the Hub, which is not downloaded: the plan has weft.synthetic; ")
              .. quote.shown(how, 400))
  for _, name in ipairs { "question", "answer", "context" } do
    book:cannot(COLUMNS .. name, "see dataset." .. string.match(key, "[^.]*$"))
  end
end

local function put_data(book, plan)
  say_chat(book, string.match(tostring(book:value "dataset._target_" or ""), "([^.]*)$"))
  local class = tostring(book:value "dataset._target_" or "")
  local kind = TOKEN_FILES[string.match(class, "([^.]*)$")]
  local key, files = files_of(book)
  if string.find(class, SYNTHETIC) then
    book:translated("dataset._target_", "data = weft.synthetic")
    for _, name in ipairs { "vocab_size", "num_samples", "batch_size" } do
      book:no_effect("dataset." .. name, "made-up tokens come as long as steps are taken, of the "
                     .. "model's vocabulary")
    end
  elseif kind and key then
    book:cannot(key, string.format("a plan that names files needs them to be there: the plan has "
      .. "weft.synthetic; data = weft.tokens { %s, format = \"%s\" } reads them",
      quote.shown(quote.value(files)), kind))
  elseif book:has "dataset" then
    book:assume("data", "weft.synthetic, made-up tokens: the data of these settings cannot be read")
  end
  plan:put("data", "weft.synthetic {}", "made-up tokens")
  book:no_effect("dataset.tokenizer.pretrained_model_name_or_path", "made-up tokens have no tokenizer")
end

local function put_train(book, plan)
  local steps = values.put_whole(book, plan, "step_scheduler.max_steps", "train.steps", 1)
  if steps then
    book:no_effect("step_scheduler.num_epochs", "step_scheduler.max_steps says how long")
  else
    local epochs = values.whole(book, "step_scheduler.num_epochs", 1)
    book:cannot("step_scheduler.num_epochs", string.format("made-up tokens have no epochs: train.steps is as "
      .. "without it; train.epochs = %s counts those of data in files", epochs or "N"))
    book:assume("train.steps", USUAL_STEPS .. ", as without it: the settings count epochs, or nothing")
  end
  for _, key in ipairs { "rng.seed", "seed" } do
    values.put_whole(book, plan, key, "train.seed", 0)
  end
  local every = values.whole(book, "step_scheduler.val_every_steps", 1)
  book:cannot("step_scheduler.val_every_steps", string.format("there is no evaluation without data for it: "
    .. "data.val, and train.eval_every = %s", every or "N"))
  return steps
end

local function put_consolidated(book, plan)
  local key = "checkpoint.save_consolidated"
  local value = book:value(key)
  if value == nil then return end
  if type(value) ~= "boolean" and value ~= "final" and value ~= "every" then
    return book:refuse(key, string.format(
      "%s = %s: expected true, false, \"final\" or \"every\"", key, quote.shown(value)))
  end
  plan:put(key, quote.value(value), book:leaf(key))
  book:translated(key, key)
end

local function put_checkpoint(book, plan)
  local every = "step_scheduler.ckpt_every_steps"
  if book:value "checkpoint.enabled" == false then
    book:no_effect("checkpoint.enabled", "it is off, as without it")
    return book:no_effect(every, "checkpoint.enabled is false")
  end
  local key, dir = "checkpoint.checkpoint_dir", book:value "checkpoint.checkpoint_dir"
  if dir ~= nil and type(dir) == "string" and values.folder(dir) then
    plan:put("checkpoint.dir", quote.text(dir), book:leaf(key))
    book:translated(key, "checkpoint.dir")
  else
    plan:put("checkpoint.dir", quote.text "checkpoints/", dir ~= nil and "a folder below the plan's"
             or "AutoModel's default")
    if dir ~= nil then
      book:cannot(key, "a plan writes below its own folder: --set checkpoint.dir=DIR says another")
    end
  end
  book:translated("checkpoint.enabled", "checkpoint")
  values.put_whole(book, plan, every, "checkpoint.every", 0)
  values.put_flag(book, plan, "checkpoint.is_async", "checkpoint.async")
  put_consolidated(book, plan)
end

local function put_timeout(book, plan)
  local minutes = values.positive(book, "dist_env.timeout_minutes")
  if not minutes or minutes == 0 then return end
  plan:put("comm.timeout", quote.value(math.min(minutes * 60, 1000000)),
           book:leaf "dist_env.timeout_minutes")
  book:translated("dist_env.timeout_minutes", "comm.timeout")
end

return { put_batch = put_batch, put_packed = put_packed, put_optimizer = put_optimizer, put_data = put_data,
         put_train = put_train, put_checkpoint = put_checkpoint, put_timeout = put_timeout }
