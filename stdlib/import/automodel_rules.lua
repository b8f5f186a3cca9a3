-- automodel_rules.lua - NeMo AutoModel's settings that do not take part in the plan: a row each,
-- { key or prefix.*, what, text }; see ledger.lua. The others are in automodel.lua.
local rule = use "import/rule"
local none, cannot, unless, off, switched =
  rule.none, rule.cannot, rule.unless, rule.off, rule.switched

local KERNELS = "which kernels compute does not change the plan; on GPUs see attention_backend"
local LORA = "LoRA trains small factors beside frozen weights: here all parameters train, with "
  .. "gradients and optimizer state for all of them"
local DATA = "documents of texts, with templates and masks, are not read: the plan has "
  .. "weft.synthetic, or weft.tokens of files that were tokenized (weft tokenize)"
local LOSS = "another loss: the plan trains with the cross entropy of the next token"
local IMAGES = "images and sound are not read: the plan trains the language model alone"

return {
  none("dist_env.backend", "weft run --comm says which backend carries data"),
  none("dist_env.init_method", "weft launch says where processes meet"),
  none("dist_env.*", "how processes start is said by weft launch and weft run"),
  unless("recipe", { "TrainFinetuneRecipeForNextTokenPrediction",
                     "BenchmarkingRecipeForNextTokenPrediction",
                     "nemo_automodel.recipes.llm.train_ft.TrainFinetuneRecipeForNextTokenPrediction" },
         "a plan is trained by weft run", LOSS),
  unless("recipe.*", { "nemo_automodel.recipes.llm.train_ft.TrainFinetuneRecipeForNextTokenPrediction" },
         "a plan is trained by weft run", LOSS),
  cannot("recipe_args.*", "it belongs to training a draft model beside its target: the plan trains "
         .. "one model"),
  none("rng._target_", "train.seed gives all random numbers"),
  none("rng.ranked", "random numbers go by name and global index, whatever the rank"),
  none("rng.deterministic", "runs on CPUs are deterministic; on GPUs see plan.deterministic"),

  none("distributed._target_", "strategy says it"),
  none("distributed.backend", "weft run --comm says which backend carries data"),
  none("distributed.enable_compile", "plans are compiled always"),
  none("distributed.patch_is_packed_sequence", "documents in a sequence are told apart by packed"),
  none("distributed.find_unused_parameters", "which parameters a plan uses is known"),
  none("distributed.gradient_as_bucket_view", "gradients lie in one flat buffer always"),
  none("distributed.static_graph", "the graph of a plan does not change"),
  none("distributed.mp_policy._target_", "precision says it"),
  none("distributed.pipeline._target_", "pp_plan and schedule say it"),
  none("distributed.pipeline.scale_grads_in_schedule",
       "the loss is divided by the tokens of the whole step"),
  none("distributed.pipeline.patch_inner_model", "models are cut by their units"),
  none("distributed.pipeline.patch_causal_lm_model", "models are cut by their units"),
  none("distributed.pipeline.patch_stage_backward_maybe_with_nosync",
       "when gradients are reduced is said by the strategy"),
  none("distributed.pipeline.dtype", "precision says what goes between stages"),
  none("distributed.pipeline.pp_seq_len", "batch.seq is what goes between stages"),
  none("distributed.pipeline.pp_batch_size", "batch says it"),
  none("distributed.pipeline.visualization_font_size_offset", "weft show schedule draws"),
  cannot("distributed.multimodal.*", IMAGES),
  none("distributed.offload_policy._target_", "strategy.offload_policy says it"),
  none("distributed.offload_policy.pin_memory", "host memory that GPUs read is pinned always"),
  cannot("autopipeline.*", "settings of the pipeline belong under distributed.pipeline: they are "
         .. "not read here"),
  cannot("qat.*", "products are not rounded to integers while training"),
  cannot("model.moe_overrides.*", "the experts are those of the model's config: these numbers belong there"),
  cannot("fsdp.*", "settings of a recipe for diffusion models: they belong under distributed"),
  cannot("teacher_model.*", LOSS), cannot("teacher_distributed.*", LOSS),
  cannot("kd_loss_fn.*", LOSS), cannot("kd_ratio", LOSS), cannot("offload_teacher_model", LOSS),
  cannot("separate_meshes", LOSS), cannot("temperature", LOSS), cannot("distill_loss.*", LOSS),
  cannot("mse_loss.*", LOSS), cannot("infonce_distill_loss.*", LOSS), cannot("ema.*", LOSS),
  cannot("distill_loss_weight", LOSS), cannot("mse_loss_weight", LOSS),
  cannot("nce_distill_loss_weight", LOSS), cannot("dllm.*", LOSS), cannot("dflash.*", LOSS),
  cannot("flow_matching.*", LOSS), cannot("vae.*", IMAGES), cannot("data.*", IMAGES),
  cannot("inference.*", LOSS), cannot("output.*", LOSS), cannot("datasets", DATA),
  cannot("neftune.*", "noise on embeddings is not added"),

  none("model._target_", "the plan's model says it"),
  none("model.cache_dir", "weft downloads nothing"),
  none("model.config._target_", "the plan's model says it"),
  none("model.config.name_or_path", "a name, beside the one that is read"),
  none("model.config.trust_remote_code", "code that comes with a model is never run"),
  none("model.trust_remote_code", "code that comes with a model is never run"),
  none("model.config.use_cache", "training keeps no cache"),
  none("model.attn_implementation", KERNELS), none("model.attention_backend", KERNELS),
  none("model.force_hf", "weft has one model of each architecture"),
  none("model.use_liger_kernel", KERNELS), none("model.use_sdpa_patching", KERNELS),
  none("model.sdpa_method", KERNELS), none("model.has_packed_sequence", "packed says it"),
  unless("model.load_base_model", { false }, "a run begins with random weights",
         "a run begins with random weights, not with those of the model; weft.hf \"DIR\" has them"),
  none("model.output_hidden_states", "only the loss is computed"),
  cannot("model.quantization_config.*", "weights are not quantized"),
  cannot("model.freeze_router", "all parameters train"),
  cannot("model.copy_init_moe", IMAGES),
  none("model.router_aux_loss_coef", "a loss of routers is moe.aux_loss_coef"),
  none("model.backend._target_", "weft has its own kernels"),
  none("model.backend.enable_hf_state_dict_adapter", "weights have Hugging Face's names"),
  none("model.backend.enable_fsdp_optimizations",
       "gradients of experts are reduced as the strategy says"),
  cannot("model.backend.fake_balanced_gate",
         "tokens choose their experts: with fake balance all experts get as many"),
  cannot("model.backend.te_fp8.*", "products are not computed in fp8"),
  none("model.backend.*", KERNELS),
  cannot("model.text_config.*", IMAGES), cannot("model.vision_config.*", IMAGES),
  cannot("model.num_nextn_predict_layers", "weft does not train multi-token prediction"),
  cannot("model.mtp_loss_scaling_factor", "weft does not train multi-token prediction"),
  cannot("model.mtp_use_repeated_layer", "weft does not train multi-token prediction"),
  off("model.transformer_engine_fp8", "products are not computed in fp8"),
  off("model.transformer_engine_linear", KERNELS),

  { "peft._target_", "cannot", LORA }, cannot("peft.*", LORA),
  unless("freeze_config.freeze_language_model", { false }, "it trains", "all parameters train"),
  unless("freeze_config.freeze_embeddings", { false }, "they train",
         "embeddings train, with gradients and optimizer state"),
  none("freeze_config.*", "the plan has no such part"),
  switched("quantization", "load_in_4bit", "weights are not quantized"),
  switched("fp8", "enabled",
           "products are computed in the type of precision, not in fp8: other numbers, and less speed"),
  none("compile.*", "plans are compiled always"),
  none("autocast.*", "precision says it"),
  none("nvtx", "weft run --trace writes what every rank did"),
  none("performance.*", "it does not change what is computed"),
  none("prewarm.*", "communicators are made before the first step"),
  none("moe_metrics.*", "balance of experts is printed by weft run"),
  none("parallelizer.*", "strategy and mesh say it"),

  none("loss_fn.fp32_upcast", "the loss is computed in f32"),
  none("loss_fn.reduction", "the loss is the mean over the labels of the step"),
  cannot("loss_fn.logit_softcapping", "logits are not capped"),
  { "loss_fn._target_", function(book, leaf)
    local name = tostring(leaf.value)
    if string.find(name, "MaskedCrossEntropy$") or string.find(name, "TEParallelCrossEntropy$") then
      book:no_effect(leaf.key, "the cross entropy of the next token is the loss")
    elseif string.find(name, "FusedLinearCrossEntropy$") then
      book:cannot(leaf.key, "the same loss, but here its logits are in memory: more of it")
    else
      book:cannot(leaf.key, LOSS)
    end
  end },

  cannot("dataset.*", DATA),
  none("dataloader.num_workers", "data is read beside the steps"),
  none("dataloader.*", "data is read beside the steps, samples by global number"),
  cannot("validation_dataset.*", "there is no evaluation without data for it: see data.val"),
  cannot("validation_dataset", "there is no evaluation without data for it: see data.val"),
  none("validation_dataloader.*", "data is read beside the steps"),
  none("validation_dataloader", "data is read beside the steps"),
  none("_validation_dataset.*", "a name with _ is not read"),
  none("_validation_dataloader.*", "a name with _ is not read"),
  cannot("processor.*", IMAGES),
  none("tokenizer.*", "a plan reads tokens, or bytes"),

  none("step_scheduler.gc_every_steps", "nothing is collected in a step"),
  none("step_scheduler.log_remote_every_steps", "weft run --log and --tensorboard write every step"),
  none("step_scheduler.loss_average_window_steps", "losses are printed as they are"),
  unless("step_scheduler.save_checkpoint_every_epoch", { false }, "steps say when",
         "checkpoints are written by steps, not by epochs"),

  none("optimizer.foreach", KERNELS), none("optimizer.fused", KERNELS),
  none("optimizer.flatten", KERNELS), none("optimizer.use_triton", KERNELS),
  none("optimizer.adam_w_mode", "decay is apart from the gradient's averages"),
  unless("optimizer.bias_correction", { true }, "averages are corrected for their beginning",
         "averages are corrected for their beginning"),
  none("optimizer.master_weights", "there are f32 master weights always"),
  none("optimizer.store_param_remainders", "master weights are f32: the same numbers"),
  none("optimizer.compress_state_dict", "checkpoints hold what the state is"),
  unless("optimizer.master_weight_bits", { 32 }, "master weights are f32",
         "master weights are f32: one byte more a parameter than 24 bits"),
  unless("optimizer.master_weight_dtype", { "torch.float32", "float32" }, "master weights are f32",
         "master weights are f32"),
  cannot("optimizer.*", "an option of an optimizer that weft does not have: the plan has AdamW"),
  cannot("lr_scheduler.*", "not a shape that weft's learning rates have"),

  none("checkpoint.model_save_format", "checkpoints are safetensors, of any mesh"),
  none("checkpoint.diffusers_compatible", "weights have Hugging Face's names"),
  none("checkpoint.model_cache_dir", "weft downloads nothing"),
  none("checkpoint.model_repo_id", "weft downloads nothing"),
  none("checkpoint.dequantize_base_checkpoint", "weights that weft.hf reads are not quantized"),
  none("checkpoint.restore_from", "weft run --resume DIR goes on from a checkpoint"),
  none("checkpoint.load_base_model", "weft.hf says where weights come from"),
  none("checkpoint.*", "checkpoints are written as plan.checkpoint says"),

  none("packed_sequence.split_across_pack", "documents stay whole"),
  none("packed_sequence.max_packs", "samples come as long as steps are taken"),
  none("packed_sequence.*", "how documents are put together is said by packed"),

  none("benchmark.*", "weft run prints times; weft show what a step costs"),
  none("wandb.*", "weft run --log and --tensorboard write every step"),
  none("mlflow.*", "weft run --log and --tensorboard write every step"),
  none("comet.*", "weft run --log and --tensorboard write every step"),
  none("ci.*", "how the recipe is tested"),
  none("skypilot.*", "weft launch writes the script of a cluster"),
  none("slurm.*", "weft launch writes the script of a cluster"),
}
