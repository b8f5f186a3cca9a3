-- automodel.lua - recipes of NeMo AutoModel (YAML) as fields of a plan. What does not take part
-- in the plan is in left_out.lua.
local further = use "import/further"
local adapter = use "import/automodel/adapter"
local data = use "import/automodel/data"
local experts = use "import/automodel/experts"
local fp8 = use "import/automodel/fp8"
local model_field = use "import/model_field"
local names = use "import/automodel/names"
local optimizer = use "import/automodel/optimizer"
local pytorch = use "import/pytorch"
local quote = use "import/quote"
local ranks = use "import/automodel/ranks"
local left_out = use "import/automodel/left_out"
local scalar = use "import/scalar"
local teacher = use "import/automodel/teacher"
local training = use "import/automodel/training"
local values = use "import/values"

local automodel = { name = "NeMo AutoModel", fields = use "import/automodel/fields",
                    describe = "a recipe of NeMo AutoModel (step_scheduler, distributed)",
                    absent = { none = true, None = true } }

-- Groups that other systems' settings do not have.
local TOPS = { step_scheduler = true, recipe = true, dist_env = true, recipe_args = true,
               distributed = true, autopipeline = true, flow_matching = true }

function automodel.is(leaves)
  for _, leaf in ipairs(leaves) do
    local top = string.match(leaf.key, "^[^.]*")
    if TOPS[top]
      or string.find(tostring(leaf.value), "^nemo_automodel%.") then
      return true
    end
  end
  return false
end

-- ---- the model ----

-- Keys of a config that change nothing that is trained, or that are told in left_out.lua.
local PLAIN = { _target_ = true, pretrained_model_name_or_path = true, name_or_path = true,
                trust_remote_code = true, use_cache = true, router_aux_loss_coef = true }

-- 1e-5 without a point is a text in YAML, and a number where a config has one.
local function plain(value)
  return type(value) == "string" and scalar.number(value) or value
end

-- Keys of the model's config that the recipe sets: { key = { value =, leaves = } }.
local function changes_of(book)
  local changes = {}
  for _, leaf in ipairs(book.leaves) do
    local key = string.match(leaf.key, "^model%.config%.([^.]+)$")
    local group, inner = string.match(leaf.key, "^model%.config%.([^.]+)%.(.+)$")
    if key and not PLAIN[key] then
      changes[key] = { value = plain(leaf.value), leaves = { leaf } }
    elseif group then
      changes[group] = changes[group] or { value = {}, leaves = {} }
      model_field.set(changes[group].value, inner, plain(leaf.value))
      table.insert(changes[group].leaves, leaf)
    end
  end
  local tied = book:leaf "model.tie_word_embeddings"
  if tied then changes.tie_word_embeddings = { value = tied.value, leaves = { tied } } end
  return changes
end

-- AutoModel's own GPT-2, by the arguments of the function that makes it.
local GPT2_SIZES = { vocab_size = 50257, n_positions = 2048, n_embd = 768, n_layer = 12, n_head = 12 }

local function gpt2_model(book, plan)
  if not string.find(tostring(book:value "model._target_" or ""), "%.build_gpt2_model$") then return nil end
  -- The default of its dropout, which no argument changes.
  local config = { "gpt2", activation_function = "gelu", attn_pdrop = 0.1, embd_pdrop = 0.1 }
  for _, name in ipairs(keys(GPT2_SIZES)) do
    config[name] = values.whole(book, "model." .. name, 1) or GPT2_SIZES[name]
    book:translated("model." .. name, "model." .. name)
  end
  config.n_positions = values.whole(book, "model.n_ctx", 1) or config.n_positions
  book:translated("model.n_ctx", "model.n_positions")
  for _, name in ipairs { "bos_token_id", "eos_token_id", "attn_implementation" } do
    book:no_effect("model." .. name, "it changes nothing that is trained")
  end
  book:translated "model._target_"
  model_field.write(plan, config, nil, book:leaf "model._target_")
  config.num_hidden_layers, config.max_position_embeddings = config.n_layer, config.n_positions
  return config
end

-- A config made of its keys alone, by the class that makes it; nil: it is made otherwise.
local function class_model(book, plan)
  local key = "model.config._target_"
  local class = tostring(book:value(key) or "")
  local name = scalar.behind_last(class, ".")
  if not string.find(name, "Config$") then return nil end
  if not names.classes[name] then
    book:refuse(key, string.format("%s is the config of an architecture that weft does not have; "
      .. "--model NAME makes the plan with another model", quote.shown(name)))
    return nil, true
  end
  local config = { names.classes[name] }
  model_field.change(book, config, nil, changes_of(book))
  model_field.settle_keys(book, config)
  book:translated(key, "model")
  model_field.write(plan, config, nil, book:leaf(key))
  return config
end

local TEXT_CLASS = { NeMoAutoModelForCausalLM = true, AutoModelForCausalLM = true }

local function refuse_other_class(book, option)
  local key, class = "model._target_", book:value "model._target_"
  if class == nil then return end
  local name = string.match(tostring(class), "^.*%.([^.]*)%.[^.]*$") or string.match(tostring(class), "^([^.]*)%.") or tostring(class)
  if TEXT_CLASS[name] then return end
  if option then return book:cannot(key, "the plan trains the causal language model of --model") end
  book:refuse(key, string.format("%s makes another kind of model than a causal language model, "
    .. "which is what weft trains; --model NAME makes the plan with one", quote.shown(class)))
end

local function put_model(book, plan, options)
  local gpt2 = not options.model and gpt2_model(book, plan)
  if gpt2 then return gpt2, {} end
  refuse_other_class(book, options.model)
  if not options.model then
    local config, refused = class_model(book, plan)
    if config or refused then return config, {} end
  end
  local key, name = book:first("model.pretrained_model_name_or_path",
    "model.config.pretrained_model_name_or_path", "model.config", "model.llm_path")
  if key == nil then key, name = book:first("recipe_args.target_model_name_or_path") end
  if key and string.find(key, "^recipe_args") and not options.model then
    return book:refuse(key, "the recipe trains a draft model beside this one, which weft cannot; "
                            .. "--model NAME makes the plan of a model alone")
  end
  return model_field.put(plan, book, { leaf = key and book:leaf(key),
    name = name and tostring(name), changes = changes_of(book) }, options.model)
end

-- ---- recompute and precision ----

local function put_recompute(book, plan)
  local key, value = book:first("distributed.activation_checkpointing",
                                "parallelizer.activation_checkpointing")
  if not key then return end
  if value == false then return book:no_effect(key, "it is off, as without it") end
  if value == true or value == "full" then
    plan:put("recompute", quote.text "full", book:leaf(key))
    return book:translated(key, "recompute = \"full\"")
  end
  if value ~= "selective" then
    return book:refuse(key, string.format("%s = %s: expected true, false, \"full\" or \"selective\"",
                                          quote.shown(key), quote.shown(value)))
  end
  plan:put("recompute", quote.text "selective", book:leaf(key))
  book:cannot(key, "AutoModel's keeps what chosen ops give; recompute = \"selective\" runs the core "
              .. "of attention again: other memory")
end

-- The optimizer steps the weights in their type, unless it keeps master weights itself. FSDP2 adds
-- gradients up in the type in which it sums them. `key` is nil where the recipe does not say the type.
local function put_masters(book, plan, strategy, key, weights, compute)
  local function say(how, what)
    if key then how(book, key, what) end
  end
  if weights == "f32" then return say(book.translated, "f32 master weights, as there are always") end
  local own = book:value "optimizer.master_weights" == true
  local from = key and book:leaf(key) or "AutoModel's default: the type of the model's files"
  if weights ~= "bf16" or compute ~= "bf16" then
    local what = "weights and what the optimizer keeps have this type; here master weights are f32: more memory, "
      .. "better sums"
    if key then book:cannot(key, what) else book:assume("precision", weights .. ": " .. what) end
  elseif own then
    say(book.translated, "f32 master weights, which the optimizer keeps")
  else
    plan:put("precision.master_dtype", quote.text "bf16", from)
    say(book.translated, "precision.master_dtype")
  end
  local sums = values.type_of(book, "distributed.mp_policy.reduce_dtype") or "f32"
  if strategy ~= "fsdp2" or sums == "bf16" then
    if compute == "bf16" then plan:put("precision.grad_dtype", quote.text "bf16", from) end
  elseif not own then
    book:assume("precision", "shards of gradients are f32, as they are summed; AutoModel rounds them to the "
                .. "weights' type after the last sum")
  end
end

-- The type of the weights, and the setting that says it: that of the model's files where the recipe says none,
-- or "auto".
local function weights_of(book, config, aside)
  local key, said = book:first("model.torch_dtype", "model.dtype", "model.compute_dtype")
  if key and said ~= "auto" then return values.type_of(book, key), key end
  local stored = aside.dtype and values.known_type(aside.dtype)
  local kind = stored or config[1] == "gpt2" and "f32" or "bf16"
  if not stored then
    book:assume("precision", string.format("weights are %s, the type of %s; AutoModel takes that of the model's files",
                                           kind, kind == "f32" and "GPT-2's files" or "most public files"))
  end
  return kind, key
end

-- FSDP2 computes in bf16 and sums gradients in f32 unless it is told otherwise; DDP has the
-- type of the weights.
local function put_precision(book, plan, strategy, m, config, aside)
  local compute, from = nil, nil
  if strategy == "fsdp2" then
    compute, from = "bf16", "AutoModel's default for fsdp2"
    for _, key in ipairs { "distributed.mp_policy.param_dtype", "distributed.autocast_dtype" } do
      local known = values.type_of(book, key)
      if known then compute, from = known, book:leaf(key) end
      book:translated(key, "precision.param_dtype")
    end
  end
  local weights, key = weights_of(book, config, aside)
  compute = compute or weights or "bf16"
  if weights then put_masters(book, plan, strategy, key, weights, compute) end
  plan:put("precision.param_dtype", quote.text(compute), from or key and book:leaf(key)
           or "the type of most public weights")
  if compute == "bf16" then fp8.put(book, plan, strategy, weights, m.experts) end
  local reduce = values.type_of(book, "distributed.mp_policy.reduce_dtype")
  if reduce == "f16" then
    book:refuse("distributed.mp_policy.reduce_dtype", "gradients are summed in f32 or bf16")
  elseif reduce then
    plan:put("precision.reduce_dtype", quote.text(reduce),
             book:leaf "distributed.mp_policy.reduce_dtype")
    book:translated "distributed.mp_policy.reduce_dtype"
  end
  book:no_effect("distributed.mp_policy.output_dtype",
                 "the loss is computed in f32 from logits in param_dtype")
  book:no_effect("distributed.mp_policy.cast_forward_inputs", "the model's inputs are token ids")
end

-- ---- the pipeline ----

-- AutoModel cuts the layers into ceil(layers / layers_per_stage) stages, rounded to a multiple
-- of pp; the first ones have one layer more where it does not divide.
local function put_stages(book, plan, m, schedule, layers)
  local prefix = "distributed.pipeline."
  local each = values.whole(book, prefix .. "layers_per_stage", 1)
  local round = book:value(prefix .. "round_virtual_stages_to_pp_multiple")
  local virtual = pytorch.one_stage[schedule] and 1 or 2
  if each then
    local stages = (layers + each - 1) // each
    local rest = stages % m.pp
    if rest ~= 0 and round == "up" then stages = stages + m.pp - rest end
    if rest ~= 0 and round == "down" then stages = stages - rest end
    if stages % m.pp ~= 0 or stages == 0 then
      return book:refuse(prefix .. "layers_per_stage", string.format(
        "%d layers a stage make %d stages of %d layers, which %d pipeline ranks cannot share: "
        .. "round_virtual_stages_to_pp_multiple: up", each, stages, layers, m.pp))
    end
    virtual = stages // m.pp
    book:translated(prefix .. "layers_per_stage")
  end
  book:translated(prefix .. "round_virtual_stages_to_pp_multiple")
  local stages = virtual * m.pp
  if stages > layers then
    return book:refuse(prefix .. "layers_per_stage", string.format(
      "%d layers are fewer than %d stages", layers, stages))
  end
  if virtual > 1 or not pytorch.one_stage[schedule] then
    plan:put("pp_plan.virtual", quote.value(virtual), book:leaf(prefix .. "layers_per_stage")
             or "AutoModel's default")
  end
  if layers % stages ~= 0 then
    local list = {}
    for i = 1, stages do list[i] = layers // stages + (i <= layers % stages and 1 or 0) end
    plan:put("pp_plan.layers", quote.value(list), "AutoModel's cut: larger stages first")
  end
end

local function put_pipeline(book, plan, m, config)
  if m.pp == 1 then
    for _, leaf in ipairs(book.leaves) do
      if string.find(leaf.key, "^distributed%.pipeline") then
        book:no_effect(leaf.key, "there is one pipeline stage")
      end
    end
    return
  end
  local schedule = pytorch.put_schedule(book, plan, "distributed.pipeline.pp_schedule",
                                        "AutoModel's default")
  local layers = scalar.integer(config.num_hidden_layers)
  if layers then return put_stages(book, plan, m, schedule, layers) end
  for _, name in ipairs { "layers_per_stage", "round_virtual_stages_to_pp_multiple" } do
    if book:leaf("distributed.pipeline." .. name) then
      book:cannot("distributed.pipeline." .. name, "the model does not say num_hidden_layers")
    end
  end
end

-- Noise on embeddings; 5 is AutoModel's default where it is asked for.
local function put_noise(book, plan)
  local key, field = "neftune.noise_alpha", "train.neftune_noise_alpha"
  if not book:has "neftune" then return end
  plan:put(field, quote.value(values.positive(book, key) or 5.0), book:leaf(key) or "AutoModel's default")
  book:translated(key, field)
end

local function put_further(book, plan, config)
  local key = "model.num_nextn_predict_layers"
  if book:has "peft" and (values.whole(book, key, 0) or 0) > 0 then
    return book:cannot(key, "layers that predict further tokens are not built beside an adapter: the plan has none")
  end
  further.put(book, plan, config[1], key, "model.mtp_loss_scaling_factor", 0.1)
end

function automodel.translate(book, plan, options)
  local config, aside = put_model(book, plan, options)
  if not config then return book:apply_early(left_out) end
  local m = ranks.put_mesh(book, plan, options)
  m.experts = experts.has(config)
  local strategy = ranks.put_strategy(book, plan, m)
  put_pipeline(book, plan, m, config)
  put_precision(book, plan, strategy, m, config, aside)
  put_recompute(book, plan)
  experts.put(book, plan, m)
  put_further(book, plan, config)
  adapter.put(book, plan, config, m.experts)
  training.put_packed(book, plan)
  training.put_batch(book, plan, m, config)
  experts.put_balance(book, plan, m, config, aside)
  training.put_loss(book, plan, config, teacher.put(book, plan))
  local steps = training.put_train(book, plan, m)
  put_noise(book, plan)
  optimizer.put(book, plan, steps, config, m.experts)
  data.put(book, plan)
  training.put_checkpoint(book, plan)
  training.put_timeout(book, plan)
  book:apply(left_out)
end

return automodel
