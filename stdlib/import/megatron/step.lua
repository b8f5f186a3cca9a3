-- step.lua - how a step computes by Megatron's arguments: precision, what runs again, sequences over
-- context ranks, experts, as fields of a plan.
local layers = use "import/megatron/layers"
local quote = use "import/quote"
local scalar = use "import/scalar"
local values = use "import/values"
local step = {}

local function on(book, key) return values.flag(book, key) == true end

-- ---- precision ----

-- With --bf16 gradients are f32 unless --grad-reduce-in-bf16 or --main-grads-dtype says otherwise; with
-- --fp16 only if --accumulate-allreduce-grads-in-fp32 does.
local function put_gradients(book, plan, compute)
  local keys = { "accumulate_allreduce_grads_in_fp32", "grad_reduce_in_bf16", "main_grads_dtype" }
  local wide = on(book, keys[1]) or book:value "grad_reduce_in_fp32" == true
  local key = compute == "f16" and not wide and "fp16"
  if compute == "bf16" and not wide then
    key = on(book, keys[2]) and keys[2] or values.type_of(book, keys[3]) == "bf16" and keys[3]
    -- That of Bridge's mixed precision takes the place of ddp's.
    local leaf = book:leaf "grad_reduce_in_fp32"
    if leaf and leaf.value == false and string.find(leaf.given, "^mixed_precision%.") then key = leaf.key end
  end
  if not key then return end
  plan:put("precision.grad_dtype", quote.text(compute), book:leaf(key) or "Megatron's default with --fp16")
  book:translated(key, "precision.grad_dtype")
end

-- Of --fp8-recipe, and of names of recipes. Scales of the past, and blocks of 128 x 128, are not in weft.
local RECIPES = { tensorwise = "tensorwise", mxfp8 = "mxfp8" }
local MIXED = { { "fp8_current_scaling", "tensorwise" }, { "mxfp8", "mxfp8" } }

local function names_format(book, key)
  local value = book:value(key)
  return value == "e4m3" or value == "hybrid"
end

local function recipe_of(book)
  local key = names_format(book, "fp8_format") and "fp8_format" or names_format(book, "fp8") and "fp8" or nil
  if key then return RECIPES[book:value "fp8_recipe" or "delayed"], key end
  for _, row in ipairs(MIXED) do
    if string.find(tostring(book:value "mixed_precision"), row[1], 1, true) then return row[2], "mixed_precision" end
  end
end

-- Products in fp8, beside bf16; else left_out.lua says what the plan is without.
local function put_fp8(book, plan, compute)
  local recipe, key = recipe_of(book)
  if not recipe or compute ~= "bf16" then return end
  plan:put("precision.#", quote.text "fp8", book:leaf(key))
  plan:put("precision.recipe", quote.text(recipe), book:leaf "fp8_recipe" or book:leaf(key))
  if names_format(book, key) then
    plan:put("precision.fp8_format", quote.text(book:value(key)), book:leaf(key))
  end
  for _, each in ipairs { "fp8_format", "fp8", "fp8_recipe" } do book:translated(each, "precision") end
end

function step.put_precision(book, plan)
  local mixed = book:value "mixed_precision"
  local f16 = on(book, "fp16") or mixed == "16-mixed" or mixed == "fp16_mixed"
  local bf16 = on(book, "bf16") or type(mixed) == "string" and string.find(mixed, "bf16", 1, true)
  -- Recipes compute in bf16 unless they say otherwise.
  local recipe = not f16 and not bf16 and book:leaf "recipe" ~= nil
  local from = f16 and (book:leaf "fp16" or book:leaf "mixed_precision")
    or bf16 and (book:leaf "bf16" or book:leaf "mixed_precision") or "neither --bf16 nor --fp16"
  if recipe then from = "what recipes have" end
  plan:put("precision.param_dtype", quote.text(f16 and "f16" or (bf16 or recipe) and "bf16" or "f32"), from)
  book:translated("fp16", "precision")
  book:translated("bf16", "precision")
  book:translated("mixed_precision", "precision")
  local compute = f16 and "f16" or (bf16 or recipe) and "bf16" or "f32"
  put_fp8(book, plan, compute)
  put_gradients(book, plan, compute)
  if not f16 then return end
  plan:put("precision.init_scale", quote.value(values.positive(book, "initial_loss_scale") or 1 << 32),
           book:leaf "initial_loss_scale" or "Megatron's default")
  plan:put("precision.growth_interval", quote.value(values.whole(book, "loss_scale_window", 1) or 1000),
           book:leaf "loss_scale_window" or "Megatron's default")
  plan:put("precision.hysteresis", quote.value(values.whole(book, "hysteresis", 1) or 2),
           book:leaf "hysteresis" or "Megatron's default")
  plan:put("precision.min_scale", quote.value(values.positive(book, "min_loss_scale") or 1),
           book:leaf "min_loss_scale" or "Megatron's default")
  for _, key in ipairs { "initial_loss_scale", "loss_scale_window", "hysteresis", "min_loss_scale" } do
    book:translated(key, "precision")
  end
end

-- ---- recompute ----

-- The MLPs of the layers that have experts, or of the others, as patterns of weft's modules.
local function mlps(m, of_experts)
  local e = m.experts
  local layer = m.arch == "gpt2" and "h" or "layers"
  if (e ~= nil) == of_experts and (not e or #e.dense == 0) then return { layer .. ".*.mlp" } end
  local list, dense = {}, {}
  for _, i in ipairs(e and e.dense or {}) do dense[i] = true end
  for i = 0, m.layers - 1 do
    if e and (dense[i] == nil) == of_experts then list[#list + 1] = string.format("%s.%d.mlp", layer, i) end
  end
  return list
end

local function shared(m)
  if not (m.experts and m.experts.shared) then return {} end
  return { m.arch == "function" and "layers.*.mlp.shared" or "layers.*.mlp.shared_experts" }
end

-- Modules that run again as something here does.
local MODULES = {
  core_attn = function() return { "selective" } end,
  mlp = function(m) return mlps(m, false) end, moe = function(m) return mlps(m, true) end,
  shared_experts = shared,
}

local function selective(book, plan, m, from)
  local key = "recompute_modules"
  local value = book:value(key)
  local text = type(value) == "table" and table.concat(value, " ") or tostring(value or "core_attn")
  if on(book, "moe_layer_recompute") then text = string.gsub(text, "%f[%w_]moe%f[^%w_]", "") .. " moe" end
  local list, others = {}, {}
  for name in string.gmatch(text, "[%w_]+") do
    if MODULES[name] then
      for _, pattern in ipairs(MODULES[name](m)) do list[#list + 1] = quote.text(pattern) end
    else
      others[#others + 1] = name
    end
  end
  if #others > 0 then
    book:cannot(key, string.format("%s: what it keeps and runs again is not said so finely here (recompute = "
      .. "\"cheap\" runs norms and activation functions again): other memory", table.concat(others, ", ")))
  end
  book:translated(key, "recompute")
  if #list == 1 and list[1] == quote.text "selective" then
    plan:put("recompute", list[1], from)
  elseif #list > 0 then
    plan:put("recompute", "{ " .. table.concat(list, ", ") .. " }", from)
  end
end

-- The first n layers of each stage, if the stages are equal.
local function block_layers(m, n)
  local stages = m.pp * (m.virtual or 1)
  if m.layers % stages ~= 0 then return nil end
  local list, each = {}, m.layers // stages
  for stage = 0, stages - 1 do
    for i = 0, math.min(n, each) - 1 do list[#list + 1] = stage * each + i end
  end
  return list
end

local function full(book, plan, m, from)
  local method = book:value "recompute_method" or book:value "activations_checkpoint_method"
  local n = values.whole(book, "recompute_num_layers", 1)
  if method ~= nil and method ~= "uniform" and method ~= "block" then
    book:refuse("recompute_method", quote.shown(method) .. ": expected uniform or block")
  end
  local layers = method == "block" and n and m.layers and n * m.pp * (m.virtual or 1) < m.layers
    and block_layers(m, n)
  if layers then
    local names = {}
    for i, layer in ipairs(layers) do names[i] = quote.text("layers." .. layer) end
    plan:put("recompute", "{ " .. table.concat(names, ", ") .. " }", from)
    return book:translated "recompute_num_layers"
  end
  plan:put("recompute", quote.text "full", from)
  if method == "uniform" and n and n > 1 then
    book:cannot("recompute_num_layers", string.format("groups of %d layers keep one input there; here each layer "
      .. "keeps its own: more memory", n))
  elseif method == "block" and n and m.layers and m.layers % (m.pp * (m.virtual or 1)) ~= 0
    and n * m.pp < m.layers then
    book:cannot("recompute_num_layers", "stages differ in size: here all layers run again")
  end
end

function step.put_recompute(book, plan, m)
  local key, value = book:first "recompute_granularity"
  if not key and on(book, "moe_layer_recompute") then key, value = "moe_layer_recompute", "selective" end
  if not key and on(book, "recompute_activations") then key, value = "recompute_activations", "selective" end
  -- Names of versions in which nothing but whole layers was computed again.
  if not key and on(book, "checkpoint_activations") then key, value = "checkpoint_activations", "full" end
  if not key and book:value "activations_checkpoint_method" then key, value = "activations_checkpoint_method", "full" end
  if value == "full" then
    full(book, plan, m, book:leaf(key))
  elseif value == "selective" then
    selective(book, plan, m, book:leaf(key))
  elseif key then
    book:refuse(key, quote.shown(value) .. ": expected full or selective")
  end
  for _, one in ipairs { "recompute_granularity", "recompute_method", "recompute_num_layers", "recompute_modules",
                         "recompute_activations", "checkpoint_activations", "activations_checkpoint_method",
                         "moe_layer_recompute" } do
    if key then book:translated(one, "recompute") else book:no_effect(one, "nothing is computed again") end
  end
end

-- ---- context and experts ----

local COMM = { p2p = "ring", all_gather = "allgather", a2a = "a2a", ["a2a+p2p"] = "a2a+p2p" }

function step.put_context(book, plan, m)
  local key, sizes = "cp_comm_type", "hierarchical_context_parallel_sizes"
  if m.cp == 1 then
    book:no_effect(key, "a sequence is not cut")
    return book:no_effect(sizes, "a sequence is not cut")
  end
  local value = book:value(key)
  if type(value) == "table" then value = value[1] end
  local comm = COMM[string.match(tostring(value or "p2p"), "^%S+")]
  if not comm then
    return book:refuse(key, quote.shown(value) .. ": expected p2p, all_gather, a2a or a2a+p2p")
  end
  plan:put("cp.comm", quote.text(comm), book:leaf(key) or "Megatron's default: p2p")
  if type(value) == "string" and string.find(value, "%s") then
    book:cannot(key, "one way for each layer: the plan has the first one for all")
  end
  book:translated(key, "cp.comm")
  if comm ~= "a2a+p2p" then return book:no_effect(sizes, "it is of a2a+p2p") end
  local text = book:value(sizes)
  if type(text) == "table" then text = table.concat(text, " ") end
  local heads = tonumber(string.match(tostring(text or ""), "(%d+)"))
  if not heads then
    return book:refuse(sizes, "a2a+p2p needs --hierarchical-context-parallel-sizes: two sizes, as 2 2")
  end
  plan:put("cp.heads_size", quote.value(heads), book:leaf(sizes))
  book:translated(sizes, "cp.heads_size")
end

local LOSSES = { aux_loss = true, seq_aux_loss = true, global_aux_loss = true, none = true, sinkhorn = true }

-- Of several losses, or their weights, the first one.
local function first_of(book, key)
  local value = book:value(key)
  if type(value) == "table" then value = value[1] end
  if type(value) ~= "string" then return value end
  local first, more = string.match(value, "^([^%s]+)%s*(.*)$")
  if first and more ~= "" then book:cannot(key, "one loss balances experts here: the plan has the first one") end
  return first
end

-- Whose choices are balanced together: those of one rank's microbatch, of a sequence, or of the step
-- so far.
local function put_together(book, plan, key, value)
  if value == "global_aux_loss" then
    return plan:put("moe.aux_loss_batch", quote.text "global", book:leaf(key))
  end
  local micro = scalar.integer(book:value "micro_batch_size" or 1)
  local together = value == "seq_aux_loss" and 1 or value == "aux_loss" and micro
  if not together then return end
  plan:put("moe.aux_loss_sequences", quote.value(together), book:leaf(key) or "Megatron's default")
end

-- Megatron's ranks balance the tokens that each has by itself.
local function put_sinkhorn(book, plan, key)
  plan:put("moe.sinkhorn_sequences", quote.value(scalar.integer(book:value "micro_batch_size" or 1)), book:leaf(key))
  if (scalar.integer(book:value "context_parallel_size" or 1) or 1) > 1 or on(book, "sequence_parallel") then
    return book:cannot(key, "whole sequences are balanced here; Megatron's ranks of context parallelism, and of tensor "
                       .. "parallelism with --sequence-parallel, balance the parts of them that they have")
  end
  book:translated(key, "moe.sinkhorn_sequences")
end

local function put_balance(book, plan)
  local key = "moe_router_load_balancing_type"
  local value = first_of(book, key) or "aux_loss"
  if not LOSSES[value] then
    book:refuse(key, quote.shown(value) .. ": expected aux_loss, seq_aux_loss, global_aux_loss, sinkhorn or none")
  elseif value == "sinkhorn" then
    put_sinkhorn(book, plan, key)
    return book:no_effect("moe_aux_loss_coeff", "with sinkhorn there is no such loss")
  elseif value == "none" then
    book:translated(key, "no loss of routers")
    return book:no_effect("moe_aux_loss_coeff", "there is no such loss")
  end
  book:translated(key, value == "global_aux_loss" and "moe.aux_loss_batch" or "moe.aux_loss_sequences")
  local coefficient = first_of(book, "moe_aux_loss_coeff")
  local weight = coefficient ~= nil and scalar.number(coefficient)
  if weight and weight >= 0 then
    plan:put("moe.aux_loss_coef", quote.value(weight), book:leaf "moe_aux_loss_coeff")
    book:translated "moe_aux_loss_coeff"
    if weight > 0 then put_together(book, plan, key, value) end
  elseif coefficient ~= nil then
    values.positive(book, "moe_aux_loss_coeff")
  end
end

local function put_dispatcher(book, plan)
  local key = "moe_token_dispatcher_type"
  local value = book:value(key) or "allgather"
  if value == "flex" then
    plan:put("moe.dispatcher", quote.text "alltoall", book:leaf(key))
    return book:cannot(key, "tokens go to their experts by alltoall, which gives the same sums by other kernels")
  elseif value ~= "allgather" and value ~= "alltoall" and value ~= "alltoall_seq" then
    return book:refuse(key, quote.shown(value) .. ": expected allgather, alltoall or flex")
  end
  plan:put("moe.dispatcher", quote.text(value == "allgather" and value or "alltoall"),
           book:leaf(key) or "Megatron's default")
  book:translated(key, "moe.dispatcher")
end

local function put_capacity(book, plan)
  local key, policy_key = "moe_expert_capacity_factor", "moe_token_drop_policy"
  if (scalar.number(book:value(key)) or 0) < 0 then
    book:no_effect(key, "below 0 it is no limit")
  elseif (values.positive(book, key) or 0) > 0 then
    values.put_positive(book, plan, key, "moe.capacity_factor")
    local policy = book:value(policy_key)
    if policy == "position" or policy == "probs" then
      plan:put("moe.drop_policy", quote.text(policy), book:leaf(policy_key))
      book:translated(policy_key)
    end
  end
  book:no_effect(policy_key, "nothing is dropped")
end

local MOE = { "moe_router_load_balancing_type", "moe_aux_loss_coeff", "moe_z_loss_coeff",
  "moe_token_dispatcher_type", "moe_router_dtype", "moe_expert_capacity_factor", "moe_token_drop_policy",
  "moe_router_bias_update_rate" }

function step.put_moe(book, plan, m)
  if not m.experts then
    for _, key in ipairs(MOE) do book:no_effect(key, "the model has no experts") end
    return
  end
  put_balance(book, plan)
  if layers.groups_in_plan({ m.arch }, m.experts) then
    plan:put("moe.num_groups", quote.value(m.experts.groups), book:leaf "moe_router_num_groups")
    plan:put("moe.group_topk", quote.value(m.experts.topk_group), book:leaf "moe_router_group_topk")
  end
  values.put_positive(book, plan, "moe_z_loss_coeff", "moe.z_loss_coef")
  put_dispatcher(book, plan)
  local dtype = book:value "moe_router_dtype"
  if dtype == "fp64" then
    book:cannot("moe_router_dtype", "scores of routers are f32")
  else
    book:translated("moe_router_dtype", "scores of routers are f32 always")
  end
  put_capacity(book, plan)
  if on(book, "moe_router_enable_expert_bias") or m.experts.bias then
    local rate = values.positive(book, "moe_router_bias_update_rate") or 1e-3
    plan:put("moe.bias_update_rate", quote.value(rate), book:leaf "moe_router_bias_update_rate"
             or "Megatron's default")
    book:translated "moe_router_bias_update_rate"
  end
  book:no_effect("moe_router_bias_update_rate", "routers have no bias")
end

return step
