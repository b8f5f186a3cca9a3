-- parallel_plans.lua - what classes of Transformers say of themselves: base_model_tp_plan,
-- base_model_pp_plan and base_model_ep_plan, as JSON, in a config.json, or as the Python that they
-- are written in. Ranks come from words behind the file: tp_size=4.
local model_field = use "import/model_field"
local quote = use "import/quote"
local values = use "import/values"

local plans = { name = "Transformers (base_model_tp_plan)", absent = {},
                describe = "plans of Transformers (base_model_tp_plan, base_model_ep_plan)" }

local KINDS = { "tp", "pp", "ep" }
-- Styles that tp_plan does not have.
local LACKS = { all_reduce = true, moe_identity_expert = true, ["local"] = true, gather = true,
                activation = true }

-- The class that a key of a plan stands in ("" or "LlamaConfig."), the kind of plan, the pattern.
local function part_of(key)
  for _, kind in ipairs(KINDS) do
    local from, to = string.find(key, "base_model_" .. kind .. "_plan", 1, true)
    if from and (from == 1 or string.find(string.sub(key, 1, from - 1), "^[%w_]+%.$")) then
      return string.sub(key, 1, from - 1), kind, string.sub(key, to + 2)
    end
  end
end

function plans.is(leaves)
  for _, leaf in ipairs(leaves) do
    if part_of(leaf.key) then return true end
  end
  return false
end

-- The one class that has plans; nil if there are several.
local function class_of(book)
  local class
  for _, leaf in ipairs(book.leaves) do
    local this = part_of(leaf.key)
    if this and class and this ~= class then
      return book:refuse(leaf.key, string.format("the plans of %s and %s are in one file: leave one",
        quote.shown(class), quote.shown(this)))
    end
    class = class or this
  end
  return class
end

-- The model of a config.json that has the plans, too.
local function own_model(book, plan, node)
  local rest = { kind = "map", line = node.line, keys = {}, at = {} }
  for _, key in ipairs(node.keys) do
    if not part_of(key) then
      rest.keys[#rest.keys + 1], rest.at[key] = key, node.at[key]
    end
  end
  local config, why = model_field.of_config(rest, "the file")
  if not config then return book:refuse("model_type", why) end
  for _, leaf in ipairs(book.leaves) do
    if not part_of(leaf.key) then book:translated(leaf.key, "model") end
  end
  model_field.tell_note(book, config)
  model_field.write(plan, config, nil, book:leaf "model_type")
  return config
end

local function put_mesh(book, plan, options)
  local m = {}
  for _, axis in ipairs(KINDS) do
    local key = axis .. "_size"
    m[axis] = values.degree(book, key)
    if m[axis] > 1 then plan:put("mesh." .. axis, quote.value(m[axis]), book:leaf(key)) end
    book:translated(key, "mesh." .. axis)
  end
  if not book:leaf "tp_size" then
    m.tp = 2
    plan:put("mesh.tp", "2", "assumed; tp_size=N behind the file says another")
    book:assume("mesh.tp", "2 ranks share each layer; tp_size=N behind the file says another")
  end
  if m.ep > 1 and m.tp > 1 then plan:put("mesh.etp", "1", "the plan of ep does not cut experts by tp") end
  m.world = options.world or values.lcm(8, m.pp * values.lcm(m.tp, m.ep))
  plan:put("mesh.world", quote.value(m.world), options.world and "--world" or "assumed; --world N says another")
  if not options.world then book:assume("mesh.world", m.world .. " ranks; --world N says another") end
  return m
end

local function put_rule(book, plan, leaf, kind, pattern, m)
  if kind == "pp" then
    return book:no_effect(leaf.key, "it says what goes into a module and comes out of it, which is "
                          .. "known; pp_plan says where stages are cut")
  end
  if type(leaf.value) ~= "string" or pattern == "" then
    return book:refuse(leaf.key, "expected the name of a style for each pattern of modules")
  end
  if LACKS[leaf.value] then
    return book:refuse(leaf.key, string.format("tp_plan has no style %s", quote.shown(leaf.value)))
  end
  if kind == "ep" then
    if m.ep == 1 then return book:no_effect(leaf.key, "experts are not shared: ep_size=N says it") end
    return book:translated(leaf.key, "mesh.ep, which shares experts whatever their style")
  end
  plan:entry("tp_plan", pattern, quote.text(leaf.value), leaf)
  book:translated(leaf.key, "tp_plan")
end

function plans.translate(book, plan, options)
  local class = class_of(book)
  if not class then return book:apply {} end
  local config
  if not options.model and book:leaf "model_type" then
    config = own_model(book, plan, options.node)
  else
    config = model_field.put(plan, book, { changes = {} }, options.model)
  end
  if not config then return book:apply {} end
  local m = put_mesh(book, plan, options)
  local cuts_head = false
  for _, leaf in ipairs(book.leaves) do
    local _, kind, pattern = part_of(leaf.key)
    if kind then put_rule(book, plan, leaf, kind, pattern, m) end
    cuts_head = cuts_head or pattern == "lm_head"
  end
  if m.tp > 1 and not cuts_head then
    book:assume("tp_plan", "embedding and head are whole on each rank: a base model's plan has "
                .. "neither; lm_head = \"colwise_gather_output\" is what its class adds")
  end
  plan:put("precision", quote.text "bf16", "assumed: the type of most public weights")
  book:assume("precision", "bf16, the type of most public weights")
  local dp = math.max(m.world // (m.tp * m.pp), 1)
  plan:put("batch.global", quote.value(dp * m.pp), "assumed: as many sequences as keep all ranks busy")
  plan:put("batch.micro", "1", "assumed")
  book:assume("batch", string.format("%d sequences a step", dp * m.pp))
  values.assume_rest(book, plan, config)
  for _, leaf in ipairs(book.leaves) do
    if class ~= "" and string.sub(leaf.key, 1, #class) == class then
      book:no_effect(leaf.key, "what else the class says of itself takes no part: --model gives sizes")
    end
  end
  book:apply { { "model_type", "no_effect", "--model says which model the plan has" } }
end

return plans
