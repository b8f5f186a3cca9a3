-- keys.lua - the names of Megatron's settings in its different forms as one name each: "--num-layers",
-- "MODEL_ARGS.--num-layers", "language_model.num_layers" and "model.num_layers" are num_layers.
local tree = use "import/tree"
local keys = {}

-- Groups whose keys mean the same without them: of --yaml-cfg files, Megatron-Bridge, NeMo 2.
local GROUPS = { "MODEL_ARGS", "language_model", "model_parallel", "trainer.strategy", "trainer", "model", "train",
                 "optimizer", "scheduler", "ddp", "dist", "rng", "checkpoint", "data", "mixed_precision" }

-- Names of the same setting: of the classes that arguments fill in, and short or old ones.
local SAME = {
  ["logger.log_interval"] = "log_interval",
  layernorm_epsilon = "norm_epsilon", num_moe_experts = "num_experts", sequence_length = "seq_length",
  num_layers_in_first_pipeline_stage = "decoder_first_pipeline_num_layers",
  num_layers_in_last_pipeline_stage = "decoder_last_pipeline_num_layers",
  model_parallel_size = "tensor_model_parallel_size", activations_checkpoint_granularity = "recompute_granularity",
  checkpoint_num_layers = "recompute_num_layers", activations_checkpoint_num_layers = "recompute_num_layers",
  moe_loss_coeff = "moe_aux_loss_coeff",
  adam_epsilon = "adam_eps", max_steps = "train_iters", batch_size = "micro_batch_size",
  seq_len_interpolation_factor = "rotary_seq_len_interpolation_factor",
  seq_length_interpolation_factor = "rotary_seq_len_interpolation_factor",
  ["dataset.reset_position_ids"] = "reset_position_ids", ["dataset.reset_attention_mask"] = "reset_attention_mask",
  ["dataset.eod_mask_loss"] = "eod_mask_loss",
  microbatch_group_size_per_vp_stage = "microbatch_group_size_per_virtual_pipeline_stage",
}

local function below(key, group)
  if string.sub(key, 1, #group + 1) == group .. "." then return string.sub(key, #group + 2) end
end

function keys.canonical(key)
  local variable = string.match(key, "^export (.*)$") or below(key, "ENV_VARS")
  if variable then return "env." .. variable end
  local launcher = string.match(key, "^launcher %-%-?(.*)$")
  if launcher then return "launcher." .. string.gsub(launcher, "-", "_") end
  local slurm = string.match(key, "^#SBATCH %-%-(.*)$")
  if slurm then return "slurm." .. string.gsub(slurm, "-", "_") end
  local name = key
  for _, group in ipairs(GROUPS) do name = below(name, group) or name end
  name = string.gsub(string.gsub(name, "^%-%-?", ""), "-", "_")
  return SAME[name] or name
end

local function add(leaves, leaf)
  local before = leaves.at[leaf.key]
  if before and leaf.value == before.value then
    before.list, before.text = "no_effect", "it is given again, with the same value"
  elseif before then
    before.list, before.text = "no_effect", string.format("%s gives it again, which counts", tree.place(leaf))
  end
  leaves.at[leaf.key] = leaf
end

-- The leaves under their canonical names, each with `given`, as it is written. Of a setting that is
-- given several times the last one counts, as for Python's argparse; of one that a file takes the place
-- of (`replaced` says so) none.
function keys.settle(leaves)
  leaves.at = {}
  for _, leaf in ipairs(leaves) do
    leaf.given = leaf.given or leaf.key
    leaf.key = keys.canonical(leaf.given)
    if leaf.replaced then
      leaf.list, leaf.text = "no_effect", leaf.replaced
    else
      add(leaves, leaf)
    end
  end
end

return keys
