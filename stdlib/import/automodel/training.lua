-- training.lua - what a NeMo AutoModel recipe says of training: batch and sequences, steps and
-- checkpoints as fields of a plan.
local quote = use "import/quote"
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
  elseif not global and 32 % ((locally or 1) * m.dp) == 0 then
    global = 32
    plan:put("batch.global", "32", "AutoModel's default")
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
    book:translated "packed_sequence.drop_long_samples"
  end
end

-- ---- the loss ----

local PLAIN = { MaskedCrossEntropy = true, TEParallelCrossEntropy = true }

-- Cross entropy and the head as one, without the logits of all rows.
local FUSED = { FusedLinearCrossEntropy = true }

local function caps_logits(config)
  local cap = config.final_logit_softcapping
  if cap == nil then cap = use("models/" .. config[1]).defaults.final_logit_softcapping end
  return cap and true or false
end

-- A head in pieces adds to its gradient in f32, and nothing is between it and the loss.
local function put_loss(book, plan, config, own)
  local key = "loss_fn._target_"
  local class = scalar.behind_last(tostring(book:value(key) or ""), ".")
  if PLAIN[class] then return book:no_effect(key, "the cross entropy of the next token is the loss") end
  if class == "ChunkedCrossEntropy" then
    return book:cannot(key, "the same loss in pieces, of the head, too, in later versions: loss_chunks = N says that")
  end
  if not FUSED[class] then return end
  if own then
    return book:cannot(key, "the same loss; its logits are in memory here, as those of the teacher are: more memory")
  end
  if plan:has "precision.grad_dtype" then
    return book:cannot(key, "the same loss; its logits are in memory here, as loss_chunks needs gradients in f32: "
                       .. "more memory")
  end
  if string.find(plan:source "adapter.targets" or "", '"lm_head"', 1, true) then
    return book:cannot(key, "the same loss; its logits are in memory here, as the head has an adapter: more memory")
  end
  if caps_logits(config) then
    return book:cannot(key, "the same loss; its logits, which this model caps, are in memory here: more memory")
  end
  plan:put("loss_chunks", quote.text "auto", book:leaf(key))
  book:translated(key, "loss_chunks, as many pieces as make the logits of one no larger than what the head reads")
end

-- ---- steps, checkpoints ----

-- Rows of public data sets that recipes train with, by their cards.
local PUBLIC = { ["rajpurkar/squad"] = { train = 87599, validation = 10570 },
                 ["rowan/hellaswag"] = { train = 39905, validation = 10042 } }

local function public_samples(book)
  local _, name = book:first("dataset.dataset_name", "dataset.path_or_dataset")
  return PUBLIC[name] and PUBLIC[name][book:value "dataset.split" or "train"]
end

-- Samples of the data, of which the settings take no more; nil: they do not say.
local function samples_of(book)
  local least = public_samples(book)
  local function may_be(n) least = n and math.min(n, least or n) or least end
  for _, name in ipairs { "limit_dataset_samples", "num_samples_limit", "num_samples" } do
    may_be(scalar.integer(book:value("dataset." .. name)))
  end
  for _, name in ipairs { "split", "train_split" } do
    local from, to = string.match(tostring(book:value("dataset." .. name)), "^%w+%[(%d*):(%d+)%]$")
    from, to = scalar.integer(from or 0) or 0, scalar.integer(to)
    may_be(to and to - from)
  end
  return least and least > 0 and least or nil
end

-- Steps of the epochs: each is as many local batches as a rank has samples for, in steps of several.
local function steps_of_epochs(book, plan, m, samples)
  local epochs = values.whole(book, "step_scheduler.num_epochs", 1) or 10
  local locally = scalar.integer(book:value "step_scheduler.local_batch_size") or 1
  local global = tonumber(plan:source "batch.global")
  local function parts(n, size) return (n + size - 1) // math.max(size, 1) end
  return epochs, epochs * parts(parts(parts(samples, m.dp), locally), math.max(global // (locally * m.dp), 1))
end

-- A run has epochs, and `most` steps if max_steps says so: of samples whose number is known epochs are steps.
-- Returns those that end it.
local function put_epochs(book, plan, m, most)
  local key = "step_scheduler.num_epochs"
  local samples = not plan:has "packed" and samples_of(book)
  if samples then
    local epochs, steps = steps_of_epochs(book, plan, m, samples)
    if most and most <= steps then
      book:no_effect(key, "step_scheduler.max_steps says how long")
      return nil
    end
    plan:put("train.steps", quote.value(steps), book:leaf(key) or "AutoModel's default: 10 epochs")
    book:translated(key, "train.steps")
    if most then book:no_effect("step_scheduler.max_steps", "the epochs end before") end
    book:assume("train.steps", string.format("%d: %d epochs of %d samples, the most that the settings take", steps, epochs,
                                             samples))
    return steps
  elseif most then
    return book:cannot(key, "AutoModel's run ends with the epochs of its data, if that is before step_scheduler.max_steps; "
                       .. "made-up tokens have no epochs")
  end
  local epochs = values.whole(book, key, 1)
  book:cannot(key, string.format("made-up tokens have no epochs: train.steps is as without it; train.epochs = %s "
    .. "counts those of data in files", epochs or "N"))
  book:assume("train.steps", values.USUAL_STEPS .. ", as without it: the settings count epochs, or nothing")
end

local function put_train(book, plan, m)
  local most = values.whole(book, "step_scheduler.max_steps", 1)
  local steps = put_epochs(book, plan, m, most)
  if most and not steps then steps = values.put_whole(book, plan, "step_scheduler.max_steps", "train.steps", 1) end
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
  book:translated "checkpoint.enabled"
  values.put_whole(book, plan, every, "checkpoint.every", 0)
  values.put_flag(book, plan, "checkpoint.is_async", "checkpoint.async")
  put_consolidated(book, plan)
end

local function put_timeout(book, plan)
  local minutes = values.positive(book, "dist_env.timeout_minutes")
  if not minutes or minutes == 0 then return end
  plan:put("comm.timeout", quote.value(math.min(minutes * 60, 1000000)),
           book:leaf "dist_env.timeout_minutes")
  book:translated "dist_env.timeout_minutes"
end

return { put_batch = put_batch, put_packed = put_packed, put_loss = put_loss,
         put_train = put_train, put_checkpoint = put_checkpoint, put_timeout = put_timeout }
