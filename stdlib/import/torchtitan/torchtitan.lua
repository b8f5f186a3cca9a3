-- torchtitan.lua - torchtitan's settings as fields of a plan: its TOML files, and the
-- configurations of its Python registries, which have the same names (registry.lua). What does
-- not take part in the plan is in left_out.lua.
local model_field = use "import/model_field"
local quote = use "import/quote"
local read_text = use "read_text"
local ranks = use "import/torchtitan/ranks"
local left_out = use "import/torchtitan/left_out"
local further = use "import/further"
local flavors = use "import/torchtitan/flavors"
local scalar = use "import/scalar"
local put_fp8 = use("import/torchtitan/fp8").put
local training = use "import/torchtitan/training"
local values = use "import/values"

local torchtitan = { name = "torchtitan", fields = use "import/torchtitan/fields", absent = {},
                     describe = "settings of torchtitan (parallelism.*_degree, model.flavor)" }

-- Keys that no other system has.
local TELLING = {
  "model.flavor", "model_spec.0", "job.dump_folder", "job.description", "training.seq_len",
  "parallelism.data_parallel_shard_degree", "parallelism.tensor_parallel_degree",
  "training.num_tokens_per_microbatch_per_dp_rank", "training.tensor_parallel_degree",
  "training.local_batch_size", "training.data_parallel_degree",
}

function torchtitan.is(leaves)
  for _, key in ipairs(TELLING) do
    if leaves.at[key] then return true end
  end
  return false
end

-- ---- names that older versions have ----

local OLDER = {
  ["training.batch_size"] = "training.local_batch_size",
  ["training.warmup_steps"] = "lr_scheduler.warmup_steps",
  ["training.data_parallel_degree"] = "parallelism.data_parallel_shard_degree",
  ["training.data_parallel_shard_degree"] = "parallelism.data_parallel_shard_degree",
  ["training.data_parallel_replicate_degree"] = "parallelism.data_parallel_replicate_degree",
  ["training.tensor_parallel_degree"] = "parallelism.tensor_parallel_degree",
  ["training.compile"] = "compile.enable",
  ["training.seed"] = "debug.seed", ["training.deterministic"] = "debug.deterministic",
  ["training.disable_loss_parallel"] = "parallelism.disable_loss_parallel",
  ["training.fsdp_reshard_after_forward"] = "parallelism.fsdp_reshard_after_forward",
  ["parallelism.enable_compiled_autograd"] = "compile.autograd",
  ["experimental.enable_compiled_autograd"] = "compile.autograd",
  ["compile.enable_async_tensor_parallel"] = "parallelism.enable_async_tensor_parallel",
  ["checkpoint.enable_checkpoint"] = "checkpoint.enable",
  ["checkpoint.model_weights_only"] = "checkpoint.last_save_model_only",
  ["checkpoint.last_save_model_weights_only"] = "checkpoint.last_save_model_only",
  ["lr_scheduler.lr_min"] = "lr_scheduler.min_lr_factor",
  ["deterministic"] = "debug.deterministic", ["seed"] = "debug.seed",
}
for _, name in ipairs { "pipeline_parallel_degree", "pipeline_parallel_schedule",
  "pipeline_parallel_microbatches", "pipeline_parallel_split_points", "context_parallel_degree",
  "pipeline_parallel_schedule_csv", "context_parallel_rotate_method", "enable_async_tensor_parallel" } do
  OLDER["experimental." .. name] = "parallelism." .. name
end

-- Reinforcement learning has the same groups below trainer, and its batch in the loop.
local function name_of(key)
  key = string.gsub(key, "^trainer%.", "")
  local batch = string.match(key, "^async_loop%.batcher%.batch%.(.*)$")
  if batch and batch ~= "class" then return "training." .. batch end
  return OLDER[key] or key
end

local function rename(book)
  for _, leaf in ipairs(book.leaves) do
    local new = name_of(leaf.key)
    if new ~= leaf.key and not book.leaves.at[new] then
      book.leaves.at[leaf.key] = nil
      leaf.given, leaf.key = leaf.key, new
      book.leaves.at[new] = leaf
    end
  end
end

-- ---- the model ----

-- Families by the path of a registry and by how a configuration is named.
local function family_of(book, options)
  local key, name = book:first "model.name"
  if key then return key, tostring(name) end
  for _, text in ipairs { options.configuration or "", options.file } do
    for _, family in ipairs { "qwen3_5", "qwen35", "qwen3", "llama3", "llama4", "deepseek_v3",
                              "gpt_oss", "flux", "muse_glimmer", "kimi" } do
      if string.find(text, "^" .. family) or string.find(text, "[/_]" .. family .. "[/_]") then
        return nil, family
      end
    end
  end
  return nil, nil
end

-- Flavors that are public models by name, of families with models of several kinds.
local PUBLIC = { ["moonlight-16B-A3B"] = "moonlight-16b-a3b" }

-- How a flavor of a table of one's own is said, of the one beside the settings if there is one.
local function own_flavor(flavor, options)
  local beside = (string.match(options.file, "^.*/") or "./") .. "args.py"
  return string.format("; one of your own is --model %s:%s", pcall(read_text, beside) and quote.shown(beside)
                       or "FILE.py", quote.shown(flavor))
end

local function flavor_config(book, key, flavor, options)
  if PUBLIC[flavor] then
    book:translated(key, "model")
    return (use "import/models").find(PUBLIC[flavor])
  end
  local family_key, name = family_of(book, options)
  local family, what = nil, nil
  if name then family, what = flavors.family(name) end
  if not family then
    return book:refuse(family_key or key, what
      and string.format("%s is %s; weft has the families %s. --model NAME makes the plan with "
                        .. "another model", quote.shown(name), what,
                        table.concat(flavors.families, ", "))
      or string.format("%s is no family of models that weft knows (%s): give its config.json by "
                       .. "--model DIR", quote.shown(name or flavor),
                       table.concat(flavors.families, ", ")))
  end
  local config, why, note, documents = flavors.flavor(family, flavor)
  if not config then
    return book:refuse(key, string.format("%s %s%s", quote.shown(flavor), why, own_flavor(flavor, options)))
  end
  if family_key then book:translated(family_key, "model") end
  book:translated(key, "model")
  if note then book:cannot(key, note) end
  -- Registries of the later versions have kernels that tell documents apart unless they name another one.
  documents = documents or options.configuration and book:value "model_spec.attn_backend" == nil
  if documents then
    book:assume("packed", "each document attends to itself there; the id of the token between "
      .. "documents is not in the settings: packed = { eot = id } says it, and changes no size")
  end
  return config
end

local function put_model(book, plan, options)
  local hf, name = book:first("hf_transformers.model", "model.hf_model")
  if options.model then
    for _, one in ipairs { "model.name", "model.flavor", "model_spec.0" } do
      book:no_effect(one, "--model says which model the plan has")
    end
  end
  if options.model or hf then
    return model_field.put(plan, book, { leaf = hf and book:leaf(hf), name = name and tostring(name),
                                         changes = {}, length = training.length(book) }, options.model)
  end
  local key, flavor = book:first("model.flavor", "model_spec.0")
  if not key then
    return book:refuse(nil, "the settings name no model (model.flavor): give one by --model DIR "
                            .. "or --model NAME")
  end
  local config = flavor_config(book, key, tostring(flavor), options)
  if not config then return nil end
  flavors.settle(book, config, training.length(book), options.configuration ~= nil)
  local aside = model_field.take_aside(config)
  model_field.write(plan, config, nil, book:leaf(key))
  book:assume("model", "all weights begin with the spread of initializer_range; torchtitan's embeddings begin with 1, its "
              .. "head with 1 / sqrt(dim), and what goes back onto the residual stream with less, by its depth")
  return config, aside
end

-- ---- recompute and precision ----

local function every_nth(n, layers)
  local list = {}
  for i = n - 1, layers - 1, n do list[#list + 1] = "layers." .. i end
  return list
end

local PER_OP = "of each layer the cheap ops run again; there every second product does, too: "
  .. "less memory, more work"

local function put_selective(book, plan, layers, key, from)
  local option_key = "activation_checkpoint.selective_ac_option"
  local option = book:value(option_key)
  if option == nil and book:value "activation_checkpoint.class" == nil then option = "2" end
  local n = math.tointeger(tonumber(option))
  if n and n >= 1 and layers then
    local list = every_nth(n, layers)
    plan:put("recompute", #list == layers and quote.text "full" or #list > 0 and quote.value(list)
             or quote.text "none", book:leaf(option_key) or from)
    book:translated(option_key, "recompute: one layer of " .. n)
    return book:translated(key, "recompute: one layer of " .. n)
  end
  if option ~= nil and option ~= "op" then
    return book:refuse(option_key, string.format("%s = %s: expected \"op\" or a number of layers",
                                                 option_key, quote.shown(option)))
  end
  plan:put("recompute", quote.text "cheap", from)
  book:cannot(option_key, PER_OP)
  if book:leaf(option_key) then book:translated(key, "recompute") else book:cannot(key, PER_OP) end
  if not book:leaf(key) then book:assume("recompute", PER_OP) end
end

local CLASSES = { FullAC = "full", SelectiveAC = "selective", MemoryBudgetAC = "memory_budget" }

local function put_recompute(book, plan, config, registry)
  local key, mode = "activation_checkpoint.mode", book:value "activation_checkpoint.mode"
  local class = book:value "activation_checkpoint.class"
  if mode == nil and class ~= nil then
    key = "activation_checkpoint.class"
    mode = CLASSES[scalar.behind_last(tostring(class), ".")] or class
  end
  local from = book:leaf(key) or "torchtitan's default"
  -- A registry without one has none; the files of older versions have the selective one.
  mode = mode or (registry and "none" or "selective")
  if mode == "full" then
    plan:put("recompute", quote.text "full", from)
    book:translated(key, "recompute")
  elseif mode == "selective" then
    return put_selective(book, plan, config.num_hidden_layers, key, from)
  elseif mode == "memory_budget" then
    plan:put("recompute", quote.text "cheap", from)
    book:cannot(key, "the compiler chooses there what to keep under a budget; here the cheap ops "
                     .. "run again")
    book:cannot("activation_checkpoint.memory_budget", "there is no budget for activations")
  elseif mode == "none" then
    book:translated(key, "no recompute, as without it")
  else
    return book:refuse(key, string.format("%s = %s: expected full, selective, memory_budget or "
                                          .. "none", key, quote.shown(mode)))
  end
  book:no_effect("activation_checkpoint.selective_ac_option", "the mode is another one")
  book:no_effect("activation_checkpoint.memory_budget", "the mode is another one")
end

local function put_precision(book, plan, m, config)
  local key = "training.mixed_precision_param"
  local kind = values.type_of(book, key) or "bf16"
  local from = book:leaf(key) or "torchtitan's default"
  if not m.fsdp and (m.tp > 1 or m.pp > 1) then
    kind = values.type_of(book, "training.dtype") or "f32"
    from = "without FSDP, and with tp or pp, torchtitan computes in the type of the weights"
    book:no_effect(key, from)
    book:assume("precision", from)
  end
  plan:put("precision.param_dtype", quote.text(kind), from)
  book:translated(key, "precision.param_dtype")
  if kind ~= "f16" then put_fp8(book, plan, config) end
  local reduce = values.type_of(book, "training.mixed_precision_reduce")
  if reduce and reduce ~= "f16" then
    plan:put("precision.reduce_dtype", quote.text(reduce), book:leaf "training.mixed_precision_reduce")
    book:translated "training.mixed_precision_reduce"
  end
  if values.type_of(book, "training.dtype") == "f32" then
    book:translated("training.dtype", "f32 master weights, as there are always")
  elseif values.type_of(book, "training.dtype") == "bf16" and kind == "bf16" then
    for _, field in ipairs { "precision.master_dtype", "precision.grad_dtype", "optimizer.state_dtype" } do
      plan:put(field, quote.text "bf16", book:leaf "training.dtype")
    end
    if not reduce then plan:put("precision.reduce_dtype", quote.text "f32", "torchtitan's default") end
    book:translated("training.dtype", "precision.master_dtype")
  else
    book:cannot("training.dtype", "weights and what the optimizer keeps have this type; here master "
                .. "weights are f32: more memory, better sums")
  end
end

-- ---- experts ----

local function put_moe(book, plan, m, config, aside)
  local routed = config.num_experts or config.n_routed_experts or config.num_local_experts
  for _, key in ipairs { "parallelism.expert_parallel_comm_backend", "model_spec.moe_comm_backend" } do
    local value = book:value(key)
    if value ~= nil and (not routed or m.ep == 1) then
      book:no_effect(key, "experts are not cut: ep is 1")
    elseif value == "standard" then
      book:translated(key, "moe.dispatcher")
    elseif value ~= nil then
      book:cannot(key, "tokens go to their experts by alltoall, which gives the same sums by other "
                  .. "kernels")
    end
  end
  if not routed then return end
  if m.ep > 1 then plan:put("moe.dispatcher", quote.text "alltoall", "torchtitan's") end
  if config[1] == "deepseek_v3" then
    plan:put("moe.bias_update_rate", quote.value(aside.bias_update_rate or 0.001), "load_balance_coeff of the flavor")
  elseif config[1] == "qwen3_moe" then
    book:assume("moe", "torchtitan can move a bias of routers that balances experts; this model "
                .. "has none here")
  end
end

function torchtitan.translate(book, plan, options)
  rename(book)
  local config, aside = put_model(book, plan, options)
  if not config then return book:apply_early(left_out) end
  local m = ranks.put_mesh(book, plan, options)
  ranks.put_strategy(book, plan, m)
  ranks.put_pipeline(book, plan, m)
  ranks.put_context(book, plan, m)
  put_precision(book, plan, m, config)
  put_recompute(book, plan, config, options.configuration ~= nil)
  put_moe(book, plan, m, config, aside)
  further.put(book, plan, config[1], "model_spec.num_mtp_layers", "loss.mtp_scale", 0.3)
  training.put_loss(book, plan, m, training.put_batch(book, plan, m))
  local steps = training.put_train(book, plan)
  training.put_optimizer(book, plan, steps)
  training.put_data(book, plan)
  training.put_checkpoint(book, plan)
  book:apply(left_out)
end

return torchtitan
