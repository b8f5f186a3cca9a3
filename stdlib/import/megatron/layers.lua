-- layers.lua - which layers of a Megatron model have experts, and what experts.
local quote = use "import/quote"
local values = use "import/values"
local layers = {}

local function append(list, part, times, most)
  for _ = 1, times do
    if #list + #part > most then return false end
    table.move(part, 1, #part, #list + 1, list)
  end
  return true
end

-- A sum of lists from a place on, each times a number or not, and the place behind it; nil: it is none.
local function sum(text, at, most, depth)
  local list = {}
  repeat
    local part, digits, behind = {}, string.match(text, "^%[([01,]*)%]()", at)
    if digits then
      for digit in string.gmatch(digits, "[01]") do part[#part + 1] = tonumber(digit) end
    elseif string.sub(text, at, at) == "(" and depth < 8 then
      part, behind = sum(text, at + 1, most, depth + 1)
      if not part or string.sub(text, behind, behind) ~= ")" then return nil end
      behind = behind + 1
    else
      return nil
    end
    local times, after = string.match(text, "^%*(%d%d?%d?%d?%d?)()", behind)
    if not append(list, part, tonumber(times or 1), most) then return nil end
    at = after or behind
    local more = string.sub(text, at, at) == "+"
    if more then at = at + 1 end
  until not more
  return list, at
end

-- "[0]*3+[1]*58" or "([1]*3+[0])*4" as a list of as many numbers as layers.
function layers.pattern(text, most)
  text = string.gsub(text, "%s", "")
  local list, at = sum(text, 1, most, 0)
  return list and at > #text and #list > 0 and list or nil
end

-- --no-rope-freq as a list with true for each layer that turns nothing; nil: all layers have positions.
function layers.without_positions(book, m)
  local value = book:value "no_rope_freq"
  if value == nil or m.position ~= "rope" then return nil end
  local every = math.type(value) == "integer" and value
  local list = type(value) == "table" and value or type(value) == "string" and layers.pattern(value, m.layers)
  if not (every and every >= 1 and m.layers % every == 0) and not (list and #list == m.layers) then
    return book:refuse("no_rope_freq", string.format("%s: expected a divisor of the %d layers, or a list such as "
      .. "([0]*3+[1]*1)*%d with one number for each", quote.shown(value), m.layers, math.max(m.layers // 4, 1)))
  end
  local without, any = {}, false
  for i = 1, m.layers do
    without[i] = every and i % every == 0 or list and list[i] ~= 0 or false
    any = any or without[i]
  end
  return any and without or nil
end

-- The layers without experts, from 0.
local function dense_layers(book, m)
  local value = book:value "moe_layer_freq"
  local dense = {}
  if value == nil then return dense end
  local every = math.type(value) == "integer" and value
  if every and every >= 1 then
    for i = 0, m.layers - 1 do
      if i % every ~= 0 then dense[#dense + 1] = i end
    end
    return dense
  end
  local list = type(value) == "string" and layers.pattern(value, m.layers)
  if type(value) == "table" then list = value end
  if not list or #list ~= m.layers then
    book:refuse("moe_layer_freq", string.format("%s: expected a number, or a list such as [0]*3+[1]*%d with one "
      .. "number for each of %d layers", quote.shown(value), math.max(m.layers - 3, 1), m.layers))
    return dense
  end
  for i, one in ipairs(list) do
    if one == 0 then dense[#dense + 1] = i - 1 end
  end
  return dense
end

local SCORES = { softmax = "softmax", sigmoid = "sigmoid" }

layers.keys = { "num_experts", "moe_router_topk", "moe_router_score_function", "moe_layer_freq",
  "moe_ffn_hidden_size", "moe_shared_expert_intermediate_size", "moe_router_topk_scaling_factor",
  "moe_router_pre_softmax", "moe_router_num_groups", "moe_router_group_topk", "moe_router_enable_expert_bias" }

-- Sinkhorn's choice has scores of its own, which are all that weights are made of.
local function choose_by_sinkhorn(book, e)
  e.score, e.normed, e.scale, e.bias, e.groups = e.topk == 1 and "sigmoid" or "softmax", false, 1, false, nil
  for _, key in ipairs { "moe_router_score_function", "moe_router_pre_softmax", "moe_router_topk_scaling_factor",
                         "moe_router_enable_expert_bias", "moe_router_num_groups", "moe_router_group_topk" } do
    book:no_effect(key, "with sinkhorn weights are the sigmoid of a logit, or the softmax of all where tokens have "
                   .. "several experts")
  end
end

function layers.experts(book, m)
  local n = values.whole(book, "num_experts", 1)
  local own = book:value "moe_ffn_hidden_size" or book:value "moe_shared_expert_intermediate_size"
  if not n or n == 1 and not own then
    book:no_effect("num_experts", "one expert, to which all tokens go, is an MLP")
    for _, key in ipairs(layers.keys) do book:no_effect(key, "the model has no experts") end
    return
  end
  local score = SCORES[book:value "moe_router_score_function" or "softmax"]
  if not score then
    book:refuse("moe_router_score_function", string.format("%s: expected softmax or sigmoid",
      quote.shown(book:value "moe_router_score_function")))
  end
  local topk = values.whole(book, "moe_router_topk", 1) or 2
  if topk > n then
    book:refuse(book:leaf "moe_router_topk" and "moe_router_topk" or "num_experts", string.format(
      "each token goes to %d experts (--moe-router-topk), and there %s %d", topk, n == 1 and "is" or "are", n))
  end
  m.experts = {
    n = n, topk = topk, score = score, dense = dense_layers(book, m),
    width = values.whole(book, "moe_ffn_hidden_size", 1) or m.ffn,
    shared = values.whole(book, "moe_shared_expert_intermediate_size", 1),
    scale = values.positive(book, "moe_router_topk_scaling_factor") or 1,
    bias = values.flag(book, "moe_router_enable_expert_bias"),
  }
  local e = m.experts
  -- Of softmax scores either all are made and the best ones taken, or the other way round; of
  -- sigmoids those that were taken are divided by their sum.
  local before = values.flag(book, "moe_router_pre_softmax")
  if score == "softmax" then
    e.normed = not before
  else
    e.normed = topk > 1
    book:no_effect("moe_router_pre_softmax", "sigmoids are taken before the choice")
  end
  e.groups = values.whole(book, "moe_router_num_groups", 1)
  e.topk_group = values.whole(book, "moe_router_group_topk", 1)
  if e.groups and not e.topk_group then e.groups = nil end
  e.sinkhorn = book:value "moe_router_load_balancing_type" == "sinkhorn"
  if e.sinkhorn then choose_by_sinkhorn(book, e) end
  for _, key in ipairs(layers.keys) do book:translated(key, "model") end
end

-- Whether groups of experts are a field of the plan: but for DeepSeek-V3, whose config has groups that
-- are compared by their two best experts.
function layers.groups_in_plan(c, e)
  return e.groups and e.groups > 1 and (c[1] ~= "deepseek_v3" or e.topk // e.topk_group ~= 2)
end

-- How many layers before all others have none; nil if others have none, too.
function layers.first_dense(e)
  for i, layer in ipairs(e.dense) do
    if layer ~= i - 1 then return nil end
  end
  return #e.dense
end

return layers
