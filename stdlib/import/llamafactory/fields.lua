-- fields.lua - LLaMA-Factory's arguments that take part in the plan, in the order in which a reader looks for
-- them: rows { field, setting, ..., note = }; see ledger.lua. left_out.lua has the others.
return {
  { "model", "model_name_or_path",
    note = "of names that say how the weights are quantized (`-AWQ`, `-GPTQ-Int4`) the model in bf16, which is said" },
  { "model.rope_scaling", "rope_scaling", note = "where `cutoff_len` is more than the positions of the model, by the "
    .. "factor that LLaMA-Factory takes" },

  { "mesh.world", "ray_num_workers" },
  { "mesh.tp", "tensor_model_parallel_size", note = "of Megatron below LLaMA-Factory, as all until `moe.router_dtype`" },
  { "mesh.pp", "pipeline_model_parallel_size" },
  { "mesh.cp", "context_parallel_size" },
  { "mesh.ep", "expert_model_parallel_size" },
  { "mesh.etp", "expert_tensor_parallel_size" },
  { "pp_plan.virtual", "virtual_pipeline_model_parallel_size" },
  { "pp_plan.layout", "pipeline_model_parallel_layout" },
  { "pp_plan.first_stage_less_layers", "account_for_embedding_in_pipeline_split" },
  { "pp_plan.last_stage_less_layers", "account_for_loss_in_pipeline_split" },
  { "strategy.stage", "use_distributed_optimizer", note = "of `\"zero\"`: 1, else 0; the default of Megatron-Bridge" },
  { "strategy.sequence_parallel", "sequence_parallel", note = "with tp" },
  { "strategy.overlap_grad_reduce", "overlap_grad_reduce" },
  { "strategy.overlap_param_gather", "overlap_param_gather" },
  { "recompute", "recompute_granularity", note = "`full`, `selective`" },
  { "moe.dispatcher", "moe_token_dispatcher_type", note = "with ep" },
  { "precision", "mixed_precision", note = "of Megatron-Bridge, `bf16_mixed` if it is not given, whatever `bf16` and `fp16` say" },
  { "moe.router_dtype", "moe_router_dtype", note = "`fp32`" },

  { "strategy", "deepspeed", "deepspeed.*",
    note = "`zero`: the JSON is read where it lies from the file's folder or one above it, or beside the file; what is "
      .. "`\"auto\"` there is what the arguments say, as Transformers fills it in. Of a file that is not there with a name "
      .. "that LLaMA-Factory ships (`ds_z3_config.json`) what it ships counts, which is said" },
  { "strategy", "fsdp", note = "`full_shard`, `shard_grad_op` and `hybrid_shard` are fsdp2, `no_shard` is ddp; without "
      .. "`deepspeed` and `fsdp` the strategy is ddp" },
  { "strategy.reshard_after_forward", "fsdp_config.reshard_after_forward" },
  { "strategy.offload_policy", "fsdp_config.offload_params", "fsdp_config.cpu_offload" },
  { "recompute", "fsdp_config.activation_checkpointing" },
  { "strategy.bucket_bytes", "ddp_bucket_cap_mb", note = "of ddp" },

  { "recompute", "disable_gradient_checkpointing", "gradient_checkpointing",
    note = "each layer runs again unless the first is true, as there" },

  { "precision", "bf16", "fp16", note = "autocast over f32 parameters: what learns has f32 master weights; a frozen base "
    .. "has the type of its files, bf16" },
  { "precision.master_dtype, precision.grad_dtype, optimizer.state_dtype", "pure_bf16", note = "not of adapters, whose factors "
    .. "PEFT makes f32, nor beside `bf16` and `fsdp`, where Accelerate makes f32 what learns, nor with stages of `deepspeed`, whose "
    .. "master weights are f32" },
  { "precision.recipe", "fp8", "fp8_backend", note = "`rowwise` with `torchao`" },

  { "batch.micro", "per_device_train_batch_size", note = "8 if it is not given; of pairs twice as many sequences" },
  { "batch.global", "gradient_accumulation_steps", note = "times the microbatch and dp; 1 if it is not given" },
  { "batch.seq", "cutoff_len", "packing", "neat_packing", note = "2048 if it is not given; batches are padded to it here, there to their longest sample. In stage "
    .. "`pt`, and below Megatron-Bridge, a token less where `packing: true` is written out, as there" },
  { "packed.size", "neat_packing", "packing", "sequence_packing", "use_packed_sequences",
    note = "without either each sample has a sequence of its own (`packed.alone`); `packing` alone lets samples of a "
      .. "sequence see each other, which is said. In stage `pt` texts are one stream, as without `packed`" },

  { "loss", "stage", "pref_loss", note = "`pt` and `sft`; `dpo` with the loss `sigmoid`; `hinge`, `ipo` and `simpo` are functions of "
    .. "the plan; `rm` and `ppo` are errors" },
  { "loss.beta", "pref_beta", note = "0.1 if it is not given, as there" },
  { "loss.label_smoothing", "dpo_label_smoothing" },
  { "loss.gamma", "simpo_gamma", note = "0.5 if it is not given, as there" },
  { "loss_chunks", "enable_liger_kernel", note = "in stages `pt` and `sft`, with gradients in f32" },

  { "adapter, freeze", "finetuning_type", note = "`lora`, the default; `full`; `freeze`; what `oft` trains is said. "
    .. "Below Megatron all parameters learn, whatever it says, but for Megatron-Bridge's LoRA in stage `sft`" },
  { "adapter.rank", "lora_rank", note = "8 if it is not given, as there" },
  { "adapter.alpha", "lora_alpha", note = "twice the rank if it is not given, as there" },
  { "adapter.targets", "lora_target", note = "`all`, the default: all linears but the head; `gate_proj`, `up_proj` and `down_proj` of models with experts are `target_parameters`, gate and up of twice the rank, as PEFT takes them" },
  { "adapter.dropout", "lora_dropout", note = "not of pairs, where LLaMA-Factory drops nothing, but v1 does" },
  { "adapter.rslora", "use_rslora" },
  { "adapter.dora", "use_dora" },
  { "adapter.modules_to_save", "additional_target" },
  { "adapter.base", "quantization_bit", "quantization_type", "double_quantization", "quantization_method",
    note = "4 bits of `bnb`, as NF4 with double quantisation" },
  { "groups", "loraplus_lr_ratio", note = "the rate of each B, and of magnitudes (`use_dora`)" },
  { "freeze", "freeze_trainable_layers", "freeze_trainable_modules", "freeze_extra_modules",
    note = "the patterns of all else; `freeze_trainable_modules` other than `all` of models with Llama's modules" },

  { "train.steps", "max_steps" },
  { "train.steps", "num_train_epochs", "max_samples", "val_size",
    note = "where the arguments say how many samples there are at most (`max_samples`, the sets that LLaMA-Factory ships) "
      .. "and do not pack them; else said: `train.epochs` is of data in files" },
  { "train.seed", "seed", note = "42 if it is not given, as there" },
  { "train.log_every", "logging_steps" },
  { "train.neftune_noise_alpha", "neftune_noise_alpha" },
  { "deterministic", "full_determinism" },

  { "optimizer", "optim", note = "AdamW of PyTorch, Apex and bitsandbytes; `adamw_8bit`, `adamw_bnb_8bit` and "
    .. "`paged_adamw_8bit` are `weft.adamw_8bit`; Adafactor, Lion, SGD. Below Megatron-Bridge, and beside an optimizer in "
    .. "DeepSpeed's file, it counts not, which is said" },
  { "optimizer", "use_muon", note = "`weft.muon` with `match_rms_adamw`; AdamW with version 1 of `fsdp`, as there" },
  { "optimizer.momentum", "optim_args", note = "of SGD, with `dampening` and `nesterov`" },
  { "optimizer.lr", "learning_rate", "lr_scheduler_type",
    note = "5e-5 and `linear` if they are not given, as there; `cosine`, `cosine_with_min_lr`, `constant`, "
      .. "`constant_with_warmup`, `polynomial`, `inverse_sqrt`, `warmup_stable_decay`; all but linear and constant ones are `cosine` below "
      .. "Megatron-Bridge" },
  { "optimizer.lr.min", "lr_scheduler_kwargs.min_lr", "lr_scheduler_kwargs.lr_end" },
  { "optimizer.lr.min_ratio", "lr_scheduler_kwargs.min_lr_rate", "lr_scheduler_kwargs.min_lr_ratio" },
  { "optimizer.lr.power", "lr_scheduler_kwargs.power" },
  { "optimizer.lr.timescale", "lr_scheduler_kwargs.timescale" },
  { "optimizer.lr.decay", "lr_scheduler_kwargs.num_decay_steps", "lr_scheduler_kwargs.num_stable_steps" },
  { "optimizer.lr.decay_style", "lr_scheduler_kwargs.decay_type" },
  { "optimizer.lr.warmup, optimizer.lr.warmup_ratio", "warmup_steps", "warmup_ratio", note = "below 1 a part of the steps; below "
    .. "Megatron-Bridge `warmup_ratio` is rounded down" },
  { "optimizer.betas", "adam_beta1", "adam_beta2" },
  { "optimizer.eps", "adam_epsilon" },
  { "optimizer.weight_decay", "weight_decay", note = "0 if it is not given, as there; not of norms and biases" },
  { "optimizer.clip", "max_grad_norm", note = "1 if it is not given, as there; beside DeepSpeed's file where that has `gradient_clipping`, "
    .. "else DeepSpeed's default" },

  { "strategy", "dist_config.name", note = "of `v1`, as the next rows: `fsdp2`, `fsdpturbo`, `deepspeed` with its `config_file`" },
  { "recompute", "enable_activation_checkpointing" },
  { "batch.global", "global_batch_size" },
  { "cp.comm", "cp_mode", note = "`ulysses` is `a2a`; `cp_size` is `mesh.cp`" },
  { "mesh.dp_replicate", "mp_replicate_size" },
  { "optimizer", "optim_config.name", note = "`muon`; without it AdamW, all of whose parameters decay by 0.01" },
  { "optimizer.weight_decay", "optim_config.wd", note = "0.1 if it is not given, as there" },
  { "optimizer.momentum", "optim_config.momentum" },
  { "optimizer.nesterov", "optim_config.nesterov" },
  { "optimizer.ns_steps", "optim_config.ns_steps" },
  { "optimizer.betas", "optim_config.adamw_betas" },
  { "optimizer.eps", "optim_config.adamw_eps" },

  { "checkpoint.dir", "output_dir", note = "a folder elsewhere is given by `--set checkpoint.dir=DIR`" },
  { "checkpoint.every", "save_steps", "save_strategy", note = "500 if it is not given, as there; below 1 a part of the steps" },
  { "checkpoint.keep", "save_total_limit", note = "all if it is not given, as there" },
  { "comm.timeout", "ddp_timeout" },
}
