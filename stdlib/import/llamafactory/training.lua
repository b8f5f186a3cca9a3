-- training.lua - batch and sequences, steps, checkpoints of LLaMA-Factory's arguments.
local quote = use "import/quote"
local scalar = use "import/scalar"
local trainer = use "import/trainer"
local values = use "import/values"

local training = {}

-- ---- batch and sequences ----

function training.put_batch(book, plan, m)
  local pair = m.stage == "dpo" and 2 or 1
  local micro, each = "per_device_train_batch_size", "gradient_accumulation_steps"
  local global = m.micro * m.each * m.dp
  -- LLaMA-Factory divides the ranks by the size of ep, too (train/megatron_bridge/config_builder.py).
  if m.bridge and m.ep > 1 and m.each % m.ep == 0 then global = global // m.ep end
  plan:put("batch.global", quote.value(global * pair), book:leaf(each) or book:leaf "global_batch_size"
           or "the default: no accumulation")
  plan:put("batch.micro", quote.value(m.micro * pair), book:leaf(micro) or "Transformers' default")
  plan:put("batch.seq", quote.value(m.seq), book:leaf "cutoff_len" or "LLaMA-Factory's default")
  book:translated(micro, "batch.micro")
  book:translated(each, "batch.global / (batch.micro * dp)")
  book:translated("cutoff_len", "batch.seq")
end

local PACKS = { "neat_packing", "packing", "sequence_packing", "use_packed_sequences" }
local OF_BRIDGE = { "use_packed_sequences" }

-- The argument that packs samples, and whether they see each other; nil: none does.
local function packing_of(book, m)
  local found, apart
  for _, key in ipairs(m.bridge and OF_BRIDGE or PACKS) do
    if values.flag(book, key) then
      found = found or key
      apart = apart or key ~= "packing"
    end
  end
  return found, apart
end

local function put_alone(book, plan, m)
  plan:put("packed.size", quote.value(m.seq), book:leaf "cutoff_len" or "LLaMA-Factory's default")
  plan:put("packed.alone", "true", "each sample has a sequence of its own")
  plan:put("packed.too_long", quote.text "truncate", "LLaMA-Factory cuts them")
  for _, key in ipairs(PACKS) do book:no_effect(key, "it is off: each sample has a sequence of its own") end
end

-- In stage pt texts are one stream, which is cut after cutoff_len tokens, unless packing is false.
local function put_stream(book, plan, m)
  if values.flag(book, "packing") == false then return put_alone(book, plan, m) end
  book:translated("packing", "batch.seq, a token less than cutoff_len; texts are one stream, as without packed")
end

-- Below Megatron-Bridge these take a token away, and pack nothing.
local function say_shorter(book)
  for _, key in ipairs { "packing", "neat_packing" } do
    if values.flag(book, key) then
      book:translated(key, "batch.seq, a token less than cutoff_len: below Megatron-Bridge use_packed_sequences packs")
    end
  end
end

function training.put_packed(book, plan, m)
  if m.stage == "pt" then return put_stream(book, plan, m) end
  if m.bridge then say_shorter(book) end
  local key, apart = packing_of(book, m)
  if not key or m.stage == "dpo" or m.stage == "kto" then
    for _, one in ipairs(PACKS) do
      if book:value(one) == true then book:no_effect(one, "samples are packed in stages pt and sft alone") end
    end
    return put_alone(book, plan, m)
  end
  plan:put("packed.size", quote.value(m.seq), book:leaf(key))
  plan:put("packed.too_long", quote.text "truncate", "LLaMA-Factory cuts them")
  if not apart then book:cannot("packing", "samples of a sequence see those before them there, and here each itself alone") end
  for _, one in ipairs(PACKS) do
    if book:value(one) == true then book:translated(one, "packed.size") end
    book:no_effect(one, "it is off")
  end
end

-- ---- steps ----

-- Samples of sets that LLaMA-Factory ships (its folder data).
local SHIPPED = { identity = 91, alpaca_en_demo = 999, alpaca_zh_demo = 1000, glaive_toolcall_en_demo = 300,
                  glaive_toolcall_zh_demo = 300, dpo_en_demo = 300, dpo_zh_demo = 300, kto_en_demo = 300, c4_demo = 300,
                  wiki_demo = 30 }

-- Sets in a text with commas or a list, without blanks around them.
local function sets_of(book)
  local value, list = book:value "dataset", {}
  if type(value) == "table" then
    for _, name in ipairs(value) do list[#list + 1] = tostring(name) end
    return list
  end
  for name in string.gmatch(tostring(value or ""), "[^,]+") do list[#list + 1] = string.match(name, "^%s*(.-)%s*$") end
  return list
end

-- The most samples that there are; nil: the arguments do not say it.
local function samples_of(book)
  local most, n = values.whole(book, "max_samples", 1), 0
  local sets = sets_of(book)
  if #sets > 1 and string.find(tostring(book:value "mix_strategy" or ""), "^interleave_") then
    book:cannot("mix_strategy", "how often samples of a set come until the others end is not known here, and so are no steps of an epoch")
    return nil
  end
  for _, name in ipairs(sets) do
    local known = SHIPPED[name]
    if not known and not most then return nil end
    n = n + math.min(known or most, most or known)
  end
  local part = scalar.number(book:value "val_size") or 0
  if part < 0 then
    book:refuse("val_size", "val_size: expected a number of samples, or a part of them below 1")
    return nil
  end
  n = n - (part > 1 and math.floor(part) or math.ceil(part * n))
  return #sets > 0 and n > 0 and n or nil
end

local function parts(n, size) return (n + size - 1) // math.max(size, 1) end

-- Steps of the epochs. Transformers counts microbatches over all ranks in groups, of which the last may be smaller;
-- mcore_adapter and v1 drop what is not whole; Megatron-Bridge counts steps of all epochs together.
local function steps_of(epochs, samples, m)
  local whole = m.micro * m.dp * m.each
  if m.bridge then return math.max(math.ceil(samples / whole * epochs), 1) end
  if m.megatron or m.v1 then return math.max(math.ceil(epochs * (samples // whole)), 1) end
  return math.ceil(epochs * parts(parts(parts(samples, m.micro), m.dp), m.each))
end

local function epochs_of(book)
  local key = "num_train_epochs"
  local epochs = values.positive(book, key)
  if epochs == 0 or (epochs or 0) > 1e6 then book:refuse(key, key .. ": expected a number above 0") end
  return epochs and epochs > 0 and epochs <= 1e6 and epochs or 3.0
end

local function put_epochs(book, plan, m)
  local key = "num_train_epochs"
  local epochs = epochs_of(book)
  local samples = m.stage ~= "pt" and book:value "streaming" ~= true and not packing_of(book, m) and samples_of(book)
  if not samples then
    book:cannot(key, string.format("made-up tokens have no epochs: train.steps is as without it; train.epochs = %s counts those of "
                                   .. "data in files", quote.value(epochs)))
    book:assume("train.steps", values.USUAL_STEPS .. ", as without it: the arguments count epochs")
    return nil
  end
  local steps = steps_of(epochs, samples, m)
  plan:put("train.steps", quote.value(steps), book:leaf(key) or "Transformers' default: 3 epochs")
  for _, one in ipairs { key, "max_samples", "val_size" } do book:translated(one, "train.steps") end
  book:assume("train.steps", string.format("%d: %.9g epochs of %d samples, the most that the arguments take", steps, epochs, samples))
  return steps
end

-- Steps of the run, nil if they are not known.
local function put_steps(book, plan, m)
  local key = "max_steps"
  local n = scalar.integer(book:value(key) or -1)
  if not n then return values.whole(book, key, 1) end
  if n > 0 then
    plan:put("train.steps", quote.value(n), book:leaf(key))
    book:translated(key, "train.steps")
    book:no_effect("num_train_epochs", "max_steps says how long")
    return n
  end
  book:no_effect(key, "num_train_epochs says how long")
  return put_epochs(book, plan, m)
end

-- Every so many steps; below 1 a part of them.
local function every(book, key, steps)
  local n = values.positive(book, key)
  if not n then return nil end
  if n >= 1 then return math.floor(n) end
  return math.max(math.ceil(n * (steps or values.USUAL_STEPS)), 1)
end

function training.put_train(book, plan, m)
  local steps = put_steps(book, plan, m)
  if values.put_whole(book, plan, "seed", "train.seed", 0) == nil then plan:put("train.seed", "42", "Transformers' default") end
  local log = every(book, "logging_steps", steps)
  if log and log > 0 then plan:put("train.log_every", quote.value(log), book:leaf "logging_steps") end
  book:translated("logging_steps", "train.log_every")
  values.put_positive(book, plan, "neftune_noise_alpha", "train.neftune_noise_alpha")
  if values.flag(book, "full_determinism") then
    plan:put("deterministic", "true", book:leaf "full_determinism")
    book:translated("full_determinism", "deterministic")
  end
  book:no_effect("full_determinism", "it is off")
  return steps
end

-- ---- checkpoints ----

local WHEN = { no = true, steps = true, epoch = true, best = true }

local function put_every(book, plan, steps)
  local key, when = "save_strategy", book:value "save_strategy"
  if when == false then when = "no" end -- no without quotes is a boolean in YAML
  if when ~= nil and not WHEN[when] then
    return book:refuse(key, string.format("%s = %s: expected no, steps, epoch or best", key, quote.shown(when)))
  elseif when == "no" then
    plan:put("checkpoint.every", "0", book:leaf(key))
    book:translated(key, "checkpoint.every, at the end alone")
    return book:no_effect("save_steps", "save_strategy is no")
  elseif when == "epoch" or when == "best" then
    plan:put("checkpoint.every", "0", book:leaf(key))
    book:cannot(key, when == "epoch" and "checkpoints are written by steps, not by epochs: here at the end of the run"
                or "checkpoint.keep_best keeps the best one, with data for an evaluation: here it is written at the end of the run")
    return book:no_effect("save_steps", "save_strategy says when")
  end
  book:translated(key, "checkpoint.every")
  local n = every(book, "save_steps", steps)
  plan:put("checkpoint.every", quote.value(n or 500), n and book:leaf "save_steps" or "Transformers' default")
  book:translated("save_steps", "checkpoint.every")
end

function training.put_checkpoint(book, plan, steps)
  trainer.put_folder(book, plan, "checkpoints/", "assumed")
  put_every(book, plan, steps)
  local keep = values.whole(book, "save_total_limit", 1)
  plan:put("checkpoint.keep", quote.value(keep or 0), keep and book:leaf "save_total_limit" or "Transformers' default: all")
  book:translated("save_total_limit", "checkpoint.keep")
  trainer.put_timeout(book, plan)
end

return training
