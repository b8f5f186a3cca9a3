-- renamed.lua - names that arguments had in older versions of LLaMA-Factory and Transformers, or have in newer
-- ones of Transformers, and their names here: the same value means the same.
return {
  -- LLaMA-Factory before 0.1 to 0.9 (hparams/*_args.py of its tags)
  badam_switch_block_every = "badam_switch_interval", checkpoint_dir = "adapter_name_or_path", dev_ratio = "val_size",
  dpo_beta = "pref_beta", dpo_ftx = "pref_ftx", dpo_loss = "pref_loss", dpo_ref_model = "ref_model",
  dpo_ref_model_checkpoint = "ref_model_adapters", hf_auth_token = "hf_hub_token", use_auth_token = "hf_hub_token",
  name_module_trainable = "freeze_trainable_modules", neft_alpha = "neftune_noise_alpha",
  new_special_tokens = "add_special_tokens", num_layer_trainable = "freeze_trainable_layers", orpo_beta = "pref_beta",
  kto_beta = "pref_beta", kto_ftx = "pref_ftx",
  prompt_template = "template", ref_model_checkpoint = "ref_model_adapters", sft_packing = "packing",
  system_prompt = "default_system",
  -- Transformers (training_args.py)
  evaluation_strategy = "eval_strategy", per_gpu_train_batch_size = "per_device_train_batch_size",
  activation_checkpointing = "gradient_checkpointing", activation_checkpointing_kwargs = "gradient_checkpointing_kwargs",
}
