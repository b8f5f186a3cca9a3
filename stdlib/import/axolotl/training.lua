-- training.lua - batch and sequences, steps and checkpoints of axolotl's recipes.
local quote = use "import/quote"
local scalar = use "import/scalar"
local trainer = use "import/trainer"
local values = use "import/values"
local training = {}

-- ---- recompute ----

local ON = { offload = true, offload_disk = true, unsloth = true }

local function offloads(book)
  local key, value = "activation_offloading", book:value "activation_offloading"
  if value == nil or value == false then
    book:no_effect(key, "it is off")
    local gc = book:value "gradient_checkpointing"
    return ON[gc] or false
  end
  return true
end

-- What of a layer runs again. Offloading to the host beside an adapter keeps all activations there, and computes none again.
function training.put_recompute(book, plan, adapted)
  local key, value = "gradient_checkpointing", book:value "gradient_checkpointing"
  local on = ON[value] or nil
  if on == nil then on = values.switch(book, key) end
  local fsdp, fsdp_key = nil, book:first("fsdp_config.activation_checkpointing", "fsdp_config.fsdp_activation_checkpointing")
  if fsdp_key then fsdp = values.switch(book, fsdp_key) end
  if on or fsdp then
    plan:put("recompute", quote.text "full", book:leaf(on and key or fsdp_key))
    if fsdp then book:translated(fsdp_key, "recompute") end
  end
  if fsdp_key then book:no_effect(fsdp_key, "it is off") end
  if offloads(book) then
    local what = adapted and "activations stay on the device, and layers run again, which they do not there"
      or "inputs of layers stay on the device"
    if ON[value] then book:cannot(key, what) end
    if book:value "activation_offloading" ~= nil then book:cannot("activation_offloading", what) end
  end
  if on then
    book:translated(key, "recompute = \"full\"")
  else
    book:no_effect(key, "it is off, as without it")
  end
  if book:value "selective_checkpointing" and on then
    book:cannot("selective_checkpointing", "recompute = \"full\" runs attention again, too: other memory, the same numbers")
  end
end

-- ---- batch ----

-- Two of micro_batch_size, gradient_accumulation_steps and batch_size, the sequences of a rank in a step, must be given. The
-- second is 1 by default, so that batch_size says it beside a null alone.
local function counts_of(book)
  local micro, each = values.whole(book, "micro_batch_size", 1), values.whole(book, "gradient_accumulation_steps", 1)
  local all = values.whole(book, "batch_size", 1)
  if all and each then
    book:refuse("batch_size", "batch_size and gradient_accumulation_steps exclude each other")
  elseif all and micro and not book:leaf "gradient_accumulation_steps" then
    book:no_effect("batch_size", "gradient_accumulation_steps is 1 by default: batch_size says it beside "
                   .. "gradient_accumulation_steps: null alone")
    each = 1
  elseif all and micro then
    each = math.max(all // micro, 1)
    if all % micro ~= 0 then
      book:assume("batch.global", string.format("%d microbatches of %d a rank, as there: batch_size = %d is no multiple", each, micro, all))
    end
  elseif not (micro and each) and #book.refused == 0 then
    book:refuse(book:leaf "micro_batch_size" and "micro_batch_size" or nil, "two of micro_batch_size, gradient_accumulation_steps and "
                .. "batch_size must be given")
  end
  return micro or 1, each or 1
end

function training.put_batch(book, plan, m, loss)
  local micro, each = counts_of(book)
  local twice = loss == "dpo" and 2 or 1
  plan:put("batch.global", quote.value(micro * each * m.dp * twice), book:value "gradient_accumulation_steps"
           and book:leaf "gradient_accumulation_steps" or book:leaf "gradient_accumulation_steps" and book:leaf "batch_size"
           or "axolotl's default of gradient_accumulation_steps: 1")
  plan:put("batch.micro", quote.value(micro * twice), book:leaf "micro_batch_size")
  book:translated("micro_batch_size", "batch.micro")
  for _, key in ipairs { "gradient_accumulation_steps", "batch_size" } do
    book:translated(key, "batch.global / (batch.micro * dp)")
  end
  local seq = values.whole(book, "sequence_len", 2) or 512
  plan:put("batch.seq", quote.value(seq), book:value "sequence_len" and book:leaf "sequence_len" or "axolotl's default")
  book:translated("sequence_len", "batch.seq")
  if loss ~= "dpo" then
    book:assume("loss", "it is divided by the label tokens of the whole step; axolotl takes the mean of each microbatch (in some "
                .. "versions of all that a rank has in a step), and of these the mean: other weights where they have other numbers of label tokens")
  end
end

-- ---- the head in pieces ----

local FUSED = { "cut_cross_entropy", "liger_fused_linear_cross_entropy" }
local PLUGINS = { ["axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"] = true }

local function caps_logits(config)
  local cap = config.final_logit_softcapping
  if cap == nil then cap = use("models/" .. config[1]).defaults.final_logit_softcapping end
  return cap and true or false
end

-- The setting that asks for cross entropy and head as one, without the logits of all rows.
local function fused_of(book)
  for _, key in ipairs(FUSED) do
    if values.switch(book, key) then return key end
  end
  local list = book:value "plugins"
  for _, name in ipairs(type(list) == "table" and list or {}) do
    if PLUGINS[name] and book:value "cut_cross_entropy" ~= false then return "plugins" end
  end
end

-- Whether the head is Cut Cross Entropy's.
function training.cuts_head(book)
  local key = fused_of(book)
  return key ~= nil and key ~= "liger_fused_linear_cross_entropy"
end

-- A head in pieces adds to its gradient in f32, and nothing is between it and the loss.
function training.put_chunks(book, plan, config, loss)
  local key = fused_of(book)
  local why = loss == "dpo" and "as a loss of pairs needs them" or caps_logits(config) and "which this model caps"
    or plan:has "precision.grad_dtype" and "as loss_chunks needs gradients in f32"
    or string.find((plan:source "adapter.targets" or "") .. (plan:source "adapter.modules_to_save" or ""), '"lm_head"', 1, true)
    and "as the head has an adapter, or learns"
  if key and why then
    book:cannot(key, "the same loss; its logits are in memory here, " .. why .. ": more memory")
  elseif key then
    plan:put("loss_chunks", quote.text "auto", book:leaf(key))
    book:translated(key, "loss_chunks, as many pieces as make the logits of one no larger than what the head reads")
  end
  for _, one in ipairs(FUSED) do book:no_effect(one, "the loss is computed from logits in memory") end
end

-- ---- steps ----

local function put_epochs(book, most)
  local key = "num_epochs"
  local epochs = values.positive(book, key)
  if most then return book:no_effect(key, "max_steps says how long") end
  book:cannot(key, string.format("made-up tokens have no epochs: train.steps is as without it; train.epochs = %s counts those of data in "
                                 .. "files", quote.value(epochs or 1)))
  book:assume("train.steps", values.USUAL_STEPS .. ", as without it: the recipe counts epochs")
end

-- How much of the data is kept apart, and how often it is looked at.
local function say_evaluation(book)
  local share = values.positive(book, "val_set_size") or 0
  local every = scalar.integer(book:value "eval_steps")
  local what = string.format("there is no evaluation without data for it: data.%s, and train.eval_every = %s",
                             share > 0 and share <= 0.5 and "val_fraction = " .. quote.value(share) or "val", every or "N")
  if share > 0 then book:cannot("val_set_size", what) else book:no_effect("val_set_size", "nothing is kept apart") end
  if book:value "test_datasets" ~= nil then book:cannot("test_datasets", what) end
  for _, key in ipairs { "eval_steps", "evals_per_epoch" } do
    if share > 0 or book:value "test_datasets" ~= nil then
      book:cannot(key, what)
    else
      book:no_effect(key, "there is no data for an evaluation, there too")
    end
  end
  local patience = values.whole(book, "early_stopping_patience", 1)
  if patience then
    book:cannot("early_stopping_patience", string.format("train.early_stopping = { patience = %d } needs an evaluation", patience))
  end
end

-- Returns the steps of a run; nil: the recipe does not say.
function training.put_train(book, plan, loss)
  local most = values.whole(book, "max_steps", 1)
  if most then
    plan:put("train.steps", quote.value(most), book:leaf "max_steps")
    book:translated("max_steps", "train.steps")
  end
  put_epochs(book, most)
  local seed = values.whole(book, "seed", 0)
  plan:put("train.seed", quote.value(seed or 42), seed and book:leaf "seed" or "axolotl's default")
  book:translated("seed", "train.seed")
  values.put_whole(book, plan, "logging_steps", "train.log_every", 1)
  local key, noise = book:first("neftune_noise_alpha", "noisy_embedding_alpha")
  noise = key and values.positive(book, key)
  if noise and loss == "dpo" then
    for _, name in ipairs { "neftune_noise_alpha", "noisy_embedding_alpha" } do
      book:no_effect(name, "axolotl gives it to trainers of causal language models alone, not to that of pairs")
    end
  elseif noise then plan:put("train.neftune_noise_alpha", quote.value(noise), book:leaf(key)) end
  if key then book:translated(key, "train.neftune_noise_alpha") end
  say_evaluation(book)
  return most
end

-- ---- checkpoints ----

-- Steps between checkpoints, and what says so: a part of all steps where it is below 1, as Transformers has it. 0: the
-- end of the run alone.
local function every_of(book, strategy, steps)
  local key = "save_steps"
  local n = values.positive(book, key) or 0
  if n == 0 then
    book:no_effect(key, "it is off")
    if strategy == "steps" and book:value "saves_per_epoch" == nil then return 500, "Transformers' default" end
    book:assume("checkpoint.every", "0, the end of the run alone: axolotl saves by epochs, whose steps the recipe does not count")
  elseif n >= 1 or steps then
    book:translated(key, "checkpoint.every")
    return n >= 1 and math.floor(n) or math.ceil(steps * n), book:leaf(key)
  else
    book:cannot(key, "a part of all steps, which the recipe does not count: checkpoint.every = N")
  end
  return 0, "the end of the run"
end

function training.put_checkpoint(book, plan)
  local strategy = book:value "save_strategy"
  if strategy == "no" or strategy == false then
    book:translated("save_strategy", "checkpoint: there are none")
    for _, key in ipairs { "save_steps", "saves_per_epoch", "save_total_limit", "output_dir" } do
      book:no_effect(key, "save_strategy is no")
    end
    return
  end
  trainer.put_folder(book, plan, "model-out", "axolotl's default")
  local every, from = every_of(book, strategy, scalar.integer(book:value "max_steps"))
  plan:put("checkpoint.every", quote.value(every), from)
  book:cannot("saves_per_epoch", "checkpoints are written by steps, not by epochs: checkpoint.every = N")
  local keep = values.whole(book, "save_total_limit", 0)
  plan:put("checkpoint.keep", quote.value(keep and keep > 0 and keep or 4), keep and book:leaf "save_total_limit" or "axolotl's default")
  book:translated("save_total_limit", "checkpoint.keep")
  if strategy == "best" then
    book:cannot("save_strategy", "checkpoint.keep_best needs an evaluation")
  elseif strategy == nil or strategy == "steps" or strategy == "epoch" then
    book:no_effect("save_strategy", "checkpoint.every says when")
  else
    book:refuse("save_strategy", quote.shown(strategy) .. ": expected steps, epoch, best or no")
  end
end

return training
