-- megatron.lua - settings of Megatron-LM and Megatron-Bridge as fields of a plan: arguments of scripts
-- and of test suites, --yaml-cfg files, and key=value of recipes. What does not take part in the
-- plan is in left_out.lua.
local further = use "import/further"
local keys = use "import/megatron/keys"
local layers = use "import/megatron/layers"
local model = use "import/megatron/model"
local quote = use "import/quote"
local ranks = use "import/megatron/ranks"
local left_out = use "import/megatron/left_out"
local scalar = use "import/scalar"
local step = use "import/megatron/step"
local training = use "import/megatron/training"
local unresolved = use("import/shell/value").unresolved

local megatron = { name = "Megatron", fields = use "import/megatron/fields",
                   describe = "arguments of Megatron (scripts, lists of --flag value, MODEL_ARGS, --yaml-cfg "
                     .. "files), settings of Megatron-Bridge (train.train_iters, model.tensor_model_parallel_size)",
                   absent = {} }

-- Keys that tell of Megatron, and how keys below groups begin.
local OWN = { ["train.train_iters"] = true, ["train.global_batch_size"] = true, ["train.micro_batch_size"] = true,
              ["model.tensor_model_parallel_size"] = true, ["model.pipeline_model_parallel_size"] = true,
              MODEL_ARGS = true }

function megatron.is(leaves)
  for _, leaf in ipairs(leaves) do
    if OWN[leaf.key] or string.find(leaf.key, "^MODEL_ARGS%.") or string.find(leaf.key, "^model_parallel%.")
      or string.find(leaf.key, "^language_model%.") or string.find(leaf.key, "^%-%-[%a_]") then
      return true
    end
  end
  return leaves.at.MODEL ~= nil and leaves.at.METRICS ~= nil
end

-- A text with a variable in it that the file does not set counts as given, but not as a value.
local function hide_unresolved(book)
  local value = book.value
  function book.value(self, key)
    local v = value(self, key)
    local leaf = self.leaves.at[key]
    if leaf and not leaf.open and type(v) == "string" and unresolved(v) then
      leaf.open = unresolved(v)
      self.unresolved[#self.unresolved + 1] = leaf
    end
    if leaf and leaf.open then return nil end
    return v
  end
  book.unresolved = {}
end

-- Settings whose values matter not: files, names.
local FREE = { save = true, load = true, tokenizer_model = true, program = true, vocab_file = true, merge_file = true }

-- "TP=VALUE or ", how the variable itself is given a value; "" of $(command) and of what is no name.
local function by_variable(open)
  local name = string.match(open, "^%${?([%a_][%w_]*)") or string.match(open, "^%${?([1-9]%d?)%f[%D]")
  if not name then return "" end
  local plain = string.find(name, "^%u[%u%d_]*$") or string.find(name, "^%d")
  return (plain and name or "'$" .. name) .. "=VALUE" .. (plain and "" or "'") .. " behind the file or "
end

local function refuse_unresolved(book)
  for _, leaf in ipairs(book.unresolved) do
    if not FREE[leaf.key] and not string.find(leaf.key, "^%l+%.") then
      book:refuse(leaf.key, string.format("%s has no value in the file: give one by %s--set %s=VALUE",
        quote.shown(leaf.open), book.leaves.arguments and by_variable(leaf.open) or "", quote.shown((string.gsub(leaf.given, "^.*%-%-", "")))))
    end
  end
end

local function say_strays(book)
  for _, leaf in ipairs(book.leaves) do
    if leaf.stray and not leaf.list then
      leaf.list = "not_expressible"
      leaf.text = unresolved(leaf.given) and "it has no value in the file: what it adds is not in the plan"
        or "it is no argument (--flag value or key=value)"
      if string.find(leaf.given, "^%$[@*]") then
        leaf.list, leaf.text = "no_effect", "arguments of the script come behind the file: key=value, 1=value"
      end
    end
  end
end

local function say_dropout(book)
  for _, key in ipairs { "hidden_dropout", "attention_dropout" } do
    if not book:leaf(key) and not book:leaf "recipe" then
      return book:assume("model", "no dropout; Megatron's default is 0.1")
    end
  end
end

-- What fields are made of, if there is a plan to have them.
local PARTS = [[
tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size expert_model_parallel_size
expert_tensor_parallel_size num_distributed_optimizer_instances devices num_nodes
num_layers_per_virtual_pipeline_stage num_virtual_stages_per_pipeline_rank virtual_pipeline_model_parallel_size
decoder_first_pipeline_num_layers decoder_last_pipeline_num_layers account_for_embedding_in_pipeline_split
account_for_loss_in_pipeline_split microbatch_group_size_per_virtual_pipeline_stage pipeline_model_parallel_layout
use_megatron_fsdp use_custom_fsdp use_torch_fsdp2 data_parallel_sharding_strategy use_distributed_optimizer
overlap_grad_reduce overlap_param_gather ddp_bucket_size ddp_num_buckets tp_comm_overlap sequence_parallel
mixed_precision bf16 fp16 grad_reduce_in_bf16 initial_loss_scale loss_scale_window hysteresis min_loss_scale recompute_granularity
recompute_method recompute_num_layers recompute_modules recompute_activations cp_comm_type
hierarchical_context_parallel_sizes moe_router_load_balancing_type moe_aux_loss_coeff moe_z_loss_coeff
moe_token_dispatcher_type moe_router_dtype moe_expert_capacity_factor moe_token_drop_policy
moe_router_bias_update_rate micro_batch_size global_batch_size seq_length rampup_batch_size
step_batch_size_schedule lr min_lr lr_decay_style lr_decay_iters lr_decay_samples lr_warmup_iters
lr_warmup_samples lr_warmup_fraction lr_warmup_init optimizer sgd_momentum muon_momentum
muon_num_ns_steps muon_use_nesterov muon_nesterov muon_scale_mode muon_extra_scale_factor lion_beta1 lion_beta2 adam_beta1 adam_beta2 adam_eps
weight_decay clip_grad train_iters train_samples seed log_interval save save_interval async_save
distributed_timeout_minutes deterministic_mode vocab_size make_vocab_size_divisible_by]]

-- Settings that are on where they are not given.
local ON = { grad_reduce_in_fp32 = true, decoupled_weight_decay = true, muon_split_qkv = true, fp8_wgrad = true }

local function say_no_plan(book)
  local function say(key) book:no_effect(key, "there is no plan to have it") end
  for key in string.gmatch(PARTS, "%S+") do say(key) end
  for _, key in ipairs(model.keys) do say(key) end
  for _, key in ipairs(layers.keys) do say(key) end
end

function megatron.translate(book, plan, options)
  keys.settle(book.leaves)
  for _, leaf in ipairs(book.leaves) do
    if leaf.value == scalar.null and not leaf.stray then
      book:no_effect(leaf.key, "null is as if it were not given")
    end
  end
  hide_unresolved(book)
  for _, note in ipairs(book.leaves.notes or {}) do
    book:assume(string.format("%s:%d", quote.shown(note.file), note.line), note.text)
  end
  say_strays(book)
  local m = ranks.sizes(book)
  local made = model.put(book, plan, options, m.tp)
  if made then
    m.layers, m.experts, m.arch = made.layers, made.experts, made.arch
    m.seq_limit = made.position == "learned" and made.max or nil
    if made.hidden then say_dropout(book) end
    ranks.put_mesh(book, plan, m, options, m.experts ~= nil)
    m.further = further.put(book, plan, m.arch, "mtp_num_layers", "mtp_loss_scaling_factor", 0.1)
    ranks.put_pipeline(book, plan, m)
    ranks.put_strategy(book, plan, m)
    step.put_precision(book, plan)
    step.put_recompute(book, plan, m)
    step.put_context(book, plan, m)
    step.put_moe(book, plan, m)
    local global = training.put_batch(book, plan, m)
    local steps = training.put_train(book, plan, global)
    training.put_optimizer(book, plan, steps, global)
    training.put_data(book, plan)
    training.put_checkpoint(book, plan)
    training.put_timeout(book, plan)
    training.put_environment(book, plan)
  else
    say_no_plan(book)
  end
  refuse_unresolved(book)
  for _, leaf in ipairs(book.leaves) do
    if leaf.value == false and not leaf.list and not ON[leaf.key] then book:no_effect(leaf.key, "it is off, as without it") end
  end
  if made then book:apply(left_out) else book:apply_early(left_out) end
end

return megatron
