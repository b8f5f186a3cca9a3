-- dion.lua - dion.Muon of NeMo AutoModel recipes (microsoft/dion): Muon for matrices, an optimizer of scalars
-- for all else, with learning rates of their own for vectors, embedding and head.
local quote = use "import/quote"
local scalar = use "import/scalar"
local values = use "import/values"

local O = "optimizer."
-- What dion's Newton-Schulz iteration takes in each of its five steps.
local COEFFICIENTS = {
  { 4.0848, -6.8946, 2.927 }, { 3.9505, -6.3029, 2.6377 }, { 3.7418, -5.5913, 2.3037 },
  { 2.8769, -3.1427, 1.2046 }, { 2.8366, -3.0525, 1.2012 },
}
local SCALES = { spectral_norm = "spectral_unclamped", rms_norm = "match_rms_adamw" }

local function put_scale(book, plan)
  local key = O .. "adjust_lr"
  local value = book:value(key) or "spectral_norm"
  local leaf = book:leaf(key)
  if leaf and leaf.value == scalar.null or not SCALES[value] then
    return book:refuse(key, "expected spectral_norm or rms_norm: steps of matrices have one of these scales")
  end
  plan:put("optimizer.adjust_lr", quote.text(SCALES[value]), leaf or "AutoModel's default")
  book:translated(key, "optimizer.adjust_lr")
end

-- The optimizer of what is no matrix.
local function put_scalars(book, plan)
  local kind = book:value(O .. "scalar_opt") or "adamw"
  if kind == "adamw" then
    book:translated(O .. "scalar_opt", "optimizer")
  else
    book:cannot(O .. "scalar_opt", "what is no matrix of a layer has AdamW")
  end
  values.put_pair(book, plan, O .. "scalar_betas", "optimizer.betas")
  plan:put("optimizer.betas", "{ 0.9, 0.999 }", "AutoModel's default")
  book:no_effect(O .. "betas", "scalar_betas say it")
  values.put_positive(book, plan, O .. "scalar_eps", "optimizer.eps")
end

-- Rates of vectors, embedding and head, and their decay; `lr` is that of matrices. Under a learning rate
-- that changes all groups get the same one.
local function put_rates(book, plan, lr, model)
  local scalar_lr = values.positive(book, O .. "scalar_lr") or lr
  local embed_lr = values.positive(book, O .. "embed_lr") or scalar_lr
  local head_lr = values.positive(book, O .. "lm_head_lr") or lr / math.sqrt(model.hidden_size)
  if scalar_lr == 0 then return book:refuse(O .. "scalar_lr", "expected a rate above 0: freeze names what stays") end
  local decay = values.positive(book, O .. "weight_decay") or 0
  local keys = { "scalar_lr", "embed_lr", "lm_head_lr" }
  if book:has "lr_scheduler" then
    for _, key in ipairs(keys) do
      book:no_effect(O .. key, "AutoModel's scheduler gives all parameters the same rate")
    end
    scalar_lr, embed_lr, head_lr = lr, lr, lr
  else
    for _, key in ipairs(keys) do book:translated(O .. key, "optimizer.adamw_lr_ratio, groups") end
  end
  if scalar_lr ~= lr then
    plan:put("optimizer.adamw_lr_ratio", quote.value(scalar_lr / lr), book:leaf(O .. "scalar_lr"))
  end
  if decay > 0 then plan:put("optimizer.decay_vectors", "true", "all in the group of vectors decay there") end
  local groups = {}
  local function add(name, rate, key)
    if rate == scalar_lr and decay == 0 then return end
    groups[#groups + 1] = string.format("{ %s, lr = %s, weight_decay = %s }", quote.text(name),
                                        quote.value(rate / scalar_lr), quote.value(decay == 0 and decay or 0.0))
    groups.from = groups.from or book:leaf(O .. key) or "AutoModel's default"
  end
  add(model.embedding, embed_lr, "embed_lr")
  if not model.tied then add("lm_head", head_lr, "lm_head_lr") end
  if #groups > 0 then plan:put("groups", "{ " .. table.concat(groups, ", ") .. " }", groups.from) end
end

local EMBEDDINGS = { gpt2 = "wte" }

-- What the groups of parameters are made of.
local function parts_of(config)
  local usual = use("models/" .. config[1]).defaults
  local function of(key)
    if config[key] == nil then return usual[key] end
    return config[key]
  end
  return { hidden_size = of "hidden_size", tied = of "tie_word_embeddings",
           embedding = EMBEDDINGS[config[1]] or "embed_tokens" }
end

-- `config`: of the model; `experts`: whether it has some.
local function put(book, plan, lr, config, experts)
  plan:put("optimizer.momentum", quote.value(values.positive(book, O .. "mu") or 0.95),
           book:leaf(O .. "mu") or "AutoModel's default")
  book:translated(O .. "mu", "optimizer.momentum")
  plan:put("optimizer.nesterov", tostring(book:value(O .. "nesterov") == true),
           book:leaf(O .. "nesterov") or "AutoModel's default")
  book:translated(O .. "nesterov", "optimizer.nesterov")
  plan:put("optimizer.ns_coefficients", quote.value(COEFFICIENTS), "dion's")
  plan:put("optimizer.ns_eps", quote.value(values.positive(book, O .. "epsilon") or 1e-8),
           book:leaf(O .. "epsilon") or "AutoModel's default")
  book:translated(O .. "epsilon", "optimizer.ns_eps")
  put_scale(book, plan)
  put_scalars(book, plan)
  if lr then put_rates(book, plan, lr, parts_of(config)) end
  if book:value(O .. "flatten") == true then
    book:cannot(O .. "flatten", "of parameters with three dimensions each matrix is stepped by itself")
  end
  if experts then
    book:cannot(O .. "_target_", "experts are matrices here, each with a step of its own: AutoModel, which has those "
                .. "of a layer in one parameter, steps them as it does vectors")
  else
    book:translated(O .. "_target_", "optimizer")
  end
  book:assume("optimizer", "the iteration is in f32, of averages 1 - mu times those of dion, whose products are in "
              .. "bf16 and whose epsilon is added to a norm: steps of matrices agree within some percent")
end

return { put = put }
