-- function.lua - models that none of weft's architectures is, as a function of the plan and its
-- tp_plan: Megatron's decoder with the parts that the arguments choose. What the function does not
-- need is not in it.
local quote = use "import/quote"
local func = {}

-- ---- pieces of the function, as text ----

local LINEAR = [[
  local function linear(x, name, out, into, o)
    local w = g:param(name .. ".weight", { out, into }, { std = o and o.std or c.std })
    local y = g:linear(x, w)
    if not (o and o.bias) then return y end
    return g:add_bias(y, g:param(name .. ".bias", { out }, { init = "zeros" }))
  end
]]

local NORMS = {
  layernorm = [[
  local function norm(x, name, dim)
    return g:layernorm(x, g:param(name .. ".weight", { dim or hidden }, { init = "ones" }),
                       g:param(name .. ".bias", { dim or hidden }, { init = "zeros" }), { eps = c.eps })
  end
]],
  rmsnorm = [[
  local function norm(x, name, dim)
    local w = g:param(name .. ".weight", { dim or hidden }, { init = "ones" })
    return g:rmsnorm(x, w, { eps = c.eps })
  end
]] }

local ATTENTION = [[
  local function attention(x, name$ILAYER)
    local q = linear(x, name .. ".q", heads, hidden$BIAS)
    local k = linear(x, name .. ".k", kv_heads, hidden$BIAS)
    local v = linear(x, name .. ".v", kv_heads, hidden$BIAS)
$QKNORM$ROPE    local o = g:attention(q, k, v, g:doc_starts(), { head_dim = d$WINDOW$RATE })
    return linear(o, name .. ".proj", hidden, heads, { std = residual$OUTBIAS })
  end
]]

local DROP = [[
  local function drop(x) return g:dropout(x, { rate = c.hidden_dropout }) end
]]

local QK_NORM = [[
    q, k = norm(q, name .. ".q_norm", { "head_dim", d }), norm(k, name .. ".k_norm", { "head_dim", d })
]]

local ROPE = [[
    q, k = g:rope(q, g:positions(), turn), g:rope(k, g:positions(), turn)
]]

local ACTS = {
  gelu = "g:gelu(%s, { kind = c.gelu })", relu2 = "square(g:relu(%s))",
}

local SQUARE = [[
  local function square(x) return g:mul(x, x) end
]]

local MLP = [[
  local function mlp(x, name, width)
    local ffn = { "ffn", width }
    local h = linear(x, name .. ".up", ffn, hidden$BIAS)
    return linear($ACT, name .. ".down", hidden, ffn, { std = residual$OUTBIAS })
  end
]]

local GATED = [[
  local function mlp(x, name, width)
    local ffn = { "ffn", width }
    local gate = linear(x, name .. ".gate", ffn, hidden$BIAS)
    local up = linear(x, name .. ".up", ffn, hidden$BIAS)
    return linear(g:silu_mul(gate, up), name .. ".down", hidden, ffn, { std = residual$OUTBIAS })
  end
]]

local EXPERTS = [[
  -- The router sends each token to the best experts; the losses of the router are plan.moe's.
  local function experts(x, name)
    local plan, expert = g:moe(), { "expert", c.experts }
    local up = g:param(name .. ".experts.up", { expert, { "ffn", $UPWIDTH }, hidden }, { std = c.std })
    local down = g:param(name .. ".experts.down", { expert, hidden, { "ffn", c.expert_ffn } },
                         { std = residual })
    local router = g:param(name .. ".router.weight", { expert, hidden }, { std = c.std })
$ROUTERBIAS    local tokens = g:flatten(x)
    local logits = g:router_logits(tokens, router)
$BALANCED    local weights, ids = g:route(logits, $BIASARG, {
      topk = c.topk, score = $SCORE, norm_topk = $NORMED, groups = plan.groups,
      topk_group = plan.topk_group, n = $GROUPBEST, scale = $SCALE,
    })
    local rows, offsets, places = g:permute(tokens, ids, weights, {
      experts = c.experts, capacity = plan.capacity, bound = plan.bound, drop = plan.drop,
    })
    local h = g:grouped_linear(rows, up, offsets)
$EXPERTACT    local y = g:unflatten(g:combine(g:grouped_linear(h, down, offsets), weights, places))
$SHARED    local function loss_of(l, chosen, labels, n, aux, z)
      local counts = g:expert_counts(chosen, labels, { experts = c.experts, n = n })
      if not n and aux ~= 0 and plan.running then counts = g:running_counts(counts) end
      return g:router_loss(l, counts, { topk = c.topk, score = $SCORE, aux = aux, z = z })
    end
$COUNTED    local each, loss = plan.aux ~= 0 and plan.aux_sequences > 0, nil
    if each then
      loss = loss_of(g:unflatten(logits), g:unflatten(ids), g:labels(), plan.aux_sequences, plan.aux, 0)
    end
    local aux = each and 0 or plan.aux
    if aux == 0 and plan.z == 0 then return y, loss end
    local more = loss_of(logits, ids, g:flatten(g:labels()), nil, aux, plan.z)
    return y, loss and g:add(loss, more) or more
  end
]]

local BALANCED = [[
    local by_sequence = g:unflatten(logits)
    local factors = g:sinkhorn(by_sequence, { n = plan.sinkhorn })
    local choice = g:flatten(g:sequence_bias(by_sequence, factors))
]]

-- What the loss counts where routers choose by a bias or in groups, too.
local COUNTED = [[
    if plan.aux ~= 0 then
      local _, by_scores = g:route(logits, nil, { topk = c.topk, score = $SCORE })
      ids = by_scores
    end
]]

local LAYER = [[
  local function layer(i, x)
    local name = "layers." .. i
    x = g:add(x, $DROP(attention(norm(x, name .. ".norm1"), name .. ".attention"$ILAYER)))
    return g:add(x, $DROP(mlp(norm(x, name .. ".norm2"), name .. ".mlp", c.ffn)))
  end
]]

local MOE_LAYER = [[
  local function layer(i, x, loss)
    local name, h = "layers." .. i
    x = g:add(x, $DROP(attention(norm(x, name .. ".norm1"), name .. ".attention"$ILAYER)))
    h = norm(x, name .. ".norm2")
$DENSE    local y, more = experts(h, name .. ".mlp")
    return g:add(x, $DROP(y)), loss and more and g:add(loss, more) or loss or more
  end
]]

local DENSE = [[
    if $ISDENSE then return g:add(x, $DROP(mlp(h, name .. ".mlp", c.ffn))), loss end
]]

-- Replaces $NAME by its text.
local function fill(text, with)
  return (string.gsub(text, "%$(%u+)", function(name) return with[name] end))
end

-- Replaces $DROP(x) by drop(x), or by x if nothing is dropped.
local function fill_drops(text, m)
  return (string.gsub(text, "%$DROP(%b())", function(x) return m.drops and "drop" .. x or string.sub(x, 2, -2) end))
end

local function attributes(m)
  local turning = math.floor(m.head_dim * m.turning)
  local parts = { "head_dim = d", "theta = " .. quote.value(m.theta + 0.0) }
  if turning ~= m.head_dim then
    parts[#parts + 1] = "rotary_dim = " .. turning
    parts[#parts + 1] = "rotary_from = 0"
  end
  if m.interleaved then parts[#parts + 1] = "interleaved = 1" end
  if m.scaling and m.scaling.rope_type == "linear" then
    parts[#parts + 1] = string.format("yarn = 1, rope_factor = %s, rope_low = -1, rope_high = 0, rope_scale = 1",
                                      quote.value(m.scaling.factor))
  elseif m.scaling then
    parts[#parts + 1] = string.format("rope_factor = %s, rope_low = 1.0, rope_high = 4.0, rope_original = 8192",
                                      quote.value(m.scaling.factor))
  end
  return table.concat(parts, ", ")
end

local function act(m, of) return string.format(ACTS[m.act], of) end

-- What chooses beside scores, or in their place: groups are compared by logits where the softmax comes after
-- the choice.
local function choice(e)
  if e.bias or e.sinkhorn then return "choice" end
  local by_logits = e.groups and e.topk // e.topk_group > 1 and e.score == "softmax" and e.normed
  return by_logits and "logits" or "nil"
end

local function expert_text(m)
  local e = m.experts
  local gated, score = m.act == "swiglu", e.score == "sigmoid" and "1" or "0"
  local with = {
    UPWIDTH = gated and "2 * c.expert_ffn, parts = 2" or "c.expert_ffn",
    ROUTERBIAS = e.bias
      and '    local choice = g:param(name .. ".router.bias", { expert }, { init = "zeros" })\n' or "",
    BALANCED = e.sinkhorn and BALANCED or "", BIASARG = choice(e),
    COUNTED = (e.bias or e.groups) and fill(COUNTED, { SCORE = score }) or "",
    SCORE = score, NORMED = e.normed and "1" or "0",
    GROUPBEST = tostring(e.groups and e.topk // e.topk_group or 0), SCALE = quote.value(e.scale + 0.0),
    EXPERTACT = gated and '    local gate, value = g:split(h, { n = 2 })\n    h = g:silu_mul(gate, value)\n'
      or "    h = " .. act(m, "h") .. "\n",
    SHARED = e.shared and '    y = g:add(y, mlp(x, name .. ".shared", c.shared_ffn))\n' or "",
  }
  return fill(EXPERTS, with)
end

-- Whether layer i is one of these, as Lua: of a row from the first one on, or of a set.
local function is_one_of(list)
  local first = true
  for i, layer in ipairs(list) do first = first and layer == i - 1 end
  if first then return "i < " .. #list end
  local set = {}
  for i, layer in ipairs(list) do set[i] = string.format("[%d] = true", layer) end
  return string.format("({ %s })[i]", table.concat(set, ", "))
end

-- Which layers see a window.
local function window_text(m)
  if not m.window then return "" end
  if #m.window.full == 0 then return ", window = c.window" end
  local sees_all = string.gsub(is_one_of(m.window.full), "^i.*", "(%0)")
  return ", window = not " .. sees_all .. " and c.window or nil"
end

-- Attention that differs from layer to layer is told which one it is in.
local function layer_argument(m) return m.window and #m.window.full > 0 and ", i" or "" end

local function layer_text(m)
  local dense = m.experts and m.experts.dense or {}
  return fill(fill_drops(m.experts and MOE_LAYER or LAYER, m), { ILAYER = layer_argument(m),
    DENSE = #dense > 0 and fill(fill_drops(DENSE, m), { ISDENSE = is_one_of(dense) }) or "" })
end

local function body(m)
  local bias, out = m.bias and ", { bias = true }" or "", m.bias and ", bias = true" or ""
  local qkv = (m.bias or m.qkv_bias) and ", { bias = true }" or ""
  local dense = not m.experts or #m.experts.dense > 0 or m.experts.shared
  local text = {
    "-- The model that the arguments describe; none of weft's own is the same.",
    "local function model(g, c)",
    "  local d, hidden = c.head_dim, { \"hidden\", c.hidden }",
    "  local heads, kv_heads = { \"head\", c.heads * d, unit = d }, { \"kv_head\", c.kv_heads * d, unit = d }",
    "  local residual = c.std / math.sqrt(2 * c.layers)",
  }
  if m.position == "rope" then text[#text + 1] = "  local turn = { " .. attributes(m) .. " }" end
  local function add(piece) text[#text + 1] = (string.gsub(piece, "\n$", "")) end
  add(LINEAR)
  add(NORMS[m.norm])
  if m.act == "relu2" then add(SQUARE) end
  if m.drops then add(DROP) end
  add(fill(ATTENTION, { BIAS = qkv, OUTBIAS = out, WINDOW = window_text(m), ILAYER = layer_argument(m), RATE = m.attention_drops and ", rate = c.attention_dropout" or "",
                        QKNORM = m.qk_norm and QK_NORM or "",
                        ROPE = m.position == "rope" and ROPE or "" }))
  if dense then
    add(fill(m.act == "swiglu" and GATED or MLP, { BIAS = bias, OUTBIAS = out,
                                                   ACT = m.act ~= "swiglu" and act(m, "h") or "" }))
  end
  if m.experts then add(expert_text(m)) end
  add(layer_text(m))
  add(func.ends(m))
  text[#text + 1] = "end"
  return text
end

-- Embedding, the row of layers, and the head.
function func.ends(m)
  local loss = m.experts and ", loss" or ""
  local lines = {
    "  local function table_of(name)",
    '    return g:param(name, { { "vocab", c.vocab }, hidden }, { std = c.std })',
    "  end",
    '  local x = g:unit("embed", function()',
    '    local e = g:embedding(g:tokens(), table_of "embed.weight")',
  }
  if m.position == "learned" then
    lines[#lines + 1] = '    local rows = g:param("positions.weight", { { "position", c.positions }, hidden }, '
      .. "{ std = c.std })"
    lines[#lines + 1] = "    e = g:add(e, g:embedding(g:positions(), rows))"
  end
  lines[#lines + 1] = m.drops and "    return drop(e)" or "    return e"
  lines[#lines + 1] = "  end)"
  if m.experts then lines[#lines + 1] = "  local loss" end
  lines[#lines + 1] = "  for i = 0, c.layers - 1 do"
  lines[#lines + 1] = string.format("    x%s = g:layer(i, function() return layer(i, x%s) end)", loss, loss)
  lines[#lines + 1] = "  end"
  lines[#lines + 1] = '  x = g:unit("norm", function() return norm(x, "norm") end)'
  lines[#lines + 1] = '  return g:unit("head", function()'
  lines[#lines + 1] = string.format('    local logits = g:linear(x, table_of "%s", { name = "head" })',
                                    m.tied and "embed.weight" or "head.weight")
  lines[#lines + 1] = m.experts
    and "    local y = g:cross_entropy(logits, g:labels())\n    return loss and g:add(y, loss) or y"
    or "    return g:cross_entropy(logits, g:labels())"
  lines[#lines + 1] = "  end)"
  return table.concat(lines, "\n")
end

-- ---- its config and tp_plan ----

local function config(plan, m, from)
  local e = m.experts
  plan:head("model", "weft.model")
  plan:put("model.#", "model", from)
  local function put(key, value) plan:put("model." .. key, quote.value(value)) end
  put("layers", m.layers)
  put("hidden", m.hidden)
  put("heads", m.heads)
  put("kv_heads", m.kv_heads)
  put("head_dim", m.head_dim)
  if not e or #e.dense > 0 then put("ffn", m.ffn) end
  put("vocab", m.vocab)
  if m.position == "learned" then put("positions", m.max) end
  put("std", m.std)
  put("eps", m.eps)
  if m.act == "gelu" then put("gelu", m.erf and 1 or 0) end
  if m.window then put("window", m.window.tokens) end
  if m.drops then put("hidden_dropout", m.drops) end
  if m.attention_drops then put("attention_dropout", m.attention_drops) end
  if not e then return end
  put("experts", e.n)
  put("topk", e.topk)
  put("expert_ffn", e.width)
  if e.shared then put("shared_ffn", e.shared) end
end

-- How tp cuts each module, as Megatron does: { pattern, style }.
local function tp_plan(m)
  local gated, e = m.act == "swiglu", m.experts
  local styles = { { "embed", "embedding_rowwise" }, { "head", "colwise" } }
  local function add(name, style) styles[#styles + 1] = { "layers.*." .. name, style } end
  for _, name in ipairs { "q", "k", "v" } do add("attention." .. name, "colwise") end
  add("attention.proj", "rowwise")
  local function mlp(name)
    if gated then add(name .. ".gate", "colwise") end
    add(name .. ".up", "colwise")
    add(name .. ".down", "rowwise")
  end
  if not e or #e.dense > 0 then mlp "mlp" end
  if e and e.shared then mlp "mlp.shared" end
  if e then
    add("mlp.experts.up", gated and "packed_colwise" or "colwise")
    add("mlp.experts.down", "rowwise")
  end
  return styles
end

-- Puts the function into plan.before and plan.model; false: it is refused.
function func.put(book, plan, m, from)
  if m.qk_norm and m.norm == "layernorm" then
    book:refuse("qk_layernorm", "weft's LayerNorm is over all of a token, not over each head: --normalization "
                .. "RMSNorm has that")
    return false
  end
  if m.turning ~= 1 and math.floor(m.head_dim * m.turning) % 2 ~= 0 then
    book:refuse("rotary_percent", "the part of a head that turns must be even")
    return false
  end
  if m.experts and m.bias then
    book:assume("model", "experts have no biases; Megatron's have some unless --disable-bias-linear is given")
  end
  plan.before = body(m)
  config(plan, m, from)
  for _, row in ipairs(tp_plan(m)) do plan:entry("tp_plan", row[1], quote.text(row[2])) end
  return true
end

return func
