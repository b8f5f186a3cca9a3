-- rules.lua - what torchtitan refuses when it starts, as a table: a row says it, and tells of settings
-- whether it is so.
local rules = {}

local function degree(at, name) return at["parallelism." .. name .. "_parallel_degree"] or 1 end
local function copies(at) return at["parallelism.data_parallel_replicate_degree"] end
local function shards(at) return at["parallelism.data_parallel_shard_degree"] end

rules.rows = {
  { "copies of the parameters without shards (DDP) go with neither tp nor pp: strategy",
    function(at) return copies(at) > 1 and shards(at) == 1 and degree(at, "context") == 1
      and degree(at, "expert") == 1 and (degree(at, "tensor") > 1 or degree(at, "pipeline") > 1) end },
  { "sequences are a multiple of tp times two pieces for each rank of cp: batch.seq",
    function(at)
      local cp = degree(at, "context")
      return at["training.seq_len"] % (degree(at, "tensor") * (cp > 1 and 2 * cp or 1)) ~= 0
    end },
  { "experts are cut by as many ranks as the rest, or not at all: mesh.etp",
    function(at)
      local etp = at["parallelism.expert_tensor_parallel_degree"] or 1
      return degree(at, "expert") > 1 and etp ~= 1 and etp ~= degree(at, "tensor")
    end },
  { "experts are shared by whole groups of ranks: mesh.ep",
    function(at)
      local etp = at["parallelism.expert_tensor_parallel_degree"] or 1
      local ranks = shards(at) * degree(at, "context") * (etp == 1 and degree(at, "tensor") or 1)
      return degree(at, "expert") > 1 and ranks % degree(at, "expert") ~= 0
    end },
  { "enable_async_tensor_parallel needs compile.enable",
    function(at) return at["parallelism.enable_async_tensor_parallel"] and not at["compile.enable"] end },
  { "a schedule with one stage on each rank has one, others have more",
    function(at, f)
      local name = at["parallelism.pipeline_parallel_schedule"]
      return name and (name == "1F1B" or name == "GPipe") ~= (f.virtual == 1)
    end },
  { "a V has two stages on each rank",
    function(at, f)
      local name = at["parallelism.pipeline_parallel_schedule"]
      return (name == "ZBVZeroBubble" or name == "DualPipeV") and f.virtual ~= 2
    end },
  { "local batches are whole microbatches",
    function(at)
      local micro = at["parallelism.pipeline_parallel_microbatch_size"]
      return micro and at["training.local_batch_size"] % micro ~= 0
    end },
  { "the global batch is whole local batches",
    function(at) return at["training.global_batch_size"]
      % (at["training.local_batch_size"] * copies(at) * shards(at)) ~= 0 end },
  { "one checkpoint alone cannot be kept",
    function(at) return at["checkpoint.keep_latest_k"] == 1 end },
}

-- The first rule that the settings `s` of the plan `f` go against.
function rules.broken(s, f)
  local at = s:values()
  for _, row in ipairs(rules.rows) do
    if row[2](at, f) then return row[1] end
  end
end

return rules
