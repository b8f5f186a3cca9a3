-- fields.lua - a compiled plan as values by field: what every field comes to, whoever said it, so
-- that two plans can be compared. Fields that only say how others are found (mesh.world,
-- pp_plan) are there by what they come to: sizes of the mesh, layers of the stages.
local quote = use "import/quote"
local scalar = use "import/scalar"
local plan_facts, plan_fields = use "plan_facts", use "plan_fields"
local fields = {}

-- Not compared: names, and those that are there by what they come to (see add_rate for the rate).
local BY_EFFECT = { "^name$", "^cluster%.", "^mesh%.", "^pp_plan%.", "^optimizer%.lr%." }

-- Nor those without effect: of an axis that is 1, of a model without experts.
local WITHOUT = {
  { "^cp%.", function(f) return f.mesh.cp == 1 end },
  { "^moe%.", function(f) return f.facts.experts == 0 end },
  { "^strategy%.sequence_parallel$", function(f) return f.mesh.tp == 1 end },
  { "^strategy%.enable_async_tensor_parallel$", function(f) return f.mesh.tp == 1 end },
  { "^strategy%.overlap_tp$", function(f) return f.mesh.tp == 1 end },
  { "^strategy%.loss_parallel$", function(f) return f.mesh.tp == 1 end },
}

local function skipped(path, f)
  for _, pattern in ipairs(BY_EFFECT) do
    if string.find(path, pattern) then return true end
  end
  for _, row in ipairs(WITHOUT) do
    if string.find(path, row[1]) and row[2](f) then return true end
  end
end

local words = { ["true"] = true, ["false"] = false }
local function typed(text)
  if words[text] ~= nil then return words[text] end
  local quoted = string.match(text, '^"(.*)"$')
  if quoted then return quoted end
  if text == "-" then return nil end
  return math.tointeger(tonumber(text)) or tonumber(text) or text
end

local function add_mesh(value, plan)
  local mesh, experts = plan.mesh, plan.mesh.expert
  for _, axis in ipairs { "tp", "pp", "dp", "cp", "dp_replicate" } do value["mesh." .. axis] = mesh[axis] end
  value["mesh.ep"], value["mesh.etp"] = experts.ep, experts.ep > 1 and experts.etp or 1
  value["mesh.order"] = table.concat(mesh.axes, ", ")
end

local function add_stages(value, plan)
  local stages = {}
  for i, stage in ipairs(plan:stages()) do stages[i] = table.concat(stage.units, " ") end
  value["pp_plan"] = table.concat(stages, " | ")
end

local function add_styles(value, plan)
  local styles = {}
  for i, p in ipairs(plan:match()) do styles[i] = string.format("%s %s %s", p.name, p.style, p.dim or "") end
  value["tp_plan"] = table.concat(styles, "; ")
end

-- A model's sizes as its config.json has them: keys that say "not given" are left out, but where
-- that is no default. Heads of latent attention have keys of their own, whatever the key says.
local function config_of(f)
  local config, defaults = {}, use("models/" .. f.architecture).defaults
  for _, key in ipairs(keys(f.config)) do
    local v = f.config[key]
    if key ~= "is_causal" and (v ~= false or defaults[key]) then config[key] = v end
  end
  if f.architecture == "deepseek_v3" then config.num_key_value_heads = config.num_attention_heads end
  return config
end

-- A value of it as files have it: "not given" is null there.
function fields.written(f, key)
  local v = f.config[key]
  if v == false and use("models/" .. f.architecture).defaults[key] ~= true then return scalar.null end
  return v
end

-- Keys that a plan has no use for: of layers that are not trained.
local UNUSED = { num_nextn_predict_layers = true }

-- Of experts; a model without them has the keys nevertheless.
local EXPERTS = { "n_group", "topk_group", "n_shared_experts", "moe_intermediate_size", "first_k_dense_replace",
                  "num_experts_per_tok", "norm_topk_prob", "routed_scaling_factor", "scoring_func", "topk_method" }

-- A config in which what it leaves to its model is said.
local function resolved(architecture, config)
  local c = {}
  for key, v in next, config do c[key] = v end
  local heads, hidden = c.num_attention_heads, c.hidden_size
  if architecture == "gpt2" then
    c.intermediate_size = c.intermediate_size or 4 * hidden
  elseif architecture ~= "deepseek_v3" then
    c.num_key_value_heads = c.num_key_value_heads or heads
    c.head_dim = c.head_dim or hidden // heads
  elseif not c.n_routed_experts then
    for _, key in ipairs(EXPERTS) do c[key] = nil end
  end
  for key in next, UNUSED do c[key] = nil end
  return c
end

local function add_config(value, config, at)
  for _, key in ipairs(keys(config)) do
    local v, path = config[key], (at or "model.") .. key
    if type(v) == "table" then
      add_config(value, v, path .. ".")
    else
      value[path] = v
    end
  end
end

-- What has no place of its own among the plan's values.

local function recompute_of(spec)
  local strategy = type(spec.strategy) == "table" and spec.strategy or {}
  local r = spec.recompute
  if r == nil then r = spec.activation_checkpointing end
  if r == nil then r = strategy.activation_checkpointing end
  if r == nil or r == false then return "none" end
  if r == true then return "full" end
  return type(r) == "table" and table.concat(r, ", ") or r
end

-- What else a rate has than its maximum and its warmup, by its builder.
local RATES = {
  constant = {}, linear = { "min", "steps" }, cosine = { "min", "steps" },
  polynomial = { "min", "steps", "power" }, inverse_sqrt = { "min", "timescale" },
  wsd = { "min", "steps", "decay", "decay_style" },
}

-- One that falls from the end of the warmup on is linear or cosine, whatever its builder.
local SAME = { linear = true, cosine = true }
local function kind_of(lr, named)
  if named == "polynomial" and lr.power == 1 then return "linear" end
  local all = lr.decay >= lr.steps - lr.warmup
  return named == "wsd" and all and SAME[lr.decay_style] and lr.decay_style or named
end

local function add_rate(value, f)
  local written, lr = type(f.spec.optimizer) == "table" and f.spec.optimizer.lr, f.rate
  lr.max, lr.power = typed(f.stored["optimizer.lr.max"]), typed(f.stored["optimizer.lr.power"])
  lr.decay_style = typed(f.stored["optimizer.lr.decay_style"])
  local kind = kind_of(lr, type(written) == "table" and builder(written) or "constant")
  value["optimizer.lr"], value["optimizer.lr.max"] = kind, lr.max
  value["optimizer.lr.warmup"] = lr.warmup
  lr.min = tonumber(string.format("%.12g", lr.min)) -- a part of max is rounded where it is made
  for _, name in ipairs(RATES[kind]) do value["optimizer.lr." .. name] = lr[name] end
end

-- What lies in the memory of the host, and what keeps parameters between forward and backward.
local function add_storage(value, spec)
  local s = type(spec.strategy) == "table" and spec.strategy or {}
  local function on(v) return v == true or v == "cpu" end
  local both = type(s.offload_policy) == "table" or on(s.offload_policy)
  value["strategy.offload_optimizer"] = both or on(s.offload_optimizer)
  value["strategy.offload_param"] = both or on(s.offload_param)
  local keep = s.reshard_after_forward
  if keep == nil then keep = s.zero_hpz_partition_size end
  if keep == nil then keep = "as the stages want it" end
  value["strategy.reshard_after_forward"] = keep
end

local BETAS = { adam = { 0.9, 0.999 }, adamw = { 0.9, 0.95 }, adamw_8bit = { 0.9, 0.999 }, lion = { 0.9, 0.99 }, muon = { 0.9, 0.95 } }

-- Adafactor has two of its own.
local EPS = { adafactor = { 0x1p-23, 1e-3 } }
local function pair(list) return list and string.format("%.17g, %.17g", list[1], list[2]) or nil end

-- What AdamW's averages have, of an optimizer that keeps these: both betas and eps, or nothing.
local AVERAGES = { adam = true, adamw = true, adamw_8bit = true, muon = true }
function fields.averages(value)
  if not AVERAGES[value.optimizer] then return nil end
  local a, b = string.match(value["optimizer.betas"], "^(.*), (.*)$")
  return tonumber(a), tonumber(b), value["optimizer.eps"]
end

local DISTILL = { alpha = 0.5, beta = 0, temperature = 1 }

local function entries(t)
  local list = {}
  for k, v in next, t do
    list[#list + 1] = (type(k) == "number" and "" or k .. " = ") .. (type(v) == "function" and "a function" or tostring(v))
  end
  table.sort(list)
  return table.concat(list, ", ")
end

-- A loss other than cross entropy by label tokens; nil: it is that.
local function loss_of(loss)
  if type(loss) ~= "table" then loss = { loss } end
  if loss[1] == nil or loss[1] == "cross_entropy" and (loss.per or "tokens") == "tokens" then return nil end
  local all = {}
  for k, v in next, loss[1] == "distill" and DISTILL or {} do all[k] = v end
  for k, v in next, loss do all[k] = v end
  return entries(all)
end

-- Which parameters learn, and how, as the plan has it.
local function add_learning(value, spec)
  local adapter = type(spec.adapter) == "table" and spec.adapter or {}
  if adapter[1] then value["adapter.alpha"] = adapter.alpha or adapter.rank end
  value["adapter.targets"] = adapter[1] and quote.value(adapter.targets or "all-linear") or nil
  for _, name in ipairs { "target_parameters", "modules_to_save", "rank_pattern", "alpha_pattern" } do
    value["adapter." .. name] = adapter[name] and entries(adapter[name]) or nil
  end
  value.loss = loss_of(spec.loss)
  value.loss_chunks = spec.loss_chunks or 1
  for _, name in ipairs { "freeze", "groups" } do
    value[name] = spec[name] and #spec[name] > 0 and quote.value(spec[name]) or nil
  end
end

local function add_written(value, f)
  local spec = f.spec
  add_learning(value, spec)
  add_rate(value, f)
  value.recompute = recompute_of(spec)
  add_storage(value, spec)
  local saved = type(spec.checkpoint) == "table" and spec.checkpoint or {}
  value["checkpoint.dir"], value["checkpoint.save_consolidated"] = saved.dir, saved.save_consolidated
  local optimizer = type(spec.optimizer) == "table" and spec.optimizer or {}
  value["optimizer.betas"] = pair(optimizer.betas or BETAS[value.optimizer])
  if not AVERAGES[value.optimizer] then
    value["optimizer.eps"] = pair(EPS[value.optimizer] and (optimizer.eps or EPS[value.optimizer]))
  end
  value.data = type(spec.data) == "table" and builder(spec.data) or nil
  local packed = type(spec.packed) == "table" and spec.packed or {}
  value.packed = packed.eot and "eot = " .. packed.eot or packed.bos and "bos = " .. packed.bos
    or spec.packed and "on" or nil
  value["moe.router_dtype"] = type(spec.moe) == "table" and spec.moe.router_dtype or nil
end

-- { value = by path, config =, architecture =, csv =, spec =, facts = }
function fields.of(plan)
  local f, value = plan_fields(plan), {}
  f.value, f.spec, f.facts, f.mesh = value, plan.spec, plan_facts(plan), plan.mesh
  for path, text in next, f.stored do
    if not skipped(path, f) then value[path] = typed(text) end
  end
  f.virtual = #plan:stages() // plan.mesh.pp
  add_mesh(value, plan)
  add_stages(value, plan)
  add_styles(value, plan)
  if f.config then
    f.config = config_of(f)
    add_config(value, resolved(f.architecture, f.config))
  end
  add_written(value, f)
  value.model, value.schedule = f.architecture, f.mesh.pp > 1 and f.facts.schedule or nil
  value["schedule's order"] = f.csv
  value["model's weights"] = f.weights
  return f
end

-- The fields that differ, in order, as { field =, here =, there = }.
function fields.differences(here, there)
  local all, list = {}, {}
  for path in next, here.value do all[path] = true end
  for path in next, there.value do all[path] = true end
  for _, path in ipairs(keys(all)) do
    local a, b = here.value[path], there.value[path]
    if a ~= b then list[#list + 1] = { field = path, here = a, there = b } end
  end
  return list
end

return fields
