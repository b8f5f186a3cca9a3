-- fields.lua - Accelerate's settings that take part in the plan, in the order in which a reader looks for
-- them: rows { field, setting, ..., note = }; see ledger.lua.
return {
  { "strategy", "distributed_type", note = "`FSDP` is fsdp2, `DEEPSPEED` zero, `MULTI_GPU` ddp" },
  { "strategy.reshard_after_forward", "fsdp_config.fsdp_sharding_strategy", "fsdp_config.fsdp_reshard_after_forward",
    note = "names and numbers of FSDP1, booleans of FSDP2; with `HYBRID_SHARD` each machine has a copy" },
  { "strategy.offload_policy", "fsdp_config.fsdp_offload_params" },
  { "recompute", "fsdp_config.fsdp_activation_checkpointing" },
  { "strategy.stage", "deepspeed_config.zero_stage", note = "2 if it is not given, as there" },
  { "strategy.offload_optimizer", "deepspeed_config.offload_optimizer_device" },
  { "strategy.offload_param", "deepspeed_config.offload_param_device", note = "at stage 3 with the optimizer" },
  { "optimizer.clip", "deepspeed_config.gradient_clipping" },

  { "mesh.world", "num_processes" },
  { "mesh.dp_replicate", "num_machines", note = "with `HYBRID_SHARD`" },
  { "mesh.tp", "parallelism_config.parallelism_config_tp_size", "parallelism_config.tp_size" },
  { "mesh.cp", "parallelism_config.parallelism_config_cp_size", "parallelism_config.cp_size",
    "parallelism_config.parallelism_config_sp_size", "parallelism_config.sp_size",
    note = "`sp_size` is `cp` with `cp.comm = \"a2a\"`" },
  { "mesh.dp_replicate", "parallelism_config.parallelism_config_dp_replicate_size",
    "parallelism_config.dp_replicate_size" },
  { "mesh.world", "parallelism_config.parallelism_config_dp_shard_size", "parallelism_config.dp_shard_size" },
  { "cp.comm", "parallelism_config.parallelism_config_cp_comm_strategy", "parallelism_config.cp_comm_strategy",
    note = "`alltoall` goes around as a ring" },
  { "precision", "mixed_precision",
    note = "FSDP sums gradients in it (`reduce_dtype`), and DeepSpeed adds them up in it (`grad_dtype`), as there" },
  { "batch.global", "gradient_accumulation_steps", "deepspeed_config.gradient_accumulation_steps",
    note = "times the microbatch and dp" },
}
