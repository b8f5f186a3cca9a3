-- llamafactory.lua - the training arguments of LLaMA-Factory (YAML or JSON) as fields of a plan; those of
-- Transformers' trainer stand among them. What does not take part in the plan is in left_out.lua.
local adapter = use "import/llamafactory/adapter"
local beside = use "import/llamafactory/beside"
local data = use "import/llamafactory/data"
local experts = use "import/llamafactory/experts"
local file_optimizer = use "import/llamafactory/file_optimizer"
local left_out = use "import/llamafactory/left_out"
local loss = use "import/llamafactory/loss"
local model = use "import/llamafactory/model"
local optimizer = use "import/llamafactory/optimizer"
local precision = use "import/llamafactory/precision"
local quote = use "import/quote"
local ranks = use "import/llamafactory/ranks"
local renamed = use "import/llamafactory/renamed"
local training = use "import/llamafactory/training"
local v1 = use "import/llamafactory/v1"
local values = use "import/values"

local llamafactory = { name = "LLaMA-Factory", fields = use "import/llamafactory/fields", absent = {},
                       describe = "training arguments of LLaMA-Factory (finetuning_type, cutoff_len)" }

-- Arguments that no other system has, and those that are its own beside the name of a model.
local OWN = { finetuning_type = true, cutoff_len = true, lora_target = true, dataset_dir = true, oft_target = true,
              freeze_trainable_layers = true, pref_loss = true, use_galore = true, use_badam = true, use_apollo = true }
local BESIDE_MODEL = { template = true, stage = true, infer_backend = true, export_dir = true, lora_rank = true }

function llamafactory.is(leaves)
  if v1.is(leaves) then return true end
  local has_model = leaves.at.model_name_or_path ~= nil
  for _, leaf in ipairs(leaves) do
    if OWN[leaf.key] or has_model and BESIDE_MODEL[leaf.key] then return true end
  end
  return false
end

-- ---- names ----

-- The name that counts now for one of another version; nil: it is one already.
local function newer(key)
  local option = string.match(key, "^fsdp_config%.fsdp_(.+)$")
  if option and option ~= "version" then return "fsdp_config." .. option end
  local top, rest = string.match(key, "^([^.]*)(.*)$")
  return renamed[key] or renamed[top] and renamed[top] .. rest
end

local function rename(book)
  for _, leaf in ipairs(book.leaves) do
    local key = newer(leaf.key)
    if key and book.leaves.at[key] then
      leaf.list, leaf.text = "no_effect", key .. " says it, its other name"
    elseif key then
      book.leaves.at[leaf.key], book.leaves.at[key] = nil, leaf
      leaf.given, leaf.key = leaf.given or leaf.key, key
    end
  end
end

-- First steps of all names that any version takes, but for those of v1, which has a list of its own.
local OF_V1 = { global_batch_size = true, enable_activation_checkpointing = true, cp_mode = true, mp_replicate_size = true,
                mp_shard_size = true, dp_size = true, dist_config = true, optim_config = true, batching_strategy = true,
                batching_workers = true, custom_chat_template = true, model_class = true, init_config = true, kernel_config = true,
                peft_config = true, quant_config = true, lr_scheduler_config = true, save_epochs = true, save_ckpt_as_hf = true,
                sample_backend = true }
local KNOWN, GROUPS = {}, {}
for _, rows in ipairs { { llamafactory.fields, 2 }, { left_out, 1, 1 } } do
  for _, row in ipairs(rows[1]) do
    for i = rows[2], rows[3] or #row do
      local top, rest = string.match(row[i], "^([^.]*)(.*)$")
      KNOWN[top] = true
      GROUPS[top] = GROUPS[top] or rest ~= ""
    end
  end
end
for old in next, renamed do KNOWN[string.match(old, "^[^.]*")] = true end
for name in next, OF_V1 do KNOWN[name] = nil end

-- LLaMA-Factory's parser takes no other names.
local function check_names(book, known)
  local names = keys(known)
  for _, leaf in ipairs(book.leaves) do
    local top = string.match(leaf.given or leaf.key, "^[^.]*")
    if not known[top] then
      local near = suggest(top, names)
      book:refuse(leaf.key, string.format("LLaMA-Factory has no argument \"%s\"%s", quote.shown(top),
                                          near and string.format(" (did you mean \"%s\"?)", near) or ""))
    elseif not GROUPS[top] and string.find(leaf.given or leaf.key, ".", 1, true) then
      book:refuse(leaf.key, quote.shown(top) .. ": expected a value, not a table of them")
    end
  end
end

-- ---- what the arguments say together ----

local KINDS = { lora = true, full = true, freeze = true, oft = true }

local function kind_of(book)
  local key, kind = "finetuning_type", book:value "finetuning_type"
  if kind == nil then return "lora" end
  if KINDS[kind] then return kind end
  book:refuse(key, string.format("%s = %s: expected lora, full, freeze or oft", key, quote.shown(kind)))
  return "full"
end

local function check_trains(book)
  if values.flag(book, "do_train") then return end
  local key = book:leaf "export_dir" and "export_dir" or book:leaf "do_train" and "do_train" or nil
  book:refuse(key, "do_train is not true: these arguments train nothing; do_train=true behind the file makes the plan of a training")
end

local function put_facts(book, m)
  m.kind, m.stage = kind_of(book), loss.stage(book)
  m.seq = model.sequence(book, m)
  m.muon = values.flag(book, "use_muon") and not (m.kind == "lora" and book:value "loraplus_lr_ratio" ~= nil)
  m.bf16, m.fp16 = values.flag(book, "bf16") or false, values.flag(book, "fp16") or false
  m.pure, m.fp8 = values.flag(book, "pure_bf16") or false, book:value "fp8" == true
  m.micro = values.whole(book, "per_device_train_batch_size", 1) or 8
  m.each = values.whole(book, "gradient_accumulation_steps", 1) or 1
end

-- ---- the plan ----

-- Why nothing of LLaMA-Factory's own steps; nil: it does.
local function stepped_by(m, ds)
  if m.bridge then return "below Megatron-Bridge Adam steps all alike" end
  return file_optimizer.is_there(ds) and "DeepSpeed's file has an optimizer, which steps all alike" or nil
end

local function put_rest(book, plan, m, config, strategy, ds)
  precision.put(book, plan, m, strategy, ds)
  precision.put_recompute(book, plan, m)
  experts.put(book, plan, m)
  adapter.put(book, plan, m, config, stepped_by(m, ds))
  loss.put(book, plan, m)
  precision.put_liger(book, plan, m, config)
  training.put_packed(book, plan, m)
  training.put_batch(book, plan, m)
  local steps = training.put_train(book, plan, m)
  optimizer.put(book, plan, m, steps, ds)
  data.put(book, plan, m)
  training.put_checkpoint(book, plan, steps)
end

function llamafactory.translate(book, plan, options)
  local m = {}
  if v1.is(book.leaves) then v1.settle(book, m) else rename(book) end
  check_names(book, m.v1 and v1.names or KNOWN)
  check_trains(book)
  ranks.put_axes(book, plan, m)
  put_facts(book, m)
  local config = m.stage and model.put(book, plan, options.model, m.seq)
  if not config then return book:apply_early(left_out) end
  m.experts = experts.has(config)
  adapter.settle(book, m)
  local strategy, ds = ranks.put_strategy(book, plan, m, config, options)
  put_rest(book, plan, m, config, strategy, ds)
  if ds then beside.finish(ds, book) end
  book:apply(left_out)
end

return llamafactory
