-- rules.lua - what Megatron-LM refuses when it starts (arguments.py and the configurations of its core), as
-- a table: a row says it, and tells of arguments whether it is so. What the export can avoid it avoids,
-- and it is found among the differences; the rest is why a plan has no such script.
local rules = {}

local function sharded(at) return at["--use-distributed-optimizer"] or at["--use-torch-fsdp2"] end
local function size(at, flag) return at[flag] or 1 end

local function decay_steps(at) return at["--lr-decay-iters"] or at["--train-iters"] end

-- Data-parallel ranks of the experts.
local function expert_copies(at, f)
  return f.facts.world // (size(at, "--pipeline-model-parallel-size") * size(at, "--expert-model-parallel-size")
    * size(at, "--expert-tensor-parallel-size"))
end

local DETERMINISTIC = { Ring = true, CollnetDirect = true, CollnetChain = true }

-- { what it wants, whether these arguments { [flag] = value } of this plan go against it }
rules.rows = {
  { "with --context-parallel-size sequences are a multiple of two pieces for each rank: batch.seq",
    function(at) return size(at, "--context-parallel-size") > 1
      and at["--seq-length"] % (2 * at["--context-parallel-size"]) ~= 0 end },
  { "--tensor-model-parallel-size divides the attention heads",
    function(at) return at["--num-attention-heads"] % size(at, "--tensor-model-parallel-size") ~= 0 end },
  { "of --num-query-groups and --tensor-model-parallel-size one divides the other",
    function(at)
      local groups, tp = at["--num-query-groups"], size(at, "--tensor-model-parallel-size")
      return groups ~= nil and groups % tp ~= 0 and tp % groups ~= 0
    end },
  { "a router that chooses one expert by softmax takes the softmax before the choice "
    .. "(--moe-router-pre-softmax): model.num_experts_per_tok",
    function(at) return at["--moe-router-topk"] == 1 and not at["--moe-router-score-function"]
      and not at["--moe-router-pre-softmax"] end },
  { "--expert-model-parallel-size divides --num-experts: mesh.ep",
    function(at) return at["--num-experts"] ~= nil
      and at["--num-experts"] % size(at, "--expert-model-parallel-size") ~= 0 end },
  { "--moe-router-num-groups divides --num-experts",
    function(at) return at["--moe-router-num-groups"] ~= nil
      and at["--num-experts"] % at["--moe-router-num-groups"] ~= 0 end },
  { "experts are trained over tp with --sequence-parallel alone",
    function(at) return at["--num-experts"] ~= nil and size(at, "--tensor-model-parallel-size") > 1
      and not at["--sequence-parallel"] end },
  { "--sequence-parallel needs --tensor-model-parallel-size above 1",
    function(at) return at["--sequence-parallel"] and size(at, "--tensor-model-parallel-size") == 1 end },
  { "--tp-comm-overlap needs --sequence-parallel",
    function(at) return at["--tp-comm-overlap"] and not at["--sequence-parallel"] end },
  { "--overlap-param-gather needs --overlap-grad-reduce and shards of the optimizer",
    function(at) return at["--overlap-param-gather"]
      and not (at["--overlap-grad-reduce"] and at["--use-distributed-optimizer"]) end },
  { "several instances of the distributed optimizer need one: strategy.stage above 0",
    function(at) return at["--num-distributed-optimizer-instances"] and not sharded(at) end },
  { "--num-distributed-optimizer-instances divides the data-parallel ranks of the experts: mesh.dp_replicate",
    function(at, f) return at["--num-distributed-optimizer-instances"] and at["--num-experts"]
      and expert_copies(at, f) % at["--num-distributed-optimizer-instances"] ~= 0 end },
  { "--use-torch-fsdp2 goes without pipeline stages: mesh.pp",
    function(at) return at["--use-torch-fsdp2"] and size(at, "--pipeline-model-parallel-size") > 1 end },
  { "--use-torch-fsdp2 goes without expert parallelism: mesh.ep",
    function(at) return at["--use-torch-fsdp2"] and size(at, "--expert-model-parallel-size") > 1 end },
  { "--use-torch-fsdp2 goes with --untie-embeddings-and-output-weights alone: model.tie_word_embeddings",
    function(at) return at["--use-torch-fsdp2"] and not at["--untie-embeddings-and-output-weights"] end },
  { "--use-torch-fsdp2 goes without --fp16: precision",
    function(at) return at["--use-torch-fsdp2"] and at["--fp16"] end },
  { "--use-torch-fsdp2 and --use-distributed-optimizer exclude each other",
    function(at) return at["--use-torch-fsdp2"] and at["--use-distributed-optimizer"] end },
  { "FSDP wants CUDA_DEVICE_MAX_CONNECTIONS not to be 1",
    function(at, _, set) return (at["--use-torch-fsdp2"] or at["--use-megatron-fsdp"])
      and set.CUDA_DEVICE_MAX_CONNECTIONS == 1 end },
  { "tp and cp want CUDA_DEVICE_MAX_CONNECTIONS to be 1",
    function(at, _, set) return (size(at, "--tensor-model-parallel-size") > 1 or size(at, "--context-parallel-size") > 1)
      and not at["--use-torch-fsdp2"] and not at["--use-megatron-fsdp"] and set.CUDA_DEVICE_MAX_CONNECTIONS ~= 1 end },
  { "--use-megatron-fsdp needs --ckpt-format fsdp_dtensor, which nothing else takes",
    function(at) return (at["--use-megatron-fsdp"] == true) ~= (at["--ckpt-format"] == "fsdp_dtensor") end },
  { "FSDP knows the optimizers adam and sgd",
    function(at) return (at["--use-torch-fsdp2"] or at["--use-megatron-fsdp"]) and at["--optimizer"] == "lion" end },
  { "--use-precision-aware-optimizer needs adam and --use-distributed-optimizer",
    function(at) return at["--use-precision-aware-optimizer"]
      and not (at["--optimizer"] == "adam" and at["--use-distributed-optimizer"]) end },
  { "--optimizer-cpu-offload needs --use-precision-aware-optimizer",
    function(at) return at["--optimizer-cpu-offload"] and not at["--use-precision-aware-optimizer"] end },
  { "stages are equal, or said by --pipeline-model-parallel-layout",
    function(at) return not at["--pipeline-model-parallel-layout"]
      and at["--num-layers"] % (size(at, "--pipeline-model-parallel-size")
                                * (at["--num-layers-per-virtual-pipeline-stage"] or 1)) ~= 0 end },
  { "the warmup ends before the decay does: optimizer.lr",
    function(at) return at["--lr-warmup-iters"] >= decay_steps(at) end },
  { "--min-lr is at most --lr: optimizer.lr.min",
    function(at) return (at["--min-lr"] or 0) > at["--lr"] end },
  { "--deterministic-mode goes without --tp-comm-overlap",
    function(at) return at["--deterministic-mode"] and at["--tp-comm-overlap"] end },
  { "--deterministic-mode wants NCCL_ALGO to be Ring, CollnetDirect or CollnetChain, or not to be there: nccl.algo",
    function(at, _, set) return at["--deterministic-mode"] and set.NCCL_ALGO
      and not DETERMINISTIC[set.NCCL_ALGO] end },
  { "sequences are at most --max-position-embeddings long",
    function(at) return at["--seq-length"] > at["--max-position-embeddings"] end },
}

-- The first rule that the script `s` of the plan `f` goes against.
function rules.broken(s, f)
  for _, row in ipairs(rules.rows) do
    if row[2](s.at, f, s.set) then return row[1] end
  end
end

return rules
