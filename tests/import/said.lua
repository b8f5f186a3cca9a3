-- said.lua - draws plans of what the settings of a system can say: said(system, seed, number) is the
-- text of a plan whose export lists nothing. What a system can say is its table below; all draw from
-- the same lists else.
local draw = {}
draw.__index = draw

local function new_draw(seed, number)
  return setmetatable({ at = (seed * 2654435761 + number * 40503) % 4294967296 + 1 }, draw)
end

function draw:below(n)
  local x = self.at
  x = (x ~ (x << 13)) & 0xffffffff
  x = x ~ (x >> 17)
  x = (x ~ (x << 5)) & 0xffffffff
  self.at = x
  return (x >> 8) % n
end

function draw:pick(list) return list[self:below(#list) + 1] end
function draw:maybe(n) return self:below(n) == 0 end

-- ---- models ----

local function sizes(d, p, more)
  local c = { vocab_size = p.tp * d:pick { 16, 19, 64 }, hidden_size = d:pick { 32, 64 },
              num_hidden_layers = p.layers, num_attention_heads = p.heads, initializer_range = 0.1,
              max_position_embeddings = 4096, tie_word_embeddings = p.tied }
  for k, v in pairs(more) do c[k] = v end
  return c
end

local models = {}

local RATES = { 0, 0, 0.1, 0.25 }

function models.gpt2(d, p)
  local drops = p.drops and d:pick(RATES)
  return sizes(d, p, { "gpt2", hidden_size = 64, layer_norm_epsilon = 1e-5, activation_function =
                       d:pick { "gelu", "gelu_new" }, embd_pdrop = drops or nil, resid_pdrop = drops or nil,
                       attn_pdrop = p.drops and d:pick(RATES) or nil })
end

for _, name in ipairs { "llama", "qwen2", "qwen3" } do
  models[name] = function(d, p)
    return sizes(d, p, { name, intermediate_size = 96, head_dim = 16, rope_theta = d:pick { 10000.0, 500000.0 },
      num_key_value_heads = d:maybe(2) and p.heads or p.kv, rms_norm_eps = d:pick { 1e-5, 1e-6 }, attention_dropout = p.drops and d:pick(RATES) or nil })
  end
end

function models.mixtral(d, p)
  return sizes(d, p, { "mixtral", intermediate_size = 32, num_local_experts = p.experts, head_dim = 16,
    num_experts_per_tok = 2, num_key_value_heads = p.kv })
end

function models.qwen3_moe(d, p)
  return sizes(d, p, { "qwen3_moe", intermediate_size = 96, moe_intermediate_size = 32, num_experts = p.experts,
    num_experts_per_tok = d:pick { 2, 3 }, norm_topk_prob = d:maybe(2), head_dim = 16, num_key_value_heads = p.kv })
end

function models.deepseek_v3(d, p)
  return sizes(d, p, { "deepseek_v3", intermediate_size = 96, moe_intermediate_size = 32, n_routed_experts = p.experts,
    n_shared_experts = d:pick { 1, 2 }, num_experts_per_tok = 2, first_k_dense_replace = d:below(math.min(2, p.layers)), n_group = 1,
    topk_group = 1, norm_topk_prob = true, q_lora_rank = d:maybe(2) and 12, kv_lora_rank = 10,
    qk_nope_head_dim = 8, qk_rope_head_dim = 8, v_head_dim = 8, num_key_value_heads = p.heads,
    rms_norm_eps = d:pick { 1e-5, 1e-6 } })
end

function models.mistral(d, p)
  return sizes(d, p, { "mistral", intermediate_size = 96, head_dim = 16, num_key_value_heads = p.kv,
    sliding_window = d:pick { 7, 4096, false } })
end

-- Every second layer, or all that are given, have a window.
local function types_of(d, p)
  if d:maybe(2) then return nil end
  local list = {}
  for i = 1, p.layers do list[i] = d:pick { "full_attention", "sliding_attention" } end
  return list
end

for _, name in ipairs { "ministral", "olmo3" } do
  models[name] = function(d, p)
    return sizes(d, p, { name, intermediate_size = 96, head_dim = 16, num_key_value_heads = p.kv,
      sliding_window = d:pick { 5, 16 }, layer_types = types_of(d, p) })
  end
end

function models.phi3(d, p)
  return sizes(d, p, { "phi3", intermediate_size = 96, num_key_value_heads = p.kv, sliding_window = d:pick { false, 9 },
    resid_pdrop = d:pick(RATES) })
end

for _, name in ipairs { "gemma", "gemma2", "gemma3_text" } do
  models[name] = function(d, p)
    return sizes(d, p, { name, intermediate_size = 96, head_dim = 16, num_key_value_heads = p.kv,
      sliding_window = name ~= "gemma" and d:pick { 5, 4096 } or nil })
  end
end

function models.granite(d, p)
  return sizes(d, p, { "granite", intermediate_size = 96, num_key_value_heads = p.kv, embedding_multiplier = 12.0,
    attention_multiplier = 0.25, residual_multiplier = 0.22, logits_scaling = 8.0 })
end

local EXPERTS = { mixtral = true, qwen3_moe = true, deepseek_v3 = true }

-- ---- what all have ----

-- `falls`: along which a rate that stays at its maximum first may fall.
local function rate(d, steps, kinds, falls)
  local kind = d:pick(kinds)
  local max = d:pick { 1e-3, 3e-4, 0.01 }
  if kind == "wsd" then
    return string.format("weft.wsd { max = %g, min_ratio = 0.1, warmup_ratio = %g, decay = %d, decay_style = %q }", max,
                         d:pick { 0, 0.1 }, 3 + d:below(4), d:pick(falls))
  elseif kind == "inverse_sqrt" then
    return string.format("weft.inverse_sqrt { max = %g, min = %g, warmup = %d }", max, max / 10, 1 + d:below(3))
  end
  if kind == "constant" then return string.format("weft.constant { max = %g, warmup = %d }", max, d:below(3)) end
  return string.format("weft.%s { max = %g, min = %g, warmup = %d, steps = %d }", kind, max, max / 10, d:below(3),
                       steps + d:pick { 0, 7 })
end

-- A Lua value as text; names in order, so that the same number gives the same text.
local function text(v)
  if type(v) == "string" then return string.find(v, "^weft%.") and v or string.format("%q", v) end
  if type(v) ~= "table" then return tostring(v) end
  local names, parts = {}, {}
  for _, item in ipairs(v) do parts[#parts + 1] = text(item) end
  for k in pairs(v) do
    if type(k) == "string" then names[#names + 1] = k end
  end
  table.sort(names)
  for _, k in ipairs(names) do parts[#parts + 1] = k .. " = " .. text(v[k]) end
  return "{ " .. table.concat(parts, ", ") .. " }"
end

-- Layers of each stage: equal, or not.
local function cut(d, stages, each, uneven)
  local list, layers = {}, 0
  for i = 1, stages do
    list[i] = each + (uneven and d:below(2) or 0)
    layers = layers + list[i]
  end
  return layers, list
end

-- ---- Megatron ----

local systems = {}

local function megatron_strategy(d, p)
  if p.pp == 1 and p.ep == 1 and not p.tied and p.precision ~= "f16" and p.dp > 1 and d:maybe(3) then
    return { "fsdp2" }
  end
  local stage = d:below(4)
  local s = { "zero", stage = stage, bucket_bytes = 4 * d:pick { 1000, 6553600 } }
  s.overlap_grad_reduce = d:maybe(2)
  if stage == 1 or stage == 2 then s.overlap_param_gather = s.overlap_grad_reduce and d:maybe(2) end
  if stage > 0 and p.optimizer == "adamw" and d:maybe(4) then s.offload_optimizer = "cpu" end
  return s
end

local function megatron_precision(d, p)
  if p.precision == "bf16" then
    return { param_dtype = "bf16", grad_dtype = d:maybe(4) and "bf16" or nil }
  elseif p.precision == "f32" then
    return { param_dtype = "f32" }
  end
  return { param_dtype = "f16", grad_dtype = d:maybe(2) and "f16" or nil, init_scale = d:pick { 65536.0, 1024.0 }, growth_interval = d:pick { 2000, 10 },
           hysteresis = d:pick { 1, 2 }, min_scale = d:pick { 1.0, 0.5 } }
end

local function megatron_rate(d, p)
  return rate(d, p.steps, { "constant", "cosine", "linear", "inverse_sqrt", "wsd" },
              { "linear", "cosine", "exponential", "minus_sqrt" })
end

local function megatron_optimizer(d, p, strategy)
  local o = { lr = megatron_rate(d, p), weight_decay = d:pick { 0, 0.1 }, clip = d:pick { 0, 1.0, 0.5 } }
  if p.optimizer == "sgd" then
    o.momentum = d:pick { 0, 0.9 }
  else
    o.betas = d:pick { { 0.9, 0.95 }, { 0.9, 0.999 }, { 0.5, 0.9 } }
  end
  if p.optimizer == "adamw" then
    o.eps = d:pick { 1e-8, 1e-6 }
    if strategy[1] == "zero" and strategy.stage > 0 and d:maybe(4) then o.state_dtype = "bf16" end
  end
  return "weft." .. p.optimizer .. " " .. text(o)
end

local function megatron_pipeline(d, p, plan)
  if p.pp == 1 then return end
  if p.virtual > 1 then plan.schedule = { "interleaved_1f1b", group = p.pp * d:pick { 1, 2 } } end
  if p.uneven and d:maybe(2) then
    plan.pp_plan = { layers = p.list, virtual = p.virtual }
  elseif p.uneven then
    local stages = {}
    for i, n in ipairs(p.list) do stages[i] = (i == 1 and "E" or "") .. "t*" .. n .. (i == #p.list and "L" or "") end
    plan.pp_plan = { layout = table.concat(stages, "|") }
  else
    plan.pp_plan = { virtual = p.virtual }
  end
end

local function megatron_moe(d, p, offloads)
  local moe = { dispatcher = d:pick { "allgather", "alltoall" }, aux_loss_coef = d:pick { 0, 0.01 },
                z_loss_coef = d:pick { 0, 0.001 } }
  if p.model == "deepseek_v3" and not offloads then moe.bias_update_rate = d:pick { 0, 0.001 } end
  if d:maybe(3) then moe.capacity_factor, moe.drop_policy = 1.25, d:pick { "probs", "position" } end
  if moe.aux_loss_coef > 0 then moe.aux_loss_sequences = d:maybe(2) and 1 or p.micro end
  if moe.aux_loss_coef > 0 and d:maybe(3) then
    moe.aux_loss_sequences, moe.aux_loss_batch = nil, "global"
  end
  return moe
end

local function megatron_rest(d, plan)
  if d:maybe(3) then
    plan.checkpoint = { dir = "ckpt/a b", every = d:pick { 5, 100 }, async = d:maybe(2) }
  end
  if d:maybe(3) then plan.comm = { timeout = d:pick { 60, 600 } } end
  if d:maybe(4) then plan.nccl = { ib_sl = 1, algo = "ring", p2p_disable = true, socket_ifname = "eth0" } end
  plan.deterministic = d:maybe(4) and not plan.strategy.enable_async_tensor_parallel or nil
end

-- Windows of all layers are Mistral's, those of some Ministral's; without one it is a Llama.
local function megatron_window(model)
  if model[1] == "ministral" then
    model.layer_types = { "full_attention" }
    for i = 2, model.num_hidden_layers do model.layer_types[i] = "sliding_attention" end
  end
  if model[1] == "mistral" or model[1] == "ministral" then model.sliding_window = model.sliding_window or 16 end
end

function systems.megatron(d)
  local p = { tp = d:pick { 1, 1, 2 }, pp = d:pick { 1, 1, 2, 4 }, cp = d:pick { 1, 1, 2 }, dp = d:pick { 1, 2, 4 },
              ep = 1, experts = 4, tied = d:maybe(2), precision = d:pick { "f32", "bf16", "f16" }, steps = 12,
              model = d:pick { "gpt2", "llama", "qwen2", "qwen3", "mistral", "ministral", "mixtral", "qwen3_moe",
                               "deepseek_v3" }, drops = true }
  if p.pp == 4 then p.tp = 1 end
  p.kv = p.tp * p.cp
  p.heads = p.model == "gpt2" and 4 or p.kv * d:pick { 1, 2 }
  p.virtual = p.pp > 1 and d:pick { 1, 1, 2 } or 1
  p.uneven = p.pp > 1 and d:maybe(3)
  p.layers, p.list = cut(d, p.pp * p.virtual, d:pick { 1, 2 }, p.uneven)
  if p.model == "ministral" and p.layers == 1 then p.model = "mistral" end
  if EXPERTS[p.model] and p.dp * p.cp > 1 and d:maybe(2) then p.ep = 2 end
  p.optimizer = d:pick { "adamw", "adamw", "sgd" }
  local micro, count = d:pick { 1, 2 }, p.pp * d:pick { 2, 4 }
  local plan = { name = "drawn", model = models[p.model](d, p), precision = megatron_precision(d, p),
                 mesh = { tp = p.tp, pp = p.pp, cp = p.cp, dp = p.dp },
                 batch = { global = micro * p.dp * count, micro = micro, seq = 16 * p.cp },
                 recompute = d:pick { "none", "full", "selective" },
                 train = { steps = p.steps, seed = d:below(1000), log_every = d:pick { 1, 10 } } }
  megatron_window(plan.model)
  if p.ep > 1 then plan.mesh.ep, plan.mesh.etp = p.ep, d:pick { 1, p.tp } end
  plan.strategy = megatron_strategy(d, p)
  if plan.strategy.stage == 0 and d:maybe(2) then p.optimizer = "lion" end
  if plan.strategy[1] == "zero" and plan.strategy.stage > 0 and p.dp == 4 and p.ep == 1 and d:maybe(2) then
    plan.mesh.dp_replicate = 2
  end
  if p.tp > 1 then
    plan.strategy.sequence_parallel = EXPERTS[p.model] or d:maybe(2)
    plan.strategy.enable_async_tensor_parallel = plan.strategy.sequence_parallel and d:maybe(3) or nil
  end
  if p.cp > 1 then
    plan.cp = { comm = d:pick { "ring", "allgather", "a2a" } }
  end
  if EXPERTS[p.model] then plan.moe = megatron_moe(d, p, plan.strategy.offload_optimizer) end
  megatron_pipeline(d, p, plan)
  megatron_rest(d, plan)
  plan.optimizer = megatron_optimizer(d, p, plan.strategy)
  return plan
end

-- ---- torchtitan ----

-- Stages of torchtitan's schedules: one for each rank, two and more, or two in a V.
local TITAN = { { "1f1b", 1 }, { "gpipe", 1 }, { "interleaved_1f1b", 2 }, { "looped_bfs", 2 }, { "zero_bubble", 2 },
                { "zbv", 2 }, { "dualpipe_v", 2 }, { "zb_h2", 1 }, { "eager_1f1b", 1 }, { "v_half", 2 },
                { "v_min", 2 } }

local function titan_strategy(d, p)
  if not p.shards then
    return p.tp == 1 and p.pp == 1 and { "ddp" } or { "zero", stage = 0 }
  end
  local s = { "fsdp2", reshard_after_forward = d:pick { true, false, nil } }
  if p.pp == 1 then s.defer_fsdp_grad_sync = false end
  if d:maybe(4) then s.offload_policy = true end
  return s
end

local function titan_recompute(d, p)
  local again = d:pick { "none", "full", "cheap", "layers" }
  if again ~= "layers" or p.layers < 2 then return again ~= "layers" and again or "none" end
  local list = {}
  for i = 1, p.layers - 1, 2 do list[#list + 1] = "layers." .. i end
  return list
end

local function titan_optimizer(d, p)
  local lr = rate(d, p.steps, { "constant", "cosine", "linear", "wsd" }, { "linear", "cosine", "minus_sqrt" })
  local decay = d:pick { 0, 0.1 }
  return "weft.adamw " .. text { lr = lr, weight_decay = decay, decay_vectors = decay > 0 or nil, clip = d:pick { 0, 1.0, 0.5 },
    betas = d:pick { { 0.9, 0.95 }, { 0.9, 0.999 } }, eps = d:pick { 1e-8, 1e-6 } }
end

local function titan_parallel(d, p, plan)
  if p.tp > 1 then
    plan.strategy.sequence_parallel, plan.strategy.loss_parallel = true, d:maybe(2)
    plan.strategy.enable_async_tensor_parallel = d:maybe(3) or nil
  end
  if p.cp > 1 then plan.cp = { comm = d:pick { "ring", "allgather" } } end
  if p.ep > 1 then
    plan.mesh.ep, plan.mesh.etp = p.ep, d:pick { 1, p.tp }
    plan.moe = { dispatcher = "alltoall" }
  end
  if p.model == "deepseek_v3" and not plan.strategy.offload_policy then
    plan.moe = plan.moe or {}
    plan.moe.bias_update_rate = d:pick { 0, 0.001, 0.01 }
  end
end

function systems.torchtitan(d)
  local p = { tp = d:pick { 1, 1, 2 }, pp = d:pick { 1, 2, 2, 4 }, cp = d:pick { 1, 1, 2 }, dp = d:pick { 1, 2, 4 },
              ep = 1, experts = 4, tied = d:maybe(2), steps = 12,
              model = d:pick { "llama", "qwen3", "qwen3_moe", "deepseek_v3" } }
  local schedule = d:pick(TITAN)
  if p.pp == 4 then p.tp = 1 end
  p.kv = p.tp * p.cp
  p.heads = p.kv * d:pick { 1, 2 }
  p.virtual = p.pp > 1 and schedule[2] or 1
  p.layers, p.list = cut(d, p.pp * p.virtual, d:pick { 1, 2 }, p.pp > 1 and d:maybe(2))
  if EXPERTS[p.model] and p.dp * p.cp > 1 and d:maybe(2) then p.ep = 2 end
  -- Copies alone go without tp and pp.
  p.shards = p.cp > 1 or p.ep > 1 or p.dp > 1 and (p.tp > 1 or p.pp > 1 or d:maybe(2))
  local micro, count, rounds = d:pick { 1, 2 }, p.pp * d:pick { 2, 4 }, p.pp > 1 and d:pick { 1, 2 } or 1
  local plan = { name = "drawn", model = models[p.model](d, p), mesh = { tp = p.tp, pp = p.pp, cp = p.cp, dp = p.dp },
                 batch = { global = micro * p.dp * count * rounds, micro = micro, seq = 16 * p.cp, rounds = rounds },
                 recompute = titan_recompute(d, p), optimizer = titan_optimizer(d, p),
                 train = { steps = p.steps, seed = d:below(1000), log_every = d:pick { 1, 10 } } }
  -- Heads are as wide as hidden / heads, and widths of MLPs what multiples of them are.
  if p.model == "llama" then plan.model.head_dim = nil end
  if p.model == "deepseek_v3" then plan.model.tie_word_embeddings = false end
  plan.model.initializer_range = nil
  plan.strategy = titan_strategy(d, p)
  local f32 = not p.shards and (p.tp > 1 or p.pp > 1)
  plan.precision = { param_dtype = f32 and "f32" or d:pick { "f32", "bf16" } }
  if p.shards and p.dp == 4 and p.ep == 1 and d:maybe(2) then plan.mesh.dp_replicate = 2 end
  titan_parallel(d, p, plan)
  if p.pp > 1 then plan.schedule, plan.pp_plan = schedule[1], { layers = p.list, virtual = p.virtual } end
  if d:maybe(3) then
    plan.checkpoint = { dir = "ckpt", every = d:pick { 5, 100 }, keep = d:pick { 0, 2, 5 }, async = d:maybe(2) }
  end
  if d:maybe(3) then plan.comm = { timeout = d:pick { 60, 100 } } end
  plan.deterministic = d:maybe(4) or nil
  return plan
end

-- ---- NeMo AutoModel ----

-- Its schedules are PyTorch's.
local AUTO = { { "1f1b", 1 }, { "gpipe", 1 }, { "interleaved_1f1b", 2 }, { "looped_bfs", 2 }, { "zero_bubble", 2 },
               { "zbv", 2 }, { "dualpipe_v", 2 } }

local function auto_strategy(d, p)
  local plain = p.tp == 1 and p.pp == 1 and p.cp == 1 and p.ep == 1 and p.dp > 1
  if plain and d:maybe(4) then return { "ddp", bucket_bytes = 1048576 * d:pick { 1, 25 } } end
  if plain and d:maybe(3) then
    return { "megatron_fsdp", zero_dp_strategy = d:below(4), overlap_grad_reduce = d:maybe(2) }
  end
  return { "fsdp2", reshard_after_forward = d:pick { true, false, nil }, defer_fsdp_grad_sync = d:maybe(2),
           forward_prefetch_depth = d:below(3), backward_prefetch_depth = d:below(3),
           offload_policy = d:maybe(4) or nil }
end

-- Without FSDP2 all have the type of the weights.
local function auto_precision(d, kind)
  if kind ~= "fsdp2" then return { param_dtype = "f32" } end
  local param = d:pick { "f32", "bf16", "bf16" }
  local masters = param == "bf16" and d:maybe(3)
  local sums = param == "bf16" and d:pick { "f32", "bf16" } or "f32"
  return { param_dtype = param, reduce_dtype = sums, master_dtype = masters and "bf16" or nil,
           grad_dtype = masters and sums == "bf16" and "bf16" or nil }
end

local function auto_optimizer(d, p, precision)
  local lr = rate(d, p.steps, { "constant", "linear", "cosine", "wsd", "inverse_sqrt" },
                  { "linear", "cosine", "exponential", "minus_sqrt" })
  local decay = d:pick { 0, 0.1 }
  return "weft.adamw " .. text { lr = lr, weight_decay = decay, decay_vectors = decay > 0 or nil,
    clip = d:pick { 0, 1.0, 0.5 }, betas = d:pick { { 0.9, 0.95 }, { 0.9, 0.999 } }, eps = d:pick { 1e-8, 1e-6 },
    state_dtype = (precision.master_dtype or d:maybe(4)) and "bf16" or nil }
end

local TARGETS = { "all-linear", { "q_proj", "v_proj" }, { "layers.*.self_attn.o_proj" } }

-- What learns: all, what is not frozen, or adapters.
local function auto_learning(d, p, plan)
  local gpt2 = p.model == "gpt2"
  if d:maybe(3) then
    plan.freeze = gpt2 and { "wte", "wpe" } or { "embed_tokens" }
  elseif d:maybe(2) then
    local dropout = d:pick { 0, 0.1 }
    local named = not gpt2 and p.model ~= "phi3" and p.model ~= "deepseek_v3"
    plan.adapter = { "lora", rank = d:pick { 2, 4 }, alpha = d:pick { 4, 16 }, dora = d:maybe(3) or nil,
                     targets = named and d:pick(TARGETS) or "all-linear", dropout = dropout > 0 and dropout or nil }
  end
end

local function auto_experts(d, p, plan)
  plan.moe = { aux_loss_coef = p.model == "qwen3_moe" and d:pick { 0, 0.01 } or 0,
               router_dtype = d:maybe(3) and "f32" or nil }
  if plan.moe.aux_loss_coef > 0 then plan.moe.aux_loss_sequences = plan.batch.micro end
  if p.ep == 1 then return end
  plan.mesh.ep, plan.mesh.etp = p.ep, 1
  plan.moe.dispatcher = d:pick { "allgather", "alltoall" }
  plan.moe.ignore_router_for_ac, plan.moe.reshard_after_forward = d:maybe(2), d:maybe(2)
end

-- Stages of as many layers, or the first ones with one more.
local function auto_cut(d, p)
  local stages = p.pp * p.virtual
  local each = d:pick { 1, 2 }
  p.layers, p.list = stages * each, nil
  if stages == 1 or d:maybe(2) then return end
  local more = 1 + d:below(stages - 1)
  p.layers, p.list = p.layers + more, {}
  for i = 1, stages do p.list[i] = each + (i <= more and 1 or 0) end
end

local function auto_rest(d, p, plan)
  if d:maybe(3) then
    plan.checkpoint = { dir = "ckpt/a b", every = d:pick { 5, 100 }, async = d:maybe(2),
                        save_consolidated = d:pick { true, false, "final", nil } }
  end
  if d:maybe(3) then plan.comm = { timeout = d:pick { 60, 600 } } end
  if p.cp == 1 and d:maybe(4) then
    plan.packed = { eot = 0, size = plan.batch.seq, labels = "within", too_long = d:maybe(2) and "drop" or nil }
  end
  if not plan.precision.grad_dtype and p.model ~= "gemma2" and d:maybe(4) then plan.loss_chunks = "auto" end
end

function systems.automodel(d)
  local p = { tp = d:pick { 1, 1, 2 }, pp = d:pick { 1, 1, 2, 4 }, cp = d:pick { 1, 1, 2 }, dp = d:pick { 1, 2, 4 },
              ep = 1, experts = 4, steps = 12, drops = true,
              model = d:pick { "gpt2", "llama", "qwen2", "qwen3", "mistral", "ministral", "olmo3", "phi3", "granite",
                               "gemma", "gemma2", "gemma3_text", "mixtral", "qwen3_moe", "deepseek_v3" } }
  local schedule = d:pick(AUTO)
  if p.pp == 4 then p.tp = 1 end
  p.tied = p.pp == 1 and d:maybe(2)
  p.kv = p.tp * p.cp
  p.heads = p.model == "gpt2" and 4 or p.kv * d:pick { 1, 2 }
  p.virtual = p.pp > 1 and schedule[2] or 1
  auto_cut(d, p)
  if EXPERTS[p.model] and p.dp * p.cp > 1 and d:maybe(2) then p.ep = 2 end
  local micro, count, rounds = d:pick { 1, 2 }, p.pp * d:pick { 2, 4 }, p.pp > 1 and d:pick { 1, 2 } or 1
  local plan = { name = "drawn", model = models[p.model](d, p), mesh = { tp = p.tp, pp = p.pp, cp = p.cp, dp = p.dp },
                 batch = { global = micro * p.dp * count * rounds, micro = micro, seq = 16 * p.cp, rounds = rounds },
                 recompute = d:pick { "none", "full" }, train = { steps = p.steps, seed = d:below(1000) } }
  plan.strategy = auto_strategy(d, p)
  plan.precision = auto_precision(d, plan.strategy[1])
  if plan.strategy[1] == "fsdp2" and p.dp == 4 and p.ep == 1 and d:maybe(2) then plan.mesh.dp_replicate = 2 end
  if p.tp > 1 then
    plan.strategy.sequence_parallel = d:maybe(2)
    plan.strategy.enable_async_tensor_parallel = plan.strategy.sequence_parallel and d:maybe(3) or nil
  end
  if EXPERTS[p.model] then auto_experts(d, p, plan) end
  auto_learning(d, p, plan)
  if p.model == "deepseek_v3" and not plan.adapter and not plan.strategy.offload_policy then
    plan.moe.bias_update_rate = 0.001 -- AutoModel's own, which nothing changes
  end
  if p.pp > 1 then plan.schedule, plan.pp_plan = schedule[1], { layers = p.list, virtual = p.virtual } end
  plan.optimizer = auto_optimizer(d, p, plan.precision)
  auto_rest(d, p, plan)
  return plan
end

-- ---- DeepSpeed ----

local function zero_strategy(d, p, stage)
  local s = { "zero", stage = stage, overlap_grad_reduce = d:maybe(2), bucket_bytes = 4 * d:pick { 1000, 6553600 } }
  if stage == 3 then
    s.param_persistence_threshold = d:pick { 0, 100 }
    if p.dp == 4 and d:maybe(3) then s.zero_hpz_partition_size = 2 end
  end
  if stage > 0 and d:maybe(4) then
    s.offload_optimizer = "cpu"
    s.offload_param = stage == 3 and d:maybe(2) and "cpu" or nil
  end
  return s
end

local function zero_precision(d)
  local kind = d:pick { "f32", "bf16", "f16" }
  if kind == "f32" then return { param_dtype = "f32", grad_dtype = "f32" } end
  local grads = d:pick { "f32", kind }
  local p = { param_dtype = kind, grad_dtype = grads, reduce_dtype = kind == "bf16" and d:maybe(3) and "bf16" or nil }
  if kind == "f16" then
    p.init_scale, p.growth_interval = d:pick { 65536.0, 1024.0 }, d:pick { 2000, 10 }
    p.hysteresis, p.min_scale = d:pick { 1, 2 }, d:pick { 1.0, 0.5 }
  elseif d:maybe(4) then
    p.master_dtype = "bf16"
  end
  return p
end

-- The rate rises over two steps at least, and falls to 0 along a line, or to a part of itself.
local function zero_optimizer(d, precision)
  local max, rises = d:pick { 1e-3, 3e-4 }, 2 + d:below(2)
  local lr = d:pick { max, string.format("weft.constant { max = %g, warmup = %d }", max, rises),
    string.format("weft.linear { max = %g, min = 0, warmup = %d, steps = 50 }", max, rises),
    string.format("weft.cosine { max = %g, min = %g, warmup = %d, steps = 50 }", max, max / 8, rises) }
  local decay = d:pick { 0, 0.1 }
  return "weft.adamw " .. text { lr = lr, weight_decay = decay, decay_vectors = decay > 0 or nil,
    clip = d:pick { 0, 1.0, 0.5 }, betas = d:pick { { 0.9, 0.95 }, { 0.9, 0.999 } }, eps = d:pick { 1e-8, 1e-6 },
    state_dtype = precision.param_dtype == "bf16" and d:maybe(3) and "bf16" or nil }
end

function systems.deepspeed(d)
  local p = { tp = d:pick { 1, 1, 2 }, pp = 1, cp = 1, dp = d:pick { 1, 2, 4 }, experts = 4, drops = true,
              tied = d:maybe(2), layers = 1 + d:below(3),
              model = d:pick { "gpt2", "llama", "qwen2", "qwen3", "mistral", "ministral", "olmo3", "phi3", "granite",
                               "gemma", "gemma2", "gemma3_text", "mixtral", "qwen3_moe", "deepseek_v3" } }
  p.kv = p.tp
  p.heads = p.model == "gpt2" and 4 or p.kv * d:pick { 1, 2 }
  local micro = d:pick { 1, 2 }
  local plan = { name = "drawn", model = models[p.model](d, p), mesh = { tp = p.tp, dp = p.dp },
                 batch = { global = micro * p.dp * d:pick { 1, 2, 4 }, micro = micro, seq = 16 },
                 train = { log_every = d:pick { 1, 10 } }, precision = zero_precision(d) }
  -- The length of sequences is none of its settings: they are as long as the model allows.
  plan.model.max_position_embeddings = 16
  plan.strategy = zero_strategy(d, p, d:below(p.tp > 1 and 3 or 4))
  plan.optimizer = zero_optimizer(d, plan.precision)
  return plan
end

-- ---- the text ----

return function(system, seed, number)
  local plan = systems[system](new_draw(seed, number))
  local lines, names = { 'local weft = require "weft"', "return weft.plan {" }, {}
  for name in pairs(plan) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    local prefix = name == "model" and "weft.model " or ""
    lines[#lines + 1] = string.format("  %s = %s%s,", name, prefix, text(plan[name]))
  end
  lines[#lines + 1] = "  data = weft.synthetic {},"
  lines[#lines + 1] = "}"
  return table.concat(lines, "\n") .. "\n"
end
