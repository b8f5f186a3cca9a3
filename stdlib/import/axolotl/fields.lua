-- fields.lua - axolotl's settings that take part in the plan, in the order in which a reader looks for them: rows
-- { field, setting, ..., note = }; see ledger.lua. left_out.lua has the others.
return {
  { "model", "base_model", "base_model_config", note = "a model of an architecture that weft does not have, or one of images, is an error that names it" },
  { "model", "model_config.*", "overrides_of_model_config.*", note = "keys of the model's config" },

  { "mesh.tp", "tensor_parallel_size" },
  { "mesh.cp", "context_parallel_size", "sequence_parallel_degree" },
  { "cp.comm", "ring_attn_func", note = "`varlen_llama3`, the default with `sample_packing`, gathers keys and values; `batch_ring` "
      .. "goes around. Runs are not zigzag: `cp.balance = \"none\"`" },
  { "mesh.ep", "expert_parallel_size" },
  { "mesh.dp_replicate", "dp_replicate_size", "dp_shard_size", note = "what is left by the other sizes, with `--world`" },
  { "strategy", "fsdp", "fsdp_version", "fsdp_config.fsdp_version", "fsdp_config.version", "fsdp_config.sharding_strategy",
    "fsdp_config.fsdp_sharding_strategy", note = "both versions are fsdp2; `NO_SHARD` is ddp, as is what has neither FSDP nor DeepSpeed" },
  { "strategy", "deepspeed", "deepspeed.*", note = "a file beside the recipe, one that axolotl ships, or the settings themselves: see "
      .. "From DeepSpeed" },
  { "strategy.reshard_after_forward", "fsdp_config.reshard_after_forward", "fsdp_config.fsdp_reshard_after_forward" },
  { "strategy.offload_policy", "fsdp_config.offload_params", "fsdp_config.fsdp_offload_params" },
  { "strategy.bucket_bytes", "ddp_bucket_cap_mb", note = "of ddp" },
  { "comm.timeout", "ddp_timeout" },
  { "recompute", "gradient_checkpointing", "fsdp_config.activation_checkpointing", "fsdp_config.fsdp_activation_checkpointing" },

  { "precision.param_dtype, precision.master_dtype, precision.grad_dtype, precision.reduce_dtype", "bf16", "fp16", "bfloat16", "float16",
    note = "weights have this type: without an adapter, DeepSpeed or FSDP 1 there are no f32 master weights, and averages and gradients "
      .. "have it, too; so it is with `bf16: full` and FSDP 1. FSDP sums gradients in bf16. `auto` is bf16" },
  { "precision.master_dtype", "peft_autocast_adapter_dtype", note = "factors of adapters are f32 unless it is false, which `rl: dpo` and FSDP 1 do not see" },

  { "batch.micro", "micro_batch_size", note = "of DPO twice as many: a pair is two sequences" },
  { "batch.global", "gradient_accumulation_steps", "batch_size", note = "times the microbatch and dp; `batch_size` is that of a rank, and counts "
    .. "beside `gradient_accumulation_steps: null` alone" },
  { "batch.seq", "sequence_len", note = "512 if it is not given, as there" },
  { "packed", "sample_packing", note = "off, a row has one conversation, or one text: `packed.alone`" },
  { "packed", "pretraining_sample_concatenation", note = "of `pretraining_dataset` without `sample_packing`: on, texts are one stream, without `packed`" },
  { "packed.too_long", "excess_length_strategy", note = "`drop` if it is not given, as there. Texts of `type: completion` are cut into pieces, "
      .. "and so are those of `pretraining_dataset` with `sample_packing` (`split`), which are else cut off (`truncate`)" },
  { "loss_chunks", "plugins", "cut_cross_entropy", "liger_fused_linear_cross_entropy", note = "Cut Cross Entropy and Liger's fused head are "
      .. "`\"auto\"`, with gradients in f32" },

  { "adapter", "adapter", note = "`lora`, `qlora`" },
  { "adapter.rank", "lora_r" },
  { "adapter.alpha", "lora_alpha" },
  { "adapter.targets", "lora_target_modules", "lora_target_linear", note = "names that the model has; `gate_proj`, `up_proj` and `down_proj` "
      .. "of models with experts are `target_parameters`, gate and up of twice the rank, as PEFT takes them" },
  { "adapter.target_parameters", "lora_target_parameters" },
  { "adapter.rank_pattern", "lora_rank_pattern.*" },
  { "adapter.alpha_pattern", "lora_alpha_pattern.*" },
  { "adapter.dropout", "lora_dropout" },
  { "adapter.dora", "peft_use_dora" },
  { "adapter.rslora", "peft_use_rslora" },
  { "adapter.modules_to_save", "lora_modules_to_save" },
  { "adapter.base", "load_in_4bit", "bnb_config_kwargs.bnb_4bit_quant_type", "bnb_config_kwargs.bnb_4bit_use_double_quant",
    note = "of `qlora`: NF4 with double quantisation" },

  { "loss", "rl", note = "`dpo`; others are said, models of rewards are an error" },
  { "loss.beta", "rl_beta", "dpo_beta", "beta", "trl.beta" },
  { "loss.label_smoothing", "dpo_label_smoothing" },

  { "optimizer", "optimizer", note = "AdamW in its forms, those of bitsandbytes and torchao with 8 bits, SGD, Lion, Adafactor and Muon; "
      .. "others are said. Norms and biases do not decay, as there" },
  { "optimizer.lr", "lr_scheduler", note = "`cosine` if it is not given; `warmup_stable_decay` is `weft.wsd`" },
  { "optimizer.lr.max", "learning_rate" },
  { "optimizer.lr.min_ratio", "cosine_min_lr_ratio" },
  { "optimizer.lr.steps", "cosine_constant_lr_ratio", note = "with `max_steps`" },
  { "optimizer.lr.warmup, optimizer.lr.warmup_ratio", "warmup_steps", "warmup_ratio", note = "3 % of the steps, at most 100, if neither is "
      .. "given, as there. The rise begins with a share of the rate, there with 0" },
  { "optimizer.lr.min", "lr_scheduler_kwargs.min_lr", "lr_scheduler_kwargs.lr_end" },
  { "optimizer.lr.min_ratio", "lr_scheduler_kwargs.min_lr_rate", "lr_scheduler_kwargs.min_lr_ratio" },
  { "optimizer.lr.power", "lr_scheduler_kwargs.power" },
  { "optimizer.lr.timescale", "lr_scheduler_kwargs.timescale" },
  { "optimizer.lr.decay", "lr_scheduler_kwargs.num_decay_steps" },
  { "optimizer.lr.decay_style", "lr_scheduler_kwargs.decay_type" },
  { "optimizer.betas", "adam_beta1", "adam_beta2", note = "(0.9, 0.999), of Lion, too, as the Trainer has it; of Muon (0.9, 0.95), "
    .. "on one rank (0.95, 0.95); of axolotl's own optimizers theirs, unless both are given" },
  { "optimizer.eps", "adam_epsilon" },
  { "optimizer.weight_decay", "weight_decay", note = "0 if it is not given, as there" },
  { "optimizer.clip", "max_grad_norm", note = "1 if it is not given, as there; with DeepSpeed's settings it is read by `gradient_clipping: auto` alone" },
  { "groups", "embedding_lr", "embedding_lr_scale", note = "embeddings and head, which do not decay then" },

  { "train.steps", "max_steps" },
  { "train.seed", "seed", note = "42 if it is not given, as there" },
  { "train.log_every", "logging_steps" },
  { "train.neftune_noise_alpha", "neftune_noise_alpha", "noisy_embedding_alpha" },
  { "checkpoint.dir", "output_dir", note = "a folder elsewhere is given by `--set checkpoint.dir=DIR`" },
  { "checkpoint.every", "save_steps", note = "a part of `max_steps`, too; 500 if `save_strategy: steps` stands alone, as there" },
  { "checkpoint", "save_strategy", note = "`no`: there are none" },
  { "checkpoint.keep", "save_total_limit", note = "4 if it is not given, as there" },
}
