-- v1.lua - arguments of LLaMA-Factory's v1 (USE_V1=1) under the names of its others, and with its own defaults
-- (v1/config, v1/plugins), so that what follows reads both alike. A default is a leaf of no list.
local quote = use "import/quote"
local scalar = use "import/scalar"
local values = use "import/values"

local v1 = {}

-- ---- which they are ----

local OWN = { train_dataset = true, model_class = true, batching_strategy = true, enable_activation_checkpointing = true }
local GROUPS = { peft_config = true, dist_config = true, quant_config = true, kernel_config = true, optim_config = true }

-- Arguments that name the model `model`, and one that the others do not have.
function v1.is(leaves)
  if leaves.at.model == nil or leaves.at.model_name_or_path ~= nil then return false end
  for _, leaf in ipairs(leaves) do
    if OWN[leaf.key] or GROUPS[string.match(leaf.key, "^[^.]*")] then return true end
  end
  return false
end

v1.names = {}
for name in string.gmatch([[model custom_chat_template trust_remote_code flash_attn model_class init_config peft_config
  kernel_config quant_config train_dataset eval_dataset output_dir micro_batch_size global_batch_size cutoff_len
  learning_rate num_train_epochs max_steps max_grad_norm bf16 batching_strategy batching_workers
  enable_activation_checkpointing dist_config dp_size cp_size cp_mode mp_replicate_size mp_shard_size dist_timeout
  optim_config lr_scheduler_config seed full_determinism resume_from_checkpoint save_steps save_epochs save_ckpt_as_hf
  save_total_limit logging_steps pref_loss pref_beta pref_ftx simpo_gamma dpo_label_smoothing ld_alpha sample_backend
  max_new_tokens]], "%S+") do v1.names[name] = true end

-- ---- names ----

local SAME = {
  model = "model_name_or_path", train_dataset = "dataset", micro_batch_size = "per_device_train_batch_size",
  dist_timeout = "ddp_timeout", cp_size = "context_parallel_size", ["dist_config.ep_size"] = "expert_model_parallel_size",
  ["dist_config.config_file"] = "deepspeed", ["dist_config.reshard_after_forward"] = "fsdp_config.reshard_after_forward",
  ["dist_config.offload_params"] = "fsdp_config.offload_params", ["peft_config.name"] = "finetuning_type",
  ["peft_config.r"] = "lora_rank", ["peft_config.target_modules"] = "lora_target",
  ["peft_config.modules_to_save"] = "additional_target", ["quant_config.name"] = "quantization_method",
}
for name in string.gmatch([[lora_alpha lora_dropout use_rslora use_dora adapter_name_or_path freeze_trainable_layers
  freeze_trainable_modules freeze_extra_modules export_dir export_size export_hub_model_id infer_dtype
  export_legacy_format]], "%S+") do SAME["peft_config." .. name] = name end
for _, name in ipairs { "quantization_bit", "quantization_type", "double_quantization" } do SAME["quant_config." .. name] = name end

local function rename(book)
  for _, leaf in ipairs(book.leaves) do
    local key = SAME[leaf.key]
    if key then
      book.leaves.at[leaf.key], book.leaves.at[key] = nil, leaf
      leaf.given, leaf.key = leaf.given or leaf.key, key
    end
  end
end

-- ---- defaults ----

local FROM = "LLaMA-Factory v1's default"

local function default(book, key, value)
  if book.leaves.at[key] == nil then book.leaves.at[key] = { key = key, value = value, file = FROM } end
end

local DEFAULTS = { model_name_or_path = "Qwen/Qwen3-4B-Instruct-2507", per_device_train_batch_size = 1,
                   learning_rate = 1e-4, lr_scheduler_type = "constant", bf16 = true, logging_steps = 1 }
local LORA = { lora_rank = 8, lora_alpha = 16, lora_dropout = 0.05 }

local function put_defaults(book)
  for key, value in pairs(DEFAULTS) do default(book, key, value) end
  default(book, "do_train", book:leaf "export_dir" == nil)
  default(book, "finetuning_type", book:has "peft_config" and "lora" or "full")
  if book:value "finetuning_type" == "lora" then
    for key, value in pairs(LORA) do default(book, key, value) end
  end
  if not book:leaf "save_steps" then default(book, "save_strategy", "no") end
  local preferred = book:first("pref_loss", "pref_beta", "simpo_gamma", "dpo_label_smoothing", "pref_ftx", "ld_alpha")
  default(book, "stage", preferred and "dpo" or "sft")
  book:assume("loss", preferred and "that of pairs, as arguments of it are given: the command says which training it is"
              or "cross entropy: which training it is, sft or dpo, the command says")
end

-- ---- what has another form ----

local function put_backend(book)
  local key = "dist_config.name"
  local name = book:value(key)
  if name == "fsdp2" or name == "fsdpturbo" then
    default(book, "fsdp", "full_shard")
  elseif name ~= nil and name ~= "deepspeed" then
    book:refuse(key, string.format("%s = %s: expected fsdp2, fsdpturbo or deepspeed", key, quote.shown(name)))
  end
  book:translated(key, "strategy")
end

local function put_recompute(book)
  local key = "enable_activation_checkpointing"
  local on = values.flag(book, key)
  if on == false then default(book, "disable_gradient_checkpointing", true) end
  book:translated(key, on == false and "recompute, none" or "recompute")
end

local ONE_SAMPLE = { normal = true, padding_free = true }

local function say_batching(book)
  local key, how = "batching_strategy", book:value "batching_strategy"
  if how == nil then return end
  if ONE_SAMPLE[how] then return book:no_effect(key, "each sample attends to itself, and has a sequence of its own") end
  if how ~= "dynamic_batching" and how ~= "dynamic_padding_free" then
    return book:refuse(key, string.format("%s = %s: expected normal, padding_free, dynamic_batching or dynamic_padding_free", key,
                                          quote.shown(how)))
  end
  book:cannot(key, "microbatches have about as many tokens there, of as many samples as that takes: here as many samples")
end

-- Muon's options; all other optimizers are PyTorch's AdamW, of which all parameters decay.
local function put_optimizer(book, m)
  local key, name = "optim_config.name", book:value "optim_config.name"
  m.decays_all = true
  if name == nil then return default(book, "weight_decay", 0.01) end
  if name ~= "muon" then
    return book:refuse(key, string.format("%s = %s: LLaMA-Factory's v1 has muon, and AdamW without optim_config", key,
                                          quote.shown(name)))
  end
  default(book, "use_muon", true)
  local decay = book:leaf "optim_config.wd"
  if decay then book.leaves.at.weight_decay = decay else default(book, "weight_decay", 0.1) end
  book:translated(key, "optimizer")
end

-- Puts Muon's numbers before those that are LLaMA-Factory's otherwise.
function v1.put_muon(book, plan)
  local K = "optim_config."
  values.put_positive(book, plan, K .. "momentum", "optimizer.momentum")
  values.put_flag(book, plan, K .. "nesterov", "optimizer.nesterov")
  values.put_whole(book, plan, K .. "ns_steps", "optimizer.ns_steps", 1)
  values.put_pair(book, plan, K .. "adamw_betas", "optimizer.betas")
  plan:put("optimizer.betas", "{ 0.9, 0.95 }", FROM)
  values.put_positive(book, plan, K .. "adamw_eps", "optimizer.eps")
  if plan:has "adapter" then
    book:assume("optimizer", "factors of adapters are matrices to Muon here, as others are; v1 steps them by AdamW")
  end
end

-- ---- ranks, batch, precision ----

-- Sequences are cut by exchanging heads.
function v1.put_mesh(book, plan, m)
  if m.cp > 1 then
    local mode = book:value "cp_mode" or "ulysses"
    if mode ~= "ulysses" then
      book:refuse("cp_mode", string.format("cp_mode = %s: expected ulysses", quote.shown(mode)))
    end
    plan:put("cp.comm", quote.text "a2a", book:leaf "cp_mode" or FROM)
    book:translated("cp_mode", "cp.comm")
  end
  book:no_effect("cp_mode", "a sequence is not cut")
  local copies = values.whole(book, "mp_replicate_size", 1)
  if copies and copies > 1 then plan:put("mesh.dp_replicate", quote.value(copies), book:leaf "mp_replicate_size") end
  book:translated("mp_replicate_size", "mesh.dp_replicate")
end

-- Microbatches of a step, of the samples that a step has.
function v1.put_steps(book, m)
  local key = "global_batch_size"
  local global = values.whole(book, key, 1)
  if not global then return end
  if global % (m.micro * m.dp) ~= 0 then
    return book:refuse(key, string.format("%d is no multiple of micro_batch_size = %d on %d data-parallel ranks", global, m.micro,
                                          m.dp))
  end
  m.each = global // (m.micro * m.dp)
  book:translated(key, "batch.global")
end

local SAVED = "what modules_to_save names has f32 master weights, gradients and averages; there they are bf16, as PEFT makes factors "
  .. "alone f32"
local KEPT = "shards of gradients are f32, as they are summed; there they are rounded to the weights' type after the last sum"

-- Weights have the type of their files, bf16; what an adapter adds, and layers that are not frozen, have f32 masters.
function v1.put_precision(book, plan, m, strategy)
  local learns = m.kind ~= "full"
  if strategy == "fsdp2" then
    plan:put("precision.param_dtype", quote.text(m.bf16 and "bf16" or "f32"), book:leaf "bf16")
    if not learns and m.bf16 then
      plan:put("precision.master_dtype", quote.text "bf16", "weights have the type of their files")
      book:assume("precision", KEPT)
      m.pure = true
    end
  else
    plan:put("precision.param_dtype", quote.text "bf16", "weights have the type of their files")
    if not learns then
      plan:put("precision.master_dtype", quote.text "bf16", "weights have the type of their files")
      plan:put("precision.grad_dtype", quote.text "bf16", "weights have the type of their files")
      m.pure = true
    end
  end
  if m.kind == "lora" and book:value "additional_target" ~= nil and plan:source "precision.param_dtype" == quote.text "bf16" then
    book:assume("precision", SAVED)
  end
  book:translated("bf16", "precision")
end

-- A row of v1 has both answers of a pair, and microbatches count by what their rows learn.
function v1.say_pairs(book)
  book:assume("batch.seq", "each answer of a pair has cutoff_len tokens with its prompt; v1 cuts both together to cutoff_len")
  book:assume("loss", "all pairs of a step count alike; v1 weighs the mean of each microbatch by its label tokens")
end

-- Before all else: names, defaults and what stands elsewhere among the others.
function v1.settle(book, m)
  m.v1 = true
  rename(book)
  put_defaults(book)
  put_backend(book)
  put_recompute(book)
  say_batching(book)
  put_optimizer(book, m)
  local class = book:value "model_class"
  if class ~= nil and class ~= "llm" then
    book:refuse("model_class", string.format("model_class = %s: weft trains causal language models, llm", quote.shown(class)))
  end
  if scalar.integer(book:value "max_steps" or 1) == 0 then book:no_effect("max_steps", "num_train_epochs says how long") end
end

return v1
