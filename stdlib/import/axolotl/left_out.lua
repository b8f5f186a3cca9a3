-- left_out.lua - axolotl's settings that do not take part in the plan: a row each, { key or prefix.*, what, text };
-- see ledger.lua. With fields.lua these are all names that axolotl's versions up to 0.17 have or had, for
-- names that are in neither are errors. The others are in axolotl.lua.
local rule = use "import/rule"
local rows = {}

-- Rows of several settings of which the same is said.
local function each(make, names, text)
  for name in string.gmatch(names, "%S+") do rows[#rows + 1] = make(name, text) end
end

local function none(names, why) each(rule.none, names, why) end
local function cannot(names, change) each(rule.cannot, names, change) end
local function off(names, change) each(rule.off, names, change) end

local KERNELS = "which kernels compute does not change the plan; on GPUs see attention_backend"
local IMAGES = "images and sound are not read: the plan trains the language model alone"
local REWARDS = "it belongs to a loss or a sampling that weft does not have: the plan trains with the cross entropy of the next token, or dpo"
local START = "how processes start is said by weft launch and weft run"
local LOGS = "weft run --log and --tensorboard write every step"
local TOKENIZER = "a plan reads tokens: the tokenizer is that of weft.chat, of weft.hf, or plan.tokenizer"
local HUB = "weft downloads and uploads nothing"
local PREPARED = "weft.chat keeps what it made of conversations in .weft beside the plan"
local WORKERS = "data is read beside the steps"
local DATA = "data of the recipe are not read: the plan has weft.synthetic"
local EVAL = "there is no evaluation without data for it: see data.val"
local QUANT = "weights are stored as precision says, or those of an adapter's base in 4 bits (adapter.base): other memory, other numbers"
local FREEZE = "all parameters learn: freeze = { patterns } of the plan names those that do not"
local PACKS = "how documents are put together is said by packed"
local RESTARTS = "the rate does not restart, and factors of adapters are not merged while training"

-- ---- the model ----

cannot("revision_of_model model_revision", "sizes are those of weft's table of public models: --model DIR has those of a revision")
none("model_type type_of_model cls_model_config", "the plan's model says it")
none("trust_remote_code", "code that comes with a model is never run")
none("is_falcon_derived_model is_llama_derived_model is_mistral_derived_model is_qwen_derived_model base_model_ignore_patterns",
     "the architecture is that of the model's config")
cannot("model_kwargs.* overrides_of_model_kwargs.*", "an argument of Transformers' from_pretrained")
none("model_config.use_cache overrides_of_model_config.use_cache", "training keeps no cache")
cannot("model_config.output_router_logits overrides_of_model_config.output_router_logits model_config.router_aux_loss_coef "
  .. "overrides_of_model_config.router_aux_loss_coef", "Transformers adds a loss that balances experts, over all layers together: "
  .. "moe.aux_loss_coef is that of each layer")
none("model_config.torch_dtype overrides_of_model_config.torch_dtype", "precision says it")
none("model_config.attn_implementation overrides_of_model_config.attn_implementation", KERNELS)
none("reinit_weights", "a run begins with random weights, and with those of a folder by weft.hf")
-- A checkpoint in mxfp4 whose weights are made bf16 as they are loaded.
each(function(key, change)
  return { key, function(book, leaf)
    if book:value "model_quantization_config" == "Mxfp4Config" and book:value "model_quantization_config_kwargs.dequantize" == true then
      return book:no_effect(leaf.key, "weights are bf16 once they are loaded: weft.hf reads folders in mxfp4 so")
    end
    book:cannot(leaf.key, change)
  end, change }
end, "model_quantization_config model_quantization_config_kwargs.*", QUANT)
cannot("bnb_config_kwargs.*", QUANT)
off("quantize_moe_experts use_onebitllms gptq load_in_8bit", QUANT)
cannot("nonexpert_quantization gemma4_fp8_nonexpert gemma4_nf4_nonexpert dsv4_fp4_grouped_mode dsv4_fp8_nonexpert_mode", QUANT)
off("nvfp4_merge_aware", QUANT)
none("nvfp4_merge_aware_start_step gptq_groupsize gptq_bits gptq_model_v1 gptq_disable_exllama load_4bit qlora_sharded_model_loading", "it is about "
  .. "weights that are quantised as they are loaded")
cannot("rope_scaling", "no setting of axolotl's any more: model_config.rope_scaling is")
cannot("xpos_rope landmark_attention s2_attention scaling_softmax scaling_softmax_factor scaling_softmax_bias", "attention is that of the model's "
  .. "architecture")
off("use_pose", "positions are those of the sequence")
none("pose_split_on_token_ids pose_max_context_len pose_num_chunks", "it counts with use_pose alone")
cannot("spectrum_top_fraction spectrum_model_name lisa_n_layers lisa_step_interval lisa_layers_attribute unfrozen_parameters", FREEZE)
none("freeze_mm_modules", "the model has no images")
cannot("resize_token_embeddings_to_32x shrink_embeddings", "embeddings have the rows of the model's files: weft.hf { \"DIR\", vocab_size = N, "
  .. "new_tokens = \"mean\" } has more")
none("mean_resizing_embeddings", "new rows of embeddings are the mean of the others: weft.hf { new_tokens = \"mean\" }")
cannot("fix_untrained_tokens peft_trainable_token_indices", "single rows of embeddings are neither changed nor trained: "
  .. "adapter.modules_to_save = { \"embed_tokens\" } trains all of them")
cannot("tokens tokens.*", "a model has more rows of embeddings for tokens that are added: weft.hf { \"DIR\", vocab_size = N, new_tokens = \"mean\" }")
none("special_tokens.* special_tokens added_tokens_overrides.* eot_tokens default_system_message chat_template_kwargs.* "
  .. "tokenizer_config tokenizer_use_fast tokenizer_legacy tokenizer_use_mistral_common tokenizer_type tokenizer_save_jinja_files", TOKENIZER)
cannot("processor_type processor_config processor_kwargs.* image_size image_resize_algorithm role_boundaries is_multimodal", IMAGES)

-- ---- kernels ----

none("attn_implementation flash_attention xformers_attention sdp_attention flex_attention sage_attention eager_attention flash_optimum "
  .. "flash_attn_cross_entropy flash_attn_fuse_mlp flash_attn_fuse_qkv flash_attn_rms_norm flash_attn_d512 flex_attn_compile_kwargs.* "
  .. "gemma4_hybrid_attn_impl large_head_attention sdpa_varlen fused_attn_kernel heads_k_stride use_kernels experts_implementation "
  .. "expert_backend moe_grouped_backend moe_dequant_chunk_size moe_bnb_fast use_scattermoe use_sonicmoe use_dsv4_kernels "
  .. "use_glm_dsa_kernels dsv4_fp8_lora_kernel dsv4_shared_mlp_lora_kernel dsv4_bf16_all lora_mlp_kernel lora_qkv_kernel lora_o_kernel lora_embedding_kernel "
  .. "unsloth_cross_entropy_loss unsloth_lora_mlp unsloth_lora_qkv unsloth_lora_o unsloth_rms_norm unsloth_rope "
  .. "liger_rope liger_rms_norm liger_rms_norm_gated liger_layer_norm liger_glu_activation liger_swiglu liger_cross_entropy "
  .. "bettertransformer use_cut_cross_entropy chunked_cross_entropy chunked_cross_entropy_num_chunks tiled_mlp tiled_mlp_num_shards "
  .. "tiled_mlp_use_original_mlp llama4_linearized_experts batch_flattening multipack_real_batches", KERNELS)
none("plugins", "what plugins add is said by their own settings")
none("torch_compile torch_compile_backend torch_compile_mode torch_compile_options.* deepcompile", "plans are compiled always")
none("tf32 float32", "precision says it")
off("fp8", "products in fp8 are precision = { \"fp8\", recipe = \"tensorwise\" } of the plan")
none("fp8_enable_fsdp_float8_all_gather", "it counts with fp8 alone")
cannot("expert_parallel_token_capacity", "experts take all rows that come: moe.capacity_factor drops by the mean")
none("expert_parallel_backend expert_parallel_num_nvl_bytes expert_parallel_num_rdma_bytes expert_parallel_fallback_on_unsupported",
     "how rows come to their experts is said by moe.dispatcher")
off("liger_use_token_scaling use_eaft dense_mixer", "another loss, or another weight of its tokens")
none("eaft_alpha eaft_k", "it counts with use_eaft alone")
cannot("diffusion.*", "another loss: that of a masked diffusion model")
cannot("kd_trainer kd_ce_alpha kd_alpha kd_temperature kd_beta kd_normalize_topk kd_online_server_base_url kd_online_topk kd_online_server "
  .. "kd_online_timeout kd_temperature_min kd_top_k_before_softmax kd_zscore_base_temp", "distillation by a teacher's largest "
  .. "probabilities, which the data have, or a server gives: loss = { \"distill\", teacher = \"DIR\" } has the whole teacher")
cannot("qat.*", "products are not rounded to integers while training")
none("quantization.* llmcompressor.* mora.* hatchery.*", "it is about what is made of a trained model, or trains elsewhere")
cannot("grokfast_alpha grokfast_lamb", "gradients are not filtered over steps")

-- ---- adapters ----

cannot("lora_model_dir", "adapter.from begins at it")
cannot("peft_layers_to_transform peft_layers_pattern lora_exclude_modules", "adapters are of all layers: adapter.targets = { \"layers.3.self_attn.q_proj\" } "
  .. "names single ones")
cannot("peft_layer_replication.* peft_layer_replication", "layers are those of the model")
cannot("peft.* peft_init_lora_weights", "factors begin as PEFT's default has it: A uniform in +-1/sqrt(in), B at 0")
cannot("loraplus_lr_ratio", "both factors have one rate: B would have a larger one")
none("loraplus_lr_embedding", "it counts with loraplus_lr_ratio, of adapters of embeddings, which weft does not have")
off("peft_ensure_weight_tying", "copies of tied weights learn apart")
none("lora_fan_in_fan_out lora_on_cpu merge_lora merge_method embeddings_skip_upcast lora_out_dir", "weft ckpt merge writes the model "
  .. "whole; how weights are loaded does not change the plan")
cannot("peft_adapter.* lora_target_linear_modules", "adapter has no such part")
off("relora peft_use_relora", RESTARTS)
cannot("relora_steps relora_warmup_steps relora_anneal_steps relora_warmup_ratio", RESTARTS)
none("relora_prune_ratio relora_prune_method relora_cpu_offload", "it counts with relora alone")
cannot("jagged_restart_steps jagged_restart_warmup_steps jagged_restart_anneal_steps", RESTARTS)

-- ---- losses ----

none("trl.* vllm.* ebft.*", "it counts with rl: grpo, gdpo or ebft alone")
each(function(key, change)
  return { key, function(book, leaf)
    if book:value "rl" == nil then return book:no_effect(leaf.key, "there is no rl") end
    book:cannot(leaf.key, change)
  end, change }
end, "orpo_alpha simpo_gamma cpo_alpha kto_desirable_weight kto_undesirable_weight rpo_alpha rl_beta dpo_beta beta dpo_norm_loss dpo_loss_type "
  .. "dpo_loss_weights dpo_label_smoothing rl_adapter_ref_model", REWARDS)
off("dpo_use_weighting", REWARDS)
none("dpo_use_liger_kernel dpo_padding_free dpo_use_logits_to_keep dpo_generate_during_eval precompute_ref_log_probs max_prompt_len", "how a loss "
  .. "of pairs is computed does not change it")
off("reward_model process_reward_model", "a model of rewards has another head")
none("center_rewards_coefficient num_labels", "it counts with reward_model alone")
none("nemo_gym_*", "it counts with rl: grpo alone")

-- ---- batch and data ----

cannot("datasets pretraining_dataset", DATA)
cannot("val_set_size test_datasets", EVAL)
off("group_by_length", "samples are shuffled, not sorted by length")
off("curriculum_sampling sample_packing_sequentially sample_pack_sequentially", "samples are shuffled: data.shuffle = false leaves them in order")
none("pad_to_sequence_len pad_to_multiple_of collator_pad_to_longest", "what is padding is not learnt and not looked at")
none("sample_packing_group_size sample_packing_bin_size sample_packing_mp_start_method sample_packing_eff_est sample_packing_seq_len_multiplier "
  .. "total_num_tokens total_supervised_tokens eval_sample_packing pretrain_multipack_buffer_size "
  .. "streaming_multipack_buffer_size", PACKS)
none("pretrain_multipack_attn", "it is on, or counts with pretraining_dataset and sample_packing alone")
cannot("max_packed_sequence_len", "no setting of axolotl's any more: sequence_len with sample_packing")
cannot("min_sample_len", "short conversations are not left out")
none("shuffle_before_merging_datasets", "samples are shuffled")
rows[#rows + 1] = rule.unless("shuffle_merged_datasets", { true }, "samples are shuffled", "samples are shuffled: data.shuffle = false leaves them in order")
off("dataset_exact_deduplication", "samples that are the same are all read")
cannot("dataset_shard_num dataset_shard_idx", "all of the data are read")
none("streaming skip_prepare_dataset dataset_prepared_path num_dataset_shards_to_save push_dataset_to_hub dataset_keep_in_memory is_preprocess "
  .. "preprocess_iterable", PREPARED)
none("dataset_processes dataset_num_proc dataloader_pin_memory dataloader_num_workers dataloader_prefetch_factor remove_unused_columns", WORKERS)
none("dataloader_drop_last", "a step has whole batches")
none("accelerator_config.*", "batches are shared out by sample numbers")
none("chat_template chat_template_jinja", "made-up tokens have no template: see datasets")
off("train_on_inputs", "made-up tokens have no prompts: data = weft.chat { train_on = \"all\" } learns them")
none("hf_use_auth_token", HUB)
off("auto_find_batch_size", "a batch is as large as it is said: weft best looks for others")

-- ---- steps ----

cannot("num_epochs", "made-up tokens have no epochs: train.epochs counts those of data in files")
none("eval_batch_size eval_sequence_len", "an evaluation has microbatches of batch.micro, as training has")
none("eval_steps evals_per_epoch eval_strategy evaluation_strategy do_bench_eval bench_dataset bench_split do_causal_lm_eval "
  .. "eval_causal_lm_metrics metric_for_best_model greater_is_better eval_table_size eval_table_max_new_tokens eval_max_new_tokens "
  .. "lm_eval_*", EVAL)
cannot("early_stopping_patience", "train.early_stopping needs an evaluation")
off("load_best_model_at_end", "checkpoint.keep_best needs an evaluation")
cannot("lr_quadratic_warmup", "the rate rises with the steps, not with their square")
none("lr_div_factor log_sweep_min_lr log_sweep_max_lr torchdistx_path", "no setting that axolotl reads any more")
cannot("lr_scheduler_kwargs.*", "an option of learning rates that this one does not have, or weft does not")
cannot("lr_groups", "modules have one rate: groups of the plan give others")
cannot("optim_args optim_args.*", "an option of the optimizer that weft does not read")
cannot("optim_target_modules adam_epsilon2 adam_beta3 dion_lr dion_momentum dion_rank_fraction dion_rank_multiple_of qgalore_rank "
  .. "qgalore_update_proj_gap qgalore_scale qgalore_proj_type qgalore_proj_quant qgalore_proj_bits qgalore_proj_group_size "
  .. "qgalore_cos_threshold qgalore_gamma_proj qgalore_queue_size", "an option of an optimizer that weft does not have")
none("loss_watchdog_threshold loss_watchdog_patience", "a run stops where a loss is not finite; expect and early_stopping say more")
off("save_only_model", "checkpoints have the states of the optimizer, too: weft ckpt export writes weights alone")
off("save_first_step", "the first checkpoint is written after checkpoint.every steps")
cannot("saves_per_epoch", "checkpoints are written by steps, not by epochs: checkpoint.every = N")
none("save_safetensors", "checkpoints are safetensors")
none("dynamic_checkpoint.*", "a signal ends a run with a checkpoint")
none("resume_from_checkpoint auto_resume_from_checkpoints", "weft run --resume goes on from a checkpoint")

-- ---- ranks ----

none("ddp ddp_find_unused_parameters ddp_broadcast_buffers", "which parameters a plan uses is known; models have no buffers that change")
none("world_size local_rank device device_map max_memory gpu_memory_limit low_cpu_mem_usage device_map.* max_memory.* experimental_skip_move_to_device", START)
none("use_ray ray_num_workers ray_run_name resources_per_worker.*", START)
none("fsdp_config.auto_wrap_policy fsdp_config.fsdp_auto_wrap_policy fsdp_config.transformer_layer_cls_to_wrap "
  .. "fsdp_config.fsdp_transformer_layer_cls_to_wrap fsdp_transformer_layer_cls_to_wrap fsdp_config.min_num_params fsdp_config.fsdp_min_num_params fsdp_config.use_orig_params "
  .. "fsdp_config.fsdp_use_orig_params fsdp_config.limit_all_gathers fsdp_config.fsdp_limit_all_gathers", "the units of the model are what is "
  .. "gathered at a time")
none("fsdp_config.backward_prefetch fsdp_config.fsdp_backward_prefetch fsdp_config.backward_prefetch_policy "
  .. "fsdp_config.fsdp_backward_prefetch_policy fsdp_config.forward_prefetch fsdp_config.fsdp_forward_prefetch", "gathers start ahead: "
  .. "strategy.forward_prefetch_depth and backward_prefetch_depth")
none("fsdp_config.state_dict_type fsdp_config.fsdp_state_dict_type fsdp_config.final_state_dict_type fsdp_config.fsdp_final_state_dict_type "
  .. "fsdp_final_state_dict_type", "checkpoints load on any mesh")
none("fsdp_config.sync_module_states fsdp_config.fsdp_sync_module_states fsdp_config.cpu_ram_efficient_loading "
  .. "fsdp_config.fsdp_cpu_ram_efficient_loading", "no rank reads more than it keeps")
none("fsdp_config.cpu_offload_pin_memory fsdp_config.fsdp_cpu_offload_pin_memory", "host memory that GPUs read is pinned always")
cannot("fsdp_config.mixed_precision_policy fsdp_config.fsdp_mixed_precision_policy", "what FSDP gathers and sums is said by precision")
none("fsdp_config.xla fsdp_config.fsdp_xla fsdp_config.xla_fsdp_grad_ckpt fsdp_config.xla_fsdp_v2", "it is for TPUs")
off("fp32_norms", "norms have the type of precision, with f32 inside")
none("fp32_norm_classes", "it counts with fp32_norms alone")
none("gradient_checkpointing_kwargs.* gradient_checkpointing_kwargs", "how layers run again does not change what is computed")
off("selective_checkpointing selective_checkpointing.*", "recompute says what runs again")
off("activation_offloading", "activations stay on the device")
off("layer_offloading", "parameters stay on the device: strategy.offload_policy, or offload_param of zero")
none("gc_steps torch_empty_cache_steps gc_collect_steps", "nothing is collected in a step")

-- ---- the rest ----

none("hub_model_id hub_strategy hub_revision push_to_hub_model_id", HUB)
none("use_tensorboard use_wandb use_mlflow use_comet use_trackio use_otel_metrics use_swanlab wandb_* mlflow_* hf_mlflow_log_artifacts comet_* trackio_* "
  .. "otel_* swanlab_* include_tokens_per_second include_tkps", LOGS)
none("profiler_steps profiler_steps_start", "weft run --trace writes what every rank did")
none("generate_samples num_generation_samples generation_max_new_tokens generation_temperature generation_top_p generation_top_k "
  .. "generation_prompt_ratio generation_do_sample gradio_*", "weft sample asks a model")
none("strict debug axolotl_config_path capabilities.* env_capabilities.*", "it is about the reading of the recipe")
cannot("trainer_cls", "code of one's own is not read: what it changes is not in the plan")

return rows
