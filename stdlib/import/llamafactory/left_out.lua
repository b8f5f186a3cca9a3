-- left_out.lua - LLaMA-Factory's arguments that do not take part in the plan: a row each, { key or prefix.*,
-- what, text }; see ledger.lua. The others are in fields.lua. Names of older versions that stand for newer ones
-- are in renamed.lua. All names that any version takes are in one of the three: another one is an error.
local rule = use "import/rule"
local none, cannot, unless, off = rule.none, rule.cannot, rule.unless, rule.off

local rows = {}

-- A row for each of these names.
local function all(names, make, ...)
  for name in string.gmatch(names, "%S+") do rows[#rows + 1] = make(name, ...) end
end

-- Arguments that count only if another one, `switch`, is on, or is `wanted`.
local function with(key, switch, change, wanted)
  return { key, function(book, leaf)
    local value = book:value(switch)
    if wanted and value == wanted or not wanted and value ~= nil and value ~= false then
      return book:cannot(leaf.key, change)
    end
    book:no_effect(leaf.key, string.format("it counts with %s%s alone", switch, wanted and ": " .. wanted or ""))
  end, change }
end

-- What is said of evaluation: nothing is evaluated unless it is asked for.
local EVAL = "there is no evaluation without data for it: data.val, or data.val_fraction, with train.eval_every"
local function of_evaluation(key)
  return { key, function(book, leaf)
    local when = book:value "eval_strategy" or "no"
    if (when == "no" or when == false) and book:value "do_eval" ~= true then
      return book:no_effect(leaf.key, "nothing is evaluated")
    end
    book:cannot(leaf.key, EVAL)
  end, EVAL }
end

-- ---- the model and its tokens ----

local HUB = "weft downloads nothing, and sends nothing"
local KERNELS = "which kernels compute does not change the plan; on GPUs see attention_backend"
local IMAGES = "the plan trains a model of texts"
local GROWN = "the embeddings grow by these tokens there: weft.hf { \"DIR\", vocab_size = N, new_tokens = \"mean\" } says how many "
  .. "there are"

all("trust_remote_code", none, "code that comes with a model is never run")
all([[cache_dir model_revision hf_hub_token ms_hub_token om_hub_token push_to_hub hub_token hub_private_repo hub_model_id
  hub_strategy hub_always_push hub_revision push_to_hub_token push_to_hub_model_id push_to_hub_organization]], none, HUB)
all("use_fast_tokenizer padding_side", none, "made-up tokens have no tokenizer")
all("resize_vocab add_tokens add_special_tokens new_special_tokens_config", off, GROWN)
all("init_special_tokens", unless, { "noise_init" }, "rows of new tokens begin as their mean", GROWN)
all("split_special_tokens", off, "the text of a special token in a message becomes that token")
all("low_cpu_mem_usage", none, "no rank reads more than it keeps")
all("flash_attn use_v1_kernels use_unsloth disable_version_checking use_fast transformer_impl", none, KERNELS)
all("shift_attn", off, "each token attends to all before it, not in groups that are shifted")
all("mixture_of_depths", off, "all tokens go through all layers")
all("use_unsloth_gc", off, "inputs of layers that run again stay on the device: more memory")
all("use_reentrant_gc gradient_checkpointing_kwargs.* gradient_checkpointing_kwargs activation_checkpointing_kwargs.*", none,
    "losses and gradients have the same bits with any way of running layers again")
all("upcast_layernorm", off, "weights of norms have the type of precision where ops read them")
all("upcast_lmhead_output", none, "the loss is computed in f32")
all("train_from_scratch", unless, { true }, "a run begins with random weights",
    "a run begins with random weights, not with those of the model; weft.hf \"DIR\" has them")
all("moe_aux_loss_coef", off, "the loss of routers is of the choices of all layers together there; moe.aux_loss_coef balances "
    .. "each layer by itself")
all("print_param_status", none, "weft show says what a plan means")
all("adapter_name_or_path", cannot, "an adapter begins anew: adapter.from is a folder below the plan's, of one adapter")
all("adapter_folder", off, "the folder of an adapter is given whole: adapter.from")
all("quantization_device_map", none, "it is about inference")
all([[image_max_pixels image_min_pixels image_do_pan_and_scan crop_to_patches video_max_pixels video_min_pixels video_fps
  video_maxlen use_audio_in_video audio_sampling_rate media_dir image_dir image_resolution video_resolution visual_inputs
  freeze_vision_tower freeze_multi_modal_projector train_mm_proj_only]], none, IMAGES)
all("freeze_language_model", off, "nothing would be left that learns: the plan trains it")

-- ---- generating, serving, exporting ----

all([[do_sample temperature top_p top_k num_beams max_length max_new_tokens repetition_penalty length_penalty
  skip_special_tokens infer_backend infer_dtype offload_folder use_kv_cache use_cache predict_with_generate do_predict
  generation_max_length generation_num_beams generation_config eval_num_beams sortish_sampler
  vllm_maxlen vllm_gpu_util vllm_enforce_eager vllm_max_lora_rank vllm_config vllm_config.* vllm_dtype
  sglang_maxlen sglang_mem_fraction sglang_tp_size sglang_config sglang_config.* sglang_lora_backend]], none,
    "it is about generating text, not about training: see weft sample")
all([[export_dir export_size export_device export_quantization_bit export_quantization_dataset export_quantization_nsamples
  export_quantization_maxlen export_legacy_format export_hub_model_id export_hf_on_finish save_hf_model save_merged_model]],
    none, "weft ckpt export and weft ckpt merge write folders")
all([[task task_dir batch_size lang n_shot save_dir download_mode]], none, "it is about benchmarks, not about training")

local KT = "experts and their products stay on GPUs, in the type of precision"
all("use_kt", off, KT)
all([[kt_config kt_config.* kt_cpu_activation kt_weight_path kt_non_expert_weight_path kt_expert_checkpoint_path
  kt_use_lora_experts kt_lora_expert_num kt_lora_expert_intermediate_size kt_optimize_rule kt_maxlen kt_use_cuda_graph
  kt_mode kt_force_think cpu_infer chunk_size mode]], with, "use_kt", KT)

-- ---- data ----

local DATA = "data are not read: the plan has weft.synthetic; weft.chat reads conversations in JSON lines or JSON"
all([[dataset eval_dataset dataset_dir template tool_format default_system train_on_prompt mask_history max_samples val_size tokenized_path
  mix_strategy interleave_probs cache_path source_prefix split]], cannot, DATA)
all("max_source_length max_target_length", cannot, "prompts and answers have one length together: batch.seq")
all("reserved_label_len", cannot, "conversations are cut at their end")
all("enable_thinking preserve_thinking", none, "options of weft.chat's template say it: enable_thinking, keep_reasoning")
all("streaming", off, "data are files: a run knows all of their samples")
all("buffer_size overwrite_cache preprocessing_batch_size preprocessing_num_workers data_shared_file_system", none,
    "token files are made once, and read beside the steps")
all("ignore_pad_token_for_loss", unless, { true }, "padding is not learnt", "padding is not learnt")
all([[dataloader_num_workers dataloader_pin_memory dataloader_persistent_workers dataloader_prefetch_factor
  dataloader_multiprocessing_context dataloader_in_order remove_unused_columns label_names length_column_name
  dispatch_batches ignore_data_skip]], none, "data is read beside the steps, samples by global number")
all("dataloader_drop_last", none, "all steps have whole batches")
all("split_batches", off, "batch.micro is of each rank")
all("accelerator_config accelerator_config.*", cannot, "microbatches are of each rank, and samples come by global number")
all("group_by_length", off, "samples come in a shuffled order, whatever their length")
all("train_sampling_strategy", unless, { "random" }, "samples come in a shuffled order",
    "samples come in a shuffled order, whatever their length")
all("disable_shuffling", off, "samples are shuffled, unless data.shuffle of data in files is false")
all("data_seed", cannot, "train.seed is that of the order of samples, too")

-- ---- how it learns ----

local LOSS = "another loss, which is not translated: the plan trains with the cross entropy of the next token, and its field "
  .. "loss takes functions"
all("use_dft_loss use_eaft_loss use_asft_loss", off, LOSS)
all("asft_alpha", with, "use_asft_loss", LOSS)
all("eaft_alpha", with, "use_eaft_loss", LOSS)
all("label_smoothing_factor", off, "labels count whole: a loss of the plan's own may smooth them")
all("average_tokens_across_devices", unless, { true }, "the loss is divided by the label tokens of the whole step",
    "the loss is divided by the label tokens of the whole step, not of each rank by itself")
all("pref_ftx", off, "the cross entropy of the better answer is not added")
all("pref_bco_weight", off, "no loss of a binary classifier is added")
all("ld_alpha", off, "all tokens of an answer count alike")
all("ref_model ref_model_adapters ref_model_quantization_bit", with, "stage",
    "the reference is the model as it begins: loss.reference_file has what another one gives", "dpo")
all("kto_chosen_weight kto_rejected_weight", with, "stage", LOSS, "kto")
all([[ppo_buffer_size ppo_epochs ppo_score_norm ppo_target ppo_whiten_rewards ppo_logger reward_model reward_model_adapters
  reward_model_quantization_bit reward_model_type reward_model_checkpoint]], with, "stage",
    "weft has no reinforcement learning", "ppo")

local OFT = "adapters are of low rank: the plan trains all parameters"
all("oft_rank oft_block_size oft_target module_dropout", with, "finetuning_type", OFT, "oft")
all("create_new_adapter", off, "one adapter is trained, on the model itself")
all("pissa_init", off, "factors begin uniform and at 0, not at singular vectors")
all("pissa_iter pissa_convert", with, "pissa_init", "factors begin uniform and at 0, not at singular vectors")
all("loraplus_lr_embedding", none, "embeddings have no adapters")
all("use_llama_pro", off, "layers that were put between others are known by freeze alone")
all("lora_bf16_mode", off, "factors have f32 master weights: more memory, better sums")
all("num_hidden_layers", none, "the model says it")
all("resume_lora_training", none, "an adapter that a run begins at is trained on")

local OTHER = "weft has no such optimizer: the plan has AdamW with these numbers"
all("use_galore use_apollo use_badam use_adam_mini", off, OTHER)
all([[galore_target galore_rank galore_update_interval galore_scale galore_proj_type galore_layerwise]], with, "use_galore", OTHER)
all([[apollo_target apollo_rank apollo_update_interval apollo_scale apollo_proj apollo_proj_type apollo_scale_type
  apollo_layerwise apollo_scale_front]], with, "use_apollo", OTHER)
all([[badam_mode badam_start_block badam_switch_mode badam_switch_interval badam_update_ratio badam_mask_mode
  badam_verbose]], with, "use_badam", OTHER)
all("optim_target_modules", cannot, OTHER)
all("adafactor", off, "optim says which optimizer there is")
all("lr_scheduler_kwargs lr_scheduler_kwargs.*", cannot, "an option that this learning rate does not have, or weft does not")
all("tf32", off, "products in f32 have all of its bits: slower on GPUs")
all([[fp16_opt_level fp16_backend half_precision_backend]], none, "precision says which type computes")
all("fp8_enable_fsdp_float8_all_gather", off, "weights are gathered in bf16 and then rounded: twice the bytes")
all("activation_offloading", off, "activations stay on the device")

-- ---- length, checkpoints, evaluation, logs ----

all("do_train", none, "a plan is trained by weft run")
all("resume_from_checkpoint", none, "weft run --resume DIR goes on from a checkpoint")
all("overwrite_output_dir", none, "a run without --resume begins anew")
all("save_only_model", off, "checkpoints have the optimizer's states, too: more bytes")
all([[save_on_each_node save_safetensors enable_jit_checkpoint ckpt_format ckpt_d2h_non_blocking distrib_optim_fully_reshardable
  distrib_optim_fully_reshardable_mem_efficient restore_callback_states_from_checkpoint]], none,
    "checkpoints are written as plan.checkpoint says, for any mesh")
all("auto_find_batch_size", off, "weft check says whether a plan fits before it runs")
all([[eval_strategy eval_steps per_device_eval_batch_size per_gpu_eval_batch_size eval_delay eval_accumulation_steps do_eval
  prediction_loss_only eval_on_start eval_do_concat_batches eval_use_gather_object bf16_full_eval fp16_full_eval
  include_for_metrics include_inputs_for_metrics batch_eval_metrics eval_on_each_dataset compute_accuracy]], of_evaluation)
all("load_best_model_at_end metric_for_best_model greater_is_better", of_evaluation)
all("early_stopping_steps", cannot, "train.early_stopping = { patience = N } ends a run, with data for an evaluation")
all([[logging_strategy logging_first_step logging_nan_inf_filter logging_dir log_level log_level_replica log_on_each_node
  report_to run_name project trackio_space_id trackio_bucket_id trackio_static_space_id disable_tqdm plot_loss
  include_num_input_tokens_seen include_tokens_per_second include_effective_tokens_per_second skip_memory_metrics debug
  use_swanlab swanlab_project swanlab_workspace swanlab_run_name swanlab_mode swanlab_api_key swanlab_logdir
  swanlab_lark_webhook_url swanlab_lark_secret]], none, "weft run --log and --tensorboard write every step")
all([[enable_torch_profiler profiler_output_dir profiler_wait_steps profiler_warmup_steps profiler_active_steps
  profiler_repeat profiler_record_shapes profiler_profile_memory profiler_with_stack profile_modules]], none,
    "weft run --trace writes what every rank did")

-- ---- ranks and machines ----

local START = "how processes start is said by weft launch and weft run"
all([[local_rank ddp_backend use_cpu no_cuda use_mps_device use_ipex jit_mode_eval xpu_backend tpu_num_cores
  tpu_metrics_debug mp_parameters ray_scope ray_init_kwargs ray_init_kwargs.* ray_run_name ray_storage_path
  ray_storage_filesystem placement_strategy resources_per_worker resources_per_worker.* master_addr master_port
  compile_warmup]], none, START)
all("ddp_find_unused_parameters ddp_static_graph ddp_broadcast_buffers", none, "which parameters a plan uses is known")
all([[torch_compile torch_compile_backend torch_compile_mode torchdynamo torch_empty_cache_steps use_legacy_prediction_loop
  past_index]], none, "plans are compiled always, and their memory is planned")
all("use_liger_kernel liger_kernel_config liger_kernel_config.*", none, KERNELS)
all([[fsdp_min_num_params fsdp_transformer_layer_cls_to_wrap fsdp_config.min_num_params
  fsdp_config.transformer_layer_cls_to_wrap fsdp_config.auto_wrap_policy fsdp_config.use_orig_params]], none,
    "the units of the model are what is gathered at a time")
all("fsdp_config.backward_prefetch fsdp_config.backward_prefetch_policy", none, "gathers start ahead: strategy.backward_prefetch_depth")
all("fsdp_config.forward_prefetch fsdp_config.limit_all_gathers", none, "gathers start ahead: strategy.forward_prefetch_depth")
all("fsdp_config.cpu_ram_efficient_loading fsdp_config.sync_module_states", none, "no rank reads more than it keeps")
all("fsdp_config.state_dict_type", none, "checkpoints load on any mesh")
all("fsdp_config.version fsdp_config.fsdp_version", unless, { 1, 2 }, "strategy is fsdp2, which has what both versions have",
    "versions 1 and 2 are known: the settings are read as those of version 2")
all("fsdp_config", cannot, "settings in another file, which is not read: they belong below fsdp_config")
all("fsdp_config.*", cannot, "an option of FSDP that strategy does not have")
all("parallelism_config parallelism_config.*", cannot, "meshes of Accelerate are not read here: mesh says it")
all("use_hyper_parallel hyper_parallel_args", off, "HyperParallel's meshes are not read: mesh says it")
all("hyper_parallel_cp_size", unless, { 1 }, "a sequence is not cut", "HyperParallel's meshes are not read: mesh.cp says it")
all("sharded_ddp", off, "fsdp says it")

-- ---- Megatron below LLaMA-Factory ----

all("use_mca", none, "other settings say that Megatron trains")
all("use_megatron_bridge", none, "Megatron-Bridge trains where one of its settings is given")
all([[bias_activation_fusion apply_rope_fusion cross_entropy_loss_fusion masked_softmax_fusion moe_grouped_gemm
  moe_shared_expert_overlap use_flash_attn use_flash_attn_npu_batch_invariant overlap_p2p_comm cuda_graph_impl
  cuda_graph_scope variable_seq_lengths]], none, KERNELS)
all("recompute_method recompute_num_layers recompute_modules", cannot, "recompute is of all layers: a list of units, as recompute "
    .. "takes it, says which")
all("moe_layer_recompute", off, "recompute says which layers run again")
all("calculate_per_token_loss", unless, { true }, "the loss is divided by the label tokens of the whole step",
    "the loss is divided by the label tokens of the whole step, not of each microbatch by itself")
all("moe_aux_loss_coeff", off, "routers are not balanced by a loss: moe.aux_loss_coef does")
all("moe_expert_capacity_factor moe_pad_expert_input_to_capacity moe_token_drop_policy", off,
    "experts take all rows that come: moe.capacity_factor says fewer")
all("moe_enable_routing_replay", off, "routers choose anew each time")
all("mtp_num_layers", off, "the model has no layers that predict further tokens: mtp says them")
all("micro_batch_size", cannot, "per_device_train_batch_size says it")
all("fp8_recipe fp8_format fp8_param", off, "products are in the type of precision: precision = \"fp8\" has recipes")
all("additional_configs additional_configs.* extra_config extra_config.*", cannot, "settings of Megatron below LLaMA-Factory are "
    .. "not read")
all([[delay_grad_reduce ddp_average_in_collective ddp_bucket_size check_for_nan_in_loss_and_grad]], none,
    "the strategy says when gradients are reduced")
all("accumulate_allreduce_grads_in_fp32", none, "gradients add up in f32")
all("optimizer", unless, { "adam" }, "optimizer is AdamW", "optim says which optimizer there is")
all("optimizer_cpu_offload optimizer_offload_fraction", off, "states of the optimizer stay on the device")
all("megatron_pretrained_checkpoint", none, "weft.hf reads the files of a model")

-- ---- v1 ----

all("model_class", none, "the plan's model says it")
all("init_config.* init_config", none, "no rank makes a parameter that it does not keep")
all("kernel_config.* kernel_config", none, KERNELS)
all("custom_chat_template", cannot, "templates of weft.chat are names, or functions of the plan")
all("quant_config.compute_dtype", unless, { "bfloat16" }, "products are in the type of precision",
    "products are in the type of precision, whatever the base is stored in")
all("quant_config.* peft_config.* dist_config.dcp_path dist_config.pin_memory", none, "it changes nothing that is trained")
all("peft_config.cast_trainable_params_to_fp32", unless, { true }, "what learns has f32 master weights",
    "what learns has f32 master weights: more memory, better sums")
all("dist_config.ep_dispatcher", none, "the same sums by other kernels: moe.dispatcher says how rows travel")
all("dist_config.*", cannot, "an option of a strategy that weft does not have")
all("optim_config.lr", none, "learning_rate says it, there too")
all("optim_config.*", cannot, "an option that this optimizer does not have, or weft does not")
all("lr_scheduler_config.* lr_scheduler_config", cannot, "the rate is constant: v1 has no other")
all("dp_size mp_shard_size", none, "they are what is left of the world, here too")
all("batching_workers", none, "data is read beside the steps")
all("save_epochs", cannot, "checkpoints are written by steps, not by epochs: here at the end of the run")
all("save_ckpt_as_hf", off, "weights in Hugging Face's form: checkpoint.save_consolidated")
all("sample_backend", none, "it is about generating text, not about training: see weft sample")

return rows
