-- left_out.lua - nanotron's settings that do not take part in the plan: a row each, { key or
-- prefix.*, what, text }; see ledger.lua. The others are in nanotron.lua.
local rule = use "import/rule"
local none, cannot, off = rule.none, rule.cannot, rule.off

local M = "model.model_config."
local KERNELS = "which kernels compute does not change the plan; on GPUs see attention_backend"
local LOGS = "weft run --log and --tensorboard write every step"
local DATA = "texts, or tokens elsewhere, are not read: the plan has weft.synthetic; weft tokenize and "
  .. "weft.tokens read them"
local DECAY = "all parameters decay: groups of the plan say which ones do not"
local EVAL = "there is no evaluation without data for it: see data.val and train.eval_every"

-- -1 and 0 mean never.
local function never(key, change)
  return rule.unless(key, { -1, 0 }, "it is off, as without it", change)
end

return {
  none("general.*", "it names the run"), none("logging.*", LOGS), none("metrics_logging.*", LOGS),
  none("profiler.*", "weft run --profile tells where time goes"), none("profiler", "there is none"),
  none("tokenizer.*", "tokens are made up: the plan reads no tokenizer"),
  none("parallelism.tp_recompute_allgather", "what is gathered is gathered again in the backward"),
  off("parallelism.moe_layer_recompute", "recompute says which layers run again"),
  cannot("doremi.*", "weights of data sets do not change while training"),
  none("lighteval.*", "evaluation of other tasks is no part of training"),
  none("s3_upload.*", "checkpoints lie in checkpoint.dir"),
  { "data_stages", function(book, leaf)
    for _, stage in ipairs(type(leaf.value) == "table" and leaf.value or {}) do
      local data = type(stage) == "table" and stage.data
      if type(data) ~= "table" or type(data.dataset) == "table" or type(data.dataset) == "string" then
        return book:cannot(leaf.key, DATA)
      end
    end
    if type(leaf.value) == "table" and #leaf.value > 1 then return book:cannot(leaf.key, DATA) end
    book:no_effect(leaf.key, "tokens are made up there, too")
  end },
  cannot("data_stages.*", DATA), cannot("data.*", DATA),
  never("tokens.val_check_interval", EVAL), never("tokens.limit_val_batches", EVAL),
  never("tokens.limit_test_batches", EVAL),
  cannot("model.init_method.use_mup", "initial values and rates of muP: here all have one rate"),
  cannot("model.init_method.path", "training begins with weights of its own: weft.hf reads those of a folder"),
  none("model.init_method.scaling_method", "see model.init_method.std"),
  none("model.init_method.std", "see model.initializer_range"),
  none(M .. "is_llama_config", "the model is nanotron's llama"),
  none(M .. "is_qwen2_config", "the model is nanotron's qwen2"),
  none(M .. "bos_token_id", "ids of special tokens do not change the plan"),
  none(M .. "eos_token_id", "ids of special tokens do not change the plan"),
  none(M .. "pad_token_id", "ids of special tokens do not change the plan"),
  none(M .. "use_cache", "it is for generation"), none(M .. "pretraining_tp", "mesh.tp says it"),
  none(M .. "initializer_range", "model.init_method.std says how weights begin"),
  none(M .. "_attn_implementation", KERNELS), none(M .. "_fused_rms_norm", KERNELS),
  none(M .. "_fused_rotary_emb", KERNELS), none(M .. "_use_qkv_packed", KERNELS),
  rule.unless(M .. "flex_attention_mask", { "sliding_window" }, "sliding_window_size says it",
              "each document attends to itself there: packed = { eot = id } says it"),
  none(M .. "log_attn_probs", LOGS),
  none(M .. "ring_attn_heads_k_stride", KERNELS),
  off(M .. "_use_doc_masking", "each document attends to itself there: packed = { eot = id } says it"),
  off(M .. "rope_interleaved", "halves of a head turn together here, neighbours there"),
  off(M .. "z_loss_enabled", "the loss is the cross entropy alone"),
  none(M .. "z_loss_coefficient", "it counts with z_loss_enabled"),
  cannot(M .. "no_rope_layer", "every layer has positions here, as of this model with biases or windows"),
  cannot(M .. "rope_scaling.*", "frequencies of positions are scaled there: --model DIR with a config.json "
         .. "says how"),
  cannot(M .. "*", "a key of a model that weft does not know"),
  none("optimizer.optimizer_factory.torch_adam_is_fused", "kernels of the optimizer do not change its numbers"),
  { "optimizer.weight_decay_exclude_named_params", function(book, leaf)
    if type(leaf.value) ~= "table" or next(leaf.value) ~= nil then return book:cannot(leaf.key, DECAY) end
    book:no_effect(leaf.key, "it names none: all parameters decay")
  end, DECAY },
  cannot("optimizer.*", "an option of an optimizer that weft does not have"),
  none("checkpoints.resume_checkpoint_path", "weft run --resume DIR goes on from a checkpoint"),
  none("checkpoints.save_initial_state", "initial values follow from train.seed"),
  none("checkpoints.save_final_state", "the end of a run is written always"),
  none("checkpoints.*", "checkpoints are written as plan.checkpoint says"),
}
