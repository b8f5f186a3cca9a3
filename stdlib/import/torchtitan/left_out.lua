-- left_out.lua - torchtitan's settings that do not take part in the plan: a row each,
-- { key or prefix.*, what, text }; see ledger.lua. The others are in torchtitan.lua and beside it.
local rule = use "import/rule"
local scalar = use "import/scalar"
local none, cannot, unless, off, switched =
  rule.none, rule.cannot, rule.unless, rule.off, rule.switched

local LOGS = "weft run --log and --tensorboard write every step"
local FP8 = "not said so of products in fp8: precision = { \"fp8\" } has tensorwise, rowwise and mxfp8 linears"
local ADAPTER = "here all parameters train: adapter = { \"lora\", rank = , alpha = } of the plan trains factors beside "
  .. "linears instead"
local CODE = "code of one's own is not read: what it changes is not in the plan"
local TRACE = "weft run --profile and weft show tell where time and memory go"
local WEIGHTS = "training begins with weights of its own: weft.hf reads those of a folder"
local MASKS = "which kernels compute does not change the plan; on GPUs see attention_backend"
local RL = "reinforcement learning: the plan trains the model alone, with the cross entropy of the "
  .. "next token"
local LOSS = "another loss, which is not translated: the plan trains with the cross entropy of the next token, "
  .. "and its field loss takes others"

-- Settings of conversions that count only where model.converters names one, or a switch is on.
local function converted(pattern, name, switch)
  return { pattern, function(book, leaf)
    local list = book:value "model.converters"
    local on = switch ~= nil and book:value(switch) == true
    for _, one in ipairs(type(list) == "table" and list or { list }) do
      on = on or string.find(tostring(one), name) ~= nil
    end
    if on then return book:cannot(leaf.key, FP8) end
    book:no_effect(leaf.key, "model.converters does not name it")
  end, FP8 }
end

return {
  none("job.custom_config_module", "settings of its own stand in this file, too"),
  none("job.*", "it names and prints the job"),
  none("profiling.*", TRACE), none("metrics.*", LOGS), none("dump_folder", LOGS),
  none("hf_assets_path", "tokens are made up: the plan reads no tokenizer"),
  none("model.hf_assets_path", "tokens are made up: the plan reads no tokenizer"),
  none("model.tokenizer_path", "tokens are made up: the plan reads no tokenizer"),
  none("tokenizer.*", "tokens are made up: the plan reads no tokenizer"),
  unless("model.norm_type", { "rmsnorm", "fused_rmsnorm", "compiled_rmsnorm" }, MASKS,
         "norms of weft's models are RMSNorm"),
  none("model.print_after_conversion", "weft show prints the plan"),
  { "model.converters", function(book, leaf)
    if type(leaf.value) == "table" and #leaf.value == 0 then
      return book:no_effect(leaf.key, "it is empty, as without it")
    end
    local names = type(leaf.value) == "table" and table.concat(leaf.value, " ") or tostring(leaf.value)
    book:cannot(leaf.key, string.find(string.lower(names), "lora") and ADAPTER or FP8)
  end },
  off("model.use_flex_attn", "each document attends to itself there: packed = { eot = id } says it"),
  unless("model.attn_mask_type", { "causal" }, "each token sees all before it",
         "each document attends to itself there: packed = { eot = id } says it"),
  cannot("model_args.*", CODE), cannot("model.*", "the model is what its flavor says"),
  off("model_spec.num_mtp_layers", "the model has no layers that predict further tokens"),
  { "model_spec.converters", function(book, leaf)
    local lora = string.find(string.lower(tostring(leaf.value)), "lora") ~= nil
    book:cannot(leaf.key, lora and ADAPTER or FP8)
  end },
  cannot("model_spec.non_blocking_capacity_factor",
    "rows for each expert are as many as come: moe.max_tokens_factor plans fewer"),
  none("model_spec.class", "the model is what its flavor says"),
  unless("model_spec.attn_backend", { "sdpa" }, MASKS,
         "kernels that can tell documents apart: packed = { eot = id } says that they are"),
  cannot("model_spec.*", "an argument of the model that weft does not know"),

  none("optimizer.implementation", "kernels of the optimizer do not change its numbers"),
  none("optimizer.fused", "kernels of the optimizer do not change its numbers"),
  off("optimizer.early_step_in_backward", "a step waits for all gradients"),
  cannot("optimizer.*", "an option of an optimizer that weft does not have"),
  none("lr_scheduler.class", "optimizer.lr says it"),
  cannot("lr_scheduler.*", "an option of learning rates that weft does not have"),

  none("training.class", "the fields of the plan say it"),
  none("training.gc_freq", "there is no garbage to collect while steps run"),
  none("training.gc_debug", "there is no garbage to collect while steps run"),
  none("training.dataloader.*", "data are read ahead by the program"),
  { "training.disable_cuda_graphs", function(book, leaf)
    book:no_effect(leaf.key, "on GPUs steps are replayed as one graph: cuda_graph = false does not")
  end },
  off("training.fp8_linear", FP8),
  off("training.compile", "plans are compiled always"),

  none("parallelism.class", "mesh and strategy say it"),
  none("parallelism.spmd_backend", "plans are cut by weft's own rules"),
  off("parallelism.enable_fsdp_symm_mem", "collectives are those of the backend"),
  none("parallelism.pipeline_parallel_expert_parallel_overlap",
       "which transfers overlap is said by the schedule"),
  off("parallelism.context_parallel_ptrr_mask_key", "documents are told apart by packed"),
  none("parallelism.pipeline_parallel_split_mode", "models are cut by their units"),

  off("checkpoint.load_only", "a run with plan.checkpoint writes them"),
  none("checkpoint.class", "plan.checkpoint says it"),
  none("checkpoint.last_save_model_only", "each checkpoint is whole; weft ckpt export takes the weights"),
  none("checkpoint.export_dtype", "weft ckpt export says the type of what it writes"),
  off("checkpoint.last_save_in_hf", "see checkpoint.save_consolidated"),
  off("checkpoint.initial_load_path", WEIGHTS), none("checkpoint.initial_load_model_only", WEIGHTS),
  off("checkpoint.initial_load_in_hf", WEIGHTS), off("checkpoint.initial_load_in_hf_quantized", WEIGHTS),
  none("checkpoint.load_step", "weft run --resume DIR goes on from a checkpoint"),
  off("checkpoint.exclude_from_loading", "all of a checkpoint is loaded"),
  none("checkpoint.enable_ft_dataloader_checkpoints", "the place in the data is in each checkpoint"),
  off("checkpoint.enable_first_step_checkpoint", "the first one is written after checkpoint.every steps"),
  none("checkpoint.create_seed_checkpoint", "initial values do not depend on the mesh"),
  unless("checkpoint.interval_type", { "steps" }, "checkpoint.every counts steps",
         "checkpoint.every counts steps, not seconds"),
  cannot("checkpoint.*", "an option of checkpoints that weft does not have"),

  none("activation_checkpoint.class", "recompute says it"),
  none("activation_checkpoint.early_stop", "only what is needed runs again"),
  none("activation_checkpoint.preserve_rng_state", "random numbers go by name and index"),
  none("activation_checkpoint.determinism_check", "copies give the same bits"),
  none("activation_checkpoint.debug", "copies give the same bits"),
  none("activation_checkpoint.visualize_memory_budget_pareto", "weft show memory draws"),
  cannot("activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns",
         "recompute chooses by units and modules, not by shapes"),
  none("activation_checkpoint", "there is none, as without it"),
  cannot("activation_checkpoint.*", "another choice of what runs again"),

  none("compile.*", "plans are compiled always"),
  converted("quantize.linear.float8.*", "float8"), converted("quantize.grouped_mm.float8.*", "float8"),
  converted("quantize.linear.mx.*", "mx"), converted("quantize.grouped_mm.mx.*", "mx"),
  converted("quantize.*", "float8"), converted("mx.*", "mx"),
  converted("float8.*", "float8", "float8.enable_float8_linear"),

  none("comm.class", "comm says it"),
  none("comm.init_timeout_seconds", "weft run says how long it waits for processes"),
  none("comm.trace_buf_size", TRACE), none("comm.save_traces_folder", TRACE),
  none("comm.save_traces_file_prefix", TRACE),
  unless("comm.mode", { "default" }, "weft run --comm says which backend carries data",
         "backends without transfers are for weft check, which needs none"),
  none("memory_estimation.*", "weft show memory tells it"),
  switched("fault_tolerance", "enable", "ranks that come and go, and local steps between sums, are "
           .. "not in weft: a run ends and goes on from a checkpoint"),
  switched("validation", "enable", "there is no evaluation without data for it: see data.val and "
           .. "train.eval_every"),
  cannot("validator.*", "there is no evaluation without data for it: see data.val and train.eval_every"),
  off("debug.moe_force_load_balance", "experts are chosen by their routers"),
  none("debug.deterministic_warn_only", "deterministic says it"),
  none("debug.class", "plan fields say it"), none("debug.print_config", "weft show prints the plan"),
  none("debug.*", "it is about torchtitan's own checks"),
  off("experimental.custom_import", CODE), off("experimental.custom_args_module", CODE),
  off("experimental.custom_model_path", CODE),
  cannot("experimental.*", CODE),

  { "loss.class", function(book, leaf)
    local name = scalar.behind_last(tostring(leaf.value), ".")
    if name == "CrossEntropyLoss" then
      return book:no_effect(leaf.key, "the loss is the cross entropy of the next token")
    end
    book:cannot(leaf.key, LOSS)
  end },
  unless("loss.loss_fn.class", { "CrossEntropyLoss" }, "the loss is the cross entropy of the next token",
         LOSS),
  none("loss.global_vocab_size.*", "the vocabulary is the model's"),
  none("loss.loss_fn.global_vocab_size.*", "the vocabulary is the model's"),
  none("loss.num_chunks", "it counts with a loss in pieces"),
  cannot("loss.*", LOSS),
  cannot("dataloader.collator.*", "images are not read: the plan trains the language model alone"),
  none("dataloader.*", "samples are made up, as long as steps are taken"),
  cannot("collator.*", "images are not read: the plan trains the language model alone"),
  none("compile", "plans are compiled always"),
  cannot("override.*", CODE),
  cannot("data.*", "images are not read: the plan trains the language model alone"),
  cannot("encoder.*", "it is of another kind of model"),
  cannot("inference.*", "it is of another kind of model"),
  cannot("base", "the configuration that this one begins with is not in the file: what it says is "
         .. "not in the plan"),
  cannot("code.*", CODE),
  none("trainer.class", "the plan is what is trained"),
  none("profiler.*", TRACE), cannot("num_generators", RL), cannot("trainer.*", RL),
  cannot("async_loop.*", RL), cannot("rollouter.*", RL), cannot("renderer.*", RL),
  cannot("generator.*", RL), cannot("generator_router.*", RL), cannot("rubric.*", RL),
  cannot("batch_invariant", "samples do not depend on the batch that they are in, but for the order "
         .. "of sums"),
  none("hf_transformers.*", "which kernels compute does not change the plan"),
}
