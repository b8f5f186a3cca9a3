-- moe.lua - experts in the place of an MLP: a router, gated SiLU experts whose weights are
-- one parameter each, and the losses of the router that the plan asks for (plan.moe).
--
-- Parameters have the names that Transformers 5 gives them in memory: weights of all
-- experts in one, gate above up. Files have them expert by expert, or like this; both are
-- read and written.
local config = require "weft.models.config"

local moe = {}

local scores = { softmax = 0, sigmoid = 1 }

-- loss + more, either of which may be nil.
function moe.sum(g, loss, more)
  if not (loss and more) then return loss or more end
  return g:add(loss, more)
end

local function loss_of(g, logits, counts, o, aux, z)
  return g:router_loss(logits, counts, { topk = o.topk, score = scores[o.score], aux = aux, z = z })
end

-- The loss that balances experts is of a microbatch, or of each so many sequences of it, or compares
-- scores of a microbatch with what those of the step so far chose. It counts what scores choose: where a
-- router chooses by more than them (`limited`), scores choose once more, by themselves.
local function router_loss(g, logits, ids, o, plan, limited)
  if plan.aux ~= 0 and limited then
    local _, by_scores = g:route(logits, nil, { topk = o.topk, score = scores[o.score] })
    ids = by_scores
  end
  local each, loss = plan.aux ~= 0 and plan.aux_sequences > 0, nil
  if each then
    local counts = g:expert_counts(g:unflatten(ids), g:labels(), { experts = o.experts, n = plan.aux_sequences })
    loss = loss_of(g, g:unflatten(logits), counts, o, plan.aux, 0)
  end
  local aux = each and 0 or plan.aux
  if aux == 0 and plan.z == 0 then return loss end
  local counts = g:expert_counts(ids, g:flatten(g:labels()), { experts = o.experts })
  if aux ~= 0 and plan.running then counts = g:running_counts(counts) end
  return moe.sum(g, loss, loss_of(g, logits, counts, o, aux, plan.z))
end

-- What tokens choose by in the place of scores: logits with what balances, over each so many
-- sequences, the experts that tokens get (Sinkhorn's iterations; see docs/moe.md).
local function balanced(g, logits, bias, groups, plan)
  if bias or groups > 0 then
    error(string.format("moe.sinkhorn_sequences balances what scores choose, and routers of this model choose %s",
                        bias and "by a bias, too" or "in groups of experts"), 0)
  end
  local l = g:unflatten(logits)
  return g:flatten(g:sequence_bias(l, g:sinkhorn(l, { n = plan.sinkhorn })))
end

-- Groups of experts, of which a token chooses some: the model's, or the plan's, whose groups are
-- compared by as many of their experts as a token has in each.
local function groups_of(o, plan)
  if plan.groups == 0 then return o.groups or 0, o.topk_group or 0, 0 end
  if plan.groups == 1 or plan.groups == plan.topk_group then return 0, 0, 0 end
  if o.topk % plan.topk_group ~= 0 then
    error(string.format("moe.group_topk = %d does not divide the %d experts of a token", plan.topk_group, o.topk), 0)
  end
  return plan.groups, plan.topk_group, o.topk // plan.topk_group
end

-- Experts with gated SiLU: their parameters, and what comes of the rows of all of them.
local function gated(g, name, o)
  local expert, hidden, init = { "expert", o.experts }, { "hidden", o.hidden }, { std = o.std }
  local gate_up = g:param(name .. ".gate_up_proj",
                          { expert, { "ffn", 2 * o.width, parts = 2 }, hidden }, init)
  local down = g:param(name .. ".down_proj", { expert, hidden, { "ffn", o.width } }, init)
  return function(rows, offsets)
    local gate, up = g:split(g:grouped_linear(rows, gate_up, offsets), { n = 2 })
    return g:grouped_linear(g:silu_mul(gate, up), down, offsets)
  end
end

-- silu(gate) * up, where `most`, if it is given and not 0, limits both: gates are above -0.28, so that a limit on both sides is one
-- of what is large.
function moe.clamped(g, gate, up, most)
  if (most or 0) == 0 then return g:silu_mul(gate, up) end
  return g:mul(g:clamp(g:silu(gate), { limit = most }), g:clamp(up, { limit = most }))
end

-- `mlp` of moe.block: gated experts whose gates and rows are parameters of their own, beside the router,
-- and limited.
function moe.gated_apart(most)
  return function(g, name, o)
    local at = name:gsub("%.experts$", "")
    local expert, hidden, ffn = { "expert", o.experts }, { "hidden", o.hidden }, { "ffn", o.width }
    local function weight(module, out, into)
      return g:param(at .. "." .. module .. ".weight", { expert, out, into }, { std = o.std })
    end
    local gate, up = weight("gate_proj", ffn, hidden), weight("up_proj", ffn, hidden)
    local down = weight("down_proj", hidden, ffn)
    return function(rows, offsets)
      local y = moe.clamped(g, g:grouped_linear(rows, gate, offsets), g:grouped_linear(rows, up, offsets), most)
      return g:grouped_linear(y, down, offsets)
    end
  end
end

-- What comes of x (batch, seq, hidden), and the losses of the router or nil. `o` has
-- experts, topk, width (of an expert), hidden, std, and how the router scores: score
-- ("softmax" or "sigmoid"), norm (whether weights sum to 1), and for the latter groups,
-- topk_group, scale, and bias: the name of what is added to scores before they are compared.
-- `router` is its name, if not "gate"; router_bias, whether its logits have one; cap, their soft cap;
-- mlp(g, name, o), in the place of gated experts, returns a function of rows and offsets.
-- enter(x), what experts read in the place of x, and leave(y), what becomes of what they give.
function moe.block(g, x, name, o)
  local plan, init, gate = g:moe(), { std = o.std }, name .. "." .. (o.router or "gate")
  local expert, hidden = { "expert", o.experts }, { "hidden", o.hidden }
  local mlp = (o.mlp or gated)(g, name .. ".experts", o)
  local router = g:param(gate .. ".weight", { expert, hidden }, init)
  local router_bias = o.router_bias and g:param(gate .. ".bias", { expert }, init)
  local bias = o.bias and g:param(name .. "." .. o.bias, { expert }, { init = "zeros" })

  local tokens = g:flatten(x)
  local logits = g:router_logits(tokens, router)
  if router_bias then logits = g:add_bias(logits, router_bias) end
  if o.cap then logits = g:soft_cap(logits, { soft_cap = o.cap }) end
  local groups, topk_group, best = groups_of(o, plan)
  local limited = bias or groups > 0
  if plan.sinkhorn > 0 then bias = balanced(g, logits, bias, groups, plan) end
  -- A softmax over the chosen experts alone comes after the choice: Megatron compares groups by logits then.
  if best > 1 and not bias and o.score == "softmax" and o.norm then bias = logits end
  local weights, ids = g:route(logits, bias or nil, {
    topk = o.topk, score = scores[o.score], norm_topk = o.norm and 1 or 0,
    groups = groups, topk_group = topk_group, n = best, scale = o.scale or 1,
  })
  local read = o.enter and g:flatten(o.enter(x)) or tokens
  local rows, offsets, places = g:permute(read, ids, weights, {
    experts = o.experts, capacity = plan.capacity, bound = plan.bound, drop = plan.drop,
  })
  local y = g:unflatten(g:combine(mlp(rows, offsets), weights, places))
  return o.leave and o.leave(y) or y, router_loss(g, logits, ids, o, plan, limited)
end

-- ---- which layers have experts, and how many are chosen ----

-- Whether a layer, from 0, has an MLP: as mlp_layer_types says, or the first of them.
function moe.is_dense(c, layer)
  if c.mlp_layer_types then return c.mlp_layer_types[layer + 1] == "dense" end
  return layer < (c.first_k_dense_replace or 1)
end

-- The layers of moe_layers_enum, "3,4,5" or a list, as a set; nil: it is neither.
local function layers_of(enum)
  local set, items = {}, enum
  if type(enum) == "string" then
    items = {}
    for item in enum:gmatch "[^,%s]+" do items[#items + 1] = item end
  end
  if type(items) ~= "table" then return nil end
  for _, item in ipairs(items) do
    local layer = math.tointeger(tonumber(item))
    if not layer or layer < 0 then return nil end
    set[layer] = true
  end
  return set
end

-- mlp_layer_types of a config that may say it by moe_layers_enum; layers from `first` on have experts in
-- one that says neither.
function moe.types(c, first)
  if c.mlp_layer_types then return config.first_items(c.mlp_layer_types, c.num_hidden_layers) end
  local sparse, types = c.moe_layers_enum and layers_of(c.moe_layers_enum), {}
  for i = 0, c.num_hidden_layers - 1 do
    local is = i >= first
    if sparse then is = sparse[i] end
    types[i + 1] = is and "sparse" or "dense"
  end
  return types
end

-- Adds what is wrong with moe_layers_enum.
function moe.check_enum(c, problems)
  if c.moe_layers_enum and not layers_of(c.moe_layers_enum) then
    config.add(problems, "moe_layers_enum", "expected a list of layers, got %s", tostring(c.moe_layers_enum))
  end
end

-- Qwen's: each layer of so many, but for those that mlp_only_layers has.
function moe.is_sparse(c, layer)
  if (layer + 1) % c.decoder_sparse_step ~= 0 then return false end
  for _, i in ipairs(c.mlp_only_layers or {}) do
    if i == layer then return false end
  end
  return true
end

-- Adds what is wrong with mlp_only_layers.
function moe.check_layers(c, problems)
  local list = c.mlp_only_layers
  if not list then return end
  if type(list) ~= "table" then
    return config.add(problems, "mlp_only_layers", "expected a list, got %s", tostring(list))
  end
  for _, i in ipairs(list) do
    if math.type(i) ~= "integer" or i < 0 or i >= c.num_hidden_layers then
      config.add(problems, "mlp_only_layers", "%s is none of the %d layers, which count "
                 .. "from 0", tostring(i), c.num_hidden_layers)
    end
  end
end

-- Adds what is wrong with mlp_layer_types beside the number of layers.
function moe.check_types(c, problems)
  local types = c.mlp_layer_types
  if types and #types ~= c.num_hidden_layers then
    config.add(problems, "mlp_layer_types", "%d types for num_hidden_layers = %d", #types,
               c.num_hidden_layers)
  end
end

-- Adds what is wrong with num_experts_per_tok beside the number of experts, the key `all`.
function moe.check_choices(c, problems, all)
  if c.num_experts_per_tok > c[all] then
    config.add(problems, "num_experts_per_tok", "%d choices of %s = %d", c.num_experts_per_tok,
               all, c[all])
  end
end

-- Of families whose files had experts as linears, PEFT 0.21 takes targets of these names for weights of
-- experts, also where MLPs of other layers and shared experts have them, whose adapters it then lacks.
moe.peft = { takes_for_experts = { "gate_proj", "up_proj", "down_proj" } }

-- ---- DeepSeek-V3's experts ----

moe.deepseek_rules = {
  { "first_k_dense_replace", "layers" }, { "n_routed_experts", "optional_count" },
  { "n_shared_experts", "optional_count" }, { "num_experts_per_tok", "count" },
  { "moe_intermediate_size", "count" }, { "n_group", "count" }, { "topk_group", "count" },
  { "norm_topk_prob", "boolean" }, { "routed_scaling_factor", "positive" },
}

-- What moe.block takes for a layer of DeepSeek-V3, from 0, and of those that have its experts:
-- none in the first layers. All groups, or one, is no restriction.
function moe.deepseek(c, layer)
  if not c.n_routed_experts or moe.is_dense(c, layer) then return nil end
  local grouped = c.topk_group < c.n_group
  return {
    experts = c.n_routed_experts, topk = c.num_experts_per_tok,
    width = c.moe_intermediate_size, hidden = c.hidden_size, std = c.initializer_range,
    score = "sigmoid", bias = "gate.e_score_correction_bias", norm = c.norm_topk_prob,
    groups = grouped and c.n_group or 0, topk_group = grouped and c.topk_group or 0,
    scale = c.routed_scaling_factor,
    shared = c.n_shared_experts and c.n_shared_experts * c.moe_intermediate_size,
  }
end

-- Sizes of theirs that do not go together.
function moe.check_deepseek(c, problems)
  local all, groups = c.n_routed_experts, c.n_group
  if not all then return end
  local most = all // groups * c.topk_group
  if groups > 1 and (all % groups ~= 0 or all // groups < 2) then
    config.add(problems, "n_group", "%d groups of the same size, of two or more, cannot be "
               .. "made of n_routed_experts = %d", groups, all)
  elseif c.topk_group > groups then
    config.add(problems, "topk_group", "%d of n_group = %d groups", c.topk_group, groups)
  elseif c.num_experts_per_tok > most then
    config.add(problems, "num_experts_per_tok", "%d choices of the %d experts in "
               .. "topk_group = %d groups", c.num_experts_per_tok, most, c.topk_group)
  end
end

return moe
