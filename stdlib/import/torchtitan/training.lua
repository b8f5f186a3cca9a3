-- training.lua - what torchtitan's settings say of training: batch and sequences,
-- the optimizer, data, steps and checkpoints as fields of a plan.
local quote = use "import/quote"
local scalar = use "import/scalar"
local values = use "import/values"

-- ---- batch and sequences ----

local SEQ, LOCAL, GLOBAL = "training.seq_len", "training.local_batch_size", "training.global_batch_size"
local CONTEXT, TOKENS = "training.max_context_length", "training.num_tokens_per_microbatch_per_dp_rank"
local STEP, PARTS = "training.num_tokens_per_train_step", "parallelism.num_pp_microbatches"

-- A key with -1 for "not said".
local function given(book, key)
  local n = book:value(key) ~= nil and scalar.integer(book:value(key))
  if n == -1 then return nil end
  return values.whole(book, key, 1)
end

-- Sequences of a microbatch of the pipeline: a size, or of older versions how many there are.
local function micro_of(book, m, locally)
  local key, many = "parallelism.pipeline_parallel_microbatch_size", "parallelism.pipeline_parallel_microbatches"
  if m.pp == 1 then return locally, LOCAL end
  local n = given(book, many)
  if n and locally % n ~= 0 then
    book:refuse(many, string.format("%d microbatches of %d sequences are not whole", n, locally))
  elseif n then
    book:translated(many, "batch.micro")
    return locally // n, many
  end
  book:translated(key, "batch.micro")
  return values.whole(book, key, 1) or 1, key
end

local function put_sequences(book, plan, m)
  local locally = values.whole(book, LOCAL, 1) or 8
  local micro, key = micro_of(book, m, locally)
  local global = given(book, GLOBAL)
  plan:put("batch.global", quote.value(global or locally * m.dp), global and book:leaf(GLOBAL)
           or "one local batch on each rank")
  if global then book:translated(GLOBAL, "batch.global") end
  book:translated(GLOBAL, "batch.global: one local batch on each rank")
  plan:put("batch.micro", quote.value(micro), book:leaf(key) or "torchtitan's default")
  book:translated(LOCAL, m.pp > 1 and "batch.global and batch.rounds" or "batch.micro")
  local rounds = global and global // (locally * m.dp) or 1
  if m.pp > 1 and rounds > 1 then
    plan:put("batch.rounds", quote.value(rounds), book:leaf(GLOBAL))
  end
  local seq = values.put_whole(book, plan, SEQ, "batch.seq", 1)
  if not seq then plan:put("batch.seq", "2048", "torchtitan's default") end
  return micro * (seq or 2048)
end

-- Newer versions count tokens: a microbatch is so many, in sequences of at most the context.
local function put_tokens(book, plan, m)
  local seq = values.whole(book, CONTEXT, 1) or 2048
  local tokens = values.whole(book, TOKENS, 1) or 16384
  if tokens < seq then
    book:cannot(CONTEXT, "a microbatch has fewer tokens than this: batch.seq is that many")
    seq = tokens
  elseif tokens % seq ~= 0 then
    book:refuse(TOKENS, string.format("%d tokens of a microbatch are not whole sequences of %d "
      .. "(max_context_length)", tokens, seq))
    return
  end
  local micro, parts = tokens // seq, m.pp > 1 and values.whole(book, PARTS, 1) or 1
  local each = micro * parts * m.dp
  local step = given(book, STEP)
  if step and step % (seq * each) ~= 0 then
    return book:refuse(STEP, string.format("%d tokens are no multiple of the %d that %d ranks have "
      .. "at a time", step, seq * each, m.dp))
  end
  local global = step and step // seq or each
  plan:put("batch.global", quote.value(global), book:leaf(STEP) or "one microbatch on each rank")
  plan:put("batch.micro", quote.value(micro), book:leaf(TOKENS) or "torchtitan's default")
  if m.pp > 1 and global > each then plan:put("batch.rounds", quote.value(global // each), book:leaf(STEP)) end
  plan:put("batch.seq", quote.value(seq), book:leaf(CONTEXT) or "torchtitan's default")
  book:translated(TOKENS, "batch.micro * batch.seq")
  book:translated(STEP, "batch.global * batch.seq")
  book:translated(PARTS, "batch.global: microbatches of a rank")
  book:translated(CONTEXT)
  return micro * seq
end

-- How long sequences are, for the model; what is wrong with it is told where it becomes batch.seq.
local function length(book)
  return scalar.integer(book:value(SEQ) or book:value(CONTEXT) or 2048)
end

-- Returns the tokens of a microbatch; nil: they are refused.
local function put_batch(book, plan, m)
  if book:first(TOKENS, CONTEXT) then return put_tokens(book, plan, m) end
  return put_sequences(book, plan, m)
end

-- ---- the loss ----

local IN_PIECES = { ChunkedLossWrapper = true, ChunkedCELoss = true }

-- A head whose rows go in pieces, so that the logits of all never exist. Each piece adds to the gradient of
-- the head in f32 here, and pieces are equal.
local function put_loss(book, plan, m, tokens)
  local key, of, chunks = "loss.class", "loss.loss_fn.class", "loss.num_chunks"
  local class = scalar.behind_last(tostring(book:value(key) or ""), ".")
  local inner = scalar.behind_last(tostring(book:value(of) or "CrossEntropyLoss"), ".")
  if not IN_PIECES[class] or inner ~= "CrossEntropyLoss" then return end
  local n = values.whole(book, chunks, 1) or 8
  if not tokens or tokens // m.cp % n ~= 0 or plan:has "precision.grad_dtype" then
    for _, one in ipairs { key, chunks } do
      book:cannot(one, "the same loss; its logits are in memory at once here, as loss_chunks needs equal pieces and "
                  .. "gradients in f32: more memory")
    end
    return
  end
  plan:put("loss_chunks", quote.value(n), book:leaf(chunks) or book:leaf(key))
  book:translated(key, "loss_chunks")
  book:translated(chunks, "loss_chunks")
end

-- ---- the optimizer ----

local S = "lr_scheduler."

-- The rate falls over so much of the steps, along one of these; behind the warmup it stays at its
-- maximum until then.
local SHAPES = { linear = "linear", cosine = "cosine", sqrt = "minus_sqrt" }

local function put_least(book, plan, lr)
  local key = S .. "min_lr_factor"
  local factor = values.positive(book, key) or 0
  plan:put("optimizer.lr.min", quote.value(tonumber(string.format("%.12g", lr * factor))),
           book:leaf(key) or "torchtitan's default")
  book:translated(key, "optimizer.lr.min")
end

-- As Python rounds: halves to what is even.
local function rounded(x)
  local n = math.floor(x + 0.5)
  return n - x == 0.5 and n % 2 == 1 and n - 1 or n
end

-- Steps of the rise, 200 if nobody says them, and no more than there are; the first versions, in which training
-- had them, did not look at that.
local function put_warmup(book, plan, total)
  local key = S .. "warmup_steps"
  local leaf, warmup = book:leaf(key), values.whole(book, key, 0) or 200
  local most = leaf and leaf.given == "training.warmup_steps" and warmup or total
  if warmup > most then
    book:assume("optimizer.lr.warmup", string.format("%d steps, all of the run: torchtitan's warmup is no longer", most))
    warmup = most
  end
  plan:put("optimizer.lr.warmup", quote.value(warmup), leaf or "torchtitan's default")
  book:translated(key, "optimizer.lr.warmup")
  return warmup
end

-- Of a rate that falls: its builder, and puts the steps of the fall if they are not all behind the warmup.
local function put_decay(book, plan, total, warmup, along)
  local key = S .. "decay_ratio"
  local ratio = values.positive(book, key)
  values.put_whole(book, plan, S .. "total_steps", "optimizer.lr.steps", 1)
  local decay = ratio and rounded(total * ratio)
  if along ~= "minus_sqrt" and (not decay or decay + warmup >= total) then
    book:translated(key, "optimizer.lr: " .. along .. " from the end of the warmup on")
    return along
  end
  decay = math.max(1, math.min(decay or total, total - warmup))
  plan:put("optimizer.lr.decay", quote.value(decay), book:leaf(key) or "torchtitan's default: all behind the warmup")
  plan:put("optimizer.lr.decay_style", quote.text(along), book:leaf(S .. "decay_type") or "torchtitan's default")
  book:translated(key, "optimizer.lr.decay")
  return "wsd"
end

local function put_rate(book, plan, steps)
  local key, lr = S .. "decay_type", values.positive(book, "optimizer.lr") or 8e-4
  local named = book:value(key) or "linear"
  local along = SHAPES[named]
  plan:put("optimizer.lr.max", quote.value(lr), book:leaf "optimizer.lr" or "torchtitan's default")
  book:translated "optimizer.lr"
  local total = values.whole(book, S .. "total_steps", 1) or steps
  local warmup = put_warmup(book, plan, total)
  if values.positive(book, S .. "decay_ratio") == 0 then
    plan:head("optimizer.lr", "weft.constant")
    book:translated(S .. "decay_ratio", "optimizer.lr: constant behind the warmup")
    for _, name in ipairs { "decay_type", "min_lr_factor", "total_steps" } do
      book:no_effect(S .. name, "the rate does not fall: decay_ratio is 0")
    end
    return
  elseif not along then
    return book:refuse(key, string.format("%s: expected linear, cosine or sqrt", quote.shown(named)))
  end
  plan:head("optimizer.lr", "weft." .. put_decay(book, plan, total, warmup, along))
  book:translated(key, "optimizer.lr")
  put_least(book, plan, lr)
end

local KINDS = { AdamW = true, default_adamw = true, Adam = true }

-- Adam adds the decay, 0.1 unless the settings say another one, to the gradient.
local function builder(book)
  for _, key in ipairs { "optimizer.name", "optimizer.class" } do
    local value = book:value(key)
    local decay = tonumber(book:value "optimizer.weight_decay") or 0.1
    if value ~= nil and scalar.behind_last(tostring(value), ".") == "Adam" and decay > 0 then
      return "weft.adam"
    end
  end
  return "weft.adamw"
end

local function put_kind(book)
  for _, key in ipairs { "optimizer.name", "optimizer.class" } do
    local value = book:value(key)
    local name = value ~= nil and scalar.behind_last(tostring(value), ".")
    if KINDS[name] then
      book:translated(key, "optimizer")
    elseif name == "OptimizersContainer" then
      book:cannot(key, "groups of parameters with optimizers of their own: the plan has AdamW for all")
    elseif name then
      book:cannot(key, string.format("%s is not in weft: the plan has AdamW with these numbers",
                                     quote.shown(name)))
    end
  end
end

local function put_betas(book, plan)
  local pair = book:value "optimizer.betas"
  if pair ~= nil then return values.put_pair(book, plan, "optimizer.betas", "optimizer.betas") end
  local a, b = values.positive(book, "optimizer.beta1"), values.positive(book, "optimizer.beta2")
  plan:put("optimizer.betas", quote.value { a or 0.9, b or 0.95 },
           book:leaf "optimizer.beta1" or book:leaf "optimizer.beta2" or "torchtitan's default")
  book:translated "optimizer.beta1"
  book:translated "optimizer.beta2"
end

local function put_optimizer(book, plan, steps)
  plan:head("optimizer", builder(book))
  put_kind(book)
  put_rate(book, plan, steps)
  put_betas(book, plan)
  values.put_positive(book, plan, "optimizer.eps", "optimizer.eps")
  values.put_decay(book, plan, "optimizer.weight_decay", 0.1, "torchtitan's default")
  if book:value "training.max_norm" == math.huge then
    plan:put("optimizer.clip", "0.0", book:leaf "training.max_norm")
    return book:translated("training.max_norm", "optimizer.clip: no norm is above it")
  end
  local clip = values.put_positive(book, plan, "training.max_norm", "optimizer.clip")
  if not clip then plan:put("optimizer.clip", "1.0", "torchtitan's default") end
end

-- ---- data, steps, checkpoints ----

local function put_data(book, plan)
  plan:put("data", "weft.synthetic {}", "made-up tokens")
  for _, leaf in ipairs(book.leaves) do
    if string.find(leaf.key, "^training%.dataset") or string.find(leaf.key, "^dataloader%.dataset") then
      book:cannot(leaf.key, "a data set of texts, tokenized on the fly: the plan has weft.synthetic, "
        .. "made-up tokens; weft tokenize and weft.tokens read texts")
    end
  end
  book:assume("data", "weft.synthetic, made-up tokens")
end

local function put_train(book, plan)
  local steps = values.put_whole(book, plan, "training.steps", "train.steps", 1)
  if not steps then plan:put("train.steps", "10000", "torchtitan's default") end
  values.put_whole(book, plan, "debug.seed", "train.seed", 0)
  values.put_whole(book, plan, "metrics.log_freq", "train.log_every", 1)
  if values.flag(book, "debug.deterministic") then
    plan:put("deterministic", "true", book:leaf "debug.deterministic")
    book:translated "debug.deterministic"
  else
    book:no_effect("debug.deterministic", "it is off, as without it")
  end
  local timeout = values.positive(book, "comm.train_timeout_seconds")
  if timeout and timeout > 0 then
    plan:put("comm.timeout", quote.value(math.max(math.min(timeout, 1000000), 0.1)),
             book:leaf "comm.train_timeout_seconds")
    book:translated "comm.train_timeout_seconds"
  end
  return steps or 10000
end

local ASYNC = { disabled = "false", async = "true", async_with_pinned_mem = "true" }

local function put_async(book, plan)
  local key = "checkpoint.async_mode"
  local value = book:value(key) or "disabled"
  if not ASYNC[value] then
    return book:refuse(key, string.format("%s = %s: expected disabled, async or "
                                          .. "async_with_pinned_mem", key, quote.shown(value)))
  end
  plan:put("checkpoint.async", ASYNC[value], book:leaf(key) or "torchtitan's default")
  book:translated(key, "checkpoint.async")
end

local function put_checkpoint(book, plan)
  local on = values.flag(book, "checkpoint.enable")
  if not on then
    for _, leaf in ipairs(book.leaves) do
      if string.find(leaf.key, "^checkpoint%.") then
        book:no_effect(leaf.key, on == false and "checkpoint.enable is false, as without it"
                                 or "checkpoint.enable is not set")
      end
    end
    return
  end
  book:translated "checkpoint.enable"
  local key, dir = "checkpoint.folder", book:value "checkpoint.folder"
  if type(dir) == "string" and values.folder(dir) then
    plan:put("checkpoint.dir", quote.text(dir), book:leaf(key))
    book:translated(key, "checkpoint.dir")
  else
    plan:put("checkpoint.dir", quote.text "checkpoint", "torchtitan's default")
    book:cannot(key, "a plan writes below its own folder: --set checkpoint.dir=DIR says another")
  end
  local every = values.put_whole(book, plan, "checkpoint.interval", "checkpoint.every", 1)
  if not every then plan:put("checkpoint.every", "500", "torchtitan's default") end
  local keep = values.put_whole(book, plan, "checkpoint.keep_latest_k", "checkpoint.keep", 0)
  if not keep then plan:put("checkpoint.keep", "10", "torchtitan's default") end
  put_async(book, plan)
  if values.flag(book, "checkpoint.last_save_in_hf") then
    plan:put("checkpoint.save_consolidated", quote.text "final", book:leaf "checkpoint.last_save_in_hf")
    book:translated "checkpoint.last_save_in_hf"
  end
end

return { length = length, put_batch = put_batch, put_loss = put_loss, put_optimizer = put_optimizer,
         put_data = put_data, put_train = put_train, put_checkpoint = put_checkpoint }
