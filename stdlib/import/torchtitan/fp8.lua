-- fp8.lua - torchtitan's converters that make linears compute in fp8, and the linears that they leave out.
local quote = use "import/quote"

-- Converters by what their names contain, and where their settings are; `head`: whether a file that names no
-- linears leaves the head out, as weft does.
local CONVERTERS = {
  { "float8", { "quantize.linear.float8", "float8" }, { tensorwise = "tensorwise", rowwise = "rowwise" }, "tensorwise" },
  { "mx", { "quantize.linear.mx", "mx" }, { mxfp8 = "mxfp8", mxfp8_cublas = "mxfp8", mxfp8_emulated = "mxfp8" },
    "mxfp8_cublas", head = true },
}

-- One converter of linears; several, of other products or with another recipe are said by left_out.lua.
local function converter_of(book)
  local list = book:value "model.converters"
  list = type(list) == "table" and list or { list }
  if #list ~= 1 or string.find(tostring(list[1]), "grouped") then return nil end
  for _, row in ipairs(CONVERTERS) do
    if string.find(string.lower(tostring(list[1])), row[1], 1, true) then return row end
  end
end

-- ---- linears by torchtitan's names ----

local ATTENTION = {
  { "attention.wq", "self_attn.q_proj" }, { "attention.wk", "self_attn.k_proj" },
  { "attention.wv", "self_attn.v_proj" }, { "attention.wo", "self_attn.o_proj" },
}
local LATENT = {
  { "attention.wkv_a", "self_attn.kv_a_proj_with_mqa" }, { "attention.wkv_b", "self_attn.kv_b_proj" },
  { "attention.wo", "self_attn.o_proj" },
}
local QUERY = { { "attention.wq", "self_attn.q_proj" } }
local LATENT_QUERY = { { "attention.wq_a", "self_attn.q_a_proj" }, { "attention.wq_b", "self_attn.q_b_proj" } }

local function mlp(theirs, ours)
  return { { theirs .. ".w1", ours .. ".gate_proj" }, { theirs .. ".w2", ours .. ".down_proj" },
           { theirs .. ".w3", ours .. ".up_proj" } }
end
local DENSE, SHARED, NONE = mlp("feed_forward", "mlp"), mlp("moe.shared_experts", "mlp.shared_experts"), {}

local function plain(attention, ffn)
  return function() return { attention, ffn } end
end

local function deepseek(config, layer)
  local dense = not config.n_routed_experts or layer < config.first_k_dense_replace
  return { config.q_lora_rank and LATENT_QUERY or QUERY, LATENT,
           dense and DENSE or config.n_shared_experts and config.n_shared_experts ~= 0 and SHARED or NONE }
end

-- What a layer of a model has.
local LAYERS = { llama = plain(ATTENTION, DENSE), qwen3 = plain(ATTENTION, DENSE), qwen3_moe = plain(ATTENTION, NONE),
                 gpt_oss = plain(ATTENTION, NONE), deepseek_v3 = deepseek }

-- All linears of a model, { torchtitan's name, weft's, layer }; nil: it has weft's names there, too.
local function linears_of(book, config)
  local layer_of, n = LAYERS[config[1]], config.num_hidden_layers
  if not layer_of or math.type(n) ~= "integer" then return nil end
  if book:first("hf_transformers.model", "model.hf_model") then return nil end
  local list = { { "output", "lm_head" } }
  for i = 0, n - 1 do
    for _, part in ipairs(layer_of(config, i)) do
      for _, row in ipairs(part) do list[#list + 1] = { string.format("layers.%d.%s", i, row[1]), row[2], i } end
    end
  end
  return list
end

-- weft's patterns of the linears that have `name` anywhere in theirs: a linear of all layers by one pattern.
local function patterns_of(linears, name)
  local all, found, order, list = {}, {}, {}, {}
  for _, row in ipairs(linears) do
    local ours = row[2]
    all[ours] = (all[ours] or 0) + 1
    if string.find(row[1], name, 1, true) then
      if not found[ours] then found[ours], order[#order + 1] = {}, ours end
      table.insert(found[ours], row[3] or false)
    end
  end
  for _, ours in ipairs(order) do
    local whole = #found[ours] == all[ours]
    for _, layer in ipairs(whole and { false } or found[ours]) do
      list[#list + 1] = layer and string.format("layers.%d.%s", layer, ours) or ours
    end
  end
  return list
end

-- ---- what is left out ----

local BY_SIZE = "auto_filter_small_kn"

local function names_of(value)
  if type(value) ~= "string" then return type(value) == "table" and value or {} end
  local list = {}
  for name in string.gmatch(value, "[^,%s]+") do list[#list + 1] = name end
  return list
end

-- Routers are linears there, too: in fp8 unless they are named.
local ROUTER = "moe.router.gate"

local function names_router(names)
  for _, name in ipairs(names) do
    if string.find(ROUTER, tostring(name), 1, true) then return true end
  end
end

-- `names`: of all that is left out. Of linears that torchtitan converts both sizes are multiples of 16.
local function say_of_routers(book, config, names)
  local experts, hidden = config.num_experts or config.num_local_experts or config.n_routed_experts, config.hidden_size
  if math.type(experts) ~= "integer" or experts % 16 ~= 0 or math.type(hidden) ~= "integer" or hidden % 16 ~= 0 then
    return
  end
  for _, name in ipairs(names) do
    if name == BY_SIZE then return end
  end
  if names_router(names) then return end
  book:assume("precision", "products of routers are in f32 here; in torchtitan they are in fp8 where filter_fqns does not "
              .. "name router.gate")
end

-- The patterns of all names, each once, as Lua. A router that is named is out of fp8 here anyway.
local function patterns(book, config, names)
  local linears, texts, has, none = linears_of(book, config), {}, {}, {}
  for _, name in ipairs(names) do
    local list = linears and patterns_of(linears, tostring(name)) or { tostring(name) }
    if #list == 0 and not names_router { name } then none[#none + 1] = quote.shown(name) end
    for _, pattern in ipairs(list) do
      if not has[pattern] then has[pattern], texts[#texts + 1] = true, quote.text(pattern) end
    end
  end
  if #none > 0 then
    book:assume("precision.exclude", table.concat(none, ", ")
                .. ": no linear that would be in fp8 here has it in its name")
  end
  return texts
end

local function put_exclude(book, plan, config, key)
  local leaf, names = book:leaf(key), {}
  for _, name in ipairs(names_of(book:value(key))) do
    if name == BY_SIZE then
      book:cannot(key, BY_SIZE .. " leaves out linears that are too small to be faster in fp8: here they are in fp8, "
                  .. "too")
    else
      names[#names + 1] = name
    end
  end
  if not leaf then return end
  local texts = patterns(book, config, names)
  plan:put("precision.exclude", #texts == 0 and "{}" or "{ " .. table.concat(texts, ", ") .. " }", leaf)
  book:translated(key, "precision.exclude")
end

-- `config`: the model's.
local function put(book, plan, config)
  local row, left_out = converter_of(book), {}
  if not row then return end
  for _, prefix in ipairs(row[2]) do
    local key = prefix .. ".recipe_name"
    local recipe = row[3][book:value(key) or row[4]]
    if not recipe then return end
    if book:leaf(key) then
      plan:put("precision.recipe", quote.text(recipe), book:leaf(key))
      book:translated(key, "precision.recipe")
    end
    put_exclude(book, plan, config, prefix .. ".filter_fqns")
    for _, name in ipairs(names_of(book:value(prefix .. ".filter_fqns"))) do left_out[#left_out + 1] = name end
  end
  say_of_routers(book, config, left_out)
  plan:put("precision.#", quote.text "fp8", book:leaf "model.converters")
  plan:put("precision.recipe", quote.text(row[3][row[4]]), "torchtitan's default")
  if not row.head and not plan:has "precision.exclude" then
    plan:put("precision.exclude", "{}", "torchtitan's default: no linear is left out")
    book:assume("precision.exclude", "the head is in fp8, too, as in versions since April 2025; in those before it is not: "
                .. "exclude = { \"lm_head\" }")
  end
  book:translated("model.converters", "precision")
end

return { put = put }
