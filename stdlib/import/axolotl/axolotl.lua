-- axolotl.lua - recipes of axolotl (YAML) as fields of a plan: base_model, adapter, datasets, and Transformers'
-- Trainer below them. What does not take part in the plan is in left_out.lua; which names axolotl
-- has, of all its versions, is what both tables have together. Defaults are those of axolotl/utils/schemas
-- (config.py, training.py, peft.py), of core/builders/base.py and of Transformers' TrainingArguments.
local adapter = use "import/axolotl/adapter"
local data = use "import/axolotl/data"
local left_out = use "import/axolotl/left_out"
local losses = use "import/axolotl/losses"
local model_field = use "import/model_field"
local optimizer = use "import/axolotl/optimizer"
local packing = use "import/axolotl/packing"
local precision = use "import/axolotl/precision"
local ranks = use "import/axolotl/ranks"
local scalar = use "import/scalar"
local training = use "import/axolotl/training"
local unknown = use "import/axolotl/unknown"
local values = use "import/values"
local zero = use "import/axolotl/zero"

local axolotl = { name = "axolotl", fields = use "import/axolotl/fields", absent = { [""] = true },
                  describe = "a recipe of axolotl (base_model, micro_batch_size, sequence_len)" }

-- Names that no other system has beside base_model, and that a recipe has.
local MARKS = { "micro_batch_size", "sequence_len", "num_epochs", "gradient_accumulation_steps", "datasets", "val_set_size",
                "sample_packing", "lora_r", "learning_rate", "pretraining_dataset" }

-- Two of them are enough where the model is another file's, or --model's.
function axolotl.is(leaves)
  local found = 0
  for _, name in ipairs(MARKS) do
    if leaves.at[name] then found = found + 1 end
  end
  return leaves.at.base_model ~= nil and found > 0
    or leaves.at.micro_batch_size ~= nil and leaves.at.sequence_len ~= nil
end

-- ---- the model ----

-- 1e-5 without a point is a text in YAML, and a number where a config has one.
local function plain(value)
  return type(value) == "string" and scalar.number(value) or value
end

-- What has no part in the sizes: said in left_out.lua.
local OUTPUTS = { output_router_logits = true, use_cache = true, router_aux_loss_coef = true, torch_dtype = true,
                  attn_implementation = true, _attn_implementation = true }

-- Keys of the model's config that the recipe sets: { key = { value =, leaves = } }.
local function changes_of(book)
  local changes = {}
  for _, leaf in ipairs(book.leaves) do
    local group, inner
    local path = string.match(leaf.key, "^model_config%.(.+)$") or string.match(leaf.key, "^overrides_of_model_config%.(.+)$")
    if path then group, inner = string.match(path, "^([^.]+)%.?(.*)$") end
    if group and not OUTPUTS[group] then
      changes[group] = changes[group] or { value = inner ~= "" and {} or nil, leaves = {} }
      if inner == "" then
        changes[group].value = plain(leaf.value)
      elseif type(changes[group].value) == "table" then
        model_field.set(changes[group].value, inner, plain(leaf.value))
      end
      table.insert(changes[group].leaves, leaf)
    end
  end
  return changes
end

-- Classes that are no causal language model. AutoModelForCausalLM and LlamaForCausalLM are one.
local function refuse_other_class(book, option)
  local key, class = book:first("type_of_model", "model_type")
  if not key or string.find(tostring(class), "CausalLM$") or string.find(tostring(class), "LMHeadModel$") then return end
  if option then return book:cannot(key, "the plan trains the causal language model of --model") end
  book:refuse(key, string.format("%s makes another kind of model than a causal language model, which is what weft "
                                 .. "trains; --model NAME makes the plan with one", unknown.shown(class)))
end

local function put_model(book, plan, options)
  refuse_other_class(book, options.model)
  local key, name = book:first("base_model", "base_model_config")
  if not key and not options.model then
    return book:refuse("base_model", "a recipe names its base_model: --model NAME gives another one")
  end
  return model_field.put(plan, book, { leaf = key and book:leaf(key), name = name and tostring(name),
                                       changes = changes_of(book) }, options.model)
end

function axolotl.translate(book, plan, options)
  unknown.check(book, axolotl.fields, left_out)
  local config = put_model(book, plan, options)
  if not config then return book:apply_early(left_out) end
  if not values.switch(book, "reinit_weights") then
    book:assume("model", "a run begins with random weights, and with those of the model by weft.hf \"DIR\"")
  end
  local kind = precision.kind(book)
  local file = zero.open(book, options.file, kind)
  local m = ranks.put_mesh(book, plan, options, config, file)
  local strategy = ranks.put_strategy(book, plan, m, file)
  if file then zero.put(file, book, plan, config) end
  local loss = losses.put(book, plan, config)
  local adapted = adapter.put(book, plan, config, loss)
  precision.put(book, plan, kind, strategy, { adapted = adapted, loss = loss, config = config })
  training.put_recompute(book, plan, adapted)
  training.put_batch(book, plan, m, loss)
  packing.put(book, plan, loss)
  training.put_chunks(book, plan, config, loss)
  local steps = training.put_train(book, plan, loss)
  optimizer.put(book, plan, { steps = steps, config = config, adapted = adapted, strategy = strategy, weights = kind.weights,
                              world = m.world, loss = loss })
  data.put(book, plan, loss)
  training.put_checkpoint(book, plan)
  book:apply(left_out)
end

return axolotl
