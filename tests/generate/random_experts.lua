-- random_experts.lua - draws plans of models with experts or latent attention, legal ones,
-- by number; no token is dropped, so N ranks do what one does. `new_draw` is that of
-- random_draw.lua, `optimizer` that of random_optimizer.lua, `packing` that of random_packing.lua.
local schedules = {
  { "1f1b", 1 }, { "gpipe", 1 }, { "zb_h2", 1 }, { "interleaved_1f1b", 2 },
  { "zero_bubble", 2 }, { "zbv", 2 }, { "v_half", 2 }, { "dualpipe_v", 2 },
}

local function some(d, heads, layers, rest)
  local t = {
    vocab_size = d:pick { 48, 53, 64 }, hidden_size = d:pick { 16, 24, 32 },
    num_hidden_layers = layers, num_attention_heads = heads, intermediate_size = 16,
    initializer_range = 0.1, tie_word_embeddings = d:maybe(2),
  }
  for k, v in pairs(rest) do t[k] = v end
  return t
end

local models = {}

function models.mixtral(d, s)
  return some(d, s.heads, s.layers, {
    "mixtral", num_key_value_heads = s.kv, head_dim = 4,
    num_local_experts = s.experts, num_experts_per_tok = d:pick { 1, 2 },
    intermediate_size = s.ffn,
  })
end

function models.qwen3_moe(d, s)
  return some(d, s.heads, s.layers, {
    "qwen3_moe", num_key_value_heads = s.kv, head_dim = 4,
    num_experts = s.experts, num_experts_per_tok = d:pick { 1, 2, 3 },
    norm_topk_prob = d:maybe(2), moe_intermediate_size = s.ffn,
  })
end

-- Groups are two or one; choices fit into what one group has.
function models.deepseek_v3(d, s)
  local dense, groups = d:maybe(4), d:pick { 1, 2 }
  return some(d, s.heads, s.layers, {
    "deepseek_v3", num_key_value_heads = false, moe_intermediate_size = s.ffn,
    n_routed_experts = not dense and s.experts, n_shared_experts = d:pick { 1, 2 },
    num_experts_per_tok = d:pick { 1, 2 }, first_k_dense_replace = d:below(math.min(s.layers, 2)),
    n_group = groups, topk_group = 1, norm_topk_prob = not d:maybe(3),
    q_lora_rank = not d:maybe(3) and 12, kv_lora_rank = d:pick { 6, 10 },
    qk_nope_head_dim = d:pick { 2, 6 }, qk_rope_head_dim = d:pick { 2, 4 },
    v_head_dim = d:pick { 3, 4, 5 }, rope_interleave = d:maybe(2),
  }), dense
end

local function divisors(n, of)
  local out = {}
  for i = 1, math.min(n, of) do
    if n % i == 0 and of % i == 0 then out[#out + 1] = i end
  end
  return out
end

-- At most 16 ranks; heads suffice for every way of cp.
local function draw_mesh(d)
  local m = { tp = d:pick { 1, 1, 2, 4 }, pp = d:pick { 1, 1, 2 }, cp = d:pick { 1, 1, 1, 2 },
              dp = d:pick { 1, 2, 3, 4 } }
  while m.tp * m.pp * m.cp * m.dp > 16 do
    if m.cp > 1 then m.cp = 1 else m.dp = m.dp // 2 end
  end
  if m.dp % 2 == 0 and d:maybe(4) then m.dp_replicate = 2 end
  return m
end

local function draw_strategy(d, m)
  local shards, sp = m.dp // (m.dp_replicate or 1), d:maybe(2)
  local group, host = shards % 2 == 0 and 2 or 1, d:maybe(4) or nil
  if d:maybe(2) then
    local stage = d:below(4)
    local third = stage == 3 or nil
    return {
      "zero", stage = stage, sequence_parallel = sp,
      zero_hpz_partition_size = third and d:pick { 1, group },
      param_persistence_threshold = third and d:maybe(3) and 200 or nil,
      offload_optimizer = stage > 0 and host and "cpu" or nil,
      offload_param = third and host and "cpu",
    }
  end
  if m.dp_replicate == m.dp then m.dp_replicate = nil end -- FSDP2 needs shards
  return {
    "fsdp2", sequence_parallel = sp, defer_fsdp_grad_sync = d:maybe(2),
    reshard_after_forward = d:pick { true, false, group > 1 and group or true },
    offload_policy = host,
  }
end

-- Whose choices are balanced together, and groups of experts; with generators of its own, so that
-- the rest of a plan is unchanged. `experts`: how many there are, and how many a token has.
local function draw_balance(e, f, moe, micro, experts, topk)
  if moe.aux_loss_coef and e:maybe(2) then
    moe.aux_loss_sequences = e:maybe(2) and 1 or micro
  end
  if moe.aux_loss_coef and not moe.aux_loss_sequences and f:maybe(2) then moe.aux_loss_batch = "global" end
  if not e:maybe(4) then return moe end
  for _, groups in ipairs { 4, 2 } do
    local kept = groups // 2
    local adds = topk % kept == 0 and topk // kept
    if experts % groups == 0 and adds and experts // groups >= adds and experts // groups * kept >= topk
      and experts // groups > 1 then
      moe.num_groups, moe.group_topk = groups, kept
      return moe
    end
  end
  return moe
end

-- Whether choices are balanced without a loss, where routers have no bias and no groups; with a
-- generator of its own.
local function draw_sinkhorn(e, moe, micro, name)
  if moe.aux_loss_coef or moe.num_groups or name == "deepseek_v3" or e:maybe(3) then return end
  moe.sinkhorn_sequences = e:pick { 1, micro }
end

local function draw_moe(d, m, dense, biased)
  if dense then return nil end
  local moe = {
    bias_update_rate = biased and d:maybe(3) and 0.01 or nil,
    dispatcher = d:pick { "allgather", "alltoall" },
    aux_loss_coef = d:maybe(2) and 0.01 or nil, z_loss_coef = d:maybe(3) and 0.01 or nil,
    max_tokens_factor = d:maybe(3) and m.ep or nil,
    ignore_router_for_ac = d:maybe(4) or nil,
    reshard_after_forward = d:pick { true, false },
  }
  moe.exchange = moe.max_tokens_factor and "rows" or nil
  return moe
end

-- A schedule, its microbatches and how many stages a rank has.
local function draw_schedule(d, pp)
  local s, count = d:pick(schedules), pp * d:pick { 1, 2, 2, 3 }
  if s[1] == "dualpipe_v" then count = math.max(count, 2 * pp) end
  return s[1], s[2], count
end

local weights = { "experts.gate_up_proj", "experts.down_proj" }

-- Adapters of experts, of linears or of both.
local function draw_adapter(e, dense)
  local of = not dense and e:pick { weights, weights, { weights[1] }, { weights[2] }, false } or nil
  local named = of and of[#of] or "o_proj"
  return {
    "lora", rank = e:pick { 1, 2, 3 }, alpha = e:pick { 4, 7, false } or nil,
    rslora = e:maybe(4) or nil, target_parameters = of,
    targets = e:pick { false, "all-linear", { "o_proj" } } or nil,
    dropout = not of and e:maybe(2) and 0.2 or nil, dora = not of and e:maybe(2) or nil,
    rank_pattern = e:maybe(3) and { [named] = 4 } or nil,
    alpha_pattern = e:maybe(4) and { [named] = 3 } or nil,
    modules_to_save = e:maybe(4) and { e:pick { "norm", "input_layernorm", dense and "norm" or "mlp.gate" } }
      or nil,
  }
end

-- What learns, and how, and what is minimised; with a generator of its own, so that the rest of a
-- plan is unchanged.
local function draw_learning(new_draw, number, dense, moe)
  local e, out = new_draw(number + 41), {}
  local kind = e:pick { "all", "all", "adapter", "adapter", "some" }
  if kind == "adapter" then out.adapter = draw_adapter(e, dense) end
  if kind == "some" then
    out.freeze = { e:pick { "embed_tokens", "layers.*.mlp", "layers.0", "layers.*.self_attn" } }
    out.groups = e:maybe(2) and { { "norm", lr = 3 } } or nil
  end
  local routers = moe and (moe.aux_loss_coef or moe.z_loss_coef)
  if e:maybe(4) and not routers then out.loss = { "cross_entropy", per = "sequences" } end
  if out.loss then return out end
  local f = new_draw(number + 47)
  if f:maybe(4) then out.loss = { "cross_entropy", z_loss = f:pick { 0.01, 0.1 } } end
  if f:maybe(3) and not out.adapter then
    out.mtp = { num_layers = f:pick { 1, 1, 2 }, loss_scaling_factor = f:pick { 0.1, 0.3, 1 } }
  end
  return out
end

return function(weft, number)
  local d = new_draw(number + 1)
  local mesh = draw_mesh(d)
  local schedule, virtual, count = draw_schedule(d, mesh.pp)
  local ranks, experts, ffn = mesh.tp * mesh.cp * mesh.dp, d:pick { 4, 6, 8 }, 16
  local ep = d:pick(divisors(experts, ranks))
  local etp = d:pick(divisors(ffn, ranks // ep))
  local kv = mesh.tp * mesh.cp
  local heads = kv * d:pick { 1, 2 }
  local name = d:pick { "mixtral", "qwen3_moe", "deepseek_v3", "deepseek_v3" }
  local model, dense = models[name](d, {
    heads = heads, kv = d:maybe(2) and kv or heads, experts = experts, ffn = ffn,
    layers = mesh.pp * virtual * d:pick { 1, 1, 2 },
  })
  if not dense then mesh.ep, mesh.etp = ep, etp end
  local micro = d:pick { 1, 1, 2 }
  local strategy = draw_strategy(d, mesh)
  local host = strategy.offload_optimizer or strategy.offload_policy
  local moe = draw_moe(d, mesh, dense, name == "deepseek_v3" and not host)
  if moe then
    draw_balance(new_draw(number + 53), new_draw(number + 67), moe, micro, experts, model.num_experts_per_tok)
    moe.bias_update_steps = moe.bias_update_rate and new_draw(number + 71):pick { 1, 2, 5, false } or nil
  end
  if moe then draw_sinkhorn(new_draw(number + 61), moe, micro, name) end
  local waits = host or moe and moe.bias_update_rate
  local learning = draw_learning(new_draw, number, dense, moe)
  local rows, seq = learning.loss ~= nil and not learning.loss.z_loss, 16 * mesh.cp
  return weft.plan {
    name = name .. "-" .. number, model = weft.model(model), precision = precision(new_draw, number, true),
    mesh = mesh,
    cp = { comm = d:pick { "allgather", "ring", "a2a" },
           balance = d:pick { "zigzag", "zigzag", "none" } },
    strategy = strategy, moe = moe,
    schedule = schedule, pp_plan = { virtual = virtual },
    recompute = d:pick { "none", "full", "selective", "cheap" },
    batch = { global = micro * mesh.dp * count, micro = micro, seq = seq },
    adapter = learning.adapter, freeze = learning.freeze, groups = learning.groups,
    loss = learning.loss, mtp = learning.mtp,
    optimizer = optimizer(weft, new_draw, number, not waits, host and true),
    packed = packing(new_draw, number, rows, seq, d:maybe(3) and not rows and { eot = 3 } or nil),
    data = weft.synthetic { learnt = masks(new_draw, number) },
    train = { steps = 3, seed = d:below(1000), log_every = 1,
              neftune_noise_alpha = new_draw(number + 59):maybe(6) and 3 or nil },
  }
end
